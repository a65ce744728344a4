"""`penstock check`: what is guaranteed, why, and what would break it, before anything runs."""

import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Row, SparkSession

import penstock
from penstock.blob.client import concerns_store
from penstock.core.guarantee import Claim, too_weak
from penstock.core.model import Finding, Guarantee, SourceName, Summary
from penstock.errors import PenstockError, Usage
from penstock.protocols import ChecksSchema, HasStaging, TaskCheck
from penstock.run.assembly import DeliveryPlan, assemble, selections_of, sinks_of, spool_of
from penstock.run.continuation import require_continuation
from penstock.run.doctor import ledger_lifecycle
from penstock.run.explain import Costs, costs_of
from penstock.run.kafka_input import reader_findings, readers
from penstock.run.ledger_match import require_decided, require_present
from penstock.run.preflight.change import Preflight
from penstock.run.preflight.compare import SeenBySpark
from penstock.run.preflight.query_rules import refused_by_sinks
from penstock.run.publishing import publishing_findings
from penstock.run.query_facts import facts_of_pipeline
from penstock.run.required_guarantees import claims_of
from penstock.run.runtime import Runtime, now_ms
from penstock.run.start import frame_of, seen_by_spark
from penstock.run.startable import preflight_of
from penstock.run.state import state_findings
from penstock.run.status import input_findings
from penstock.run.user_sink import import_checks
from penstock.run.waiting_files import sample_of
from penstock.source.kafka.executor_checks import ClientCheck, registry_checks
from penstock.source.kinesis.executor_checks import stream_checks
from penstock.source.kinesis.streams import kinesis_sources
from penstock.source.naming import require_nameable
from penstock.source.unfit_rows import counts_unfit_rows, unfit_rows_in, unfit_warning
from penstock.spark.error import read_spark_failure
from penstock.spec.pipeline import PipelineSettings, quarantined, without_ledger
from penstock.stage.quarantine import require_read_once
from penstock.support.formatting import counted
from penstock.support.secret import scrub
from penstock.transform.selection import taken_of

if TYPE_CHECKING:
    import pyarrow as pa


