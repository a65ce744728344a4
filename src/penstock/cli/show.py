"""Where output goes: results on stdout as text or JSON, errors on stderr in one style."""

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from penstock.cli import jsontext
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

Value = TypeVar("Value")
_WIDTH_ELSEWHERE = 120


def console() -> "Console":
    """A console on stdout; text that is not shown on a terminal is not cut to the width of one."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=not sys.stdout.isatty(), width=None if sys.stdout.isatty() else _WIDTH_ELSEWHERE)


def show(value: Value, *, as_json: bool, text: "Callable[[Value], RenderableType]") -> None:
    """Print `value`: as one line of JSON, or as `text` renders it for people."""
    if as_json:
        sys.stdout.write(jsontext.line(value) + "\n")
        sys.stdout.flush()
    else:
        console().print(text(value), markup=False)


def show_error(error: PenstockError, *, as_json: bool) -> None:
    """Say what happened and what to do on stderr; with `as_json` also as the last object on stdout."""
    from penstock.secret import scrub

    message, remedy = scrub(error.message), scrub(error.remedy)
    if as_json:
        said = {"kind": type(error).__name__, "message": message, "remedy": remedy, "exit_code": error.exit_code}
        sys.stdout.write(json.dumps({"error": said}, ensure_ascii=False) + "\n")
        sys.stdout.flush()
    bold, red, end = ("\033[1m", "\033[1;31m", "\033[0m") if sys.stderr.isatty() else ("", "", "")
    sys.stderr.write(f"{red}error:{end} {bold}{message}{end}\n{remedy}\n")
    sys.stderr.flush()
