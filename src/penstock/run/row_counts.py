"""The counts of `penstock verify`: what the ledger says of each batch, with what lies in the quarantine."""

from collections import Counter
from collections.abc import Mapping

from penstock.commit.row_counts import AsideRows, RowCounts, brought, count_rows
from penstock.core.bad_record import SCHEMA
from penstock.core.model import BatchId, Entry, Generation, SinkName, SourceName
from penstock.errors import Failed
from penstock.protocols import Ledger
from penstock.run.assembly import DeliveryPlan, quarantine_of
from penstock.sink.concurrent import map_concurrently
from penstock.sink.parquet.table import PublishedFile, Table
from penstock.spec.many_tables import FillsManyTables
from penstock.spec.pipeline import PipelineSettings, with_rules
from penstock.spec.sink import PythonSink

_COUNTED = ["source", "sink", "replayed", "history"]
_NEWEST = 2**62


def row_counts(plan: DeliveryPlan, ledger: Ledger) -> RowCounts | None:
    """Return the counts, None for a pipeline that neither drops rows nor puts any aside. Reads the files of the quarantine."""
    settings, quarantine = plan.settings, quarantine_of(plan)
    if quarantine is None and not (isinstance(settings, PipelineSettings) and with_rules(settings)):
        return None
    found = dict[str, AsideRows]()
    for table in () if quarantine is None else quarantine.tables().values():
        found |= _counted(table)

    def aside_of(entry: Entry) -> AsideRows | None:
        names = brought(entry)
        return _summed([found[name] for name in names]) if all(name in found for name in names) else None

    counted = {SinkName(name) for name, sink in settings.sinks.items() if not _may_lose_rows(sink)}
    return count_rows(ledger.newest_first(), aside_of, counted=counted)


def _may_lose_rows(sink: object) -> bool:
    """Return whether a sink can stage fewer rows than it is given, by its own code or by `unrouted: drop`."""
    return isinstance(sink, PythonSink) or (isinstance(sink, FillsManyTables) and sink.tables is not None)


def _counted(table: Table) -> Mapping[str, AsideRows]:
    files = table.files(Generation(_NEWEST), BatchId(_NEWEST), counted=False)

    def count(file: PublishedFile) -> AsideRows | None:
        try:
            rows = table.read(file, schema=SCHEMA).select(_COUNTED).to_pylist()
        except Failed:  # damaged, foreign or gone by now: the sink's own report names it
            return None
        kept = [row for row in rows if row["replayed"] is None]
        return AsideRows(
            sources=Counter(SourceName(row["source"]) for row in kept if row["source"] is not None),
            sinks=Counter(SinkName(row["sink"]) for row in kept if row["sink"] is not None),
            receipts=len(rows) - len(kept),
            again=sum(row["history"] is not None for row in kept),
        )

    counts = zip((file.name for file in files), map_concurrently(count, files), strict=True)
    return {name: counted for name, counted in counts if counted is not None}


def _summed(parts: list[AsideRows]) -> AsideRows:
    return AsideRows(
        sources=sum((Counter(part.sources) for part in parts), Counter[SourceName]()),
        sinks=sum((Counter(part.sinks) for part in parts), Counter[SinkName]()),
        receipts=sum(part.receipts for part in parts),
        again=sum(part.again for part in parts),
    )
