"""`OwnSink`, the base class of user-written sinks: it stages, recognises repetitions, verifies and has the fault points."""

import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Generic

from typing_extensions import Self

from penstock.core.faults import FaultPoint
from penstock.core.high_water_mark import HighWaterMark
from penstock.core.model import (
    ONLY_ACCOUNT,
    AccountName,
    Finding,
    PipelineName,
    Publication,
    Published,
    SinkKind,
    SinkName,
    SinkReport,
    Totals,
)
from penstock.errors import Failed, OutcomeUnknown, PenstockError, PublishFailed, Retryable
from penstock.protocols import SinkDecisions
from penstock.sink.own.author import Author, OwnBatch, T, batch_key
from penstock.sink.own.mark import OwnMarkerStore
from penstock.sink.spool import INLINE_LIMIT_BYTES, SpoolRoot, SpoolStager
from penstock.sink.table.preparation import prepare_marker, settings_of
from penstock.sink.table.publication import Loaded, apply, totals_of
from penstock.sink.table.sink import TableSink
from penstock.sink.table.target import NotStoredError, require_distinct_fields
from penstock.sink.table.verification import compare, without_marker
from penstock.spark.schema import arrow_schema
from penstock.support.user_code import raised

if TYPE_CHECKING:
    import pyarrow as pa

PREPARE = FaultPoint("own.prepare", "A user-written sink gets its target ready.")
BEGIN = FaultPoint("own.begin", "A user-written sink begins a transaction.")
ROWS = FaultPoint("own.rows", "A user-written sink writes the rows of a decided batch.")
COMMIT = FaultPoint("own.commit", "A user-written sink commits.")


