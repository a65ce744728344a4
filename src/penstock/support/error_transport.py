"""Transport of an error through Spark, which preserves only its text.

The text is `[penstock Fenced] what happened | what to do [/penstock]`. It takes a task's error to the driver, and a batch's error
to whoever awaits the query.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from penstock import errors
from penstock.errors import Failed, PenstockError

_CARRIED = re.compile(r"\[penstock (\w+)\] (.*?) \| (.*?) \[/penstock\]", re.DOTALL)
_TEXT_LIMIT = 2_000
_RESERVED = re.compile(r"[%|\[\]]")
_SHIELDED = re.compile(r"%(25|7C|5B|5D)")


def encode_error(error: PenstockError) -> str:
    """Return the text that takes `error` through Spark, shortened: Spark's regular expression overflows on long texts."""
    return f"[penstock {type(error).__name__}] {error.message[:_TEXT_LIMIT]} | {error.remedy[:_TEXT_LIMIT]} [/penstock]"


def decode_error(text: str) -> PenstockError | None:
    """Return the error that `text` contains, or None."""
    found = _CARRIED.search(text)
    if found is None:
        return None
    kind = getattr(errors, found[1], Failed)
    known = isinstance(kind, type) and issubclass(kind, PenstockError)
    return (kind if known else Failed)(found[2], remedy=found[3])


class TaskFailed(RuntimeError):
    """Raised to Spark by a task that failed. `from_task` restores class, message and remedy of the task's own error."""


@contextmanager
def errors_through_spark() -> Iterator[None]:
    """Raise an error of Penstock in a task as TaskFailed."""
    try:
        yield
    except PenstockError as error:
        raise TaskFailed(encode_error(type(error)(_shield(error.message), remedy=_shield(error.remedy)))) from None


def from_task(text: str) -> PenstockError | None:
    """Return the error of a task that raised TaskFailed, by its `text` at the driver, or None."""
    transported = decode_error(text)
    return (
        None if transported is None else type(transported)(_unshield(transported.message), remedy=_unshield(transported.remedy))
    )


def _shield(text: str) -> str:
    """Escape the delimiters of the encoded text: a message may quote any text of the user's."""
    return _RESERVED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def _unshield(text: str) -> str:
    return _SHIELDED.sub(lambda found: chr(int(found[1], 16)), text)
