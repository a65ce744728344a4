"""The records of a batch that cannot be decoded, read once more by their offsets, for the quarantine.

They bypass the transform: what it does, and which state it keeps, has nothing to do with them. Both passes decode by the same
schemas. Only one verdict can change between the passes: that the registry does not know a schema. So the records for the
quarantine are found first. When the rows are staged, the registry is asked again for the schemas that it did not know: as it
forgets none, it has not known them at any moment in between.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.core.bad_record import PACKED, SCHEMA, UNKNOWN
from penstock.core.kafka_offset import positions_in
from penstock.core.model import BatchId, Generation, OffsetRange, RowDigest, SourceName, Staged
from penstock.errors import Refused, Retryable, StageFailed
from penstock.protocols import Sink
from penstock.source.kafka.options import reader_options
from penstock.spec.account import Quarantine
from penstock.spec.pipeline import DeliverySettings, PipelineSettings, quarantined
from penstock.spec.source import Source
from penstock.stage.spark_failure import from_spark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from penstock.registry.decoding import DecodePass

_EARLIEST = -2
_OF_STREAMS = frozenset({
    "subscribe", "subscribepattern", "assign", "startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp",
    "startingoffsetsbytimestampstrategy", "maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay", "includeheaders",
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRecords:
    """The undecodable records of one batch, with the column UNKNOWN. `offsets` counts what the batch reads of their sources."""

    rows: "pa.Table"
    offsets: int

    @property
    def kept(self) -> "pa.Table":
        """The rows for the quarantine, without the column UNKNOWN."""
        return self.rows.drop_columns([UNKNOWN])


class Quarantining:
    """The sources whose undecodable records go into the quarantine."""

    def __init__(
        self, settings: Quarantine, sources: Mapping[SourceName, Source], passes: "Mapping[SourceName, DecodePass]"
    ) -> None:
        self._settings = settings
        self._sources = sources
        self._passes = passes

    def found(self, spark: "SparkSession", ranges: Sequence[OffsetRange], *, decided: int | None = None) -> BadRecords:
        """Return the bad records between these offsets.

        Raises StageFailed if they are too many, Refused if a source with a quarantine is not read once, and what the tasks raise.
        A batch that was `decided` with so many passed the limits of then: today's do not apply, but tasks stop beyond that count.
        """
        from penstock.registry.decoding import unpacked

        require_read_once(self._sources, [each.source for each in ranges])
        ours = [each for each in ranges if each.source in self._sources]
        at_most = self._settings.max_rows if decided is None else decided
        rows = unpacked(packed for each in ours for packed in self._read(spark, each, at_most=at_most))
        bad = BadRecords(rows=rows, offsets=sum(_offsets_in(each) for each in ours))
        if decided is None:
            self._require_few(bad)
        return bad

    def require_still_bad(self, bad: BadRecords) -> None:
        """Raise Retryable if the registry now knows a schema that it did not know when `bad` were found."""
        from penstock.registry.client import Registry, SchemaUnknown

        unknown = bad.rows.filter(bad.rows[UNKNOWN])
        named = zip(unknown["source"].to_pylist(), unknown["schema_id"].to_pylist(), strict=True)
        for source, schema_id in dict.fromkeys(named):
            try:
                Registry(self._passes[SourceName(source)].place).by_id(schema_id)
            except SchemaUnknown:
                continue
            raise Retryable(
                f"The schema registry of source {source!r} knows the schema with id {schema_id} since the batch was read.",
                remedy="Start again: the batch is read anew.",
            )

    def _read(self, spark: "SparkSession", each: OffsetRange, *, at_most: int) -> Sequence[bytes]:
        from penstock.registry.decoding import QuarantinePass

        frame = _between(spark, self._sources[each.source], each)
        if frame is None:
            return []
        one = QuarantinePass(decode=self._passes[each.source], at_most=at_most)
        try:
            return [bytes(row[PACKED]) for row in frame.mapInArrow(one, f"{PACKED} binary").collect()]
        except Exception as cause:
            raise from_spark(cause) from cause

    def _require_few(self, bad: BadRecords) -> None:
        found = bad.rows.num_rows
        settings = self._settings
        if found > settings.max_rows:
            raise _too_many(bad, f"more than {settings.max_rows} records", f"max_rows: {settings.max_rows}")
        if found > settings.max_share * max(bad.offsets, 1):
            raise _too_many(bad, f"{found} records", f"max_share: {settings.max_share}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedQuarantine:
    """The staged contribution of a batch to the quarantine."""

    pieces: tuple[Staged, ...] = ()
    bad: BadRecords | None = None
    quarantining: Quarantining | None = None
    requests: int | None = None

    def require_still_bad(self) -> None:
        """Raise Retryable if a record of the batch could be decoded since. Called when the batch's rows are staged, too."""
        if self.quarantining is not None and self.bad is not None:
            self.quarantining.require_still_bad(self.bad)

    def requests_with(self, others: int | None) -> int | None:
        """Return the requests of both passes together, None if neither is known."""
        known = [requests for requests in (self.requests, others) if requests is not None]
        return sum(known) if known else None


