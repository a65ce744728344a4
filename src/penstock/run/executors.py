"""What `penstock check` finds on the executors: the same Penstock, and every account within reach.

Spark runs one task for each of its cores, and gives every executor a task before it gives one a second task.
"""

import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import penstock
from penstock.core.model import Finding
from penstock.protocols import HasStaging, TaskCheck
from penstock.run.assembly import DeliveryPlan, sinks_of, spool_of
from penstock.run.user_sink import import_checks
from penstock.source.kafka.executor_checks import registry_checks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_FINDING_ROW = "executor STRING, host STRING, subject STRING, ok BOOLEAN, message STRING"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A finding of one task. `executor` distinguishes executors of one host."""

    executor: str
    host: str
    finding: Finding


def executor_findings(plan: DeliveryPlan, spark: "SparkSession", *, also: Sequence[TaskCheck] = ()) -> Iterator[Finding]:
    """Yield whether tasks import the same Penstock and, if so, how they find each account and the spool. Two small Spark jobs.

    `also` lists further checks for the tasks.
    """
    importing = _importing(spark)
    yield importing
    if not importing.ok:
        return
    with ExitStack() as stack:
        sinks = sinks_of(plan)
        checked = [sink for sink in sinks if isinstance(sink, HasStaging)]
        checks = [check for sink in checked for check in stack.enter_context(sink.task_checks())]
        checks += [*also, *registry_checks(getattr(plan.settings, "sources", {}))]
        checks += [
            *spool_of(plan).task_checks(),
            *import_checks({sink.name: sink for sink in sinks if sink.name in plan.settings.sinks}, plan.settings.sinks),
        ]
        if checks:
            yield from _gathered(_seen_by_tasks(checks, spark))


def _importing(spark: "SparkSession") -> Finding:
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


def _seen_by_tasks(checks: Sequence[TaskCheck], spark: "SparkSession") -> Sequence[_Seen]:
    def look(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        for _ in batches:
            pass
        yield look_around(checks)

    rows = spark.range(1).mapInArrow(look, _FINDING_ROW).collect()
    return [_Seen(executor=row[0], host=row[1], finding=Finding(subject=row[2], ok=row[3], message=row[4])) for row in rows]


def look_around(checks: Sequence[TaskCheck]) -> "pa.RecordBatch":
    """Return what one task finds. Workers of one executor are forked from one process, whose id identifies the executor."""
    import os

    import pyarrow as pa

    found = [finding for check in checks for finding in check.findings()]
    host = socket.gethostname()
    return pa.RecordBatch.from_pydict(
        {
            "executor": [f"{host} {os.getppid()}"] * len(found),
            "host": [host] * len(found),
            "subject": [finding.subject for finding in found],
            "ok": pa.array([finding.ok for finding in found], pa.bool_()),
            "message": [finding.message for finding in found],
        }
    )


def _gathered(seen: Sequence[_Seen]) -> Iterator[Finding]:
    """Yield one finding for each subject. A failure on any executor takes precedence."""
    for subject in dict.fromkeys(one.finding.subject for one in seen):
        findings = [one for one in seen if one.finding.subject == subject]
        executors = len({one.executor for one in findings})
        wrong = [one for one in findings if not one.finding.ok]
        if wrong:
            failing = len({one.executor for one in wrong})
            message = f"on {wrong[0].host} ({failing} of {executors}): {wrong[0].finding.message}"
        else:
            hosts = ", ".join(sorted({one.host for one in findings}))
            message = f"{findings[0].finding.message} ({executors} looked, on {hosts})"
        yield Finding(subject=f"{subject}, from the executors", ok=not wrong, message=message)
