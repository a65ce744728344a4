"""The Cassandra sink: writes the rows of a batch at the batch's permanent time stamp, and then the marker."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.core.faults import FaultPoint
from penstock.core.model import Finding, PipelineName, Publication, Published, SinkKind
from penstock.core.publish_task import RunTasks
from penstock.errors import Conflict, PublishFailed, Retryable, StagedDataLost
from penstock.sink.cassandra import table_schema as tables
from penstock.sink.cassandra.database import Connection, Database, Row, StepRetry, database_of
from penstock.sink.cassandra.duplicate_keys import repeated_in, require_unique, without
from penstock.sink.cassandra.errors import connection_lost
from penstock.sink.cassandra.in_tasks import TASKS, Part, WriterInTasks, parts_of
from penstock.sink.cassandra.load import BatchWriter, Writer
from penstock.sink.cassandra.marker_store import CassandraMarkerStore, Replaced
from penstock.sink.cassandra.table_schema import TableSchema
from penstock.sink.spool.writer import RowCheck
from penstock.sink.table.dialect import FaultPoints
from penstock.sink.table.marker_store import MARKER_TABLE
from penstock.sink.table.preparation import settings_of
from penstock.sink.table.publication import Loaded, apply, decided_target
from penstock.sink.table.sink import TableSinkArguments
from penstock.sink.table.sql_sink import CatalogSink, has_ledger_id
from penstock.sink.table.target import Target
from penstock.spark.schema import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Unpack

PREPARE = FaultPoint("cassandra.prepare", "Table and marker are created.")

WAIT_S = 300.0


class CassandraSink(CatalogSink[Connection, TableSchema]):
    """Delivers into one table of Cassandra by keyed writes, whose result does not depend on how often they are repeated.

    `write` is `upsert` (a row replaces the one with its key; of several rows of one batch the last one counts) or `append` (no
    key ever repeats, so nothing is read before it is written). `key` is the whole primary key; `partition_by` its first columns
    that are the partition key, by default the first one. Requests that fail or are not answered are repeated for `wait_s`, then
    NotPublishedYet is raised; the next start goes on.
    """

    _database: Database
    _tables = tables.TABLES
    _points = FaultPoints.of(connection_lost, prepare=PREPARE.around)

    def __init__(
        self, *, url: str, partition_by: Sequence[str] = (), wait_s: float = WAIT_S, **filling: "Unpack[TableSinkArguments]"
    ) -> None:
        super().__init__(**filling)
        with settings_of(self._name):
            self._target = tables.target_of(
                table=filling["table"],
                write=filling.get("write", "upsert"),
                key=tuple(filling.get("key", ())),
                partition_by=tuple(partition_by),
                deletes=filling.get("deletes", False),
            )
        self._database = database_of(url, self._name)
        self._url, self._wait_s = url, wait_s
        self._run_tasks: RunTasks | None = None

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
            few = tables.few_copies(connection)
        return findings if few is None else [*findings, Finding(subject=f"sink {self._name}", ok=True, warns=True, message=few)]

    # --- what this sink does its own way

    def _described(self, rows: str) -> str:
        return (
            f"concurrent writes at one time stamp a batch: {rows} table {self._target.table} of {self._database.place}; "
            "a reader may see a part of a batch"
        )

    def _existing_table(self, connection: Connection) -> tuple[str, bool] | None:
        table_schema = self._table_schema(connection)
        unfit = None if table_schema is None else tables.misfit(table_schema, self._target.table)
        return super()._existing_table(connection) if unfit is None else (str(unfit), False)

    def _prepare_table(self, connection: Connection, pipeline: PipelineName, schema: str) -> RowCheck:
        try:
            return super()._prepare_table(connection, pipeline, schema)
        except Conflict as conflict:
            raise Retryable("Another run created the marker at the same time.", remedy="Try again.") from conflict

    def _open_preparation(self, connection: Connection) -> None:
        tables.create_own_tables(connection)

    def _add_ledger_id(self, connection: Connection) -> None:
        tables.add_ledger_id(connection)

    def _marker_store(self, connection: Connection) -> CassandraMarkerStore:
        return CassandraMarkerStore(connection.execute)

    def _readable_marker_store(self, connection: Connection) -> CassandraMarkerStore | None:
        table_schema = self._table_schema(connection, MARKER_TABLE)
        if table_schema is None:
            return None
        return CassandraMarkerStore(connection.execute, has_ledger_id=has_ledger_id(table_schema))

    # --- publishing

    tasks_per_batch = TASKS

    def publish_by(self, run_tasks: RunTasks | None) -> None:
        self._run_tasks = run_tasks

    def _shows(self, publication: Publication) -> bool:
        """Return whether the marker shows the publication; waits for a cluster that is down."""
        with self._lock:
            mark = self._patience()(lambda connection: self._high_water_mark(connection, publication.pipeline))
        return mark is not None and mark.position >= publication.position

    def _patience(self) -> StepRetry:
        return StepRetry(self._database, wait_s=self._wait_s)

    def _publish_once(self, publication: Publication) -> Published:
        patience = self._patience()

        def execute(*given: Any, **named: Any) -> list[Row]:
            return patience(lambda connection: connection.execute(*given, **named))

        markers = CassandraMarkerStore(execute)
        target = self._decided(publication)
        load = partial(self._load_by, patience, markers, publication, target)
        try:
            published = self._note_applied(apply(markers, publication, target, since=self._committed, load=load))
        except StagedDataLost as lost:  # unless another driver has published the batch, and removed its pieces
            if not self._shows(publication):
                raise
            raise Conflict("another driver published the batch first") from lost
        self._note(publication)
        return published

    def _decided(self, publication: Publication) -> Target:
        """Return the target as it was decided, except that an append is upserted where the sink says upsert now.

        That lets a batch that holds a key twice be published. Any other batch leaves the same rows either way.
        """
        decided = decided_target(publication, self._target)
        return replace(decided, write="upsert") if self._target.write == "upsert" else decided

    def _load_by(self, patience: StepRetry, markers: CassandraMarkerStore, publication: Publication, target: Target) -> Loaded:
        """Write the rows, after another check of the table: an alteration since the start would change what it stores."""
        schema = arrow_schema(publication.schema)
        table_schema = patience(lambda connection: self._require_still_fit(connection, schema, target))
        repeated = repeated_in(lambda: self._rows(publication), target)
        require_unique(repeated, target, publication.batch.batch_id)
        dated = tables.dated_columns(table_schema, schema, target)
        writer: BatchWriter = Writer(
            patience, target, lambda: without(self._rows(publication), repeated.numbers), schema=schema, dated=dated
        )
        if self._run_tasks is not None and not publication.is_inline:
            writer = WriterInTasks(
                self._run_tasks,
                [
                    Part(
                        share=share,
                        superseded=superseded,
                        target=target,
                        schema=schema,
                        dated=dated,
                        url=self._url,
                        wait_s=self._wait_s,
                        spool=self._spool.root,
                        claimed=self._spool.claimed,
                    )
                    for share, superseded in parts_of(publication, repeated.numbers)
                ],
            )

        def displaced() -> Replaced:
            return Replaced() if target.write == "append" else writer.displaced()

        hidden_us = patience(lambda connection: tables.dropped_us(connection, target, schema.names))
        stamp = markers.stamped(publication, hidden_us=hidden_us, displaced=displaced)
        deleting = writer.write(at_us=stamp.at_us)
        return Loaded(rows=repeated.rows, displaced=stamp.displaced + repeated.totals + deleting)

    def _require_still_fit(self, connection: Connection, schema: "pa.Schema", target: Target) -> TableSchema:
        table_schema = self._table_schema(connection)
        if table_schema is None:
            raise PublishFailed(
                f"Table {self._target.table!r} is gone.",
                remedy="Restore it from a backup and start again: the batch is decided.",
            )
        self._tables.require_fit(connection, table_schema, schema, target, decided=True)
        return table_schema

    def _rows(self, publication: Publication) -> Iterator["pa.RecordBatch"]:
        with closing(self._spool.read(publication.staged, pipeline=publication.pipeline)) as rows:
            yield from rows
