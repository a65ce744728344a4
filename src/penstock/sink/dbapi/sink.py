"""The dbapi sink: rows and marker in one transaction, over any driver of the DB-API 2.0."""

from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.core.faults import FaultPoint
from penstock.core.model import PipelineName, Publication, Totals
from penstock.errors import Conflict, Failed, OutcomeUnknown, PenstockError, PublishFailed, Usage
from penstock.sink.dbapi.database import (
    Database,
    DbapiMarkerStore,
    connection_lost,
    has,
    inserts_of,
    marker_store_of,
    quotes_of,
    reason_of,
)
from penstock.sink.dbapi.driver import Driver, Session
from penstock.sink.dbapi.load import load, scan
from penstock.sink.dbapi.postgres_catalog import has_catalog, require_kept
from penstock.sink.dbapi.preparation import (
    DbapiSettings,
    generated_columns_refused,
    known_to_keep,
    own_tables,
    prepare_table,
    require_columns,
    require_schema_accepted,
)
from penstock.sink.dbapi.row_validator import RowValidator
from penstock.sink.dbapi.statements import BATCH_TABLE, MARKER_TABLE, Sql, TableStatements, is_there
from penstock.sink.dbapi.trial import UNCONSTRAINED
from penstock.sink.dbapi.trial_record import catalog_of, declared_of, read_back
from penstock.sink.table.database_sink import TransactionalSink
from penstock.sink.table.marker import TableMarker
from penstock.sink.table.preparation import settings_of
from penstock.sink.table.publication import Loaded, totals_of
from penstock.sink.table.sink import TableSinkArguments
from penstock.sink.table.target import NotStoredError, Target
from penstock.spark.schema import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Unpack

BEGIN = FaultPoint("dbapi.begin", "A transaction is about to begin.")
COMMIT = FaultPoint("dbapi.commit", "Rows and marker are committed.")
PREPARE = FaultPoint("dbapi.prepare", "Table and marker are made, and the table is tried.")

LONGEST = 100_000


