"""Renders docs/benchmarks.md from the kept runs: pure functions from results to Markdown. The notes of the page stay."""

import re
from collections.abc import Mapping, Sequence

from bench.aims import AIMS, Aim
from bench.claims import Reading, read
from bench.figures import Row, Spread, rows, tables_named
from bench.formats import compared, compared_with_spread, number, number_with_spread
from bench.result import Run, Table

AIMS_BEGIN, AIMS_END = "<!-- aims: written by make bench -->", "<!-- end of aims -->"
_PART = re.compile(r"^<!-- part: (\S+) -->\n", re.MULTILINE)
_PARTS_END = "<!-- end of parts -->"
_HEADINGS = {"times": "peer ÷ Penstock", "tax": "tax", "added": "added"}


def page(old: str, kept: Mapping[str, Sequence[Run]], order: Sequence[str]) -> str:
    """`old` with what the kept runs show. A part without kept runs keeps its section, an aim of such a part its row."""
    head, _, rest = old.partition(AIMS_BEGIN)
    aims, _, rest = rest.partition(AIMS_END)
    between, *sections = _PART.split(rest.partition(_PARTS_END)[0])
    after = rest.partition(_PARTS_END)[2]
    shown = dict(zip(sections[::2], sections[1::2], strict=True))
    shown |= {name: section(runs) for name, runs in kept.items()}
    listed = "".join(f"<!-- part: {name} -->\n{shown[name]}" for name in order if name in shown)
    return f"{head}{AIMS_BEGIN}{aims_table(aims, kept)}{AIMS_END}{between}{listed}{_PARTS_END}{after}"


# --- what was aimed at


def aims_table(old: str, kept: Mapping[str, Sequence[Run]]) -> str:
    """What was aimed at, and what the slower run reached; the row of `old` where nothing is kept."""
    before = {line.split(" | ")[0].removeprefix("| "): line for line in old.splitlines()}
    lines = [_aim(aim, kept, before.get(aim.question, "")) for aim in AIMS]
    return "\n".join(["", "| question | aim | reached |", "|---|---|---|", *filter(None, lines), ""])


def _aim(aim: Aim, kept: Mapping[str, Sequence[Run]], before: str) -> str:
    readings = [(label, read(kept, key)) for label, key in aim.keys.items()]
    found = [(label, reading) for label, reading in readings if reading is not None]
    if len(found) < len(readings):
        return before
    figures = [f"{label}{compared(reading.comparison, reading.slower)}" for label, reading in found]
    return f"| {aim.question} | {aim.aim} | {_reached(aim, [reading for _, reading in found])}{'; '.join(figures)} |"


def _reached(aim: Aim, found: Sequence[Reading]) -> str:
    if aim.limit is None:
        return ""
    reached = [aim.reached(reading.comparison, reading.slower) for reading in found]
    return "yes, " if all(reached) else "partly, " if any(reached) else "no, "


# --- the parts


def section(runs: Sequence[Run]) -> str:
    """One part: what it was measured with, and its tables; the newest run is the last."""
    when = " and ".join(f"{run.began} UTC ({run.minutes:.0f} min)" for run in runs)
    versions = ", ".join(f"{name} {version}" for name, version in runs[-1].versions.items())
    once = " It was run once only." if len(runs) == 1 else ""
    lines = [f"\nMeasured {when} in {runs[-1].rounds} rounds with {versions}.{once}\n"]
    lines += [_table(tables_named(runs, table.name)) for table in runs[-1].tables]
    return "\n".join(lines) + "\n"


def _table(tables: Sequence[Table]) -> str:
    newest, found = tables[-1], list(rows(tables))
    columns = _columns(newest, found)
    lines = [f"### {newest.title}\n", _line(columns), _line(["---"] * len(columns))]
    lines += [_line([cells[name] for name in columns]) for cells in (_cells(newest, row) for row in found)]
    return "\n".join([*lines, "", *([newest.note, ""] if newest.note else [])])


def _columns(table: Table, found: Sequence[Row]) -> list[str]:
    """Those in which anything differs or is said."""
    cells = [_cells(table, row) for row in found]
    return [name for name in cells[0] if any(each[name] for each in cells)]


def _cells(table: Table, row: Row) -> dict[str, str]:
    slower, other, peer = row.slower, row.other, row.slower.peer
    cells = {
        "case": row.case.name,
        "writer": row.way if len(table.ours) > 1 else "",
        "peer": row.peer or "",
        f"Penstock, {table.unit}": number_with_spread(slower.ours),
        f"{table.amounts} a second": _rate(table, row, slower.ours),
        f"peer, {table.unit}": number_with_spread(peer) if peer else "",
    }
    if table.comparison == "alone":
        return {**cells, "other run": number(other.ours.median) if other else ""}
    ratio = slower.compared if peer else None
    return {
        **cells,
        _HEADINGS[table.comparison]: compared_with_spread(table.comparison, ratio) if ratio else "",
        "other run": compared(table.comparison, other.compared.median) if other and peer else "",
    }


def _rate(table: Table, row: Row, ours: Spread) -> str:
    a_second = {"ms": 1000, "s": 1}.get(table.unit.split()[0], 0)
    return f"{row.case.amount / ours.median * a_second:,.0f}" if row.case.amount and table.amounts else ""


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
