"""Rows as Kafka records: made of the pipeline's columns, refused where a broker would, converted, and restored from records."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import repeat
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.model import RowDigest, SinkName
from penstock.core.row_hash import row_hashes
from penstock.errors import StageFailed, Usage
from penstock.protocols import OwnRows
from penstock.sink.kafka.target import HEADERS, KEY, PARTITION, TOPIC, VALUE, is_bytes
from penstock.spark.column_name import quoted

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


_T = "concat('yyyy-MM-dd', char(39), 'T', char(39), 'HH:mm:ss.SSSSSS{zone}')"
"""Quotes are char(39), since it depends on the session's settings how a literal escapes one."""
_JSON: Final = {
    "timeZone": "'UTC'",
    "ignoreNullFields": "'true'",
    "dateFormat": "'yyyy-MM-dd'",
    "timestampFormat": _T.format(zone="XXX"),
    "timestampNTZFormat": _T.format(zone=""),
}
"""Options of `to_json`, as SQL: all that the session's settings would decide otherwise. Spark's own formats drop microseconds."""
_OPTIONS: Final = "map(" + ", ".join(f"'{name}', {value}" for name, value in _JSON.items()) + ")"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordColumns:
    """Columns that make a record. `json`: those of the JSON object that is the value, all if empty; None: `value` is a column."""

    value: str | None = None
    json: tuple[str, ...] | None = None
    key: str | None = None
    headers: str | None = None
    partition: str | None = None

    def own_rows(self, schema: str, *, sink: SinkName) -> OwnRows:
        """Return the columns of records, always in the same order. Raises Usage for a column that does not exist."""
        fields: Mapping[str, Mapping[str, Any]] = {field["name"]: field for field in json.loads(schema)["fields"]}
        named = (self.key, self.value, *(self.json or ()), self.headers, self.partition)
        for name in named:
            if name is not None and name not in fields:
                raise Usage(
                    f"Sink {sink!r} takes a column {name!r} for its records, and the rows have {', '.join(fields)}.",
                    remedy="Correct the sink's settings, or select the column in the transform.",
                )
        made: dict[str, tuple[str, object]] = {}
        if self.key is not None:
            made[KEY] = _as_bytes(fields[self.key], sink)
        made[VALUE] = _json_of(self.json or tuple(fields)) if self.value is None else _as_bytes(fields[self.value], sink)
        for own, column in ((HEADERS, self.headers), (PARTITION, self.partition)):
            if column is not None:
                made[own] = quoted(column), fields[column]["type"]
        parts = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, (_, kind) in made.items()]
        columns = {name: sql for name, (sql, _) in made.items()}
        return OwnRows(columns=columns, schema=json.dumps({"type": "struct", "fields": parts}))


def _json_of(columns: tuple[str, ...]) -> tuple[str, object]:
    return f"to_json(struct({', '.join(map(quoted, columns))}), {_OPTIONS})", "string"


def _as_bytes(field: Mapping[str, Any], sink: SinkName) -> tuple[str, object]:
    name, kind = quoted(field["name"]), field["type"]
    if not isinstance(kind, str) or kind == "variant":
        raise Usage(
            f"Sink {sink!r} takes column {field['name']!r} as it is, and its values are nested.",
            remedy="Write value: {json: [column]}, or make a text of it in the transform.",
        )
    if kind == "timestamp":  # a cast would show it in the session's time zone
        return f"get_json_object(to_json(struct({name} AS at), {_OPTIONS}), '$.at')", "string"
    return (name, kind) if kind == "binary" else (f"CAST({name} AS STRING)", "string")


_RECORD_BYTES = 200
"""What a batch of one record adds to the record's bytes, at most; also where compression makes it larger."""
_HEADER_BYTES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRowValidator:
    """Checks a sink's rows in the tasks. Picklable. `partitions`: the number of partitions of each topic that takes rows.

    `compacted`: the topics to which brokers accept no record without a key. `deletes`: some records delete, by their key.
    """

    sink: SinkName
    topic: str
    partitions: Mapping[str, int]
    max_record_bytes: int
    compacted: frozenset[str] = frozenset()
    deletes: bool = False

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
        if self.deletes and pc.any(pc.and_(rows.column(KEY).is_null(), rows.column(VALUE).is_null())).as_py():
            raise self._refusal(
                "NULL in column 'key' of a row that deletes", "Filter such rows, or fill the column in the transform."
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
