"""`penstock check` and `penstock explain`: show what is guaranteed and how a batch will run, before anything runs."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from penstock.cli import formatting
from penstock.cli.opening import File, Json, Overrides, SparkLog, debugging, pipeline, quiet_session
from penstock.cli.output import console, show
from penstock.cli.table import facts, table
from penstock.errors import Failed, GuaranteeTooWeak

if TYPE_CHECKING:
    from penstock.core.guarantee import Claim
    from penstock.core.model import Finding
    from penstock.run.check import CheckReport
    from penstock.run.explain import Costs, Explanation
    from penstock.run.pipeline import Pipeline

_IDENTITY = frozenset({"ledger", "checkpoint", "delivered offsets"})
"""Subjects of findings whose failure means that a start would be refused, not that something is unreachable."""


def check(*, context: typer.Context, file: File, overrides: Overrides = None, as_json: Json = False) -> None:
    """Print what is guaranteed for every source, operator and sink, why, and what is wrong; nothing is run or changed.

    Exit code 3 if a guarantee is too weak, or ledger, checkpoint or delivered offsets do not fit; 1 if anything else is wrong.
    """
    chosen = pipeline(file, overrides)
    with _working(chosen, context):
        report = chosen.check(quiet_session(chosen.session))
    show(report, as_json=as_json, text=_report)
    if not report.ok:
        raise typer.Exit(_code(report))


def explain(*, context: typer.Context, file: File, overrides: Overrides = None, as_json: Json = False) -> None:
    """Print how a batch will go: scans of each source, stateful operators, path, what each sink does at stage and publish."""
    chosen = pipeline(file, overrides)
    with _working(chosen, context):
        found = chosen.explain(quiet_session(chosen.session))
    show(found, as_json=as_json, text=_explanation)


@contextmanager
def _working(chosen: "Pipeline", context: typer.Context) -> Iterator[None]:
    """On a terminal, show a status line and hide Spark's messages."""
    with ExitStack() as stack:
        if sys.stdout.isatty() and not debugging(context):
            stack.enter_context(console().status("starting Spark"))
            stack.enter_context(SparkLog(chosen.settings.home))
        yield


def _code(report: "CheckReport") -> int:
    refused = report.too_weak or any(not finding.ok and finding.subject in _IDENTITY for finding in report.findings)
    return GuaranteeTooWeak.exit_code if refused else Failed.exit_code


def _report(report: "CheckReport") -> RenderableType:
    weak = set(report.too_weak)
    rows = []
    for claim in report.claims:
        style = "bold red" if claim in weak else "green" if claim.guarantee.value == "exactly_once" else "yellow"
        rows.append((claim.subject, Text(claim.guarantee.value, style), _reason(claim)))
    claims = table(("part", "guarantee", "why"), rows)
    findings = table(
        ("looked at", "", "result"), ((finding.subject, _mark(finding), finding.message) for finding in report.findings)
    )
    costs = () if report.costs is None else (facts([("requests", _costs(report.costs))]), "")
    return Group(Text(report.pipeline, "bold"), "", claims, "", findings, "", *costs, *_conclusion(report))


def _reason(claim: "Claim") -> Text:
    text = Text(claim.why)
    for broken in claim.breaks:
        text.append(f"\nbroken by: {broken}", "dim")
    for warning in claim.warnings:
        text.append(f"\nwarning: {warning}", "yellow")
    if claim.remedy:
        text.append(f"\nremedy: {claim.remedy}", "bold")
    return text


def _mark(finding: "Finding") -> Text:
    if finding.ok and finding.warns:
        return Text("warning", "yellow")
    return Text("ok", "green") if finding.ok else Text("NO", "bold red")


def _conclusion(report: "CheckReport") -> Iterator[Text]:
    both = f"The pipeline demands {report.demanded.value} and gives {report.given.value}"
    if report.too_weak:
        yield Text(f"{both}: a start would be refused.", "bold red")
    else:
        yield Text(f"{both}.", "green")
    wrong = [finding for finding in report.findings if not finding.ok]
    if wrong:
        yield Text(f"{formatting.counted(len(wrong), 'thing')} must be mended before a start: see NO above.", "bold red")


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
