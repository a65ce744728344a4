"""Prints results on stdout as text or JSON, and errors on stderr in one style."""

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from penstock.cli import json_text
from penstock.errors import PenstockError
from penstock.support.printable import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

Value = TypeVar("Value")
_WIDTH_ELSEWHERE = 120


def console() -> "Console":
    """Return a console on stdout. Only on a terminal is text cut to the terminal's width."""
    from penstock.cli.safe_console import SafeConsole

    on_terminal = sys.stdout.isatty()
    return SafeConsole(highlight=False, soft_wrap=not on_terminal, width=None if on_terminal else _WIDTH_ELSEWHERE)


def show(value: Value, *, as_json: bool, text: "Callable[[Value], RenderableType]") -> None:
    """Print `value` as one line of JSON, or as `text` renders it for people."""
    if as_json:
        sys.stdout.write(json_text.line(value) + "\n")
        sys.stdout.flush()
    else:
        console().print(text(value), markup=False)


def show_error(error: PenstockError, *, as_json: bool) -> None:
    """Print what happened and what to do on stderr; with `as_json` also as the last object on stdout."""
    from penstock.support.secret import scrub

    message, remedy = scrub(error.message), scrub(error.remedy)
    if as_json:
        sys.stdout.write(json_text.line({"error": _as_json(error)}) + "\n")
        sys.stdout.flush()
    bold, red, end = ("\033[1m", "\033[1;31m", "\033[0m") if sys.stderr.isatty() else ("", "", "")
    sys.stderr.write(f"{red}error:{end} {bold}{printable(message)}{end}\n{printable(remedy)}\n")
    sys.stderr.flush()


def _as_json(error: PenstockError) -> dict[str, object]:
    by_sink = {sink: _scrubbed(fields) for sink, fields in error.by_sink.items()}
    return {**_scrubbed(error.as_fields()), **({"sinks": by_sink} if by_sink else {})}


def _scrubbed(fields: Mapping[str, object]) -> dict[str, object]:
    from penstock.support.secret import scrub

    return {name: scrub(value) if isinstance(value, str) else value for name, value in fields.items()}
