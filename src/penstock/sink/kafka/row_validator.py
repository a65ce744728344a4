"""Row validator of the Kafka sink: refuses in the task what a broker would refuse after the batch was decided."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.model import SinkName
from penstock.errors import StageFailed
from penstock.sink.kafka.target import HEADERS, KEY, PARTITION, TOPIC, VALUE, is_bytes

_RECORD_BYTES = 200
"""What a batch of one record adds to the record's bytes, at most; also where compression makes it larger."""
_HEADER_BYTES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRowValidator:
    """Checks a sink's rows in the tasks. Picklable. `partitions`: how many each topic has that rows may go to.

    `compacted`: those topics whose brokers accept no record without a key.
    """

    sink: SinkName
    topic: str
    partitions: Mapping[str, int]
    max_record_bytes: int
    compacted: frozenset[str] = frozenset()

    def __call__(self, rows: "pa.RecordBatch") -> None:
        """Raise StageFailed, naming the column, unless the topics accept every row."""
        try:
            rows.validate(full=True)
        except pa.ArrowInvalid as cause:
            raise self._refusal(f"damaged values: {cause}", "Clean the values in the transform.") from cause
        self._check_topics(rows)
        self._check_partitions(rows)
        self._check_keys(rows)
        self._check_headers(rows)
        self._check_sizes(rows)

    def _refusal(self, found: str, remedy: str) -> StageFailed:
        return StageFailed(f"Sink {self.sink!r} cannot send these rows to topic {self.topic!r}: found {found}.", remedy=remedy)

    def _check_topics(self, rows: "pa.RecordBatch") -> None:
        for name in pc.unique(rows.column(TOPIC)).to_pylist() if TOPIC in rows.schema.names else ():
            if name not in self.partitions:
                raise self._refusal(
                    f"{'NULL' if name is None else repr(name)} in column 'topic', expected one of {', '.join(self.partitions)}",
                    "Name it in `topics` of the sink, or write COALESCE(topic, …) in the transform.",
                )

    def _check_partitions(self, rows: "pa.RecordBatch") -> None:
        if PARTITION not in rows.schema.names or not rows.num_rows:
            return
        column = rows.column(PARTITION)
        if column.null_count:
            raise self._refusal("NULL in column 'partition'", "Give every row a partition, or leave the column out.")
        named = self._topics_of(rows)
        for topic, count in self.partitions.items():
            chosen = column.filter(pc.equal(named, topic))
            found = pc.min_max(chosen).as_py()
            if len(chosen) and (found["min"] < 0 or found["max"] >= count):
                wrong = found["min"] if found["min"] < 0 else found["max"]
                raise self._refusal(
                    f"partition {wrong}, where topic {topic!r} has {count}", "Correct it in the transform, or add partitions."
                )

    def _check_keys(self, rows: "pa.RecordBatch") -> None:
        if KEY not in rows.schema.names or not rows.column(KEY).null_count:
            return
        keyless = pc.unique(self._topics_of(rows).filter(rows.column(KEY).is_null())).to_pylist()
        for topic in sorted(self.compacted.intersection(keyless)):
            raise self._refusal(
                f"NULL in column 'key', where topic {topic!r} is compacted",
                "Filter such rows, or fill the column in the transform.",
            )

    def _topics_of(self, rows: "pa.RecordBatch") -> "pa.Array":
        return rows.column(TOPIC) if TOPIC in rows.schema.names else pa.array([self.topic] * rows.num_rows)

    def _check_headers(self, rows: "pa.RecordBatch") -> None:
        if HEADERS not in rows.schema.names:
            return
        headers = rows.column(HEADERS).flatten()
        keys = headers.field(0)
        if headers.null_count or keys.null_count:
            raise self._refusal("NULL as a header or as its key", "Filter such headers in the transform.")
        if pc.any(pc.match_substring(keys, "\0")).as_py():
            raise self._refusal("a header whose key holds a NUL", "Clean it in the transform.")

    def _check_sizes(self, rows: "pa.RecordBatch") -> None:
        """Measure rows one by one only if all of them together could exceed the limit of one record."""
        if rows.nbytes + _RECORD_BYTES + _headers_in(rows) * _HEADER_BYTES <= self.max_record_bytes:
            return
        sized = [_sizes(rows.column(name)) for name in (VALUE, KEY) if name in rows.schema.names]
        longest = pc.max(reduce(pc.add, sized)).as_py() or 0
        if HEADERS in rows.schema.names:
            with_headers = [rows.slice(at, 1) for at in range(rows.num_rows)]
            longest = max((one.nbytes + _headers_in(one) * _HEADER_BYTES for one in with_headers), default=0)
        if longest + _RECORD_BYTES > self.max_record_bytes:
            raise self._refusal(
                f"a record of about {longest + _RECORD_BYTES} bytes, where {self.max_record_bytes} are taken",
                "Raise max.message.bytes of the topic and start again, or filter such rows.",
            )


def _headers_in(rows: "pa.RecordBatch") -> int:
    return len(rows.column(HEADERS).flatten()) if HEADERS in rows.schema.names else 0


def _sizes(column: "pa.Array") -> "pa.Array":
    assert is_bytes(column.type)
    return pc.fill_null(pc.binary_length(column).cast(pa.int64()), 0)
