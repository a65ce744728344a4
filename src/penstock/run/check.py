"""`penstock check`: what is guaranteed, why, and what would break it, before anything runs."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.claim import Claim, too_weak
from penstock.errors import GuaranteeTooWeak, PenstockError, Usage
from penstock.model import Finding, Guarantee, SinkKind, Summary
from penstock.protocols import Admitting, Projecting, Sink
from penstock.run.assembly import sinks_of, spool_of
from penstock.run.costs import Costs, costs_of
from penstock.run.doctor import ledger_lifecycle
from penstock.run.executors import executor_findings
from penstock.run.kafka_lag import input_findings
from penstock.run.kafka_readers import reader_findings, readers
from penstock.run.operations import acting
from penstock.run.parts import Parts, now_ms
from penstock.run.preflight import require_continuation
from penstock.run.presence import require_decided, require_present
from penstock.run.quarantine import require_read_once
from penstock.source.guarantee import relevant_confs, source_claims
from penstock.source.kafka.reader.client_check import ClientCheck
from penstock.sparkerror import read_spark_error
from penstock.spec.pipeline import quarantined
from penstock.transform.guarantee import operator_claims, output_mode_claim, require_mode, trigger_claim
from penstock.transform.plan import plan_of, source_order

if TYPE_CHECKING:
    from penstock.run.pipeline import Pipeline

_WHY: Mapping[SinkKind, str] = {
    SinkKind.STAGING: "Rows are staged where no reader looks, decided once in the ledger, and moved into place by name.",
    SinkKind.TRANSACTIONAL: "Rows and the mark that the batch is there commit in one transaction.",
    SinkKind.IDEMPOTENT: "The same batch writes the same keys with the same values, however often.",
}

UNPROVED: Mapping[str, str] = {
    "redshift": " Not run against a live server: only by Redshift's driver on a PostgreSQL that stands in for it.",
    "sqlserver": " Not run against a live server: only its statements, on SQLite behind a stand-in for the driver.",
}
"""Kinds of sinks that nobody has run against what they are for."""

_AS_WRITTEN = " So its author says: the suite of penstock.testing shows whether it is true."


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """Everything `check` found. `given` is what the whole pipeline guarantees; `costs` is None where no request is billed."""

    pipeline: str
    demanded: Guarantee
    given: Guarantee
    claims: tuple[Claim, ...]
    findings: tuple[Finding, ...]
    costs: Costs | None = None

    @property
    def too_weak(self) -> tuple[Claim, ...]:
        """The parts that give less than is demanded."""
        return too_weak(self.claims, self.demanded)

    @property
    def ok(self) -> bool:
        """Whether a start would be let through and could reach everything."""
        return not self.too_weak and all(finding.ok for finding in self.findings)


def check(pipeline: "Pipeline", spark: SparkSession | None) -> CheckReport:
    """Called by `Pipeline.check`. Starts Spark to analyse the query; runs no batch, leaves nothing. Raises Usage, Refused."""
    session = spark or pipeline.session()
    frame, sources = pipeline.frame(session)
    require_read_once(quarantined(pipeline.settings), source_order(plan_of(frame), tuple(sources)))
    found = readers(sources, pipeline.settings)
    claims = claims_of(pipeline, frame, session)
    weak = too_weak(claims, Guarantee.EXACTLY_ONCE)
    return CheckReport(
        pipeline=pipeline.settings.pipeline,
        demanded=pipeline.settings.guarantee,
        given=Guarantee.AT_LEAST_ONCE if weak else Guarantee.EXACTLY_ONCE,
        claims=claims,
        findings=(
            *reader_findings(found),
            *_findings(pipeline, frame.schema.json()),
            *executor_findings(pipeline.plan, session, also=[ClientCheck()] * any(found.values())),
        ),
        costs=costs_of(pipeline),
    )


def require_demanded(pipeline: "Pipeline", frame: DataFrame, spark: SparkSession) -> None:
    """Raise GuaranteeTooWeak if some part of the pipeline gives less than is demanded; Usage for an impossible output mode."""
    weak = too_weak(claims_of(pipeline, frame, spark), pipeline.settings.guarantee)
    if weak:
        raise GuaranteeTooWeak(
            f"The pipeline demands exactly_once, but {weak[0].subject} gives at_least_once: {weak[0].why}",
            remedy=f"{weak[0].remedy} Or demand `guarantee: at_least_once`.".lstrip(),
        )


def claims_of(pipeline: "Pipeline", frame: DataFrame, spark: SparkSession) -> tuple[Claim, ...]:
    """Every claim, in the order of a row's way. Raises Usage for an output mode that Spark would refuse."""
    settings, plan, sinks = pipeline.settings, plan_of(frame), sinks_of(pipeline.plan)
    require_mode(plan, output_mode=settings.output_mode)
    for sink in sinks:
        _require_routable(frame, sink)
        _require_projectable(frame, sink)
    return (
        *source_claims(settings.sources, relevant_confs(spark)),
        *operator_claims(plan, output_mode=settings.output_mode),
        output_mode_claim(settings.output_mode),
        trigger_claim(settings.trigger),
        *(_sink_claim(sink, settings.sinks[sink.name].type if sink.name in settings.sinks else "parquet") for sink in sinks),
    )


