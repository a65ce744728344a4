"""The Cassandra sink: writes the rows of a batch at the batch's permanent time stamp, and then the marker."""

from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.core.faults import FaultPoint
from penstock.core.model import Finding, PipelineName, Publication, Published, RowDigest, SinkKind, Totals
from penstock.errors import Conflict, PublishFailed, Retryable, StagedDataLost
from penstock.sink.cassandra.database import Around, Connection, Database, StepRetry
from penstock.sink.cassandra.duplicate_keys import repeated_in, require_unique, without
from penstock.sink.cassandra.errors import connection_lost
from penstock.sink.cassandra.load import Writer, content_of
from penstock.sink.cassandra.marker_store import CassandraMarkerStore, Replaced
from penstock.sink.cassandra.preparation import create, create_own_tables, name_markers, require_allowed
from penstock.sink.cassandra.row_validator import MAX_ROW_BYTES, RowValidator
from penstock.sink.cassandra.statements import MARKER_TABLE
from penstock.sink.cassandra.storage import storage_of
from penstock.sink.cassandra.table_schema import TableSchema, few_copies, misfit, require_fit, table_schema_of
from penstock.sink.cassandra.target import CassandraTarget, require_storable, target_of
from penstock.sink.spool.writer import RowCheck
from penstock.sink.table.prepared import PreparedSink
from penstock.sink.table.publication import Loaded, apply, decided_target
from penstock.sink.table.sink import TableSinkArguments
from penstock.spark.schema import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Unpack

PREPARE = FaultPoint("cassandra.prepare", "Table and marker are created.")

WAIT_S = 300.0


