"""The sqlserver sink: rows and marker in one transaction. Not run against a live server yet: see docs/howto/sqlserver.md."""

from typing import TYPE_CHECKING

import pytds

from penstock.core.faults import FaultPoint
from penstock.core.model import PipelineName
from penstock.errors import Refused
from penstock.sink.sqlserver import statements as sql
from penstock.sink.sqlserver.database import Connect, Connection, Database
from penstock.sink.sqlserver.errors import FORBIDDEN, MADE_MEANWHILE, code_of, connection_lost, reason_of
from penstock.sink.sqlserver.load import load
from penstock.sink.sqlserver.table_schema import TABLES, TableSchema, require_own_table
from penstock.sink.table.dialect import ErrorCodes, FaultPoints
from penstock.sink.table.sink import TableSinkArguments
from penstock.sink.table.sql_sink import SqlSink
from penstock.sql.session import LOCK_TIMEOUT_S

if TYPE_CHECKING:
    from typing_extensions import Unpack

PREPARE = FaultPoint("sqlserver.prepare", "Table and marker are created and committed.")
BEGIN = FaultPoint("sqlserver.begin", "A transaction is opened on the server.")
FENCE = FaultPoint("sqlserver.fence", "The marker's row is locked and read: nobody else publishes until this transaction ends.")
MARK = FaultPoint("sqlserver.mark", "The marker is set to the batch, in the transaction of its rows.")
COMMIT = FaultPoint("sqlserver.commit", "Rows and marker are committed.")


class SqlserverSink(SqlSink[Connection, TableSchema]):
    """Delivers into one table of a database of SQL Server or Azure SQL, as described in `TableSink`.

    Waits `lock_timeout_s` for another session's lock, then raises Retryable. `connect` opens a session, like `pytds.connect`.
    """

    _database: Database
    _tables = TABLES
    _points = FaultPoints.of(
        connection_lost, prepare=PREPARE.around, begin=BEGIN.around, fence=FENCE.around, mark=MARK.around, commit=COMMIT.around
    )
    _codes = ErrorCodes(code_of=code_of, reason_of=reason_of, forbidden=FORBIDDEN, made=MADE_MEANWHILE)
    _own_statements = sql.OwnStatements
    _write = staticmethod(load)

    def __init__(
        self,
        *,
        url: str,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        connect: Connect = pytds.connect,
        **filling: "Unpack[TableSinkArguments]",
    ) -> None:
        super().__init__(**filling)
        self._database = Database(url, application=f"penstock:{self._name}", lock_timeout_s=lock_timeout_s, connect=connect)

    def require_login(self) -> None:
        """Open a session, and close it. Raises Failed if the server refuses it, Retryable if none answers."""
        with self._database.reader():
            pass

    def _described(self, rows: str) -> str:
        return (
            f"one transaction on one connection: bulk load into a temporary table, {rows} table {self._target.table} of "
            f"{self._database.place}"
        )

    def _require_place(self, connection: Connection) -> None:
        if connection.execute(sql.SCHEMA_EXISTS, {"schema": self._schema}).fetchone() is None:
            raise Refused(f"There is no schema {self._schema!r} in the database.", remedy=f"CREATE SCHEMA [{self._schema}].")

    def _require_own_table(self, table_schema: TableSchema, table: str) -> None:
        require_own_table(table_schema, table)

    def _require_schema_accepted(self, connection: Connection, pipeline: PipelineName, schema: str) -> None:
        for table in self._own.creates:
            table_schema = self._table_schema(connection, table)
            if table_schema is not None:
                require_own_table(table_schema, table)
        super()._require_schema_accepted(connection, pipeline, schema)
