"""The postgres sink: rows and marker in one transaction, which is the ledger's if both are in one database."""

from contextlib import closing
from typing import TYPE_CHECKING

import psycopg

from penstock.core.faults import FaultPoint
from penstock.core.model import PipelineName, Publication, Published, Totals
from penstock.sink.postgres.dialect import POSTGRES
from penstock.sink.postgres.load import load
from penstock.sink.postgres.marker_store import PostgresMarkerStore
from penstock.sink.postgres.preparation import (
    content_of,
    is_unnamed,
    name_markers,
    prepare_table,
    readable_marker_store,
    rehearse_anew,
    require_schema_accepted,
)
from penstock.sink.postgres.row_validator import RowValidator
from penstock.sink.postgres.table_schema import lock_and_read_schema, require_fit, require_lasting, statements_of, table_schema_of
from penstock.sink.table.publication import Loaded
from penstock.sink.table.server import ServerSink
from penstock.sink.table.sink import TableSinkArguments
from penstock.sink.table.target import Target
from penstock.spark.schema import arrow_schema
from penstock.sql.postgres.database import LOCK_TIMEOUT_S, Connection, Database
from penstock.sql.postgres.errors import connection_lost
from penstock.sql.postgres.names import split_name

if TYPE_CHECKING:
    from typing_extensions import Unpack

BEGIN = FaultPoint("postgres.begin", "A transaction is opened on the server.")
COMMIT = FaultPoint("postgres.commit", "Rows and marker are committed.")
PREPARE = FaultPoint("postgres.prepare", "Table and marker are created and committed.")


class PostgresSink(ServerSink[Connection]):
    """A `TableSink` that delivers into one table of a PostgreSQL database.

    Waits `lock_timeout_s` for another session's lock, then raises Retryable.
    """

    _database: Database
    _dialect = POSTGRES

    def __init__(self, *, url: str, lock_timeout_s: float = LOCK_TIMEOUT_S, **filling: "Unpack[TableSinkArguments]") -> None:
        super().__init__(**filling, case_counts=True)
        self._schema, _ = split_name(self._target.table)
        self._database = Database(url, application=f"penstock:{self._name}", lock_timeout_s=lock_timeout_s)

    @property
    def home(self) -> str | None:
        return self._database.home

    def publish_within(self, transaction: object, publication: Publication) -> Published:
        """Publish in the ledger's transaction on the same database. If this raises, the ledger rolls back and repeats."""
        if not isinstance(transaction, psycopg.Connection):
            raise TypeError(f"expected a psycopg.Connection, found {type(transaction).__name__}")
        return self._publish_in_ledger(transaction, publication)

    # --- PostgreSQL's part of `ServerSink`

    def _described(self, rows: str) -> str:
        return (
            "one transaction on one connection: binary COPY, through a temporary table if there is a key or a column has "
            f"another type, {rows} "
            f"table {self._target.table} of {self._database.place}; the ledger's own if it has the same URL"
        )

    def _existing_table(self, connection: Connection) -> tuple[str, bool] | None:
        table_schema = table_schema_of(connection, *split_name(self._target.table))
        if table_schema is None:
            return None
        return f"{table_schema.kind} {self._target.table} with {len(table_schema.columns)} columns", table_schema.kind.endswith(
            "table"
        )

    def _prepare_table(self, connection: Connection, pipeline: PipelineName, schema: str) -> RowValidator:
        with PREPARE.around(error=connection_lost, lost=connection_lost):
            self._database.begin(connection)
            validator = prepare_table(
                connection, pipeline=pipeline, sink=self._name, schema=schema, target=self._target, create=self._create
            )
            self._database.commit(connection)
        return validator

    def _require_schema_accepted(self, connection: Connection, pipeline: PipelineName, schema: str) -> None:
        require_schema_accepted(
            connection, pipeline=pipeline, sink=self._name, schema=schema, target=self._target, create=self._create
        )
        if self._target.merge is not None:
            self._database.commit(connection)  # ends the read-only transaction
            self._database.begin(connection)
            rehearse_anew(connection, schema=schema, target=self._target)

    def _marker_store(self, connection: Connection) -> PostgresMarkerStore:
        return PostgresMarkerStore(connection, self._schema, locking=True)

    def _readable_marker_store(self, connection: Connection) -> PostgresMarkerStore | None:
        return readable_marker_store(connection, self._schema)

    def _name_markers(self, connection: Connection) -> None:
        if is_unnamed(connection, self._schema):
            self._database.begin(connection)
            name_markers(connection, self._schema)
            self._database.commit(connection)

    def _begin(self, connection: Connection) -> None:
        with BEGIN.around(error=connection_lost, lost=connection_lost):
            self._database.begin(connection)

    def _load(self, connection: Connection, publication: Publication, target: Target) -> Loaded:
        """Write the rows. First lock the table against ALTER until COMMIT and read its schema again, which decides the casts."""
        schema = arrow_schema(publication.schema)
        table_schema = lock_and_read_schema(connection, statements_of(schema, target))
        require_fit(table_schema, schema, target, decided=True)
        with closing(self._spool.read(publication.staged, pipeline=publication.pipeline)) as rows:
            loaded = load(connection, rows, schema, table_schema, target)
        if table_schema.is_partitioned:
            self._require_lasting_partitions(connection)
        return loaded

    def _require_lasting_partitions(self, connection: Connection) -> None:
        """Check the partitions again: they hold the rows now and cannot be altered. ATTACH PARTITION waits for no writer."""
        table_schema = table_schema_of(connection, *split_name(self._target.table))
        assert table_schema is not None, "it is locked"
        require_lasting(table_schema, self._target.table)

    def _commit(self, connection: Connection) -> None:
        """Commit. After OutcomeUnknown, the next try locks and reads the marker on a new connection."""
        with (
            self._database.unknown_if_cut(f"table {self._target.table!r}", read="the marker"),
            COMMIT.around(error=connection_lost, lost=connection_lost),
        ):
            self._database.commit(connection)

    def _content(self, connection: Connection, schema: str) -> Totals:
        return content_of(connection, arrow_schema(schema), self._target)
