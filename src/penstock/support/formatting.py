"""Numbers, sizes, times and commands as text for people."""

import re
import shlex
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TypeVar

_VERBS = (
    "run|check|explain|status|watch|files|history|offsets|verify|doctor|recover|adopt|sweep|rewind|backfill|state|"
    "quarantine list|quarantine replay|savepoint list|"
    "checkpoint inspect|checkpoint explain|checkpoint verify|checkpoint rewind|checkpoint gc|checkpoint repair|checkpoint rebuild"
)
_COMMAND = re.compile(rf"`penstock ({_VERBS})(?: FILE)?((?: --(?!help)[^`]*)?)`")
_STEP = 1000
_Source = TypeVar("_Source", bound=str)
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400


def count(number: int) -> str:
    """Return 12345 as `12,345`."""
    return f"{number:,}"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: `1 row`, `2,000 rows`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def size(size_bytes: int) -> str:
    """Return 12345 bytes as `12.3 kB`."""
    amount = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < _STEP:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= _STEP
    return f"{amount:.1f} TB"


def duration(duration_ms: float | None) -> str:
    """Return 412 ms as `412 ms`, 61000 as `1 min 1 s`, None as an empty text."""
    if duration_ms is None:
        return ""
    if duration_ms < _STEP:
        return f"{duration_ms:.0f} ms"
    seconds = duration_ms / _STEP
    if seconds < _MINUTE_S:
        return f"{seconds:.1f} s"
    if seconds < _HOUR_S:
        return f"{seconds // _MINUTE_S:.0f} min {seconds % _MINUTE_S:.0f} s"
    return f"{seconds // _HOUR_S:.0f} h {seconds % _HOUR_S // _MINUTE_S:.0f} min"


def ago(then_ms: int, *, now_ms: int) -> str:
    """Return how long ago a moment was, in one unit."""
    return f"{roughly(now_ms - then_ms)} ago"


def roughly(duration_ms: int) -> str:
    """Return a duration in one unit, rounded down: `3 days`."""
    seconds = max(0, duration_ms) // _STEP
    for unit, length in (("day", _DAY_S), ("hour", _HOUR_S), ("minute", _MINUTE_S)):
        if seconds >= length:
            return counted(seconds // length, unit)
    return counted(seconds, "second")


def moment_of_year(time_ms: int) -> str:
    """Return a moment like `moment`, without the year, for tables that must fit a terminal."""
    return moment(time_ms).partition("-")[2]


def moment(time_ms: int) -> str:
    """Return a moment in this machine's time zone, to the second."""
    return datetime.fromtimestamp(time_ms / _STEP, tz=timezone.utc).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def rate(rows_per_s: float) -> str:
    """Return rows per second: 12345.6 as `12,346`, and what is below ten with one digit more: 0.6 is not 0."""
    return f"{rows_per_s:,.0f}" if rows_per_s >= 10 else f"{rows_per_s:.1f}"


def commands_with_file(text: str, file: str) -> str:
    """Return `text` with the pipeline file in each command that it names and that lacks it, so that it works as it stands."""
    return _COMMAND.sub(lambda found: f"`penstock {found[1]} {shlex.quote(file)}{found[2]}`", text)


def dropped(rows: Mapping[_Source, Mapping[str, int]]) -> str | None:
    """Return how many rows each rule dropped, None if none did."""
    shares = [f"{counted(number, 'row')} by {source}.{rule}" for source, rules in rows.items() for rule, number in rules.items()]
    return ", ".join(shares) or None
