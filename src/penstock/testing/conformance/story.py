"""The life of a driver on a rig, with the real coordinator and a real ledger: open, deliver some batches, sweep.

Processes that live it are forked from a clean server, so that they inherit nothing of the test's process.
"""

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

from tenacity import stop_after_attempt

from penstock.commit.append import with_backoff
from penstock.commit.coordinator import Coordinator
from penstock.commit.outcome import StagedBatch
from penstock.commit.verification import LedgerDecisions, verify_sink
from penstock.core.faults import ONCE_VARIABLE, arm
from penstock.core.model import Generation, Opened, Publication, SinkReport, Staged
from penstock.errors import PenstockError
from penstock.protocols import Ledger, Sink
from penstock.testing.conformance.bench import Bench, batch_of, publish
from penstock.testing.conformance.rig import PIPELINE, Row, SinkRig, make_rows

_PARTITIONS = 2
_ROWS = 60
_TRIES = 5


def rows_of(number: int, rig: SinkRig | None = None) -> list[Row]:
    """Return the rows of batch `number`, with values that the rig's target can hold."""
    return [row for partition in range(_PARTITIONS) for row in _rows(number, partition, rig)]


def live(
    rig: SinkRig,
    batches: Sequence[int],
    *,
    tidy: bool = True,
    once_open: Callable[[], None] | None = None,
    ledger: Ledger | None = None,
) -> None:
    """Open a generation, call `once_open`, and deliver `batches` as Spark does: a decided batch may come again.

    Uses `ledger`, or the rig's, and closes it. The first partition is staged by several attempts, of which one counts. Raises
    what ends a driver.
    """
    with driver(rig, ledger or rig.ledger()) as (bench, sink, coordinator):
        if once_open is not None:
            once_open()
        for number in batches:
            coordinator.deliver(batch_of(number), partial(_staged, bench, sink, number))
        if tidy:
            coordinator.sweep()


@contextmanager
def driver(rig: SinkRig, ledger: Ledger) -> Iterator[tuple[Bench, Sink, Coordinator]]:
    """Open a generation, and close what it used. Yields the bench, its sink and the coordinator."""
    bench = Bench(rig)
    try:
        sink = bench.sink()
        retrying = with_backoff(stop_after_attempt(_TRIES), wait)
        coordinator = Coordinator(pipeline=PIPELINE, ledger=ledger, sinks=[sink], now_ms=lambda: 0, retrying=retrying)
        coordinator.open(Opened(owner="suite", checkpoint="none", pipeline_digest="0" * 16, sinks=(sink.name,)))
        yield bench, sink, coordinator
    finally:
        bench.close()
        ledger.close()


def verify(rig: SinkRig) -> SinkReport:
    """Verify as the command does: with its own ledger, and its own sink that is not prepared."""
    ledger, sink = rig.ledger(), rig.make_hashing()
    try:
        return verify_sink(sink, LedgerDecisions(ledger, sink.name, tail=ledger.tail()), sleep=wait)
    finally:
        sink.close()
        ledger.close()


def wait(seconds: float) -> None:
    """Sleep in place of the coordinator, 0.05 seconds at most."""
    threading.Event().wait(min(seconds, 0.05))


def _rows(number: int, partition: int, rig: SinkRig | None) -> list[Row]:
    start = number * 1000 + partition * 100
    ids = range(start, start + _ROWS)
    return make_rows(ids) if rig is None else rig.rows(ids)


def _staged(bench: Bench, sink: Sink, number: int, generation: Generation) -> StagedBatch:
    pieces = tuple(piece for partition in range(_PARTITIONS) for piece in _attempts(bench, sink, number, partition, generation))
    return StagedBatch(pieces=pieces, rows_in=_PARTITIONS * _ROWS, schema=bench.rig.schema)


def _attempts(bench: Bench, sink: Sink, number: int, partition: int, generation: Generation) -> Iterator[Staged]:
    rows = _rows(number, partition, bench.rig)
    place = {"batch_id": number, "generation": generation, "partition": partition}
    if partition == 0:
        bench.abandoned(sink, rows, **place)
        bench.stage(sink, rows, **place, task_attempt=1)
    yield from bench.stage(sink, rows, **place, task_attempt=2)


RAISED = 10
"""Exit code of a process that ended with a PenstockError."""

_PRELOADED = ["penstock.testing.conformance.story", "pyarrow.compute", "pyarrow.parquet", "pandas", "zoneinfo"]


def preload(modules: Sequence[str]) -> None:
    """Have processes start with `modules` imported, those of them that there are. Call it before the first one starts."""
    _PRELOADED.extend(name for name in modules if name not in _PRELOADED)


def clean_context() -> ForkServerContext:
    """Return a context whose processes start in milliseconds and share nothing with this one."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


def start(work: Callable[..., None], *arguments: Any, faults: str = "", fired: Path | None = None) -> ForkServerProcess:
    """Start a process that runs `work(*arguments)` with `faults` armed; both must be importable. The caller must `end` it.

    A fault that fires leaves a file in the directory `fired`.
    """
    process = clean_context().Process(target=_run, args=(faults, fired, work, arguments))
    process.start()
    return process


def end(process: ForkServerProcess) -> int:
    """Wait for the process and return its exit code: 0, RAISED, or the negative number of the signal that killed it."""
    process.join()
    code = process.exitcode
    process.close()
    assert code is not None
    return code


def publish_alone(rig: SinkRig, publication: Publication) -> None:
    """Publish with a sink of this process's own."""
    sink = rig.make_hashing()
    sink.prepare(pipeline=PIPELINE, schema=rig.schema)
    publish(sink, publication)
    sink.close()


def _run(faults: str, fired: Path | None, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    if fired is not None:
        os.environ[ONCE_VARIABLE] = str(fired)
    arm(faults)
    try:
        work(*arguments)
    except PenstockError:
        os._exit(RAISED)
