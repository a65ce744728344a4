"""Who publishes into a sink: what `check` says of it, and how a task's error reaches the driver."""

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from penstock.core.model import SinkKind, SinkName
from penstock.errors import OutcomeUnknown, Retryable
from penstock.run.publishing import publishing_findings
from penstock.sink.kafka.errors import Overtaken
from penstock.stage.publishing import PublishPass, publish_in_tasks
from penstock.support.error_transport import errors_through_spark, from_task


@dataclass
class Target:
    name: SinkName
    kind: SinkKind


@dataclass
class Lanes(Target):
    tasks_per_batch: int = 4

    def publish_by(self, run_tasks: object) -> None: ...


def said(*sinks: Any) -> dict[str, str]:
    return {finding.subject: finding.message for finding in publishing_findings("executors", sinks)}


def test_check_says_who_publishes_into_each_sink() -> None:
    found = said(
        Lanes(SinkName("events"), SinkKind.TRANSACTIONAL),
        Lanes(SinkName("named"), SinkKind.IDEMPOTENT, tasks_per_batch=0),
        Target(SinkName("table"), SinkKind.TRANSACTIONAL),
        Target(SinkName("lake"), SinkKind.STAGING),
    )
    assert "on the executors by up to 4 tasks at a time" in found["sink events"]
    assert "by the driver: nothing fences a task" in found["sink named"]
    assert "by the driver: one transaction takes the whole batch" in found["sink table"]
    assert "by the driver: tasks have put its rows in their place already" in found["sink lake"]
    assert "publish_on" not in found


def test_check_warns_where_it_changes_nothing() -> None:
    [*_, warning] = publishing_findings("executors", [Target(SinkName("lake"), SinkKind.STAGING)])  # type: ignore[list-item]
    assert (warning.subject, warning.warns) == ("publish_on", True)
    assert not list(publishing_findings("driver", []))


def test_an_error_of_the_sinks_own_arrives_as_the_kind_that_everybody_knows() -> None:
    with pytest.raises(RuntimeError) as sent, errors_through_spark():
        raise Overtaken("Another run publishes.", remedy="Stop it.")
    arrived = from_task(str(sent.value))
    assert type(arrived) is Retryable
    assert (arrived.message, arrived.remedy) == ("Another run publishes.", "Stop it.")


class Session:
    """Stands in for Spark, whose job is given up."""

    tasks: ClassVar[int] = 0

    def range(self, *given: int) -> "Session":
        type(self).tasks = given[-1]
        return self

    def mapInArrow(self, run: PublishPass, schema: str) -> "Session":  # noqa: N802 - Spark's name
        assert (len(run.tasks), schema) == (self.tasks, "number LONG, answer STRING")
        return self

    def collect(self) -> object:
        raise RuntimeError("Job aborted due to stage failure: ExecutorLostFailure")


def test_a_job_that_spark_gave_up_leaves_the_outcome_to_the_markers() -> None:
    with pytest.raises(OutcomeUnknown, match="gave up tasks"):
        publish_in_tasks(Session(), [None, None])  # type: ignore[arg-type, list-item]