class CassandraSink(PreparedSink[Connection, TableSchema]):
    """Delivers into one table of Cassandra by keyed writes, whose result does not depend on how often they are repeated.

    `write` is `upsert` (a row replaces the one with its key; of several rows of one batch the last one counts) or `append` (no
    key ever repeats, so nothing is read before it is written). `key` is the whole primary key; `partition_by` its first columns
    that are the partition key, by default the first one. Requests that fail or are not answered are repeated for `wait_s`, then
    PublishFailed is raised; the next start goes on.
    """

    _database: Database

    def __init__(
        self, *, url: str, partition_by: Sequence[str] = (), wait_s: float = WAIT_S, **filling: "Unpack[TableSinkArguments]"
    ) -> None:
        super().__init__(**filling, case_counts=True)
        self._target = self._keyed = target_of(
            table=filling["table"],
            write=filling.get("write", "upsert"),
            key=tuple(filling.get("key", ())),
            partition_by=tuple(partition_by),
        )
        self._database = Database(url, application=f"penstock:{self._name}")
        self._wait_s = wait_s

    def use_row_digest(self, row_digest: RowDigest) -> None:
        self._target = self._keyed = replace(self._keyed, row_digest=row_digest)

    @property
    def kind(self) -> SinkKind:
        """Idempotent: a reader may see a part of a batch, and a repetition changes nothing."""
        return SinkKind.IDEMPOTENT

    def check(self) -> Sequence[Finding]:
        """Check the keyspace and its table, and how many replicas hold what is acknowledged."""
        findings = super().check()
        if not all(finding.ok for finding in findings):
            return findings
        with self._database.reader() as connection:
            few = few_copies(connection)
        return findings if few is None else [*findings, Finding(subject=f"sink {self._name}", ok=True, warns=True, message=few)]

    # --- what is Cassandra's own

    def _described(self, rows: str) -> str:
        return (
            f"concurrent writes at one time stamp a batch: {rows} table {self._target.table} of {self._database.place}; "
            "a reader may see a part of a batch"
        )

    def _existing_table(self, connection: Connection) -> tuple[str, bool] | None:
        table_schema = self._table_schema(connection)
        if table_schema is None:
            return None
        unfit = misfit(table_schema, self._target.table)
        return (
            (f"table {self._target.table} with {len(table_schema.columns)} columns", True)
            if unfit is None
            else (str(unfit), False)
        )

    def _name_markers(self, connection: Connection) -> None:
        name_markers(connection)

    def _prepare_table(self, connection: Connection, pipeline: PipelineName, schema: str) -> RowCheck:
        with PREPARE.around(error=connection_lost, lost=connection_lost):
            self._storable(connection, schema)  # no transaction would undo what wrong settings leave behind
            create_own_tables(connection)
            try:
                return self._prepared(connection, pipeline, schema)
            except Conflict as conflict:
                raise Retryable("Another run made the marker at the same time.", remedy="Try again.") from conflict

    def _table_schema(self, connection: Connection) -> TableSchema | None:
        return table_schema_of(connection, self._target.table)

    def _require_storable(self, connection: Connection, rows: "pa.Schema") -> None:  # noqa: ARG002 - the types say it
        require_storable(rows, self._keyed)

    def _create_table(self, connection: Connection, rows: "pa.Schema") -> None:
        declared = [storage_of(field.type).declared(field.type) for field in rows]
        create(connection, self._keyed.statements(rows).create(declared, self._keyed.partition))

    def _require_fit(self, connection: Connection, table_schema: TableSchema, rows: "pa.Schema") -> None:
        require_fit(table_schema, rows, self._keyed)
        require_allowed(connection, rows, self._keyed)

    def _row_check(self, table_schema: TableSchema, rows: "pa.Schema") -> RowValidator:  # noqa: ARG002 - the key says it
        return RowValidator(
            sink=self._name,
            table=self._keyed.table,
            required=frozenset(self._keyed.key),
            max_row_bytes=MAX_ROW_BYTES,
            key=self._keyed.key,
            lone=self._keyed.partition[0] if len(self._keyed.partition) == 1 else None,
        )

    def _marker_store(self, connection: Connection) -> CassandraMarkerStore:
        return CassandraMarkerStore(connection.execute)

    def _readable_marker_store(self, connection: Connection) -> CassandraMarkerStore | None:
        table_schema = table_schema_of(connection, MARKER_TABLE)
        return None if table_schema is None else CassandraMarkerStore(connection.execute, named=table_schema.is_named)

    def _content(self, connection: Connection, schema: str) -> Totals:
        return content_of(connection, arrow_schema(schema), self._keyed)

    # --- publishing

    def _shows(self, publication: Publication) -> bool:
        """Return whether the marker shows the publication; waits for a cluster that is down."""
        with self._lock:
            mark = self._patience()(lambda connection: self._high_water_mark(connection, publication.pipeline))
        return mark is not None and mark.position >= publication.position

    def _patience(self) -> StepRetry:
        return StepRetry(self._database, wait_s=self._wait_s)

    def _publish_once(self, publication: Publication) -> Published:
        patience = self._patience()

        def execute(
            statement: str, values: Sequence[Any] = (), *, serial: bool = False, around: Around = nullcontext
        ) -> list[tuple[Any, ...]]:
            return patience(lambda connection: connection.execute(statement, values, serial=serial, around=around))

        markers = CassandraMarkerStore(execute)
        target = self._decided(publication)

        def load() -> Loaded:
            return self._load_by(patience, markers, publication, target)

        try:
            published = self._note_applied(apply(markers, publication, target, since=self._committed, load=load))
        except StagedDataLost as lost:  # or published meanwhile by another driver, which then removes it
            if not self._shows(publication):
                raise
            raise Conflict("another driver published the batch first") from lost
        self._note(publication)
        return published

    def _decided(self, publication: Publication) -> CassandraTarget:
        """Return the target as it was decided, except that an append is upserted where the sink says upsert now.

        That is the way out for a batch that holds a key twice. Any other batch leaves the same rows.
        """
        decided = decided_target(publication, self._keyed)
        return replace(decided, write="upsert") if self._keyed.write == "upsert" else decided

    def _load_by(
        self, patience: StepRetry, markers: CassandraMarkerStore, publication: Publication, target: CassandraTarget
    ) -> Loaded:
        """Write the rows, after another check of the table: an alteration since the start would change what it stores."""
        schema = arrow_schema(publication.schema)
        patience(lambda connection: self._require_still_fit(connection, schema, target))
        repeated = repeated_in(lambda: self._rows(publication), target)
        require_unique(repeated, target, publication.batch.batch_id)
        writer = Writer(patience, target, schema)

        def displaced() -> Replaced:
            return Replaced() if target.write == "append" else writer.displaced(without(self._rows(publication), repeated))

        stamp = markers.stamped(publication, displaced=displaced)
        writer.write(without(self._rows(publication), repeated), at_us=stamp.at_us)
        return Loaded(rows=repeated.rows, displaced=stamp.displaced + repeated.totals)

    def _require_still_fit(self, connection: Connection, schema: "pa.Schema", target: CassandraTarget) -> None:
        table_schema = self._table_schema(connection)
        if table_schema is None:
            raise PublishFailed(
                f"Table {self._target.table!r} is gone.",
                remedy="Restore it from a backup and start again: the batch is decided.",
            )
        require_fit(table_schema, schema, target, decided=True)

    def _rows(self, publication: Publication) -> Iterator["pa.RecordBatch"]:
        with closing(self._spool.read(publication.staged, pipeline=publication.pipeline)) as rows:
            yield from rows
