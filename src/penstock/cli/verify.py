"""`penstock verify`: compares every sink's content with the ledger."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from penstock.cli import formatting
from penstock.cli.opening import File, Json, Overrides, pipeline
from penstock.cli.output import hexadecimal, show
from penstock.cli.table import table
from penstock.core.model import AccountReport, Problem, RowDigest, SinkReport, Totals

if TYPE_CHECKING:
    from penstock.run.operations import Verification

DIFFERENCE = 5
"""Exit code if a difference was found."""

_PROBLEMS_SHOWN = 50
_UNSEEN = (
    "This pipeline began with an older Penstock, and its digests skip NULLs: a value that moved into a NULL column, or an "
    "empty array in place of NULL, is not seen."
)
_REMEDY = "Put back what is missing or was changed, from a backup, and take away what is foreign or twice; then verify again."


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Rows and digest that the ledger expects, and those that were found."""

    ok: bool
    rows_expected: int
    rows_found: int
    digest_expected: str
    digest_found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedAt:
    """Position of the ledger that a sink was compared as of, and the batch decided there, None if unknown."""

    position: int
    batch_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkVerdict(Compared):
    """Result of one sink: its sums, its accounts and its problems.

    `unread`: only what was published was compared, and no row was read. `as_of` is None for a sink that retains nothing to
    compare.
    """

    accounts: Mapping[str, Compared]
    problems: tuple[Problem, ...]
    unread: bool
    as_of: ComparedAt | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What `verify` prints.

    `unsettled`: number of a decided batch that some sink did not show yet. `adopted_at`: position of the last adoption of another
    checkpoint; rows decided before it can exist twice. `digest`: how rows are hashed. `unseen`: what digests of that kind cannot
    detect, None for the newest kind.
    """

    ok: bool
    sinks: Mapping[str, SinkVerdict]
    unsettled: int | None
    adopted_at: int | None
    digest: str
    unseen: str | None


def verdict(found: "Verification") -> Verdict:
    """Convert the reports of all sinks to the value that is printed."""
    return Verdict(
        ok=found.ok,
        sinks={name: _sink(report, found) for name, report in found.sinks.items()},
        unsettled=found.unsettled,
        adopted_at=found.adopted_at,
        digest=found.row_digest.value,
        unseen=_UNSEEN if found.row_digest is RowDigest.XXHASH64 else None,
    )


def _sink(report: SinkReport, whole: "Verification") -> SinkVerdict:
    at = report.as_of
    expected = sum((account.expected for account in report.accounts.values()), Totals())
    found = sum((account.found for account in report.accounts.values()), Totals())
    return SinkVerdict(
        ok=report.ok,
        rows_expected=expected.rows,
        rows_found=found.rows,
        digest_expected=hexadecimal(expected.digest),
        digest_found=hexadecimal(found.digest),
        accounts={name: _account(account) for name, account in report.accounts.items()},
        problems=report.problems,
        unread=report.unread,
        as_of=None if at is None else ComparedAt(position=at, batch_id=whole.batches.get(at)),
    )


def _account(report: AccountReport) -> Compared:
    return Compared(
        ok=report.ok,
        rows_expected=report.expected.rows,
        rows_found=report.found.rows,
        digest_expected=hexadecimal(report.expected.digest),
        digest_found=hexadecimal(report.found.digest),
    )


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
    found = verdict(pipeline(file, overrides).verify(sink))
    show(found, as_json=as_json, text=_text)
    if not found.ok:
        raise typer.Exit(DIFFERENCE)


def _text(found: Verdict) -> RenderableType:
    lines = [
        (
            name,
            account,
            formatting.count(each.rows_expected),
            formatting.count(each.rows_found),
            _digest(each, sink),
            Text("ok", "green") if each.ok else Text("DIFFERENT", "bold red"),
        )
        for name, sink in found.sinks.items()
        for account, each in (sink.accounts or {"": sink}).items()
    ]
    problems = [(name, problem) for name, sink in found.sinks.items() for problem in sink.problems]
    parts: list[RenderableType] = [table(("sink", "account", "expected", "found", "content digest", ""), lines), Text()]
    parts += [Text(line) for line in _compared_at(found)]
    parts += [_problem(name, problem) for name, problem in problems[:_PROBLEMS_SHOWN]]
    if len(problems) > _PROBLEMS_SHOWN:
        parts.append(Text(f"… and {formatting.counted(len(problems) - _PROBLEMS_SHOWN, 'problem')} more; --json lists all."))
    parts.append(_conclusion(found))
    if found.unseen is not None:
        parts.append(Text(found.unseen))
    uncompared = [name for name, sink in found.sinks.items() if sink.as_of is None]
    if uncompared:
        parts.append(
            Text(f"Nothing of {', '.join(uncompared)} was compared: its rows are not kept, or only by its driver's process.")
        )
    unread = [name for name, sink in found.sinks.items() if sink.unread]
    if unread:
        parts.append(Text(f"Of {', '.join(unread)} only what was published was compared: which rows are there your SQL knows."))
    return Group(*parts)


def _digest(each: Compared, sink: SinkVerdict) -> str:
    if sink.unread:
        return "not read"
    if each.digest_expected == each.digest_found:
        return each.digest_found
    return f"{each.digest_found}, expected {each.digest_expected}"


def _compared_at(found: Verdict) -> Iterator[str]:
    """Yield one line per position that sinks were compared as of, and one for an unsettled batch."""
    names: dict[ComparedAt, list[str]] = {}
    for name, sink in found.sinks.items():
        if sink.as_of is not None:
            names.setdefault(sink.as_of, []).append(name)
    for at, sinks in names.items():
        batch = "" if at.batch_id is None else f" (batch {at.batch_id})"
        yield f"{', '.join(sinks)}: as of position {at.position} of the ledger{batch}."
    if found.unsettled is not None:
        yield (
            f"Batch {found.unsettled} is decided, was not published everywhere, and is left out: a running driver publishes it, "
            "else `penstock recover` does."
        )


def _conclusion(found: Verdict) -> RenderableType:
    if not found.ok:
        return Text.assemble(("The sinks do not hold what the ledger says.\n", "bold red"), _REMEDY)
    compared = [sink for sink in found.sinks.values() if sink.as_of is not None]
    if not compared:
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
