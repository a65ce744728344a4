"""The options of a source `format: kinesis`, and what is wrong with them."""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone

from penstock.spec.complaint import Complaint

STREAM, STARTING, LOSS = "streamName", "startingPosition", "failOnDataLoss"
COUNTS = ("maxRecordsPerTrigger", "maxBytesPerTrigger")
CONNECTION = ("region", "endpoint", "profile", "access_key_id", "secret_access_key", "session_token")
"""As those of an account in S3."""
_AGGREGATED = "aggregated"
_KNOWN = (STREAM, STARTING, LOSS, _AGGREGATED, *COUNTS, *CONNECTION)
_COUNT = re.compile(r"[1-9]\d{0,17}")
_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
_NUMBERED = re.compile(r"(AT|AFTER)_SEQUENCE_NUMBER \d+")
_POSITIONS = "LATEST, TRIM_HORIZON, AT_TIMESTAMP 2026-01-31T00:00:00Z, or JSON with a position for each shard"
_CHOICES: Mapping[str, tuple[str, ...]] = {LOSS: ("true", "false"), _AGGREGATED: ("split", "raw")}


def kinesis_complaints(options: Mapping[str, str]) -> Iterator[Complaint]:
    """Yield what is wrong with the options of a Kinesis stream."""
    known = {name.lower(): name for name in _KNOWN}
    lowered = {given.lower() for given in options}
    if STREAM.lower() not in lowered:
        yield Complaint(message="has no streamName", remedy="Add streamName: orders, the stream that is read.", at=())
    if ("access_key_id" in lowered) != ("secret_access_key" in lowered):
        message = "has one half of a key: access_key_id and secret_access_key belong together"
        yield Complaint(message=message, remedy="Give both, or neither: then it is found as every AWS tool finds it.", at=())
    for given, value in options.items():
        name = known.get(given.lower())
        if name is None:
            yield Complaint(message="is not an option of kinesis", remedy=f"Known are {', '.join(_KNOWN)}.", at=(given,))
            continue
        expected = _expected(name, value)
        if expected is not None:
            yield Complaint(message=f"should be {expected}, found {value!r}", remedy="Correct it.", at=(given,))


def _expected(name: str, value: str) -> str | None:
    """Return what was expected of an option, None if its value is right."""
    if name in COUNTS:
        return None if _COUNT.fullmatch(value) else "a whole number from 1 on"
    if name in _CHOICES:
        return None if value.lower() in _CHOICES[name] else " or ".join(_CHOICES[name])
    if name == STREAM:
        return None if _NAME.fullmatch(value) else "the name of a stream: letters, digits, `_`, `.` and `-`"
    if name == STARTING:
        return None if starting_position(value) is not None else _POSITIONS
    return None if value else "a text that is not empty"


def starting_position(text: str) -> str | Mapping[str, str] | None:
    """Return the position in `text` as offsets have it, one for each shard if it is JSON; None if it is neither.

    A time is in milliseconds then.
    """
    if not text.lstrip().startswith("{"):
        return _position(text)
    try:
        value = json.loads(text)
    except ValueError:
        return None
    found = {shard: _position(position) if isinstance(position, str) else None for shard, position in value.items()}
    return {shard: position for shard, position in found.items() if position is not None} if all(found.values()) else None


def _position(text: str) -> str | None:
    words = " ".join(text.split())
    kind, _, time = words.partition(" ")
    if words.upper() in {"LATEST", "TRIM_HORIZON"} or _NUMBERED.fullmatch(words.upper()):
        return words.upper()
    if kind.upper() != "AT_TIMESTAMP":
        return None
    try:
        moment = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", time))
    except ValueError:
        return None
    return f"AT_TIMESTAMP {round(moment.replace(tzinfo=moment.tzinfo or timezone.utc).timestamp() * 1000)}"
