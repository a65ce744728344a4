"""Records of a Kafka source, read once more by their offsets as a table, for what bypasses the query."""

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.core.kafka_offset import KafkaOffset, topic_offsets_in
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


_NO_CONNECTOR = ("DATA_SOURCE_NOT_FOUND", "DATA_SOURCE_NOT_ENABLED")


@dataclass(frozen=True, slots=True)
class KafkaRecords:
    """The `ReadableAgain` of source `name`: by Spark's connector, or by Penstock's own reader where that one is missing."""

    name: str
    source: Source

    def between(self, spark: "SparkSession", offsets: OffsetRange) -> "DataFrame | None":
        """Return the records, with their headers; None if there can be none. Both readers give the same ones."""
        starts, ends = _positions(offsets)
        if not ends or starts == ends:
            return None
        if self.source.reader == "python":
            return self.by_python(spark, offsets)
        try:
            return self._by_connector(spark, starts, ends)
        except Exception as error:
            from penstock.source.python_source import can_read  # noqa: PLC0415 - with pyspark, as the next one
            from penstock.spark.error import read_spark_error  # noqa: PLC0415

            condition = read_spark_error(str(error)).condition or ""
            if self.source.reader == "spark" or not can_read(spark) or not condition.endswith(_NO_CONNECTOR):
                raise
            return self.by_python(spark, offsets)

    def by_python(self, spark: "SparkSession", offsets: OffsetRange) -> "DataFrame":
        """Return the records by Penstock's own reader, with their headers. It needs Spark 4.2."""
        from penstock.source.kafka.reader.data_source import KafkaDataSource, KafkaStreamReader  # noqa: PLC0415 - Spark 4.2
        from penstock.source.kafka.reader.opening import data_source_options  # noqa: PLC0415
        from penstock.source.kafka.reader.settings import settings_in  # noqa: PLC0415
        from penstock.source.pieces_again import rows_of_pieces  # noqa: PLC0415

        given = data_source_options(self.name, self.source)
        options = {**{key: value for key, value in given.items() if key.lower() != "includeheaders"}, "includeHeaders": "true"}
        start, end = (KafkaOffset(topics=topic_offsets_in(at)).written() for at in (offsets.start, offsets.end))
        make = partial(KafkaStreamReader, settings_in(options))
        return rows_of_pieces(spark, make, start, end, columns=KafkaDataSource(options).schema())

    def _by_connector(
        self, spark: "SparkSession", starts: dict[str, dict[int, int]], ends: dict[str, dict[int, int]]
    ) -> "DataFrame":
        given = reader_options(self.source)
        options: dict[str, Any] = {name: value for name, value in given.items() if name.lower() not in _OF_STREAMS}
        options["assign"] = json.dumps({topic: sorted(parts) for topic, parts in ends.items()})
        options |= {"startingOffsets": json.dumps(starts), "endingOffsets": json.dumps(ends), "includeHeaders": "true"}
        found = spark.read.format("kafka").options(**options).load()
        _ = found.schema  # Spark Connect reports errors only when it is asked for something
        return found

    def count(self, offsets: OffsetRange) -> int:
        starts, ends = _positions(offsets)
        return sum(end - max(starts[topic][number], 0) for topic, parts in ends.items() for number, end in parts.items())


def _positions(offsets: OffsetRange) -> tuple[dict[str, dict[int, int]], dict[str, dict[int, int]]]:
    """Return the starts and ends of all partitions that have an end. A partition added since starts with its first record."""
    starts, ends = topic_offsets_in(offsets.start), topic_offsets_in(offsets.end)
    begun = {topic: {number: starts.get(topic, {}).get(number, _EARLIEST) for number in parts} for topic, parts in ends.items()}
    return begun, {topic: dict(parts) for topic, parts in ends.items()}