def stage_quarantine(
    bad: BadRecords,
    quarantining: Quarantining,
    *,
    sinks: Sequence[Sink],
    generation: Generation,
    batch_id: BatchId,
    row_digest: RowDigest,
) -> StagedQuarantine:
    """Stage `bad` for the quarantine, which is all of `sinks`."""
    from penstock.stage.batch import stage_rows

    if not bad.rows.num_rows:
        return StagedQuarantine()
    staged = stage_rows(bad.kept, schema=SCHEMA, sinks=sinks, generation=generation, batch_id=batch_id, row_digest=row_digest)
    return StagedQuarantine(pieces=staged.pieces, bad=bad, quarantining=quarantining, requests=staged.requests)


def quarantining_of(settings: DeliverySettings, passes: "Mapping[SourceName, DecodePass]") -> Quarantining | None:
    """Return the sources with a quarantine, by the `passes` that the query decodes with; None if there are none."""
    if not isinstance(settings, PipelineSettings) or settings.quarantine is None:
        return None
    ours = {SourceName(name): settings.sources[name] for name in quarantined(settings) if name in passes}
    return Quarantining(settings.quarantine, ours, passes) if ours else None


def require_read_once(names: Iterable[str], sources: Sequence[SourceName]) -> None:
    """Raise Refused unless each of `names`, which have a quarantine, is one of the query's `sources` and Spark reads it once.

    A second scan (`name#2` in `penstock.transform.plan.source_order`) has its own offsets: its bad records would be in no sink.
    """
    for name in names:
        if name not in sources:
            read = ", ".join(sources) or "nothing"
            what, remedy = f"the query reads {read}, and no {name!r}", "Read it in the transform by its name"
        elif any(each.startswith(f"{name}#") for each in sources):
            what, remedy = "the query reads it more than once", "Read it once in the transform"
        else:
            continue
        raise Refused(
            f"Source {name!r} has `undecodable: quarantine`, but {what}: records that cannot be decoded could be lost.",
            remedy=f"{remedy}, or take `undecodable: quarantine` away.",
        )


def _too_many(bad: BadRecords, found: str, limit: str) -> StageFailed:
    [first] = bad.rows.slice(0, 1).to_pylist()
    return StageFailed(
        f"Of {bad.offsets} offsets of the batch {found} cannot be decoded, which `quarantine: {{{limit}}}` does not allow. The "
        f"first is at offset {first['offset']} of partition {first['partition']} of topic {first['topic']!r}: {first['error']}.",
        remedy="Nothing of the batch was decided. Correct `decode`, or what writes such records, or allow more.",
    )


def _between(spark: "SparkSession", source: Source, each: OffsetRange) -> "DataFrame | None":
    """Return the records between two offsets as a table, None if there can be none."""
    starts, ends = _positions(each)
    if not ends or starts == ends:
        return None
    options: dict[str, Any] = {name: value for name, value in reader_options(source).items() if name.lower() not in _OF_STREAMS}
    options["assign"] = json.dumps({topic: sorted(parts) for topic, parts in ends.items()})
    options |= {"startingOffsets": json.dumps(starts), "endingOffsets": json.dumps(ends), "includeHeaders": "true"}
    return spark.read.format("kafka").options(**options).load()


def _positions(each: OffsetRange) -> tuple[dict[str, dict[int, int]], dict[str, dict[int, int]]]:
    """Return the starts and ends of all partitions that have an end. A partition added since starts with its first record."""
    starts, ends = positions_in(each.start), positions_in(each.end)
    begun = {topic: {number: starts.get(topic, {}).get(number, _EARLIEST) for number in parts} for topic, parts in ends.items()}
    return begun, {topic: dict(parts) for topic, parts in ends.items()}


def _offsets_in(each: OffsetRange) -> int:
    starts, ends = _positions(each)
    return sum(end - max(starts[topic][number], 0) for topic, parts in ends.items() for number, end in parts.items())
