"""Transport of an error through Spark, which preserves only its text.

The text is `[penstock Fenced] what happened | what to do [/penstock]`. It takes a task's error to the driver, and a batch's error
to whoever awaits the query.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote

from penstock import errors
from penstock.errors import Failed, PenstockError

_CARRIED = re.compile(r"\[penstock (\w+)\] (.*?) \| (.*?) \[/penstock\]", re.DOTALL)
_TEXT_LIMIT = 2_000
_SHIELDED = str.maketrans({letter: f"%{ord(letter):02X}" for letter in "%|[]"})
"""Delimiters of the encoded text, escaped in a task's messages: these may quote any text of the user's."""


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
        shielded = type(error)(error.message.translate(_SHIELDED), remedy=error.remedy.translate(_SHIELDED))
        raise TaskFailed(encode_error(shielded)) from None


def from_task(text: str) -> PenstockError | None:
    """Return the error of a task that raised TaskFailed, by its `text` at the driver, or None."""
    sent = decode_error(text)
    return None if sent is None else type(sent)(unquote(sent.message), remedy=unquote(sent.remedy))
