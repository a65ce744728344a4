"""The `Runtime` of one run (ledger, sinks and checkpoint), how it is prepared, and the coordinator over it."""

import logging
import os
import platform
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import penstock
from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.commit.acts import ActingCoordinator
from penstock.commit.append import RETRY_TIMEOUT_S, Sleep, stop_after_time, with_backoff
from penstock.commit.executor import DeferredPublish, Timed
from penstock.commit.publication import sinks_apart
from penstock.commit.rewind import require_rewound
from penstock.core.model import (
    NEWEST_ROW_DIGEST,
    BatchId,
    Entry,
    Guarantee,
    Nonce,
    Opened,
    PipelineName,
    Position,
    SinkName,
    SourceName,
)
from penstock.core.publish_task import PublishesInTasks
from penstock.protocols import ALL_ROWS, HashesRows, Ledger, Sink, Taken
from penstock.run.ledger_match import require_decided, require_own_staging, require_present
from penstock.run.removed_directories import removed_directories
from penstock.sink.concurrent import map_concurrently
from penstock.source.chain.settings import ChainSettings
from penstock.source.journal.journals import Journals
from penstock.source.kafka.watch import Watch
from penstock.source.kinesis.settings import KinesisSettings
from penstock.spec.pipeline import PublishOn
from penstock.stage.quarantine import QuarantineMember
from penstock.stage.rules import RuleCheck

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """Ledger, sinks and checkpoint of one run, and what else its delivery needs."""

    pipeline: PipelineName
    ledger: Ledger
    sinks: tuple[Sink, ...]
    checkpoint: SparkCheckpoint
    sources: tuple[SourceName, ...]
    digest: str
    demanded: Guarantee
    watch: Watch | None = None
    """The watch over the sources that are read from Kafka, None if there are none."""
    journals: Journals | None = None
    """The journals that are read, None if there are none."""
    tables: Mapping[SourceName, ChainSettings] = field(default_factory=dict)
    """The tables of other pipelines that are read."""
    streams: Mapping[SourceName, KinesisSettings] = field(default_factory=dict)
    """The streams of Kinesis that are read."""
    quarantine: QuarantineMember | None = None
    """The quarantine, one of `sinks`, which gets no row of the pipeline. If None, a sink of that name is like any other."""
    rules: RuleCheck | None = None
    """The rules of the sources, None if there are none."""
    named_sources: bool | None = None
    """Whether Spark knows the sources by name, None where the user's code has opened them."""
    left: Nonce | None = None
    """The newest entry of the ledger when a client of Spark Connect left the pipeline to its server."""
    publish_on: PublishOn = "driver"
    """Which processes publish what was decided, where a sink lets them choose."""
    retry_timeout_s: float = RETRY_TIMEOUT_S
    """How long an append or a publication is tried while the ledger or a sink does not answer."""

    @property
    def row_sinks(self) -> tuple[Sink, ...]:
        """The sinks that every row goes to: all but the quarantine."""
        return tuple(sink for sink in self.sinks if self.quarantine is None or sink is not self.quarantine.sink)

    def publish_by(self, spark: "SparkSession") -> None:
        """Have tasks of `spark` publish, if the settings say so and where sinks can."""
        if self.publish_on == "driver":
            return
        from penstock.stage.publishing import publish_in_tasks  # with pyarrow, which commands that only look do not load

        for sink in self.sinks:
            if isinstance(sink, PublishesInTasks):
                sink.publish_by(partial(publish_in_tasks, spark))

    def close(self) -> None:
        """Release the files and connections of sinks and ledger."""
        for sink in self.sinks:
            sink.close()
        self.ledger.close()

    def source_names(self, batch_id: BatchId) -> tuple[SourceName, ...]:
        """Return the pipeline's names for its sources; for a query that has none, the checkpoint's own.

        Of sources that Spark knows by name, those that are in the plan of the batch: others came or went since.
        """
        if self.sources and not self.named_sources:
            return self.sources
        entry = self.checkpoint.offsets(batch_id)
        if self.sources and (entry is None or not entry.named):
            return self.sources
        keys = () if entry is None else tuple(SourceName(key) for key in entry.by_key())
        in_order = tuple(name for name in self.sources if name in keys)
        return (*in_order, *(key for key in keys if key not in in_order))


