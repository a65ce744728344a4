"""Records of a Kafka source, read once more by their offsets as a table, for what bypasses the query."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.core.kafka_offset import topic_offsets_in
from penstock.core.model import OffsetRange
from penstock.source.kafka.options import reader_options
from penstock.spec.source import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EARLIEST = -2
_OF_STREAMS = frozenset({
    "subscribe", "subscribepattern", "assign", "startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp",
    "startingoffsetsbytimestampstrategy", "maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay", "includeheaders",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class KafkaRecords:
    """The `ReadableAgain` of a source in the pipeline file."""

    source: Source

    def between(self, spark: "SparkSession", offsets: OffsetRange) -> "DataFrame | None":
        starts, ends = _positions(offsets)
        if not ends or starts == ends:
            return None
        given = reader_options(self.source)
        options: dict[str, Any] = {name: value for name, value in given.items() if name.lower() not in _OF_STREAMS}
        options["assign"] = json.dumps({topic: sorted(parts) for topic, parts in ends.items()})
        options |= {"startingOffsets": json.dumps(starts), "endingOffsets": json.dumps(ends), "includeHeaders": "true"}
        return spark.read.format("kafka").options(**options).load()

    def count(self, offsets: OffsetRange) -> int:
        starts, ends = _positions(offsets)
        return sum(end - max(starts[topic][number], 0) for topic, parts in ends.items() for number, end in parts.items())


def _positions(offsets: OffsetRange) -> tuple[dict[str, dict[int, int]], dict[str, dict[int, int]]]:
    """Return the starts and ends of all partitions that have an end. A partition added since starts with its first record."""
    starts, ends = topic_offsets_in(offsets.start), topic_offsets_in(offsets.end)
    begun = {topic: {number: starts.get(topic, {}).get(number, _EARLIEST) for number in parts} for topic, parts in ends.items()}
    return begun, {topic: dict(parts) for topic, parts in ends.items()}
