"""Converts rows to Kafka records, and records back to the rows that they were made of."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.model import RowDigest
from penstock.core.row_hash import row_hashes
from penstock.sink.kafka.target import HEADERS, KEY, PARTITION, TOPIC, VALUE, is_bytes

Header: TypeAlias = tuple[str, bytes | None]
Record: TypeAlias = "tuple[str, bytes | None, bytes | None, int, list[Header] | None]"
"""Topic, value, key, partition (-1: by the key), headers, in the order of the client's arguments."""

BY_KEY = -1


def records_of(rows: "pa.RecordBatch", *, topic: str) -> Iterator[Record]:
    """Yield each row as a record, for `topic` unless the row names another."""
    topics = _column(rows, TOPIC) or repeat(topic)
    partitions = _column(rows, PARTITION) or repeat(BY_KEY)
    keys = _column(rows, KEY) or repeat(None)
    given = _column(rows, HEADERS) or repeat(None)
    headers = (None if row is None else [(header["key"], header["value"]) for header in row] for row in given)
    return zip(topics, _column(rows, VALUE), keys, partitions, headers, strict=False)


def rows_of(messages: Sequence[Any], schema: "pa.Schema") -> "pa.RecordBatch":
    """Return the rows of `schema` that consumed records were made of. Strings come back as their bytes, which hash alike."""
    made = [_restored(part, messages) for part in schema]
    return pa.RecordBatch.from_arrays(made, names=schema.names)


@dataclass(frozen=True, slots=True)
class HeadersHashed:
    """Hashes rows as the topic will show them: a record with an empty array of headers has none. Picklable."""

    row_digest: RowDigest

    def __call__(self, rows: "pa.RecordBatch", hashes: "pa.UInt64Array") -> "pa.UInt64Array":
        """Return `hashes`, recomputed where empty arrays of headers make a difference."""
        if HEADERS not in rows.schema.names or self.row_digest is RowDigest.XXHASH64:
            return hashes
        headers = rows.column(HEADERS)
        empty = pc.equal(pc.list_value_length(headers), 0)
        if not pc.any(empty).as_py():
            return hashes
        place = rows.schema.get_field_index(HEADERS)
        none = pc.if_else(pc.fill_null(empty, fill_value=False), pa.scalar(None, headers.type), headers)
        return row_hashes(rows.set_column(place, HEADERS, none), self.row_digest)


def _column(rows: "pa.RecordBatch", name: str) -> list[Any]:
    if name not in rows.schema.names:
        return []
    column = rows.column(name)
    if name in {VALUE, KEY} and not pa.types.is_binary(column.type):
        column = column.cast(pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary())
    values: list[Any] = column.to_pylist()
    return values


def _restored(part: "pa.Field", messages: Sequence[Any]) -> "pa.Array":
    if part.name == PARTITION:
        return pa.array([message.partition() for message in messages], pa.int32())
    if part.name == TOPIC:
        return pa.array([message.topic() for message in messages], pa.string())
    if part.name == HEADERS:
        # None where there are no headers: Kafka does not tell that from an empty array (`HeadersHashed`).
        headers = [[{"key": key, "value": value} for key, value in message.headers() or ()] or None for message in messages]
        return pa.array(headers, part.type)
    assert is_bytes(part.type)
    values = [message.key() if part.name == KEY else message.value() for message in messages]
    return pa.array(values, pa.large_binary())