class OwnSink(TableSink, Author[T], Generic[T]):
    """A sink that adds every batch to one target. Its author writes the methods of `Author`.

    T is what `transaction` yields; only the author's code uses it.

    The class is called with its options from the pipeline file and with `name`, `pipeline` and `spool`, which it passes on:
    `def __init__(self, directory: str, **given): super().__init__(**given)`. All its code runs on the driver, except `row_check`.

    The author makes delivery exactly once, in one of two ways. Either `transaction` holds rows and mark: both become visible
    and durable, or neither does. Or, with `idempotent = True`, writing the rows of one `batch.key` again changes nothing, and
    they are durable before the mark is. The suite in `penstock.testing` shows whether that is so.

    An exception of the author's code is reported with file and line, and publishing is repeated after it. Raise
    `penstock.errors.Failed` where a repetition cannot help.

    In code, an object may be made without `name`, `pipeline` and `spool` and be given to a `Delivery` or to `PipelineSettings`.
    It is then configuration: each run delivers with a copy (`bound`). So open connections when they are needed, not in
    `__init__`.
    """

    def __init__(
        self,
        *,
        name: str | None = None,
        pipeline: str | None = None,
        spool: "SpoolRoot | str | None" = None,
        inline_limit_bytes: int = INLINE_LIMIT_BYTES,
    ) -> None:
        self._inline_limit_bytes = inline_limit_bytes
        if name is None or pipeline is None or spool is None:
            return
        super().__init__(name=SinkName(name), table=name, spool=spool, inline_limit_bytes=inline_limit_bytes)
        self._pipeline = PipelineName(pipeline)

    def bound(self, *, name: str, pipeline: str, spool: "SpoolRoot | str") -> Self:
        """Return a copy of this object that delivers for `pipeline`."""
        sink = copy(self)
        OwnSink.__init__(sink, name=name, pipeline=pipeline, spool=spool, inline_limit_bytes=self._inline_limit_bytes)
        return sink

    # --- the sink that Penstock sees

    @property
    def kind(self) -> SinkKind:
        return SinkKind.IDEMPOTENT if self.idempotent else SinkKind.TRANSACTIONAL

    def _described(self, rows: str) -> str:  # noqa: ARG002 - it says nothing about a user's target
        how = "rows under the batch's own key, then the mark" if self.idempotent else "one transaction: rows and mark"
        return f"{how}, into {self.where} by {type(self).__module__}.{type(self).__qualname__}"

    def check(self) -> Sequence[Finding]:
        subject = f"sink {self._name}"
        try:
            with self._translate_errors(Failed):
                message = f"{self.where} {'is there' if self.exists() else 'will be created'}"
        except PenstockError as error:
            return [Finding(subject=subject, ok=False, message=str(error))]
        return [Finding(subject=subject, ok=True, message=message)]

    def high_water_mark(self, account: AccountName, *, pipeline: PipelineName) -> HighWaterMark | None:
        with self._translate_errors(Failed), self._lock:
            if account != ONLY_ACCOUNT or not self.exists():
                return None
            with self._transaction() as transaction:
                marker = OwnMarkerStore(self, transaction).read(pipeline, self._name)
        return None if marker is None else marker.high_water_mark

    def prepare(self, *, pipeline: PipelineName, schema: str | None) -> None:
        """Create target and mark, or check the existing ones. Raises Usage, Refused, Failed, Retryable."""
        self._spool.prepare(pipeline)
        if schema is None:
            return
        self._prepared_for = pipeline, schema
        rows = arrow_schema(schema)
        with settings_of(self._name):
            require_distinct_fields(rows)
        with self._lock, self._translate_errors(Failed):
            with PREPARE.around():
                self.create(rows)
            with self._transaction() as transaction:
                markers = OwnMarkerStore(self, transaction)
                content = partial(self._content, transaction)
                prepare_marker(markers, pipeline=pipeline, sink=self._name, schema=schema, target=self._target, content=content)

    def stager(self) -> SpoolStager:
        self._begin_staging()
        return self._spool.stager(self.row_check())

    def publish(self, publication: Publication) -> Published:
        """Publish in one transaction unless the mark shows the batch. Raises what `apply` raises, and OutcomeUnknown."""
        with self._fetched(publication), self._lock, self._translate_errors(OutcomeUnknown):
            if self.idempotent:
                self._claim(publication)
            with self._transaction() as transaction:
                markers = OwnMarkerStore(self, transaction)
                since = self._committed
                markers.require(publication.pipeline, self._name)
                published = self._note_applied(
                    apply(markers, publication, self._target, since=since, load=lambda: self._write(transaction, publication))
                )
            self._note(publication)
        self._spool.discard(publication.staged, pipeline=publication.pipeline)
        return published

    def verify(self, decisions: SinkDecisions) -> SinkReport:
        with self._translate_errors(Failed), self._lock:
            if not self.exists():
                return without_marker(decisions, f"There is no {self.where}.")
            with self._transaction() as transaction:
                return compare(
                    OwnMarkerStore(self, transaction).read(self._pipeline, self._name),
                    sink=self._name,
                    table=self._target.table,
                    decisions=decisions,
                    content=lambda marker: self._content(transaction, marker.schema),
                    whole_batches=not self.idempotent,
                )

    # --- steps

    def _claim(self, publication: Publication) -> None:
        """Where rows and mark are not one transaction, write the ledger's identity before the first row (I2)."""
        with self._transaction() as transaction:
            markers = OwnMarkerStore(self, transaction)
            marker = markers.read(publication.pipeline, self._name)
            if marker is not None and marker.ledger_id is None:
                markers.write(replace(marker, ledger_id=publication.ledger_id))

    def _write(self, transaction: T, publication: Publication) -> Loaded:
        given = 0

        def counted(rows: "Generator[pa.RecordBatch, None, None]") -> "Iterator[pa.RecordBatch]":
            nonlocal given
            for batch in rows:
                given += batch.num_rows
                yield batch

        with closing(self._spool.read(publication.staged, pipeline=publication.pipeline)) as rows, ROWS.around():
            batch = OwnBatch(
                key=batch_key(publication),
                rows=counted(rows),
                count=publication.totals.rows,
                schema=arrow_schema(publication.schema),
                batch=publication.batch,
            )
            self.write_rows(transaction, batch)
        if given < batch.count:
            raise PublishFailed(
                f"Sink {self._name!r} read {given} of the {batch.count} rows of {batch.key}.",
                remedy="Let `write_rows` read `batch.rows` to the end; the next start publishes the batch.",
            )
        return Loaded(rows=given, displaced=Totals())

    def _content(self, transaction: T, schema: str | None) -> Totals:
        if schema is None:
            return Totals()
        try:
            return totals_of(iter(self.read_rows(transaction, arrow_schema(schema))), self._target.row_digest)
        except (PenstockError, NotStoredError):
            raise
        except Exception as damage:
            raise NotStoredError(f"reading it raised {raised(damage)}".rstrip(".")) from damage

    @contextmanager
    def _transaction(self) -> Iterator[T]:
        """Yield the author's transaction, and end it. Exceptions propagate even if the author's code suppresses them."""
        manager = self.transaction()
        is_open = False
        try:
            with BEGIN.around():
                transaction = manager.__enter__()
                is_open = True
            yield transaction
            with COMMIT.around():
                is_open = False
                manager.__exit__(None, None, None)
        except BaseException:
            if is_open:
                manager.__exit__(*sys.exc_info())
            raise

    @contextmanager
    def _translate_errors(self, kind: type[PenstockError]) -> Iterator[None]:
        """Raise exceptions of the author's code as `kind`: after one, only the mark tells what happened.

        Those that say that a target does not answer are raised as a Retryable also where `kind` is none.
        """
        try:
            yield
        except (PenstockError, NotStoredError):
            raise
        except Exception as cause:
            is_away = isinstance(cause, ConnectionError | TimeoutError) and not issubclass(kind, Retryable)
            raise (Retryable if is_away else kind)(
                f"Sink {self._name!r} raised {raised(cause)}",
                remedy="Correct the sink's code and start again: the next start publishes what was decided.",
            ) from cause
