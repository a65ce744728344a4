"""`penstock check` and `penstock explain`: show what is guaranteed and how a batch will run, before anything runs."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from penstock.cli.opening import File, Json, Overrides, SparkLog, debugging, pipeline, quiet_session
from penstock.cli.output import console, show, with_file
from penstock.cli.table import facts, lines, table
from penstock.errors import Failed, GuaranteeTooWeak
from penstock.support import formatting

if TYPE_CHECKING:
    from penstock.core.guarantee import Claim
    from penstock.core.model import Finding
    from penstock.run.check import CheckReport
    from penstock.run.explain import Costs, Explanation
    from penstock.run.pipeline import Pipeline
    from penstock.run.preflight.change import PipelineChange, Preflight

_IDENTITY = frozenset({"ledger", "checkpoint", "delivered offsets"})
"""Subjects of findings whose failure means that a start would be refused, not that something is unreachable."""


def check(*, context: typer.Context, file: File, overrides: Overrides = None, as_json: Json = False) -> None:
    """Print what is guaranteed for every source, operator and sink, why, and what is wrong; no batch is run.

    For a pipeline that has run, also what each change since the last run means. Exit code 3 if a guarantee is too weak, ledger,
    checkpoint or delivered offsets do not fit, or a change breaks the pipeline; 1 if anything else is wrong.
    """
    chosen = pipeline(file, overrides)
    chosen.require_parts()
    with working(chosen, context):
        report = chosen.check(quiet_session(chosen.session))
    show(report, as_json=as_json, text=_report)
    if not report.ok:
        raise typer.Exit(_code(report))


def explain(*, context: typer.Context, file: File, overrides: Overrides = None, as_json: Json = False) -> None:
    """Print how a batch will go: scans of each source, stateful operators, path, what each sink does at stage and publish."""
    chosen = pipeline(file, overrides)
    chosen.require_parts()
    with working(chosen, context):
        found = chosen.explain(quiet_session(chosen.session))
    show(found, as_json=as_json, text=_explanation)


@contextmanager
def working(chosen: "Pipeline", context: typer.Context) -> Iterator[None]:
    """On a terminal, show a status line and hide Spark's messages."""
    with ExitStack() as stack:
        if sys.stdout.isatty() and not debugging(context):
            stack.enter_context(console().status("starting Spark"))
            stack.enter_context(SparkLog(chosen.settings.home))
        yield


def _code(report: "CheckReport") -> int:
    refused = (
        report.too_weak
        or report.preflight.breaks
        or any(not finding.ok and finding.subject in _IDENTITY for finding in report.findings)
    )
    return GuaranteeTooWeak.exit_code if refused else Failed.exit_code


def _report(report: "CheckReport") -> RenderableType:
    """Render the verdict and what is wrong first, then what is guaranteed, then what was found to be fine."""
    weak = set(report.too_weak)
    claims = []
    for claim in report.claims:
        style = (
            "bold red"
            if claim in weak or claim.may_lose_rows
            else "green"
            if claim.guarantee.value == "exactly_once"
            else "yellow"
        )
        claims.append((claim.subject, Text(claim.allows, style), _reason(claim)))
    parts: list[RenderableType] = [_verdict(report)]
    parts += [_failures(report)] * bool(report.too_weak or report.causes)
    parts += _changes(report.preflight)
    warnings = [finding for finding in report.findings if finding.ok and finding.warns]
    if warnings:
        listed = ((finding.subject, Text("warning", "yellow"), finding.message) for finding in warnings)
        parts += [Text(), table(("looked at", "", "what will hurt"), listed)]
    parts += [Text(), table(("part", "guarantee", "why"), claims)]
    fine = [(finding.subject, Text("ok", "green"), finding.message) for finding in report.findings if _is_fine(finding)]
    if fine:
        parts += [Text(), table(("looked at", "", "result"), fine)]
    if report.costs is not None:
        parts += [Text(), facts([("requests", _costs(report.costs))])]
    return Group(*parts)


def _is_fine(finding: "Finding") -> bool:
    return finding.ok and not finding.warns


def _verdict(report: "CheckReport") -> Text:
    """Return whether a start would work, and how many things keep it from working."""
    broken = [change.reason for change in report.preflight.changes if change.verdict.value == "breaks"]
    others = [reason for reason in broken if not any(cause.message in reason for cause in report.causes)]
    wrong = len(report.too_weak) + len(report.causes) + len(others)
    state = (f"NOT ready: {formatting.counted(wrong, 'thing')} must be mended before a start", "bold red")
    both = f"It demands {report.demanded.value} and gives {report.given.value}"
    refused = ": a start would be refused." if report.too_weak else "."
    losing = [claim.subject for claim in report.claims if claim.may_lose_rows]
    lost = (f"\nRows can be lost unseen: {', '.join(losing)}.", "bold red") if losing else ""
    return Text.assemble(
        (report.pipeline, "bold"), "  ", ("ready to start", "bold green") if report.ok else state, "\n", both, refused, lost
    )


