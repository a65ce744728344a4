"""`penstock verify`: compares every sink's content with the ledger."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from penstock.cli import formatting
from penstock.cli.opening import File, Json, Overrides, pipeline
from penstock.cli.output import hexadecimal, show
from penstock.cli.table import table
from penstock.core.model import AccountName, AccountReport, Position, Problem, RowDigest, SinkReport, Totals

if TYPE_CHECKING:
    from penstock.run.operations import Verification

DIFFERENCE = 5
"""Exit code if a difference was found."""

_PROBLEMS_SHOWN = 50
_NULLS_UNSEEN = (
    "This pipeline began with an older Penstock, and its digests skip NULLs: a value that moved into a NULL column, or an "
    "empty array in place of NULL, is not seen."
)
_REMEDY = "Put back what is missing or was changed, from a backup, and take away what is twice; then verify again."
_REMEDY_FOR_FOREIGN = (
    "What is foreign, this pipeline did not deliver. Before you take it away, make sure that nobody needs it. Files of a job "
    "that was taken over stay in a sink of type parquet: set existing_rows: keep there."
)
_IS_FOREIGN = "is foreign"


def fields_of(found: "Verification") -> dict[str, object]:
    """Return what `verify --json` prints.

    `unsettled`: number of a decided batch that some sink did not show yet. `adopted_at`: position of the last adoption of another
    checkpoint; rows decided before it can exist twice. `digest`: how rows are hashed. `unseen`: what digests of that kind cannot
    detect, None for the newest kind. Of a sink, `unread`: only what was published was compared, and no row was read; `as_of` is
    None where nothing is retained to compare.
    """
    return {
        "ok": found.ok,
        "sinks": {name: _sink(report, found) for name, report in found.sinks.items()},
        "unsettled": found.unsettled,
        "adopted_at": found.adopted_at,
        "digest": found.row_digest.value,
        "unseen": _unseen(found),
    }


def _sink(report: SinkReport, whole: "Verification") -> dict[str, object]:
    at = report.as_of
    return {
        **_compared(_total(report), ok=report.ok),
        "accounts": {name: _compared(each, ok=_is_good(name, each, report)) for name, each in report.accounts.items()},
        "problems": report.problems,
        "unread": report.unread,
        "as_of": None if at is None else {"position": at, "batch_id": whole.batches.get(at)},
    }


def _total(report: SinkReport) -> AccountReport:
    expected = sum((account.expected for account in report.accounts.values()), Totals())
    found = sum((account.found for account in report.accounts.values()), Totals())
    return AccountReport(expected=expected, found=found)


def _compared(report: AccountReport, *, ok: bool) -> dict[str, object]:
    return {
        "ok": ok,
        "rows_expected": report.expected.rows,
        "rows_found": report.found.rows,
        "digest_expected": hexadecimal(report.expected.digest),
        "digest_found": hexadecimal(report.found.digest),
        **({"files_kept": report.kept.files} if report.kept.files else {}),
    }


def _is_good(account: AccountName, each: AccountReport, sink: SinkReport) -> bool:
    """Return whether the account holds what was decided, file by file where its files are compared."""
    if not sink.accounts:
        return sink.ok
    return each.ok and all(problem.account != account for problem in sink.problems)


def _unseen(found: "Verification") -> str | None:
    return _NULLS_UNSEEN if found.row_digest is RowDigest.XXHASH64 else None


def verify(
    *,
    file: File,
    sink: Annotated[str | None, typer.Option(metavar="NAME", help="Only this sink.")] = None,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Read every row of every sink and compare with the ledger: loss, duplicates, changes, foreign files. Exit code 5 if any.

    Works beside a running driver: each sink is compared as of one position of the ledger, and what is newer is left out.
    """
    found = pipeline(file, overrides).verify(sink)
    show(found, as_json=as_json, text=_text, fields=fields_of)
    if not found.ok:
        raise typer.Exit(DIFFERENCE)


