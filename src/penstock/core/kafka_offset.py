"""The offset of a Kafka source in Spark's checkpoint: offsets of topics, and the notes that Penstock's own reader adds.

Offsets of topics are written as Spark's connector writes them: `{"orders": {"0": 7}}`. A note is one more key with an empty
object, and no topic can have its name. Spark's connector finds no partition there and continues from the offsets, so each reader
can continue where the other stopped.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

TopicOffsets: TypeAlias = Mapping[str, Mapping[int, int]]
"""The first offset not read yet, by topic and partition."""

_ID, _FROM = "id", "from"
_FIRST, _BEGAN = "(first)", "(began)"
_OF_NO_TOPIC = frozenset({_FIRST, _BEGAN})


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOffset:
    """The end of a batch, and the id of each topic where it is known.

    `began` is where the first batch of a query begins. The offset log has no entry for that, so the end of that batch records it.
    `is_first`: a query that has planned no batch yet begins at this offset.
    """

    topics: TopicOffsets
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    began: TopicOffsets | None = None
    is_first: bool = False

    def written(self) -> dict[str, dict[str, int]]:
        """Return the offset as a JSON object. Equal offsets give the same text."""
        found = {topic: {str(number): parts[number] for number in sorted(parts)} for topic, parts in sorted(self.topics.items())}
        notes = [f"{topic} {_ID} {self.topic_ids[topic]}" for topic in sorted(self.topic_ids)]
        for topic, parts in sorted((self.began or {}).items()):
            begins = ",".join(f"{number}:{parts[number]}" for number in sorted(parts))
            notes.append(f"{topic} {_FROM} {begins}")
        notes += [_FIRST] * self.is_first + [_BEGAN] * (self.began is not None)
        return found | {note: {} for note in notes}


def read_offset(value: Mapping[str, Mapping[str, int]]) -> KafkaOffset:
    """Return the offset in the parsed JSON of Spark's connector or of Penstock's reader."""
    ids = dict[str, str]()
    began = dict[str, dict[int, int]]()
    topics = dict[str, dict[int, int]]()
    for key, parts in value.items():
        topic, _, note = key.partition(" ")
        kind, _, text = note.partition(" ")
        if kind == _ID:
            ids[topic] = text
        elif kind == _FROM:
            began[topic] = {int(number): int(at) for number, at in (one.split(":") for one in text.split(",") if one)}
        elif key not in _OF_NO_TOPIC:
            topics[topic] = {int(number): at for number, at in parts.items()}
    return KafkaOffset(topics=topics, topic_ids=ids, began=began if _BEGAN in value else None, is_first=_FIRST in value)


def topic_offsets_in(offset: str | None) -> TopicOffsets:
    """Return the offsets of topics in the offset of a Kafka source; empty for None."""
    return {} if offset is None else read_offset(json.loads(offset)).topics


def ids_in(offset: str | None) -> Mapping[str, str]:
    """Return the topic ids noted in the offset of a Kafka source; empty for None."""
    return {} if offset is None else read_offset(json.loads(offset)).topic_ids


def without_notes(offset: str | None) -> str | None:
    """Return an offset of Penstock's reader as Spark's connector would have written it; any other offset unchanged."""
    value = _with_notes(offset)
    return offset if value is None else _text(KafkaOffset(topics=read_offset(value).topics))


def beginning_in(offset: str | None) -> str | None:
    """Return where the batch that ends at `offset` begins, if it is a query's first, planned by Penstock's reader; else None."""
    value = _with_notes(offset)
    began = None if value is None else read_offset(value).began
    return None if began is None else _text(KafkaOffset(topics=began))


def moved(value: Mapping[str, Mapping[str, int]], moves: TopicOffsets) -> dict[str, dict[str, int]]:
    """Return the parsed offset with the offsets of `moves`, and without the ids of the topics moved."""
    found = read_offset(value)
    ids = {topic: topic_id for topic, topic_id in found.topic_ids.items() if topic not in moves}
    return KafkaOffset(topics={**found.topics, **moves}, topic_ids=ids).written()


def _with_notes(offset: str | None) -> "dict[str, dict[str, int]] | None":
    """Return the parsed offset if it holds notes, else None: only notes prove that Penstock's reader wrote it."""
    if offset is None or not offset.startswith("{") or not any(mark in offset for mark in (f" {_ID} ", *_OF_NO_TOPIC)):
        return None
    try:
        value = json.loads(offset)
    except ValueError:
        return None
    return value if all(_is_ours(key, parts) for key, parts in value.items()) else None


def _is_ours(key: str, parts: object) -> bool:
    if not isinstance(parts, dict):
        return False
    is_noted = " " in key or key in _OF_NO_TOPIC
    return not parts if is_noted else all(part.isdecimal() and isinstance(at, int) for part, at in parts.items())


def _text(offset: KafkaOffset) -> str:
    return json.dumps(offset.written(), separators=(",", ":"))
