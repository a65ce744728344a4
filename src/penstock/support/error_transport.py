"""Transport of an error through Spark, which preserves only its text.

The text is `penstock.errors.Fenced: what happened What to do: the remedy (penstock.errors.Fenced)`: people find it in Spark's
tracebacks. It takes a task's error to the driver, and a batch's error to whoever awaits the query.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote

from penstock import errors
from penstock.errors import Failed, PenstockError

_MODULE, _THEN = "penstock.errors.", " What to do: "
_CARRIED = re.compile(
    r"penstock\.errors\.(\w+): ((?:(?!penstock\.errors\.).)*?) What to do: (.*?) \(penstock\.errors\.\1\)", re.DOTALL
)
_TEXT_LIMIT = 2_000


def encode_error(error: PenstockError) -> str:
    """Return the text that takes `error` through Spark, shortened: Spark's regular expression overflows on long texts."""
    kind = f"{_MODULE}{_public(type(error)).__name__}"
    return f"{kind}: {error.message[:_TEXT_LIMIT]}{_THEN}{error.remedy[:_TEXT_LIMIT]} ({kind})"


def _public(kind: type[PenstockError]) -> type[PenstockError]:
    """Return `kind`, or the nearest class above it that `penstock.errors` has: a sink's own says too little elsewhere."""
    found: type[PenstockError] = next(each for each in kind.__mro__ if getattr(errors, each.__name__, None) is each)
    return found


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
        shielded = type(error)(_shielded(error.message), remedy=_shielded(error.remedy))
        raise TaskFailed(encode_error(shielded)) from None


def _shielded(text: str) -> str:
    """Return `text` with the delimiters escaped that a task's message may quote from the user's rows."""
    return text.replace("%", "%25").replace(_MODULE, "penstock%2Eerrors.").replace(_THEN, " What to do%3A ")


def from_task(text: str) -> PenstockError | None:
    """Return the error of a task that raised TaskFailed, by its `text` at the driver, or None."""
    sent = decode_error(text)
    return None if sent is None else type(sent)(unquote(sent.message), remedy=unquote(sent.remedy))
