"""Taking an error through Spark, which keeps only its text: `[penstock Fenced] what happened | what to do [/penstock]`.

Used where a task's error reaches the driver, and where a batch's error reaches whoever awaits the query.
"""

import re

from penstock import errors
from penstock.errors import Failed, PenstockError

_CARRIED = re.compile(r"\[penstock (\w+)\] (.*?) \| (.*?) \[/penstock\]", re.DOTALL)
_TEXT_LIMIT = 2_000


def carried(error: PenstockError) -> str:
    """The text that takes `error` through Spark; short, for Spark matches long ones with a regular expression that overflows."""
    return f"[penstock {type(error).__name__}] {error.message[:_TEXT_LIMIT]} | {error.remedy[:_TEXT_LIMIT]} [/penstock]"


def carried_in(text: str) -> PenstockError | None:
    """The error that `text` carries, None if there is none."""
    found = _CARRIED.search(text)
    if found is None:
        return None
    kind = getattr(errors, found[1], Failed)
    known = isinstance(kind, type) and issubclass(kind, PenstockError)
    return (kind if known else Failed)(found[2], remedy=found[3])
