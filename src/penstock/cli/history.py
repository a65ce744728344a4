"""`penstock history` and `penstock offsets`: show the ledger as a table."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType

from penstock.cli.opening import File, Json, Overrides, pipeline
from penstock.cli.output import show
from penstock.cli.table import Fitting, table
from penstock.support import formatting

if TYPE_CHECKING:
    from penstock.observe.history import HistoryRow

_SHOWN = 20
_DISPENSABLE = ("size", "files", "publish", "stage")
"""Columns that a narrow terminal leaves out, in this order."""


def history(
    *,
    file: File,
    batch: Annotated[int | None, typer.Option(min=0, metavar="N", help="Only this batch, with its offsets.")] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="How many entries to show at most.")] = _SHOWN,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """The ledger, newest entry first: batches with rows, files and times, openings, the operator's acts."""
    rows = pipeline(file, overrides).history(batch_id=batch, limit=limit)
    show(rows, as_json=as_json, text=_table if batch is None else _batch)


def offsets(
    *,
    file: File,
    batch: Annotated[int, typer.Option(min=0, metavar="N", help="The batch.", show_default=False)],
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Start and end offset of every source for one batch, as they were decided."""
    show(pipeline(file, overrides).offsets(batch), as_json=as_json, text=_offsets)


def _table(rows: "Sequence[HistoryRow]") -> RenderableType:
    if not rows:
        return "The ledger is empty."
    columns = ("position", "entry", "written", "batch", "rows", "files", "size", "stage", "publish")
    requests = [_requests(row) for row in rows]
    if not any(requests):
        return Fitting(columns, [_row(row) for row in rows], _DISPENSABLE)
    lines = [(*_row(row), asked) for row, asked in zip(rows, requests, strict=True)]
    return Fitting((*columns, "requests"), lines, _DISPENSABLE)


def _requests(row: "HistoryRow") -> str | None:
    """Return the requests to stage and to publish, None if both are unknown. Inline pieces take none to stage."""
    known = (row.stage_requests, row.publish_requests)
    if known == (None, None):
        return None
    return " + ".join("?" if number is None else formatting.count(number) for number in known)


def _row(row: "HistoryRow") -> Sequence[object]:
    written = formatting.moment_of_year(row.written_at_ms)
    if row.kind != "decided":
        return (row.position, f"{row.kind} g{row.generation}", written, None, None, None, None, None, None)
    files = sum(totals.files for totals in row.sinks.values())
    size_bytes = sum(totals.size_bytes for totals in row.sinks.values())
    spent = (formatting.duration(row.stage_ms), formatting.duration(row.publish_ms))
    head = (row.position, row.kind if row.taken_back_at is None else f"{row.kind}, taken back", written)
    return (*head, row.batch_id, formatting.count(row.rows_out), formatting.count(files), formatting.size(size_bytes), *spent)


def _batch(rows: "Sequence[HistoryRow]") -> RenderableType:
    if not rows:
        return "The ledger holds no decision of this batch: there was none, or it is older than what the ledger retains."
    return Group(*(part for row in rows for part in (_table([row]), "", _sinks(row), "", _offsets(row))))


def _sinks(row: "HistoryRow") -> RenderableType:
    lines = [
        (
            sink,
            account,
            formatting.count(totals.rows),
            formatting.count(totals.files),
            formatting.size(totals.size_bytes),
            formatting.count(row.pieces[sink][account].in_decision),
            formatting.count(row.pieces[sink][account].staged),
            f"{totals.digest:016x}",
        )
        for sink, accounts in row.accounts.items()
        for account, totals in accounts.items()
    ]
    columns = ("sink", "account", "rows", "files", "size", "in decision", "staged", "digest")
    return Fitting(columns, lines, ("digest", "size"))


def _offsets(row: "HistoryRow") -> RenderableType:
    lines = [(each.source, each.start or "(beginning)", each.end or "(nothing)") for each in row.offsets]
    offsets = table(("source", "after", "up to and including"), lines)
    parts: list[RenderableType] = [offsets]
    if row.dropped:
        counts = [(source, rule, formatting.count(rows)) for source, rules in row.dropped.items() for rule, rows in rules.items()]
        parts += ["", table(("source", "rule", "rows dropped"), counts)]
    if not row.gaps:
        return Group(*parts)
    gaps = [(gap.source, gap.topic, gap.partition, gap.kind.value, gap.first, gap.end - 1) for gap in row.gaps]
    columns = ("source", "topic", "partition", "never delivered", "from offset", "to offset")
    return Group(*parts, "", table(columns, gaps))
