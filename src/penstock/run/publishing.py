"""Which processes publish what was decided, sink by sink, for `penstock check`."""

from collections.abc import Iterator, Mapping, Sequence

from penstock.core.model import Finding, SinkKind
from penstock.core.publish_task import PublishesInTasks
from penstock.protocols import Sink
from penstock.spec.pipeline import PublishOn

_BY_DRIVER: Mapping[SinkKind, str] = {
    SinkKind.STAGING: "tasks have put its rows in their place already, and the driver only makes them visible",
    SinkKind.TRANSACTIONAL: "one transaction takes the whole batch",
    SinkKind.IDEMPOTENT: "nothing fences a task that goes on after Spark gave it up",
}


def publishing_findings(publish_on: PublishOn, sinks: Sequence[Sink]) -> Iterator[Finding]:
    """Yield for each sink who publishes into it, and a warning if tasks can publish into none; nothing for the default."""
    if publish_on == "driver":
        return
    tasks = {sink.name: sink.tasks_per_batch if isinstance(sink, PublishesInTasks) else 0 for sink in sinks}
    for sink in sinks:
        yield Finding(subject=f"sink {sink.name}", ok=True, message=_publisher(tasks[sink.name], sink))
    if not any(tasks.values()):
        yield Finding(
            subject="publish_on",
            ok=True,
            warns=True,
            message="executors changes nothing here: of these sinks none can be published by tasks",
        )


def _publisher(tasks: int, sink: Sink) -> str:
    if tasks == 0:
        return f"is published by the driver: {_BY_DRIVER[sink.kind]}"
    at_a_time = (
        "one task at a time; the sink's `lanes` or `concurrency` sets how many"
        if tasks == 1
        else f"up to {tasks} tasks at a time"
    )
    return f"is published on the executors by {at_a_time}; small batches by the driver"
