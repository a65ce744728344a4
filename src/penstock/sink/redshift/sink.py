"""The redshift sink: rows and marker in one transaction. Not run against a live cluster yet: see docs/howto/redshift.md."""

import pyarrow as pa

from penstock.core.faults import FaultPoint
from penstock.errors import Refused
from penstock.sink.redshift import statements as sql
from penstock.sink.redshift.database import Connection, Database
from penstock.sink.redshift.errors import FORBIDDEN, MADE_MEANWHILE, code_of, connection_lost, reason_of
from penstock.sink.redshift.load import load
from penstock.sink.redshift.storage import MOST_TEXT_BYTES
from penstock.sink.redshift.table_schema import TABLES, TableSchema
from penstock.sink.table.dialect import ErrorCodes, FaultPoints
from penstock.sink.table.served import ServedSink

PREPARE = FaultPoint("redshift.prepare", "Table and marker are created and committed.")
BEGIN = FaultPoint("redshift.begin", "A transaction is opened on the cluster.")
FENCE = FaultPoint("redshift.fence", "The fence is locked: nobody else publishes into this schema until this transaction ends.")
MARK = FaultPoint("redshift.mark", "The marker is set to the batch, in the transaction of its rows.")
COMMIT = FaultPoint("redshift.commit", "Rows and marker are committed.")


class RedshiftSink(ServedSink[Connection, TableSchema]):
    """Delivers into one table of a Redshift database, as described in `TableSink`.

    Waits `lock_timeout_s` for another publisher into the same schema, then raises Retryable.
    """

    _database_type = Database
    _tables = TABLES
    _points = FaultPoints.of(
        connection_lost, prepare=PREPARE.around, begin=BEGIN.around, fence=FENCE.around, mark=MARK.around, commit=COMMIT.around
    )
    _codes = ErrorCodes(code_of=code_of, reason_of=reason_of, forbidden=frozenset({FORBIDDEN}), made=MADE_MEANWHILE)
    _own_statements = sql.OwnStatements
    _write = staticmethod(load)

    def _described(self, rows: str) -> str:
        return (
            f"one transaction on one connection: INSERT of many rows into a temporary table, {rows} table {self._target.table} "
            f"of {self._database.place}"
        )

    def _require_place(self, connection: Connection) -> None:
        if connection.execute(sql.SCHEMA_EXISTS, {"schema": self._schema}).fetchone() is None:
            raise Refused(f"There is no schema {self._schema!r} in the database.", remedy=f'CREATE SCHEMA "{self._schema}".')

    def _storable(self, connection: Connection, schema: str) -> "pa.Schema":
        rows = super()._storable(connection, schema)
        if len(schema.encode()) > MOST_TEXT_BYTES:
            raise Refused(
                f"The rows of sink {self._name!r} have a schema of {len(schema.encode())} bytes, and a marker in Redshift takes "
                f"{MOST_TEXT_BYTES}.",
                remedy="Select fewer columns in the transform.",
            )
        return rows