class DbapiSink(TransactionalSink[Session]):
    """Delivers into one table, as described in `TableSink`, but without `upsert`: databases share no statement for it.

    `driver` names the driver's module, whose `connect` is called with the arguments `connect`. `columns`: types for columns that
    are created. `longest`: the most characters or bytes of a value; one of that length is tried once.
    """

    _database: Database

    def __init__(
        self,
        *,
        driver: str,
        connect: Mapping[str, Any],
        columns: Mapping[str, str] | None = None,
        longest: int = LONGEST,
        **filling: "Unpack[TableSinkArguments]",
    ) -> None:
        super().__init__(**filling)
        with settings_of(self._name):
            if self._target.write == "upsert":
                raise Usage("`write: upsert` needs SQL that databases do not share.", remedy="Use append or insert_if_absent.")
            if self._target.table in {MARKER_TABLE, BATCH_TABLE}:
                raise Usage(f"Table {self._target.table!r} is Penstock's own.", remedy="Choose another name for `table:`.")
        self._database = Database(Driver(driver), connect)
        self._columns, self._longest = dict(columns or {}), longest
        self._quotes: tuple[str, str] | None = None
        self._inserts: str | None = None
        self._catalog: Sql | None = None
        self._is_postgres = False
        """Whether the database has PostgreSQL's catalog, which every publication asks."""
        self._tried = set[str]()
        """The combinations of table and rows that are known to work, as `DbapiSettings.shape`."""
        self._counts = False
        """Whether each batch counts the table's rows, because the driver once reported another number than was written."""

    # --- what this sink does its own way

    def _described(self, rows: str) -> str:
        return f"one transaction over {self._database.driver.name}: {rows} table {self._target.table}"

    def _conflict_error(self, conflict: Conflict, *, times: int) -> PublishFailed:
        """Return a final error: the next try sees a key that was inserted meanwhile, so a repeated refusal is permanent."""
        return PublishFailed(
            f"Table {self._target.table!r} refused the rows {times} time{'s' * (times > 1)}: {conflict}.",
            remedy=f"{UNCONSTRAINED}. Then run `penstock recover`, which publishes the batch with the columns that it has, and "
            "start again.",
        )

    def _existing_table(self, connection: Session) -> tuple[str, bool] | None:
        if quotes_of(connection, self._target.table) is None:
            return None
        return f"table {self._target.table}", True

    def _prepare_table(self, connection: Session, pipeline: PipelineName, schema: str) -> RowValidator:
        with PREPARE.around(error=connection_lost, lost=connection_lost):
            return prepare_table(connection, self._wanted(pipeline, schema))

    def _require_schema_accepted(self, connection: Session, pipeline: PipelineName, schema: str) -> None:
        require_schema_accepted(connection, self._wanted(pipeline, schema))

    def _wanted(self, pipeline: PipelineName, schema: str) -> DbapiSettings:
        return DbapiSettings(
            pipeline=pipeline,
            sink=self._name,
            target=self._target,
            schema=schema,
            create=self._create,
            adds_columns=self._schema_changes == "add",
            columns=self._columns,
            longest=self._longest,
        )

    def _marker_store(self, connection: Session) -> DbapiMarkerStore:
        return DbapiMarkerStore(connection, locking=True)

    def _lacks_markers(self) -> bool:
        """Return whether the marker table is missing, not unreadable like all tables: drivers do not say why a query failed."""
        with suppress(PenstockError), self._database.reader() as connection:
            lacks = self._readable_marker_store(connection) is None
            return lacks and self._existing_table(connection) is not None and self._readable_marker_store(connection) is None
        return False

    def _readable_marker_store(self, connection: Session) -> DbapiMarkerStore | None:
        return marker_store_of(connection, locking=False) if has(connection, is_there(MARKER_TABLE)) else None

    def _marker_of_table(self, connection: Session) -> TableMarker | None:
        """Return the table's marker and lock it: publishers wait while the table is compared with it."""
        self._quotes = quotes_of(connection, self._target.table)
        readable = self._readable_marker_store(connection)
        owners = [] if readable is None else readable.owners(self._target.table)
        return marker_store_of(connection, locking=True).read(*owners[0]) if owners else None

    def _shown(self, connection: Session, marker: TableMarker) -> Totals:
        return marker.before if marker.schema is None else self._content(connection, marker.schema)

    def _begin(self, connection: Session) -> None:
        """End the snapshot of earlier statements by a rollback; the driver begins a transaction with the next statement."""
        with BEGIN.around(error=connection_lost, lost=connection_lost):
            connection.rollback()
        if self._quotes is None:
            self._quotes = own_tables(connection)
        if self._inserts is None:
            self._is_postgres = has_catalog(connection, self._named)
            self._inserts, self._catalog = inserts_of(connection), catalog_of(connection)

    def _load(self, connection: Session, publication: Publication, target: Target) -> Loaded:
        assert self._inserts is not None, "a transaction is open"
        statements = replace(self._statements(publication.schema), key=target.key, inserts=self._inserts)
        require_columns(connection, statements, arrow_schema(publication.schema), columns=self._columns, decided=True)
        is_partitioned = self._is_postgres and require_kept(connection, target, self._named)
        with (
            closing(self._spool.read(publication.staged, pipeline=publication.pipeline)) as rows,
            generated_columns_refused(connection, statements),
        ):
            loaded = self._loaded(connection, publication, statements, target, rows)
        if is_partitioned:
            require_kept(connection, target, self._named)  # what holds the rows now cannot be altered before the commit
        if loaded.rows != publication.totals.rows and not self._counts:
            self._counts = True
            raise Conflict(f"the driver says that {loaded.rows} rows were written, expected {publication.totals.rows}")
        return loaded

    def _loaded(
        self,
        connection: Session,
        publication: Publication,
        statements: TableStatements,
        target: Target,
        rows: "Iterator[pa.RecordBatch]",
    ) -> Loaded:
        def load_rows() -> Loaded:
            return load(connection, rows, statements, target, by_count=self._counts)

        if self._is_tried(connection, publication, target):
            return load_rows()
        self._is_recovered = True  # so that the table is tried before the next batch is staged
        return read_back(load_rows, lambda: self._content(connection, publication.schema), publication, target)

    def _is_tried(self, connection: Session, publication: Publication, target: Target) -> bool:
        """Return whether the table is declared as when such rows were tried. After this read, nobody can alter it."""
        declared = declared_of(connection, self._catalog, target.table)
        shape = replace(self._wanted(publication.pipeline, publication.schema), target=target).shape(declared)
        if shape not in self._tried and known_to_keep(connection, publication.pipeline, publication.sink, shape) is not None:
            self._tried.add(shape)
        return shape in self._tried

    def _commit(self, connection: Session) -> None:
        """Commit. A row that is refused only here, by a deferred constraint, is a Conflict like any refused row."""
        driver = self._database.driver
        try:
            with COMMIT.around(error=connection_lost, lost=connection_lost):
                connection.commit()
        except driver.refused as refused:  # the database did answer; the next try reads the marker all the same
            raise Conflict(reason_of(refused)) from refused
        except (driver.error, OSError) as cause:
            raise OutcomeUnknown(  # I12
                f"The COMMIT of table {self._target.table!r} gave no answer: {reason_of(cause)}.",
                remedy="Try again: the marker in the database says whether it happened.",
            ) from cause

    def _content(self, connection: Session, schema: str) -> Totals:
        if self._quotes is None:
            raise NotStoredError("it is gone")
        return totals_of(scan(connection, self._statements(schema).read(), arrow_schema(schema)), self._target.row_digest)

    @property
    def _named(self) -> str:
        """The table's name in SQL, in a transaction."""
        assert self._quotes is not None, "a transaction is open"
        return TableStatements("", self._target.table, (), quotes=self._quotes).name

    def _statements(self, schema: str) -> TableStatements:
        if self._quotes is None:
            raise Failed(f"Sink {self._name!r} has no open transaction.", remedy="Call prepare() first.")
        return TableStatements("", self._target.table, tuple(arrow_schema(schema).names), self._target.key, quotes=self._quotes)
