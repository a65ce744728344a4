"""Renders the traceback that `--debug` prints, without the messages of databases and libraries unless these are wanted."""

import traceback

from penstock.errors import PenstockError
from penstock.support.printable import printable
from penstock.support.secret import scrub

LEFT_OUT = "(its words are left out, since they can name values of rows; `--show-values` prints them)"


def traceback_of(error: BaseException, *, values: bool) -> str:
    """Return the traceback of `error` and of all that it was raised from, without secrets and control characters.

    `values` includes what a database or library said, such as "Key (id)=(17) already exists".
    """
    whole = traceback.TracebackException.from_exception(error)
    if not values:
        _leave_out(whole, error)
    return printable(scrub("".join(whole.format())))


def _leave_out(part: traceback.TracebackException, error: BaseException) -> None:
    if not isinstance(error, PenstockError):
        part._str = LEFT_OUT  # type: ignore[attr-defined]  # no public way; a test of every Python looks at the result
        part.__notes__ = None  # type: ignore[attr-defined, unused-ignore]
    for of_part, of_error in ((part.__cause__, error.__cause__), (part.__context__, error.__context__)):
        if of_part is not None and of_error is not None:
            _leave_out(of_part, of_error)
    for of_part, of_error in zip(getattr(part, "exceptions", None) or (), getattr(error, "exceptions", ()), strict=False):
        _leave_out(of_part, of_error)
