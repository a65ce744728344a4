"""Taking an error through Spark, which keeps only its text: `[penstock Fenced] what happened | what to do [/penstock]`.

Used where a task's error reaches the driver, and where a batch's error reaches whoever awaits the query.
"""

import re

from penstock import errors
from penstock.errors import Failed, PenstockError

_CARRIED = re.compile(r"\[penstock (\w+)\] (.*?) \| (.*?) \[/penstock\]", re.DOTALL)
_TEXT_LIMIT = 2_000
_RESERVED = re.compile(r"[%|\[\]]")
_SHIELDED = re.compile(r"%(25|7C|5B|5D)")


def encode_error(error: PenstockError) -> str:
    """The text that takes `error` through Spark; short, for Spark matches long ones with a regular expression that overflows."""
    return f"[penstock {type(error).__name__}] {error.message[:_TEXT_LIMIT]} | {error.remedy[:_TEXT_LIMIT]} [/penstock]"


def decode_error(text: str) -> PenstockError | None:
    """The error that `text` carries, None if there is none."""
    found = _CARRIED.search(text)
    if found is None:
        return None
    kind = getattr(errors, found[1], Failed)
    known = isinstance(kind, type) and issubclass(kind, PenstockError)
    return (kind if known else Failed)(found[2], remedy=found[3])


def through_spark(error: PenstockError) -> str:
    """The text of a task's exception that brings `error` to `from_task` with its class, message and remedy."""
    return encode_error(type(error)(_shield(error.message), remedy=_shield(error.remedy)))


def from_task(text: str) -> PenstockError | None:
    """The error that a task sent `through_spark` in `text`, None if there is none."""
    carried = decode_error(text)
    return None if carried is None else type(carried)(_unshield(carried.message), remedy=_unshield(carried.remedy))


def _shield(text: str) -> str:
    """Without the characters that separate the parts of what is carried: a message may quote any text of the user's."""
    return _RESERVED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def _unshield(text: str) -> str:
    return _SHIELDED.sub(lambda found: chr(int(found[1], 16)), text)
