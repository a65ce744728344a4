"""The postgres sink: rows and marker in one transaction, and in the ledger's own where both are in one database."""

from collections.abc import Mapping, Sequence
from contextlib import closing

import psycopg

from penstock.errors import Conflict
from penstock.faults import FaultPoint
from penstock.model import PipelineName, Publication, Published, SinkName, Totals
from penstock.postgres.database import LOCK_TIMEOUT_S, Connection, Database
from penstock.postgres.names import split_name
from penstock.postgres.trouble import cut_off
from penstock.sink.postgres import statements as sql
from penstock.sink.postgres.admission import Admission
from penstock.sink.postgres.marks import PostgresMarks
from penstock.sink.postgres.move import move
from penstock.sink.postgres.preparation import content_of, prepare_table, require_admitted
from penstock.sink.postgres.shape import require_fit, shape_of, statements_of
from penstock.sink.spool import INLINE_LIMIT_BYTES, Spool, SpoolRoot
from penstock.sink.table.publication import Moved
from penstock.sink.table.server import ServerSink
from penstock.sink.table.target import BY_KEY, Target, require_write
from penstock.sparkschema import arrow_schema

BEGIN = FaultPoint("postgres.begin", "A transaction is opened on the server.")
COMMIT = FaultPoint("postgres.commit", "Rows and marker are committed.")
PREPARE = FaultPoint("postgres.prepare", "Table and marker are created and committed.")


class PostgresSink(ServerSink[Connection]):
    """Delivers into one table of a PostgreSQL database.

    `write` is `append`, `upsert` (a row replaces the one with its key), `insert_if_absent` (a row is skipped if its key is there)
    or `replace` (each batch is the whole table). Several rows of one batch with one key count in their frozen order, pieces as
    decided and rows as written: `upsert` keeps the last, `insert_if_absent` the first, at every repetition the same. Spark
    promises no order between partitions, so aggregate by the key first where it matters.

    Safe to use from several threads; waits `lock_timeout_s` for another session's lock, then raises Retryable.
    """

    def __init__(
        self,
        *,
        name: SinkName,
        url: str,
        table: str,
        spool: "SpoolRoot | str",
        write: str = "append",
        key: Sequence[str] = (),
        create: bool = True,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        inline_limit_bytes: int = INLINE_LIMIT_BYTES,
    ) -> None:
        require_write(write, key)
        self._schema, _ = split_name(table)
        self._database = Database(url, application=f"penstock:{name}", lock_timeout_s=lock_timeout_s)
        super().__init__(
            name=name,
            spool=Spool(root=spool, sink=name, inline_limit_bytes=inline_limit_bytes),
            database=self._database,
            target=Target(table=table, write=write, key=tuple(key) if write in BY_KEY else (), case_counts=True),
            create=create,
        )

    @property
    def home(self) -> str | None:
        """As `Database.home`, which is also that of a ledger there."""
        return self._database.home

    def describe(self) -> Mapping[str, str]:
        """For `penstock explain`."""
        how = self._target.write + (f" by {', '.join(self._target.key)}" if self._target.key else "")
        return {
            "stage": f"inline in the decision up to {self._spool.inline_limit_bytes} bytes a task, "
            f"else Arrow files in {self._spool.root.url}",
            "publish": f"one transaction on one connection: binary COPY into a temporary table, rows ({how}) and marker into "
            f"table {self._target.table} of {self._database.place}; the ledger's own if it has the same URL",
        }

    def publish_within(self, transaction: object, publication: Publication) -> Published:
        """As `publish`, in the ledger's transaction on the same database; the ledger rolls back what raised, and repeats."""
        if not isinstance(transaction, psycopg.Connection):
            raise TypeError(f"expected a psycopg.Connection, found {type(transaction).__name__}")
        with self._lock:
            try:
                with self._database.told(runs_again=True):
                    return self._apply(transaction, publication)
            except Conflict as conflict:
                self._count(conflict)
                raise self._in_the_way(conflict, times=1) from conflict

    # --- what is PostgreSQL's own

    def _look(self, connection: Connection) -> tuple[str, bool] | None:
        shape = shape_of(connection, *split_name(self._target.table))
        if shape is None:
            return None
        return f"{shape.kind} {self._target.table} with {len(shape.columns)} columns", shape.kind.endswith("table")

    def _prepare_table(self, connection: Connection, pipeline: PipelineName, schema: str) -> Admission:
        with PREPARE.around(error=cut_off, lost=cut_off):
            self._database.begin(connection)
            admission = prepare_table(
                connection, pipeline=pipeline, sink=self._name, schema=schema, target=self._target, create=self._create
            )
            self._database.commit(connection)
        return admission

    def _require_admitted(self, connection: Connection, pipeline: PipelineName, schema: str) -> None:
        require_admitted(connection, pipeline=pipeline, sink=self._name, schema=schema, target=self._target, create=self._create)

    def _marks(self, connection: Connection) -> PostgresMarks:
        return PostgresMarks(connection, self._schema, locking=True)

    def _readable_marks(self, connection: Connection) -> PostgresMarks | None:
        if shape_of(connection, self._schema, sql.MARKER_TABLE) is None:
            return None
        return PostgresMarks(connection, self._schema, locking=False)

    def _begin(self, connection: Connection) -> None:
        with BEGIN.around(error=cut_off, lost=cut_off):
            self._database.begin(connection)

    def _move(self, connection: Connection, publication: Publication) -> Moved:
        """The table is looked at once more, and cannot be altered until the end: its types say how rows are cast."""
        schema = arrow_schema(publication.schema)
        connection.execute(statements_of(schema, self._target).lock())
        shape = shape_of(connection, *split_name(self._target.table))
        assert shape is not None, "it is locked"
        require_fit(shape, schema, self._target)
        with closing(self._spool.read(publication.staged, pipeline=publication.pipeline)) as rows:
            return move(connection, rows, schema, shape, self._target)

    def _commit(self, connection: Connection) -> None:
        """After an error nobody knows whether it happened: the next try locks the marker on a new connection, and reads it."""
        with (
            self._database.unknown_if_cut(f"table {self._target.table!r}", read="the marker"),
            COMMIT.around(error=cut_off, lost=cut_off),
        ):
            self._database.commit(connection)

    def _content(self, connection: Connection, schema: str) -> Totals:
        return content_of(connection, arrow_schema(schema), self._target)
