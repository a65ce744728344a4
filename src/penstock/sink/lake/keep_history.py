"""`KeepHistory`: versions of rows are added to a table, and those that they end are closed, by one commit for each batch.

The versions that the table has of a batch's keys are read from the very snapshot that the commit is made on. What is new or
changed is then merged as an upsert is, by the key of the rows and `valid_from`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa

from penstock.core.faults import FaultPoint
from penstock.core.model import PipelineName, Publication, SinkName, Totals
from penstock.sink.lake.batch_keys import BatchKeys
from penstock.sink.lake.change import Decided
from penstock.sink.lake.log import Change, TableLog, TableSnapshot
from penstock.sink.lake.merge import MergeByKey, Rewritten, require_all
from penstock.sink.lake.table_writer import TableWriter, step_error
from penstock.sink.lake.write_mode import WriteMode
from penstock.sink.table.history import HISTORY, VALID_FROM, Batch, changed_versions, history_changed
from penstock.sink.table.marker import minus
from penstock.spark.schema import arrow_schema

READ = FaultPoint("lakehistory.versions", "Versions of the table with keys of a decided batch are read.")


@dataclass(slots=True, kw_only=True)
class KeepHistory:
    """One publication into a table with history. `spooled` yields the batch's rows; `rows` is Spark's JSON of their schema.

    `decided.publication` has the schema of the table. The batch is in the driver's memory, and so are the table's versions of its
    keys.
    """

    decided: Decided
    rows: str
    spooled: "Callable[[], Iterator[pa.RecordBatch]]"
    writer: TableWriter
    log: TableLog
    _batch: Batch | None = None
    _written: list[Rewritten] = field(default_factory=list)

    def make(self, snapshot: TableSnapshot) -> Change:
        """Write the versions that the batch adds or changes, and the other rows of the files that these are in."""
        self.decided.fitting_columns(snapshot)
        batch = self._read()
        reader = self.decided.reader
        changed = changed_versions(batch, self._versions(snapshot, batch), reader.row_digest)
        totals = sum(map(reader.totals, changed.to_batches()), Totals())
        change = self._merging(changed, totals).make(snapshot)
        assert change.content is not None, "an upsert counts"
        decided = minus(change.content.decided + _plain(self.decided.publication), totals)
        return replace(change, content=replace(change.content, write=HISTORY, decided=decided))

    def is_waiting(self) -> bool:
        """Return False, as `MergeByKey` does."""
        return False

    def settle(self, *, committed: Change | None, seen: TableSnapshot | None, is_settled: bool) -> None:
        nothing = self._merging(pa.table({}), Totals())
        nothing.settle(committed=committed, seen=seen, is_settled=is_settled)

    def _merging(self, changed: "pa.Table", totals: Totals) -> MergeByKey:
        mode = self.decided.mode
        upsert = WriteMode(write="upsert", key=(*mode.key, VALID_FROM), keeps_rows=mode.keeps_rows)
        return MergeByKey(
            decided=replace(self.decided, mode=upsert),
            totals=totals,
            spooled=lambda: iter(changed.to_batches()),
            writer=self.writer,
            log=self.log,
            _written=self._written,
        )

    def _read(self) -> Batch:
        if self._batch is None:
            publication, mode = self.decided.publication, self.decided.mode
            pieces = list(self.spooled())
            schema, position = arrow_schema(self.rows), publication.position
            self._batch = Batch.of(pieces, schema, like=mode, position=position, has_deletes=mode.deletes)
            require_all(len(self._batch.rows), publication, expected=publication.totals.rows)
        return self._batch

    def _versions(self, snapshot: TableSnapshot, batch: Batch) -> "pa.Table":
        """Return the versions of the batch's keys that the snapshot has."""
        schema, reader = arrow_schema(self.decided.publication.schema), self.decided.reader
        keys = BatchKeys.of(batch.earliest().to_batches(), schema, batch.key, last=True)
        found: list[pa.RecordBatch] = []
        for file in snapshot.files(keys.range(snapshot.partition_by)):
            with READ.around(error=step_error, lost=step_error):
                for rows in reader.rows(file):
                    met = keys.found_in([rows]).replaced
                    if len(met):
                        found.append(rows.take(pa.array(met)).cast(schema))
        return pa.Table.from_batches(found, schema)


def _plain(publication: Publication) -> Totals:
    """Return the rows of the batch, with their digest."""
    return Totals(rows=publication.totals.rows, digest=publication.totals.digest)


def require_history_always(
    snapshot: TableSnapshot, mode: WriteMode, *, pipeline: PipelineName, sink: SinkName, title: str
) -> None:
    """Raise Refused if `history` is set or left out for a table that the sink has filled in the other way."""
    content = snapshot.content(pipeline, sink)
    was_kept = content is not None and content.write == HISTORY
    if snapshot.marker(pipeline, sink) is not None and was_kept != mode.keeps_history:
        raise history_changed(f"The {title}", was_kept=was_kept)
