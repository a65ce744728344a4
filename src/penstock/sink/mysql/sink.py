"""The mysql sink: rows and marker in one transaction, which is the ledger's if both are in one database."""

from contextlib import closing
from typing import TYPE_CHECKING

from penstock.core.faults import FaultPoint
from penstock.core.model import PipelineName, Publication, Published, Totals
from penstock.sink.mysql.decided_rows import required
from penstock.sink.mysql.dialect import MYSQL
from penstock.sink.mysql.load import load
from penstock.sink.mysql.marker_store import MysqlMarkerStore
from penstock.sink.mysql.preparation import (
    content_of,
    name_markers,
    prepare_table,
    readable_marker_store,
    require_schema_accepted,
)
from penstock.sink.mysql.row_validator import RowValidator
from penstock.sink.mysql.table_schema import require_fit, statements_of, table_schema_of
from penstock.sink.table.publication import Loaded
from penstock.sink.table.server import ServerSink
from penstock.sink.table.sink import TableSinkArguments
from penstock.sink.table.target import Target
from penstock.spark.schema import arrow_schema
from penstock.sql.mysql.connection import Connection
from penstock.sql.mysql.database import LOCK_TIMEOUT_S, Database
from penstock.sql.mysql.errors import connection_lost
from penstock.sql.mysql.names import require_table_name

if TYPE_CHECKING:
    from typing_extensions import Unpack

BEGIN = FaultPoint("mysql.begin", "A transaction is opened on the server.")
COMMIT = FaultPoint("mysql.commit", "Rows and marker are committed.")
PREPARE = FaultPoint("mysql.prepare", "Table and marker are created and committed.")


class MysqlSink(ServerSink[Connection]):
    """A `TableSink` that delivers into one table of a MySQL or MariaDB database.

    Waits `lock_timeout_s` (whole seconds) for another session's lock, then raises Retryable.
    """

    _database: Database
    _dialect = MYSQL

    def __init__(self, *, url: str, lock_timeout_s: float = LOCK_TIMEOUT_S, **filling: "Unpack[TableSinkArguments]") -> None:
        super().__init__(**filling, case_counts=True)
        require_table_name(self._target.table)
        self._database = Database(url, application=f"penstock:{self._name}", lock_timeout_s=lock_timeout_s)

    @property
    def home(self) -> str | None:
        return self._database.home

    def publish_within(self, transaction: object, publication: Publication) -> Published:
        """Publish in the ledger's transaction on the same database. If this raises, the ledger rolls back and repeats."""
        if not isinstance(transaction, Connection):
            raise TypeError(f"expected a connection of Penstock's own, found {type(transaction).__name__}")
        return self._publish_in_ledger(transaction, publication)

    # --- MySQL's part of `ServerSink`

    def _described(self, rows: str) -> str:
        return (
            "one transaction on one connection: LOAD DATA LOCAL, or INSERT where the server has local_infile off, "
            f"through a temporary table unless LOAD appends, {rows} table {self._target.table} of {self._database.place}; "
            "the ledger's own if it has the same URL"
        )

    def _existing_table(self, connection: Connection) -> tuple[str, bool] | None:
        table_schema = table_schema_of(connection, self._target.table)
        if table_schema is None:
            return None
        slowly = "" if self._database.server.loads else " (rows go there by INSERT, since the server has local_infile off)"
        return (
            f"{table_schema.kind} {self._target.table} with {len(table_schema.columns)} columns{slowly}",
            table_schema.kind.startswith("table"),
        )

    def _prepare_table(self, connection: Connection, pipeline: PipelineName, schema: str) -> RowValidator:
        with PREPARE.around(error=connection_lost, lost=connection_lost):
            return prepare_table(
                connection,
                server=self._database.server,
                pipeline=pipeline,
                sink=self._name,
                schema=schema,
                target=self._target,
                create=self._create,
            )

    def _require_schema_accepted(self, connection: Connection, pipeline: PipelineName, schema: str) -> None:
        require_schema_accepted(
            connection,
            server=self._database.server,
            pipeline=pipeline,
            sink=self._name,
            schema=schema,
            target=self._target,
            create=self._create,
        )

    def _marker_store(self, connection: Connection) -> MysqlMarkerStore:
        return MysqlMarkerStore(connection, locking=True)

    def _readable_marker_store(self, connection: Connection) -> MysqlMarkerStore | None:
        return readable_marker_store(connection)

    def _name_markers(self, connection: Connection) -> None:
        name_markers(connection)

    def _begin(self, connection: Connection) -> None:
        with BEGIN.around(error=connection_lost, lost=connection_lost):
            self._database.begin(connection)

    def _load(self, connection: Connection, publication: Publication, target: Target) -> Loaded:
        """Write the rows. First lock the table against ALTER until COMMIT and read again what its columns store."""
        schema = arrow_schema(publication.schema)
        connection.execute(statements_of(schema, target).hold())
        table_schema = table_schema_of(connection, target.table)
        assert table_schema is not None, "it is held"
        require_fit(table_schema, schema, target, self._database.server, decided=True)
        server = self._database.server
        with closing(self._spool.read(publication.staged, pipeline=publication.pipeline)) as rows:
            return load(
                connection,
                required(rows, table_schema, schema, target, server),
                schema,
                table_schema=table_schema,
                target=target,
                server=server,
            )

    def _commit(self, connection: Connection) -> None:
        """Commit. After OutcomeUnknown, the next try locks and reads the marker on a new connection."""
        with (
            self._database.unknown_if_cut(f"table {self._target.table!r}", read="the marker"),
            COMMIT.around(error=connection_lost, lost=connection_lost),
        ):
            self._database.commit(connection)

    def _content(self, connection: Connection, schema: str) -> Totals:
        return content_of(connection, arrow_schema(schema), self._target)
