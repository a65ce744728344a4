"""Recognises the kind of source that wrote an offset from the offset's text."""

import json
from collections.abc import Callable, Mapping

from penstock.checkpoint.source_log import log_offset
from penstock.core.kafka_offset import without_notes
from penstock.core.model import Json


def kind_of(offset: str | None) -> str:
    """Return `files`, `kafka`, `rate-micro-batch`, `count` (rate, socket: a number), `other`, or `none` if nothing was logged."""
    if offset is None:
        return "none"
    try:
        value: Json = json.loads(offset)
    except ValueError:
        return "other"
    return next((kind for kind, is_kind in _KINDS.items() if is_kind(offset, value)), "other")


def _is_kafka(text: str, _: Json) -> bool:
    value: Json = json.loads(without_notes(text) or "{}")
    if not isinstance(value, dict) or not value:
        return False
    return all(isinstance(parts, dict) and parts and all(part.isdecimal() for part in parts) for parts in value.values())


_KINDS: Mapping[str, Callable[[str, Json], bool]] = {
    "count": lambda _, value: isinstance(value, int),
    "files": lambda text, _: log_offset(text) is not None,
    "rate-micro-batch": lambda _, value: isinstance(value, dict) and set(value) == {"offset", "timestamp"},
    "kafka": _is_kafka,
}
