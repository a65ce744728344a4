"""Records of Kafka as Arrow batches with the columns of Spark's connector."""

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

COLUMNS = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"
HEADERS = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"

_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)
_WITH_HEADERS = _SCHEMA.append(pa.field("headers", pa.list_(pa.field("element", _HEADER))))
_US_PER_MS = 1000


class Record(Protocol):
    """A message of the client library."""

    def key(self) -> bytes | None: ...

    def value(self) -> bytes | None:
        """None for a tombstone."""
        ...

    def offset(self) -> int: ...

    def timestamp(self) -> tuple[int, int]:
        """Return the kind of time stamp, and milliseconds."""
        ...

    def headers(self) -> list[tuple[str, bytes | None]] | None: ...


def columns(*, has_headers: bool) -> str:
    """Return the columns as DDL."""
    return f"{COLUMNS}, {HEADERS}" if has_headers else COLUMNS


def record_batch(records: Sequence[Record], *, topic: str, partition: int, has_headers: bool) -> pa.RecordBatch:
    """Return the records of one partition, in their order."""
    times = [record.timestamp() for record in records]
    arrays = [
        pa.array([record.key() for record in records], pa.binary()),
        pa.array([record.value() for record in records], pa.binary()),
        pa.repeat(pa.scalar(topic), len(records)),
        pa.repeat(pa.scalar(partition, pa.int32()), len(records)),
        pa.array([record.offset() for record in records], pa.int64()),
        pa.array([time_ms * _US_PER_MS for _, time_ms in times], pa.int64()).cast(_SCHEMA.field("timestamp").type),
        pa.array([kind - 1 for kind, _ in times], pa.int32()),  # Java's client counts them from -1, librdkafka from 0
    ]
    if not has_headers:
        return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
    headers = pa.array([record.headers() for record in records], _WITH_HEADERS.field("headers").type)
    return pa.RecordBatch.from_arrays([*arrays, headers], schema=_WITH_HEADERS)
