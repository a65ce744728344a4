"""The topics of a Kafka sink as its settings name them, and the columns that rows must have: those of Spark's own Kafka sink."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.core.model import PipelineName, SinkName
from penstock.errors import Refused, Usage

LANES, MARKERS, SCHEMA = "lanes", "markers", "schema"
"""Keys in the `ref` of every piece: how many lanes share its batch, the id of the topic of markers, and Spark's JSON of the rows
if that is not the pipeline's.
"""
VALUE, KEY, HEADERS, PARTITION, TOPIC = "value", "key", "headers", "partition", "topic"
_TYPES = {
    VALUE: "string or binary",
    KEY: "string or binary",
    HEADERS: "array<struct<key: string, value: binary>>",
    PARTITION: "int",
    TOPIC: "string",
}
_KEEP = "Keep the column in the transform, as NULL if it has no values, or give the sink another name and a new topic."
_SELECT = "Set it in the sink (value: json, key: column), or select: to_json(struct(*)) AS value, CAST(id AS STRING) AS key."


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTarget:
    """The topics of a sink. `topic` takes rows that name none; rows may name it and those of `topics`, no others.

    `shared`: others write there, too. `markers`: the topic of markers, one partition for each lane.
    """

    topic: str
    markers: str
    topics: tuple[str, ...] = field(default=())
    shared: bool = False

    @property
    def every(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.topic, *self.topics)))


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """Settings of a sink for its topics and lanes. `sink` and `pipeline` name the markers.

    A transaction is committed and the rest of a lane's share goes into another one at `transaction_bytes`, or after half of
    `timeout_ms`. `keyed`: no transactions; each record has a name of its own instead. `deletes`: rows come with the column of
    `core.deletes`; one that deletes becomes a tombstone.
    """

    pipeline: PipelineName
    sink: SinkName
    target: TopicTarget
    lanes: int
    transaction_bytes: int
    timeout_ms: int
    keyed: bool
    deletes: bool = False


def require_columns(rows: "pa.Schema", *, deletes: bool = False) -> None:
    """Raise Usage unless the columns of `rows` are those of Kafka records. `deletes`: some of them delete, by their key."""
    unknown = [name for name in rows.names if name not in _TYPES]
    if unknown or VALUE not in rows.names:
        found = f"a column {unknown[0]!r}" if unknown else "no column 'value'"
        raise Usage(f"The rows have {found}, expected value, and optionally {', '.join(list(_TYPES)[1:])}.", remedy=_SELECT)
    for part in rows:
        if not _is_taken(part.name, part.type):
            raise Usage(f"Column {part.name!r} is {part.type}, expected {_TYPES[part.name]}.", remedy="Cast it in the transform.")
    if deletes and KEY not in rows.names:
        raise Usage(
            "`delete_when` is given, and the rows have no column 'key', by which a row deletes.",
            remedy="Select one: CAST(id AS STRING) AS key.",
        )


def require_continued(old: "pa.Schema", new: "pa.Schema", topic: str) -> None:
    """Raise Refused if published rows would no longer have the content digest with which they were published."""
    gone = [name for name in old.names if name not in new.names]
    added = [name for name in new.names if name not in old.names and name in {PARTITION, TOPIC}]
    if gone:
        raise Refused(f"Topic {topic!r} was filled with a column {gone[0]!r}, which the rows lack now.", remedy=_KEEP)
    if added:
        raise Refused(
            f"Topic {topic!r} was filled without a column {added[0]!r}, which the rows have now.",
            remedy="Leave it out in the transform, or give the sink another name and a new topic.",
        )
    kept = [name for name in new.names if name in old.names]
    if kept != list(old.names):
        raise Refused(
            f"The columns came in the order {', '.join(old.names)} and come in the order {', '.join(kept)} now.",
            remedy="Keep the order in the transform's SELECT.",
        )


def is_bytes(kind: "pa.DataType") -> bool:
    """Return whether values of `kind` are strings or bytes."""
    texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(texts or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_taken(name: str, kind: "pa.DataType") -> bool:
    if name == HEADERS:
        return _is_headers(kind)
    if name == PARTITION:
        return bool(pa.types.is_int32(kind))
    return is_bytes(kind) and (name != TOPIC or not _is_binary(kind))


def _is_binary(kind: "pa.DataType") -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_headers(kind: "pa.DataType") -> bool:
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(kind.value_type):
        return False
    parts: Sequence[pa.Field] = [kind.value_type.field(at) for at in range(kind.value_type.num_fields)]
    named = [part.name for part in parts] == ["key", "value"]
    return named and is_bytes(parts[0].type) and not _is_binary(parts[0].type) and _is_binary(parts[1].type)