_ROWS_FOR = "rows for "
_DATABASE = re.compile(r"^(The login at [^/\s]+)/\S+")
_OF_SOURCE = re.compile(r"^Kafka of source '[^']*' at ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One thing that must be mended before a start, and the subjects of all findings that fail because of it."""

    subjects: tuple[str, ...]
    message: str


def causes_of(findings: Iterable[Finding]) -> tuple[Cause, ...]:
    """Return the causes of the findings that fail, in their order, each once.

    One wrong password fails every sink that uses it, the rows for each of them, and tasks, whose messages begin with their host:
    findings have one cause if the message of one ends with that of the other. Brokers that are away fail sources and sinks.
    A user has one password for all databases of a server, and a key is for all containers of an account.
    """
    failed = [(finding.subject, _OF_SOURCE.sub("Kafka at ", finding.message)) for finding in findings if not finding.ok]
    causes = dict[str, tuple[str, dict[str, None]]]()
    for subject, message in failed:
        root = min((other for _, other in failed if message.endswith(other)), key=len)
        shared = concerns_store(root) or _DATABASE.sub(r"\1", root)
        causes.setdefault(shared, (root, {}))[1][subject] = None
    return tuple(Cause(subjects=tuple(subjects), message=message) for message, subjects in causes.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """The result of `check`. `given` is what the whole pipeline guarantees; `costs` is None where no request is billed."""

    pipeline: str
    demanded: Guarantee
    given: Guarantee
    claims: tuple[Claim, ...]
    findings: tuple[Finding, ...]
    costs: Costs | None = None
    preflight: Preflight = field(default_factory=Preflight)

    @property
    def too_weak(self) -> tuple[Claim, ...]:
        return too_weak(self.claims, self.demanded)

    @property
    def causes(self) -> tuple[Cause, ...]:
        """What must be mended, each thing once."""
        return causes_of(self.findings)

    @property
    def ok(self) -> bool:
        """Whether a start would be allowed and could reach everything."""
        return not self.too_weak and not self.preflight.breaks and all(finding.ok for finding in self.findings)


def check(settings: PipelineSettings, plan: DeliveryPlan, spark: SparkSession) -> CheckReport:
    """Have Spark analyse the query and check all places. Runs no batch, leaves nothing behind. Raises Usage, Refused."""
    frame, sources = frame_of(settings, spark, modules=plan.modules)
    seen = seen_by_spark(frame, tuple(sources))
    if settings.named_sources:
        require_nameable(seen.order, settings.sources)
    require_read_once(quarantined(settings), seen.order)
    found = readers(sources, settings)
    claims = claims_of(facts_of_pipeline(settings, frame, spark), plan)
    weak = too_weak(claims, Guarantee.EXACTLY_ONCE)
    findings = tuple(_findings(settings, plan, frame))
    return CheckReport(
        pipeline=settings.pipeline,
        demanded=settings.guarantee,
        given=Guarantee.AT_LEAST_ONCE if weak else Guarantee.EXACTLY_ONCE,
        claims=claims,
        findings=(
            *reader_findings(found),
            *unfit_findings(settings, sources, spark),
            *findings,
            *executor_findings(plan, spark, also=[ClientCheck()] * any(found.values())),
        ),
        costs=costs_of(plan, interval_ms=settings.trigger.processing_time),
        preflight=_preflight(settings, plan, seen, findings),
    )


def _preflight(settings: PipelineSettings, plan: DeliveryPlan, seen: SeenBySpark, findings: Sequence[Finding]) -> Preflight:
    try:
        found = preflight_of(settings, plan, seen=seen)
    except PenstockError:  # a ledger or checkpoint that cannot be read has a finding of its own
        return Preflight()
    refusals = {each.subject.removeprefix(_ROWS_FOR): each.message for each in findings if _refuses_rows(each)}
    return refused_by_sinks(found, refusals)


def _refuses_rows(finding: Finding) -> bool:
    return finding.subject.startswith(_ROWS_FOR) and not finding.ok


def unfit_findings(settings: PipelineSettings, sources: Mapping[SourceName, DataFrame], spark: SparkSession) -> Iterator[Finding]:
    """Yield a warning for each source with rows that do not fit its schema, in a few files. A small Spark job for each source."""
    for name, frame in sources.items():
        source, subject = settings.sources[name], f"rows of {name}"
        files = sample_of(source) if counts_unfit_rows(spark, source, frame.schema) else ()
        try:
            unfit, every = unfit_rows_in(spark, source, frame.schema, files) if files else (0, 0)
        except Exception as error:  # noqa: BLE001 - a file that Spark cannot read, by whichever class it is told
            reason = read_spark_failure(scrub(str(error))).sentence
            yield Finding(subject=subject, ok=True, warns=True, message=f"Some files cannot be read: {reason}")
            continue
        if unfit:
            looked_at = counted(len(files), "file that was", "files that were")
            message = unfit_warning(name, f"{unfit:,} of {every:,} rows in {looked_at} looked at do")
            yield Finding(subject=subject, ok=True, warns=True, message=message)


def _findings(settings: PipelineSettings, plan: DeliveryPlan, frame: DataFrame) -> Iterator[Finding]:
    schema, taken = frame.schema.json(), taken_of(selections_of(settings), frame)
    with closing(assemble(plan, demanded=False)) as runtime:
        for sink in runtime.sinks:
            yield from sink.check()
            if isinstance(sink, ChecksSchema):
                own = taken[sink.name].schema if sink.name in taken else schema
                admitted = partial(sink.require_schema_accepted, pipeline=runtime.pipeline, schema=own)
                yield _finding(f"{_ROWS_FOR}{sink.name}", "fit, by name and type", admitted)
        yield from publishing_findings(settings.publish_on, runtime.sinks)
        yield _finding("ledger", runtime.ledger.location, runtime.ledger.prove)
        yield from ledger_lifecycle(plan)
        yield from spool_of(plan).check()
        yield from input_findings(settings, runtime.ledger, now_ms=now_ms)
        yield from state_findings(plan, runtime.ledger)
        yield _finding("places", "hold what was delivered into them", lambda: _require_together(runtime))
        tail = runtime.ledger.tail()
        summary = Summary() if tail is None else tail.summary
        continues = "continues what the ledger holds" if summary.query_id else "is new, as the ledger expects"
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


_FINDING_ROW = "executor STRING, host STRING, subject STRING, ok BOOLEAN, message STRING"


def executor_findings(plan: DeliveryPlan, spark: SparkSession, *, also: Sequence[TaskCheck]) -> Iterator[Finding]:
    """Yield whether tasks import the same Penstock and, if so, how they find each account and the spool. Two small Spark jobs.

    Spark runs one task for each of its cores, and gives every executor a task before it gives one a second task. `also` lists
    further checks for the tasks.
    """
    importing = _importing(spark)
    yield importing
    if not importing.ok:
        return
    with ExitStack() as stack:
        sinks = sinks_of(plan)
        checked = [sink for sink in sinks if isinstance(sink, HasStaging)]
        checks = [
            *(check for sink in checked for check in stack.enter_context(sink.task_checks())),
            *also,
            *registry_checks(getattr(plan.settings, "sources", {})),
            *stream_checks(kinesis_sources(plan.settings)),
            *spool_of(plan).task_checks(),
            *import_checks({sink.name: sink for sink in sinks if sink.name in plan.settings.sinks}, plan.settings.sinks),
        ]
        if checks:
            yield from _by_subject(_rows_of_tasks(checks, spark))


def _importing(spark: SparkSession) -> Finding:
    def versions(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        for _ in batches:
            pass
        try:
            from penstock import __version__ as found
        except ImportError as missing:
            found = f"missing: {missing}"
        yield pa.RecordBatch.from_pydict({"version": [found]})

    rows = spark.range(1).mapInArrow(versions, "version STRING").collect()
    odd = sorted({row[0] for row in rows} - {penstock.__version__})
    if odd:
        return Finding(
            subject="executors",
            ok=False,
            message=f"Tasks have Penstock {odd[0]}, the driver {penstock.__version__}: install the same on every executor.",
        )
    return Finding(subject="executors", ok=True, message=f"import penstock {penstock.__version__}")


def _rows_of_tasks(checks: Sequence[TaskCheck], spark: SparkSession) -> Sequence[Row]:
    def look(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        for _ in batches:
            pass
        found = [finding for check in checks for finding in check.findings()]
        host = socket.gethostname()
        yield pa.RecordBatch.from_pydict(
            {
                "executor": [f"{host} {os.getppid()}"] * len(found),  # its workers are forked from one process
                "host": [host] * len(found),
                "subject": [finding.subject for finding in found],
                "ok": pa.array([finding.ok for finding in found], pa.bool_()),
                "message": [finding.message for finding in found],
            }
        )

    return spark.range(1).mapInArrow(look, _FINDING_ROW).collect()


def _by_subject(rows: Sequence[Row]) -> Iterator[Finding]:
    """Yield one finding for each subject. A failure on any executor takes precedence."""
    for subject in dict.fromkeys(row.subject for row in rows):
        found = [row for row in rows if row.subject == subject]
        executors = len({row.executor for row in found})
        wrong = [row for row in found if not row.ok]
        if wrong:
            failing = len({row.executor for row in wrong})
            message = f"on {wrong[0].host} ({failing} of {executors}): {wrong[0].message}"
        else:
            hosts = ", ".join(sorted({row.host for row in found}))
            message = f"{found[0].message} ({executors} looked, on {hosts})"
        yield Finding(subject=f"{subject}, from the executors", ok=not wrong, message=message)
