"""`penstock check`: what is guaranteed, why, and what would break it, before anything runs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from pyspark.sql import SparkSession

from penstock.core.guarantee import Claim, too_weak
from penstock.core.model import Finding, Guarantee, Summary
from penstock.errors import PenstockError, Usage
from penstock.protocols import ChecksSchema
from penstock.run.assembly import DeliveryPlan, spool_of
from penstock.run.doctor import ledger_lifecycle
from penstock.run.executors import executor_findings
from penstock.run.frame import frame_of
from penstock.run.kafka_lag import input_findings
from penstock.run.kafka_readers import reader_findings, readers
from penstock.run.ledger_match import require_decided, require_present
from penstock.run.operations import opened_runtime
from penstock.run.preflight import require_continuation
from penstock.run.query_facts import facts_of_pipeline
from penstock.run.request_costs import Costs, costs_of
from penstock.run.required_guarantees import claims_of
from penstock.run.runtime import Runtime, now_ms
from penstock.source.kafka.executor_checks import ClientCheck
from penstock.spec.pipeline import PipelineSettings, quarantined, without_ledger
from penstock.stage.quarantine import require_read_once
from penstock.transform.plan import plan_of, source_order


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """The result of `check`. `given` is what the whole pipeline guarantees; `costs` is None where no request is billed."""

    pipeline: str
    demanded: Guarantee
    given: Guarantee
    claims: tuple[Claim, ...]
    findings: tuple[Finding, ...]
    costs: Costs | None = None

    @property
    def too_weak(self) -> tuple[Claim, ...]:
        """The claims that give less than is demanded."""
        return too_weak(self.claims, self.demanded)

    @property
    def ok(self) -> bool:
        """Whether a start would be allowed and could reach everything."""
        return not self.too_weak and all(finding.ok for finding in self.findings)


def check(settings: PipelineSettings, plan: DeliveryPlan, spark: SparkSession) -> CheckReport:
    """Have Spark analyse the query and check all places. Runs no batch, leaves nothing behind. Raises Usage, Refused."""
    frame, sources = frame_of(settings, spark, modules=plan.modules)
    require_read_once(quarantined(settings), source_order(plan_of(frame), tuple(sources)))
    found = readers(sources, settings)
    claims = claims_of(facts_of_pipeline(settings, frame, spark), plan)
    weak = too_weak(claims, Guarantee.EXACTLY_ONCE)
    return CheckReport(
        pipeline=settings.pipeline,
        demanded=settings.guarantee,
        given=Guarantee.AT_LEAST_ONCE if weak else Guarantee.EXACTLY_ONCE,
        claims=claims,
        findings=(
            *reader_findings(found),
            *_findings(settings, plan, frame.schema.json()),
            *executor_findings(plan, spark, also=[ClientCheck()] * any(found.values())),
        ),
        costs=costs_of(plan, interval_ms=settings.trigger.processing_time),
    )


def _findings(settings: PipelineSettings, plan: DeliveryPlan, schema: str) -> Iterator[Finding]:
    with opened_runtime(plan, demanded=False) as runtime:
        for sink in runtime.sinks:
            yield from sink.check()
            if isinstance(sink, ChecksSchema):
                admitted = partial(sink.require_schema_accepted, pipeline=runtime.pipeline, schema=schema)
                yield _finding(f"rows for {sink.name}", "fit, by name and type", admitted)
        yield _finding("ledger", runtime.ledger.location, runtime.ledger.prove)
        yield from ledger_lifecycle(plan)
        yield from spool_of(plan).check()
        yield from input_findings(settings, runtime.ledger, now_ms=now_ms)
        yield _finding("places", "hold what was delivered into them", lambda: _require_together(runtime))
        tail = runtime.ledger.tail()
        summary = Summary() if tail is None else tail.summary
        continues = "continues what the ledger holds" if summary.query_id else "nothing was delivered yet"
        if without_ledger(settings) is None:
            yield _finding("checkpoint", continues, lambda: require_continuation(summary, runtime.checkpoint))


def _require_together(runtime: Runtime) -> None:
    markers = require_present(runtime.ledger, runtime.sinks, pipeline=runtime.pipeline)
    require_decided(runtime.ledger, runtime.sinks, pipeline=runtime.pipeline, markers=markers)


def _finding(subject: str, fine: str, prove: Callable[[], None]) -> Finding:
    try:
        prove()
    except Usage:
        raise
    except PenstockError as error:
        return Finding(subject=subject, ok=False, message=str(error))
    return Finding(subject=subject, ok=True, message=fine)