def _text(found: "Verification") -> RenderableType:
    lines = [
        (
            name,
            account,
            formatting.count(each.expected.rows),
            formatting.count(each.found.rows),
            _digest(each, sink),
            Text("ok", "green") if _is_good(account, each, sink) else Text("DIFFERENT", "bold red"),
        )
        for name, sink in found.sinks.items()
        for account, each in (sink.accounts or {AccountName(""): _total(sink)}).items()
    ]
    problems = [(name, problem) for name, sink in found.sinks.items() for problem in sink.problems]
    parts: list[RenderableType] = [table(("sink", "account", "expected", "found", "content digest", ""), lines), Text()]
    parts += [Text(line) for line in _compared_at(found)]
    parts += [Text(line) for line in _kept(found)]
    parts += [_problem(name, problem) for name, problem in problems[:_PROBLEMS_SHOWN]]
    if len(problems) > _PROBLEMS_SHOWN:
        parts.append(Text(f"… and {formatting.counted(len(problems) - _PROBLEMS_SHOWN, 'problem')} more; --json lists all."))
    parts.append(_conclusion(found))
    if (unseen := _unseen(found)) is not None:
        parts.append(Text(unseen))
    uncompared = [name for name, sink in found.sinks.items() if sink.as_of is None]
    if uncompared:
        parts.append(
            Text(f"Nothing of {', '.join(uncompared)} was compared: its rows are not kept, or only by its driver's process.")
        )
    unread = [name for name, sink in found.sinks.items() if sink.unread]
    if unread:
        parts.append(Text(f"Of {', '.join(unread)} only publications were compared, not rows: your SQL decides which are there."))
    return Group(*parts)


def _digest(each: AccountReport, sink: SinkReport) -> str:
    if sink.unread:
        return "not read"
    expected, shown = hexadecimal(each.expected.digest), hexadecimal(each.found.digest)
    return shown if shown == expected else f"{shown}, expected {expected}"


def _compared_at(found: "Verification") -> Iterator[str]:
    """Yield one line per position that sinks were compared as of, and one for an unsettled batch."""
    names: dict[Position, list[str]] = {}
    for name, sink in found.sinks.items():
        if sink.as_of is not None:
            names.setdefault(sink.as_of, []).append(name)
    for at, sinks in names.items():
        batch = f" (batch {found.batches[at]})" if at in found.batches else ""
        yield f"{', '.join(sinks)}: as of position {at} of the ledger{batch}."
    if found.unsettled is not None:
        yield (
            f"Batch {found.unsettled} is decided, was not published everywhere, and is left out: a running driver publishes it, "
            "else `penstock recover` does."
        )


def _kept(found: "Verification") -> Iterator[str]:
    for name, sink in found.sinks.items():
        kept = sum((account.kept for account in sink.accounts.values()), Totals())
        if kept.files:
            yield f"{name}: {formatting.counted(kept.files, 'file')} of others left out, as existing_rows: keep wants it."


def _conclusion(found: "Verification") -> RenderableType:
    if not found.ok:
        is_foreign = any(_IS_FOREIGN in problem.message for sink in found.sinks.values() for problem in sink.problems)
        remedies = (_REMEDY, f"\n{_REMEDY_FOR_FOREIGN}") if is_foreign else (_REMEDY,)
        return Text.assemble(("The sinks do not hold what the ledger says.\n", "bold red"), *remedies)
    if all(sink.as_of is None for sink in found.sinks.values()):
        return Text("Nothing was compared: no sink keeps its rows where this command can read them.", "yellow")
    if found.adopted_at is None:
        return Text("Every row of the ledger is in its place once, and nothing else is.", "green")
    return Text.assemble(
        ("Every row that the ledger decided is in its place, and nothing else is.\n", "green"),
        f"Each record is there once since the adoption at position {found.adopted_at}; "
        "records that were delivered before it may be there twice.",
    )


def _problem(sink: str, problem: Problem) -> RenderableType:
    place = " ".join(
        part
        for part in (
            f"account {problem.account}" if problem.account else "",
            f"file {problem.file}" if problem.file else "",
            f"batch {problem.batch_id}" if problem.batch_id is not None else "",
        )
        if part
    )
    return Text.assemble((f"{sink}: ", "bold"), problem.message, f" ({place})" if place else "")
