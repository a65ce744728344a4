"""The common part of all sinks that fill one table of a database: settings, staging in the spool, and its pieces."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from threading import RLock
from typing import ClassVar, TypedDict

from penstock.core.high_water_mark import HighWaterMark
from penstock.core.model import ONLY_ACCOUNT, AccountName, PipelineName, Publication, Published, RowDigest, SinkKind, SinkName
from penstock.errors import Failed, StagedDataLost
from penstock.sink.spool import INLINE_LIMIT_BYTES, Spool, SpooledSink, SpoolRoot, SpoolStager
from penstock.sink.spool.deletes import DeletesByKey
from penstock.sink.spool.writer import RowCheck
from penstock.sink.table.compared_load import described_write, require_compared, require_not_widened
from penstock.sink.table.history import HISTORY, VALID_FROM
from penstock.sink.table.marker import NOTHING_YET
from penstock.sink.table.preparation import settings_of
from penstock.sink.table.publication import changes_table, decided_as
from penstock.sink.table.script import Syntax
from penstock.sink.table.sequence import require_sequence
from penstock.sink.table.target import BY_KEY, MERGE, Target, merge_of, require_write


class _RequiredArguments(TypedDict):
    name: SinkName
    table: str
    spool: "SpoolRoot | str"


class TableSinkArguments(_RequiredArguments, total=False):
    """The constructor arguments that every `TableSink` takes, whatever its database."""

    write: str
    key: Sequence[str]
    create: bool
    inline_limit_bytes: int
    merge: str | None
    schema_changes: str
    deletes: bool
    sequence_by: str | None
    history: bool
    update_when: str | None
    batch_column: str | None


class TableSink(SpooledSink):
    """The common part of a `Sink` that fills one table of a database. Safe to use from several threads.

    `write` is `append`, `upsert` (a row replaces the one with its key), `insert_if_absent` (a row is skipped if its key
    exists), `replace` (each batch is the whole table) or, where the database has a `_syntax`, `merge` (the user's SQL over the
    staged rows). Several rows of one batch with one key count in their frozen order, pieces as decided and rows as written:
    `upsert` keeps the last, `insert_if_absent` the first, the same at every repetition. Spark promises no order between
    partitions, so aggregate by the key first where it matters.

    No transaction is open while pieces are fetched from a store or removed there: that may take longer than a database lets a
    transaction stay idle, and other sessions wait for its locks.

    `deletes`: rows come with the column of `core.deletes`; with `upsert`, one that deletes removes the row with its key.

    `sequence_by`: with `upsert`, the column by which rows with one key are compared: the newest one stays, whether it is there or
    in the batch, and of equally new ones the last.

    `history`: with `upsert`, every version of a row stays, with the time up to which it was valid. `update_when`: with `upsert`,
    a row of the table is replaced only if this condition holds. Both compare rows in the driver, see `compared_load`.

    `schema_changes`: what preparing does if the rows have columns that the table lacks: `fail`, or `add` them to the table; where
    the sink `_widens`, `widen` also gives columns of the table the rows' wider types.

    `batch_column`: with `append`, the column of the table that gets the ledger's position of each batch, to take it back by.

    `case_counts`: whether table names that differ only in case are two names.
    """

    _widens: ClassVar[bool] = False
    """Whether preparing can give columns of the table wider types."""
    _compares: ClassVar[bool] = False
    """Whether publishing can compare rows with the table's: for `history` and `update_when`."""
    _syntax: ClassVar[Syntax | None] = None
    """How the user's SQL of `merge` is parsed, None where the sink has no `write: merge`."""

    def __init__(
        self,
        *,
        name: SinkName,
        table: str,
        spool: "SpoolRoot | str",
        write: str = "append",
        key: Sequence[str] = (),
        create: bool = True,
        inline_limit_bytes: int = INLINE_LIMIT_BYTES,
        merge: str | None = None,
        schema_changes: str = "fail",
        deletes: bool = False,
        sequence_by: str | None = None,
        history: bool = False,
        update_when: str | None = None,
        batch_column: str | None = None,
        case_counts: bool = False,
    ) -> None:
        with settings_of(name):
            require_write(write, key, merges=self._syntax is not None)
            condition = require_compared(write, history=history, update_when=update_when, compares=self._compares)
            if history:
                require_not_widened(schema_changes)
                write, key = HISTORY, (*key, VALID_FROM)
            require_sequence(write, sequence_by, deletes=deletes)
            script = merge_of(write, merge, self._syntax)
        super().__init__(name=name, spool=Spool(root=spool, sink=name, inline_limit_bytes=inline_limit_bytes))
        self._target = Target(
            table=table,
            write=write,
            key=tuple(key) if write in {*BY_KEY, MERGE} else (),
            merge=script,
            case_counts=case_counts,
            deletes=deletes,
            sequence_by=sequence_by,
            update_when=condition,
            batch_column=batch_column,
            widens=self._widens and schema_changes == "widen",
        )
        self._create, self._schema_changes = create, schema_changes
        self._row_validator: RowCheck | None = None
        self._lock = RLock()
        self._committed = NOTHING_YET
        self._prepared_for: tuple[PipelineName, str] | None = None
        self._is_staging, self._is_recovered = False, False

    def use_row_digest(self, row_digest: RowDigest) -> None:
        self._target = replace(self._target, row_digest=row_digest)

    @property
    def kind(self) -> SinkKind:
        return SinkKind.TRANSACTIONAL

    @property
    def exactly_once(self) -> bool:
        return True

    def describe(self) -> Mapping[str, str]:
        how = described_write(self._target)
        if self._target.merge is not None:
            how = f"{MERGE} by {len(self._target.merge.statements)} of your own statements"
        limit = self._spool.inline_limit_bytes
        return {
            "stage": f"in the ledger's entry up to {limit} bytes a task, else Arrow files in {self._spool.root.url}",
            "publish": self._described(f"rows ({how}) and marker into"),
        }

    @abstractmethod
    def _described(self, rows: str) -> str:
        """Describe for people how rows are published. `rows` names rows and marker, for use before the table's name."""

    def stager(self) -> SpoolStager:
        """Return the stager for the tasks: the spool, the row check, and what each piece records. Raise Failed if unprepared."""
        self._begin_staging()
        if self._row_validator is None:
            raise Failed(f"Sink {self._name!r} was not prepared with a schema.", remedy="Call prepare() first.")
        self._target = replace(self._target, has_staged=True)
        stager = replace(self._spool.stager(self._row_validator), note=decided_as(self._target))
        if not self._target.deletes:
            return stager
        key = self._target.filled if self._target.keeps_history else self._target.key
        return replace(stager, deletes=DeletesByKey(key=key, row_digest=self._target.row_digest))

    def _begin_staging(self) -> None:
        """Prepare again if a batch of an earlier run was published after `prepare`, which did not know of it.

        Such a batch may have columns that the rows of this run lack. Raises what `prepare` raises, before anything is staged.
        """
        self._is_staging = True
        if self._is_recovered and self._prepared_for is not None:
            pipeline, schema = self._prepared_for
            self.prepare(pipeline=pipeline, schema=schema)
            self._is_recovered = False

    def _note_applied(self, published: Published) -> Published:
        """Return `published`; remember if it was new and this run has not begun to stage, so that an earlier run decided it."""
        self._is_recovered |= not (published.already or self._is_staging)
        return published

    @abstractmethod
    def prepare(self, *, pipeline: PipelineName, schema: str | None) -> None:
        """Create the table and its marker, or check them."""

    def _note(self, publication: Publication) -> None:
        """Note that this object saw the publication committed."""
        if changes_table(publication, self._target):
            self._committed = max(self._committed, publication.position)

    @abstractmethod
    def high_water_mark(self, account: AccountName, *, pipeline: PipelineName) -> HighWaterMark | None:
        """Return what the sink's marker says."""

    @contextmanager
    def ledger_transaction(self, publication: Publication) -> Iterator[None]:
        """Fetch the pieces; discard them when the body has committed. A driver killed before leaves them to the next start."""
        with self._spool.fetched(publication.staged, pipeline=publication.pipeline):
            yield
        self._spool.discard(publication.staged, pipeline=publication.pipeline)

    @contextmanager
    def _fetched(self, publication: Publication) -> Iterator[None]:
        """Fetch the pieces before the transaction that publishes them; not for a batch that the table shows: they may be gone."""
        staged, pipeline = publication.staged, publication.pipeline
        with ExitStack() as fetched:
            if self._spool.lies_remote(staged, pipeline=pipeline) and not self._shows(publication):
                try:
                    fetched.enter_context(self._spool.fetched(staged, pipeline=pipeline))
                except StagedDataLost:  # unless another driver has published the batch, and removed its pieces
                    if not self._shows(publication):
                        raise
            yield

    def _shows(self, publication: Publication) -> bool:
        mark = self.high_water_mark(ONLY_ACCOUNT, pipeline=publication.pipeline)
        return mark is not None and mark.position >= publication.position
