"""`penstock verify`: every sink's content against the ledger."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import words
from penstock.cli.jsontext import hexadecimal
from penstock.cli.opening import pipeline
from penstock.cli.options import File, Json, Overrides
from penstock.cli.show import show
from penstock.model import AccountReport, Problem, SinkReport, Totals

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.run.operations import Verification

DIFFERENCE = 5
"""Exit code when something was found."""

_PROBLEMS_SHOWN = 50
_REMEDY = "Put back what is missing or was changed, from a backup, and take away what is foreign or twice; then verify again."


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Rows and digest as the ledger expects them and as they were found."""

    ok: bool
    rows_expected: int
    rows_found: int
    digest_expected: str
    digest_found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkVerdict(Compared):
    """One sink: its sums, its accounts and what is wrong. `unread`: what was published was compared, and no row was read."""

    accounts: Mapping[str, Compared]
    problems: tuple[Problem, ...]
    unread: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What `verify` prints."""

    ok: bool
    sinks: Mapping[str, SinkVerdict]


def verdict(found: "Verification") -> Verdict:
    """The report of every sink in the shape that programs read."""
    return Verdict(ok=found.ok, sinks={name: _sink(report) for name, report in found.sinks.items()})


def _sink(report: SinkReport) -> SinkVerdict:
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
    """Read every row of every sink and compare with the ledger: loss, duplicates, changes, foreign files. Exit code 5 if any."""
    report = pipeline(file, overrides).verify(sink)
    found = verdict(report)
    show(found, as_json=as_json, text=partial(_text, unsettled=report.unsettled))
    if not found.ok:
        raise typer.Exit(DIFFERENCE)


def _text(found: Verdict, *, unsettled: int | None = None) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    from penstock.cli.table import table

    lines = [
        (name, account, words.count(each.rows_expected), words.count(each.rows_found), _digest(each, sink), _mark(ok=each.ok))
        for name, sink in found.sinks.items()
        for account, each in (sink.accounts or {"": sink}).items()
    ]
    problems = [(name, problem) for name, sink in found.sinks.items() for problem in sink.problems]
    parts: list[RenderableType] = [table(("sink", "account", "expected", "found", "content digest", ""), lines), Text()]
    parts += [_problem(name, problem) for name, problem in problems[:_PROBLEMS_SHOWN]]
    if len(problems) > _PROBLEMS_SHOWN:
        parts.append(Text(f"… and {words.counted(len(problems) - _PROBLEMS_SHOWN, 'problem')} more; --json lists all."))
    parts.append(_conclusion([problem.batch_id for _, problem in problems], ok=found.ok, unsettled=unsettled))
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


def _mark(*, ok: bool) -> "RenderableType":
    from rich.text import Text

    return Text("ok", "green") if ok else Text("DIFFERENT", "bold red")


def _conclusion(batches: Sequence[int | None], *, ok: bool, unsettled: int | None) -> "RenderableType":
    from rich.text import Text

    if ok:
        return Text("Every row of the ledger is in its place once, and nothing else is.", "green")
    remedies = []
    if unsettled is not None and unsettled in batches:
        decided = f"Batch {unsettled} is decided and not published everywhere: "
        remedies.append(f"{decided}unless a driver runs, `penstock recover` publishes it; then verify again.")
    if not remedies or set(batches) != {unsettled}:
        remedies.append(_REMEDY)
    return Text.assemble(("The sinks do not hold what the ledger says.\n", "bold red"), "\n".join(remedies))


def _problem(sink: str, problem: Problem) -> "RenderableType":
    from rich.text import Text

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


def add_to(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(rich_help_panel="Look")(verify)