def _require_routable(frame: DataFrame, sink: Sink) -> None:
    """Raise Usage if the route of `sink` cannot be computed from the rows."""
    if sink.route_sql is None:
        return
    try:
        _ = frame.selectExpr(sink.route_sql).schema
    except PySparkException as error:
        raise Usage(
            f"sinks.{sink.name}.route cannot be computed from the rows: {read_spark_error(str(error)).sentence}",
            remedy=f"The rows have {', '.join(frame.columns)}: correct the route or the transform.",
        ) from error


def _require_projectable(frame: DataFrame, sink: Sink) -> None:
    """Raise Usage if the rows that `sink` takes cannot be made of those of the pipeline."""
    own = sink.own_rows(frame.schema.json()) if isinstance(sink, Projecting) else None
    if own is None:
        return
    try:
        _ = frame.selectExpr(*own.columns.values()).schema
    except PySparkException as error:
        raise Usage(
            f"sinks.{sink.name} cannot make its records of the rows: {read_spark_error(str(error)).sentence}",
            remedy="Leave such a column out, or cast it in the transform.",
        ) from error


def _sink_claim(sink: Sink, kind: str) -> Claim:
    subject = f"sink {sink.name} ({kind})"
    if not sink.exactly_once:
        return Claim(
            subject=subject,
            guarantee=Guarantee.AT_LEAST_ONCE,
            why="It may show a batch again after a crash.",
            remedy="Take it out.",
        )
    whose = _AS_WRITTEN if kind == "python" else UNPROVED.get(kind, "")
    return Claim(subject=subject, guarantee=Guarantee.EXACTLY_ONCE, why=_WHY[sink.kind] + whose)


def _findings(pipeline: "Pipeline", schema: str) -> Iterator[Finding]:
    with acting(pipeline.plan, demanded=False) as parts:
        for sink in parts.sinks:
            yield from sink.check()
            if isinstance(sink, Admitting):
                admitted = partial(sink.require_admitted, pipeline=parts.pipeline, schema=schema)
                yield _finding(f"rows for {sink.name}", "fit, by name and type", admitted)
        yield _finding("ledger", parts.ledger.location, parts.ledger.prove)
        yield from ledger_lifecycle(pipeline.plan)
        yield from spool_of(pipeline.plan).check()
        yield from input_findings(pipeline.settings, parts.ledger, now_ms=now_ms)
        yield _finding("places", "hold what was delivered into them", lambda: _require_together(parts))
        tail = parts.ledger.tail()
        summary = Summary() if tail is None else tail.summary
        continues = "continues what the ledger holds" if summary.query_id else "nothing was delivered yet"
        yield _finding("checkpoint", continues, lambda: require_continuation(summary, parts.checkpoint))


def _require_together(parts: Parts) -> None:
    markers = require_present(parts.ledger, parts.sinks, pipeline=parts.pipeline)
    require_decided(parts.ledger, parts.sinks, pipeline=parts.pipeline, markers=markers)


def _finding(subject: str, fine: str, prove: Callable[[], None]) -> Finding:
    try:
        prove()
    except Usage:
        raise
    except PenstockError as error:
        return Finding(subject=subject, ok=False, message=str(error))
    return Finding(subject=subject, ok=True, message=fine)
