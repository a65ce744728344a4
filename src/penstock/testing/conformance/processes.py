"""Processes that do a sink's work, forked from a clean server, so that they inherit nothing of the test's process."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

from penstock.core.faults import ONCE_VARIABLE, arm
from penstock.core.model import Publication
from penstock.errors import PenstockError
from penstock.testing.conformance.bench import publish
from penstock.testing.conformance.rig import PIPELINE, SinkRig

RAISED = 10
"""Exit code of a process that ended with a PenstockError."""

_PRELOADED = ["penstock.testing.conformance.story", "pyarrow.compute", "pyarrow.parquet", "pandas", "zoneinfo"]


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
    """Wait for the process and return its exit code: 0, TOLD, or the negative number of the signal that killed it."""
    process.join()
    code = process.exitcode
    process.close()
    assert code is not None
    return code


def publish_in_processes(rig: SinkRig, publication: Publication, *, processes: int) -> Sequence[int]:
    """Publish the same in several processes at once, and return their exit codes."""
    running = [start(_publish, rig, publication) for _ in range(processes)]
    return [end(process) for process in running]


def _publish(rig: SinkRig, publication: Publication) -> None:
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
