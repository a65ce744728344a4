"""Prints results on stdout as text or JSON, and errors on stderr in one style."""

import json
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from penstock.core.model import DIGEST_MODULUS
from penstock.errors import PenstockError
from penstock.support.formatting import commands_with_file
from penstock.support.printable import printable, printable_json
from penstock.support.secret import scrub

Value = TypeVar("Value")
_WIDTH_ELSEWHERE = 120


_named: list[str] = []


def name_file(file: str | None) -> None:
    """Keep the name of the pipeline file that the command line gave, for `with_file`; None forgets it."""
    _named[:] = [] if file is None else [file]


def with_file(text: str) -> str:
    """Return `text` with the pipeline file in each command that it names and that lacks it, so that it works as it stands."""
    if not _named:
        return text
    return commands_with_file(text, _named[0])


def console() -> Console:
    """Return a console on stdout. Only on a terminal is text cut to the terminal's width."""
    on_terminal = sys.stdout.isatty()
    return SafeConsole(highlight=False, soft_wrap=not on_terminal, width=None if on_terminal else _WIDTH_ELSEWHERE)


def print_line(value: object) -> None:
    """Print `value` as one line of JSON."""
    sys.stdout.write(json_line(value) + "\n")
    sys.stdout.flush()


def show(
    value: Value, *, as_json: bool, text: Callable[[Value], RenderableType], fields: Callable[[Value], object] | None = None
) -> None:
    """Print `value` as `text` renders it for people, or as one line of JSON: `fields(value)` if given, else the whole value."""
    if as_json:
        print_line(value if fields is None else fields(value))
    else:
        console().print(text(value), markup=False)


def show_error(error: PenstockError, *, as_json: bool) -> None:
    """Print what happened and what to do on stderr; with `as_json` also as the last object on stdout."""
    message, remedy = _worded(error.message), _worded(error.remedy)
    if as_json:
        by_sink = {sink: worded_fields(fields) for sink, fields in error.by_sink.items()}
        print_line({"error": {**worded_fields(error.as_fields()), **({"sinks": by_sink} if by_sink else {})}})
    bold, red, end = ("\033[1m", "\033[1;31m", "\033[0m") if sys.stderr.isatty() else ("", "", "")
    sys.stderr.write(f"{red}error:{end} {bold}{printable(message)}{end}\n{printable(remedy)}\n")
    sys.stderr.flush()


def _worded(text: str) -> str:
    return with_file(scrub(text))


def worded_fields(fields: Mapping[str, object]) -> dict[str, object]:
    """Return the fields of an error for `--json`: without secrets, and with the pipeline file in its commands."""
    return {name: _worded(value) if isinstance(value, str) else value for name, value in fields.items()}


class SafeConsole(Console):
    """The console of rich, with the control characters of any text escaped."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Escape every text that rich renders; all of it passes here. Segments with `control` are rich's own."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


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


def plain(value: object) -> Any:
    """Return `value` as JSON values. Digests become hexadecimal text, since they exceed the integers of many JSON readers."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return str(value)
    return _structure(value)


def _structure(value: object) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        derived = [name for name, member in vars(type(value)).items() if isinstance(member, property) and name[0] != "_"]
        found = {name: getattr(value, name) for name in (*(field.name for field in fields(value)), *derived)}
        return {
            name: hexadecimal(content) if name.startswith("digest") and isinstance(content, int) else plain(content)
            for name, content in found.items()
        }
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Set):
        return sorted(plain(item) for item in value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no JSON form")


def json_line(value: object) -> str:
    """Return `value` as one line of JSON."""
    return printable_json(json.dumps(plain(value), ensure_ascii=False, separators=(", ", ": ")))


def hexadecimal(digest: int) -> str:
    """Return a content digest as 16 hexadecimal digits."""
    return f"{digest % DIGEST_MODULUS:016x}"