_SHORT = 200
_VERDICTS = {"breaks": "bold red", "safe_with_action": "yellow", "safe": "green"}


def _changes(found: "Preflight") -> "Iterator[RenderableType]":
    """Yield a table of what changed since the last run, and what could not be compared."""
    if found.last_run is None:
        return
    if found.changes:
        rows = ((change.part, _verdict_of(change), _meaning(change)) for change in found.changes)
        yield from (Text(), table(("changed since the last run", "", "what it means"), rows))
    elif found.described:
        yield from (Text(), Text("nothing changed since the last run"))
    if not found.described:
        yield from (Text(), Text("the last run left no description here: only ledger and checkpoint were compared", "dim"))
    if found.uncompared:
        yield Text(f"not compared, as the environment gives it: {', '.join(found.uncompared)}", "dim")


def _verdict_of(change: "PipelineChange") -> Text:
    return Text(change.verdict.value.upper().replace("_", " "), _VERDICTS[change.verdict.value])


def _meaning(change: "PipelineChange") -> Text:
    is_whole = not change.before and not change.now
    values = "removed" if change.now is None else "added"
    if not is_whole:
        values = f"{_short(change.before)} -> {_short(change.now)}"
    text = Text.assemble((f"{values}\n", "dim"), with_file(change.reason))
    if change.action:
        text.append(f"\n{with_file(change.action)}", "bold")
    return text


def _short(value: str | None) -> str:
    shown = value or "(not set)"
    return shown if len(shown) <= _SHORT else f"{shown[:_SHORT]}…"


def _failures(report: "CheckReport") -> RenderableType:
    """Render each part that is too weak, and each cause of failures once with all that it concerns."""
    weak = (
        Text.assemble((claim.subject, "bold"), f"{'' if claim.may_lose_rows else ' gives'} {claim.allows}. ", _reason(claim))
        for claim in report.too_weak
    )
    causes = (_cause(cause.subjects, cause.message) for cause in report.causes)
    numbered = ((Text(str(number), "bold red"), text) for number, text in enumerate((*weak, *causes), start=1))
    return Group(Text(), lines(numbered))


def _cause(subjects: Sequence[str], message: str) -> Text:
    if len(subjects) == 1:
        return Text.assemble((subjects[0], "bold"), f": {with_file(message)}")
    return Text.assemble(with_file(message), (f"\nconcerns {'; '.join(subjects)}", "dim"))


def _reason(claim: "Claim") -> Text:
    text = Text(claim.why)
    for broken in claim.breaks:
        text.append(f"\nbroken by: {broken}", "dim")
    for warning in claim.warnings:
        text.append(f"\nwarning: {warning}", "yellow")
    if claim.remedy:
        text.append(f"\nremedy: {claim.remedy}", "bold")
    return text


def _explanation(found: "Explanation") -> RenderableType:
    scans = ", ".join(f"{name} {'once' if times == 1 else f'{times} times'}" for name, times in found.scans.items())
    pairs = (
        ("reads per batch", scans),
        ("state", ", ".join(found.stateful) or "none"),
        ("columns", ", ".join(found.columns)),
        ("path", found.path),
        ("publishing", found.publishing),
        ("ledger", found.ledger),
        ("batches a day", None if found.batches_per_day is None else f"at most {formatting.count(found.batches_per_day)}"),
        ("requests", None if found.costs is None else _costs(found.costs)),
    )
    rows = ((sink, step, does) for sink, steps in found.sinks.items() for step, does in steps.items())
    return Group(Text(found.pipeline, "bold"), "", facts(pairs), "", table(("sink", "step", "what happens"), rows))


def _costs(costs: "Costs") -> str:
    """Return the requests of a batch and, if the trigger has an interval, of a day."""
    if costs.measured_batches:
        batches = "batch" if costs.measured_batches == 1 else formatting.counted(costs.measured_batches, "batch", "batches")
        text = f"{_rounded(costs.requests_per_batch)} a batch, measured over the last {batches}"
    else:
        small, uploaded = _rounded(costs.estimated.small), _rounded(costs.estimated.uploaded)
        text = f"about {small} a batch with one small file for each account, {uploaded} if they are uploaded (estimated)"
    if costs.interval_ms is None or costs.requests_per_day is None:
        return text
    looks = costs.look_requests_per_day
    watching = f", and {formatting.count(looks)} to see whether a newer run took over" if looks else ""
    per_day = formatting.count(costs.requests_per_day)
    return f"{text}; at a trigger of {costs.interval_ms / 1000:g} s at most {per_day} a day{watching}"


def _rounded(requests: float) -> str:
    return f"{round(requests, 1):,g}"
