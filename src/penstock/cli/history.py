"""`penstock history` and `penstock offsets`: show the ledger as a table."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType

from penstock.cli.opening import File, Json, Overrides, pipeline
from penstock.cli.output import plain, show
from penstock.cli.table import Fitting, facts, table
from penstock.support import formatting

if TYPE_CHECKING:
    from penstock.observe.batch_life import BatchLife
    from penstock.observe.history import HistoryRow

_SHOWN = 20
_DISPENSABLE = ("rows/s", "size", "files", "publish", "stage")
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
    lives = pipeline(file, overrides).lives(batch_id=batch, limit=limit)
    show(lives, as_json=as_json, text=_table if batch is None else _batch, fields=lambda found: [_fields(life) for life in found])


def offsets(
    *,
    file: File,
    batch: Annotated[int, typer.Option(min=0, metavar="N", help="The batch.", show_default=False)],
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Start and end offset of every source for one batch, as they were decided."""
    show(pipeline(file, overrides).offsets(batch), as_json=as_json, text=_offsets)


def _fields(life: "BatchLife") -> dict[str, object]:
    """Return the fields of the entry, and what was measured of its batch."""
    measured = ("publish_ms", "rows_read", "rows_per_s", "duration_ms", "replays", "warnings", "steps", "spark")
    return {**plain(life.entry), **{name: plain(getattr(life, name)) for name in measured}}


def _table(lives: "Sequence[BatchLife]") -> RenderableType:
    if not lives:
        return "The ledger is empty."
    columns = ("position", "entry", "written", "batch", "rows", "files", "size", "stage", "publish", "rows/s")
    requests = [_requests(life.entry) for life in lives]
    if not any(requests):
        return Fitting(columns, [_row(life) for life in lives], _DISPENSABLE)
    lines = [(*_row(life), asked) for life, asked in zip(lives, requests, strict=True)]
    return Fitting((*columns, "requests"), lines, _DISPENSABLE)


def _requests(row: "HistoryRow") -> str | None:
    """Return the requests to stage and to publish, None if both are unknown. Inline pieces take none to stage."""
    known = (row.stage_requests, row.publish_requests)
    if known == (None, None):
        return None
    return " + ".join("?" if number is None else formatting.count(number) for number in known)


def _row(life: "BatchLife") -> Sequence[object]:
    row = life.entry
    written = formatting.moment_of_year(row.written_at_ms)
    if row.kind != "decided":
        return (row.position, f"{row.kind} g{row.generation}", written, None, None, None, None, None, None, None)
    files = sum(totals.files for totals in row.sinks.values())
    size_bytes = sum(totals.size_bytes for totals in row.sinks.values())
    spent = (formatting.duration(row.stage_ms), formatting.duration(life.publish_ms))
    rate = None if life.rows_per_s is None else formatting.rate(life.rows_per_s)
    head = (row.position, row.kind if row.taken_back_at is None else f"{row.kind}, taken back", written)
    return (
        *head,
        row.batch_id,
        formatting.count(row.rows_out),
        formatting.count(files),
        formatting.size(size_bytes),
        *spent,
        rate,
    )


def _batch(lives: "Sequence[BatchLife]") -> RenderableType:
    if not lives:
        return (
            "The ledger holds no decision of this batch: there was none, the checkpoint was adopted after it, or it is older "
            "than what the ledger retains."
        )
    return Group(*(part for life in lives for part in _parts(life)))


def _parts(life: "BatchLife") -> "Iterator[RenderableType]":
    yield from (_table([life]), "", _sinks(life.entry), "", _offsets(life.entry))
    if life.steps:
        rows = [
            (step.kind.value, step.sink, formatting.duration(step.after_ms), formatting.duration(step.duration_ms))
            for step in life.steps
        ]
        yield from ("", table(("step", "sink", "after", "took"), rows))
    known = facts(_measured(life))
    if known.row_count:
        yield from ("", known)


def _measured(life: "BatchLife") -> "list[tuple[str, object]]":
    """Return what is known besides of a batch, None for what is not."""
    spark, again = life.spark, formatting.counted(life.replays, "time")
    has_state = spark is not None and spark.state_rows is not None
    return [
        ("read", None if life.rows_read is None else formatting.counted(life.rows_read, "record")),
        ("replayed", f"{again}, and nothing was delivered twice" if life.replays else None),
        ("state", f"{spark.state_rows:,} rows, {formatting.size(spark.state_bytes or 0)}" if spark and has_state else None),
        ("watermark", spark.watermark if spark else None),
        *(("warning", warning) for warning in life.warnings),
    ]


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