def now_ms() -> int:
    """Return Unix time in milliseconds, for people and durations, never for decisions."""
    return time.time_ns() // 1_000_000


def use_row_digest(sinks: Sequence[Sink], tail: Entry | None) -> None:
    """Have `sinks` hash rows by the ledger's kind of digest. `tail` is its newest entry, None for a ledger still to begin."""
    row_digest = NEWEST_ROW_DIGEST if tail is None else tail.summary.row_digest
    for sink in sinks:
        if isinstance(sink, HashesRows):
            sink.use_row_digest(row_digest)


def prepare(
    runtime: Runtime,
    *,
    schema: str | None,
    taken: Mapping[SinkName, Taken] = ALL_ROWS,
    finishing: Position | None = None,
    apart: SinkName | None = None,
) -> frozenset[SinkName]:
    """Prove ledger and places and prepare the sinks, before the fence. Raises Refused, Usage, Failed, Retryable.

    `schema`: of the rows, None where only recovery is to follow. `taken`: the selections of these rows. `finishing`: see
    `Coordinator.open`. Sinks that are apart, except `apart`, are left to the process that gives them batches; returns them.
    """
    tail = runtime.ledger.tail()
    if tail is not None:
        require_rewound(tail.summary, runtime.ledger, except_at=finishing)
    runtime.ledger.prove()
    use_row_digest(runtime.sinks, tail)
    others = frozenset[SinkName]() if tail is None else sinks_apart(tail.summary) - {apart}
    sinks = tuple(sink for sink in runtime.sinks if sink.name not in others)
    markers = require_present(runtime.ledger, sinks, pipeline=runtime.pipeline)
    for removed in removed_directories(runtime.ledger, sinks, markers, pipeline=runtime.pipeline):
        _log.warning("%s", removed)
    require_own_staging(runtime.ledger, sinks, pipeline=runtime.pipeline)
    for sink in sinks:
        sink.prepare(pipeline=runtime.pipeline, schema=taken[sink.name].schema if sink.name in taken else schema)
    require_decided(runtime.ledger, sinks, pipeline=runtime.pipeline, markers=markers)
    return others


def coordinator_of(
    runtime: Runtime,
    *,
    deferred: DeferredPublish | None = None,
    prepare_joined: Callable[[Sink], None] = lambda _: None,
    sleep: Sleep = time.sleep,
    stop_wanted: Callable[[], bool] = bool,
    timed: Timed = nullcontext,
    of: type[ActingCoordinator] = ActingCoordinator,
) -> ActingCoordinator:
    """Return a coordinator, an object `of` this class, over the runtime's ledger and sinks, not opened yet.

    `prepare_joined`: see `Coordinator`, `timed`: see `Timed`. `sleep` pauses between tries (seconds). Once `stop_wanted`
    returns true what was tried twice is not tried again.
    """
    return of(
        pipeline=runtime.pipeline,
        ledger=runtime.ledger,
        sinks=runtime.sinks,
        now_ms=now_ms,
        retrying=with_backoff(stop_after_time(runtime.retry_timeout_s, stop_wanted), sleep),
        executor=map if len(runtime.sinks) < 2 else partial(map_concurrently, parallel=len(runtime.sinks)),
        timed=timed,
        deferred=deferred,
        prepare_joined=prepare_joined,
    )


def owner_of_this_process() -> str:
    """Return what names this process for people."""
    return f"{socket.gethostname()} process {os.getpid()}"


def opened_by_this_process(runtime: Runtime) -> Opened:
    """Return the body of the fence's entry, which says for people who opens the pipeline."""
    return Opened(
        owner=owner_of_this_process(),
        checkpoint=runtime.checkpoint.location,
        pipeline_digest=runtime.digest,
        sinks=tuple(sink.name for sink in runtime.sinks),
        versions={"penstock": penstock.__version__, "python": platform.python_version()},
    )
