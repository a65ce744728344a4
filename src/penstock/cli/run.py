"""`penstock run`: runs the pipeline and shows its progress, until it ends or a signal stops it.

The first SIGTERM or Ctrl-C requests a clean stop, the second ends the process at once.
"""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typing_extensions import Self

from penstock.cli.opening import File, Json, Overrides, debugging, pipeline, quiet_spark
from penstock.cli.progress import JsonLines, Progress, Terminal
from penstock.cli.spark_log import SparkLog
from penstock.errors import Failed, Retryable

if TYPE_CHECKING:
    from penstock.run.pipeline import Pipeline

_EVERYTHING_NOW = "trigger={available_now: true}"
_GRACE_S = 30.0


def run(
    *,
    context: typer.Context,
    file: File,
    available_now: Annotated[bool, typer.Option("--available-now", help="Deliver what is there now, then stop.")] = False,
    batches: Annotated[int | None, typer.Option(min=1, metavar="N", help="Stop after this many new batches.")] = None,
    grace: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How long a stop waits for a batch.")] = _GRACE_S,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Recover what an earlier run left, then deliver batch after batch. Killing it at any moment loses and doubles nothing.

    SIGTERM or Ctrl-C finish the current batch and stop; a second one stops at once. Where stdout is no terminal, or with --json,
    a JSON object per batch is printed and one for the run at the end.
    """
    chosen = pipeline(file, [*(overrides or ()), *([_EVERYTHING_NOW] if available_now else [])])
    on_terminal = sys.stdout.isatty() and not as_json
    shown: Progress = Terminal(chosen.settings.pipeline) if on_terminal else JsonLines()
    log = SparkLog(chosen.settings.home) if on_terminal and not debugging(context) else None
    try:
        with shown, log or nullcontext():
            _deliver(chosen, shown, batches=batches, grace_s=grace)
    except (Failed, Retryable) as error:
        if log is not None and log.location():
            error.remedy = f"{error.remedy} Spark's own messages are in {log.location()}."
        raise


def _deliver(chosen: "Pipeline", shown: Progress, *, batches: int | None, grace_s: float) -> None:
    with quiet_spark():
        spark = chosen.session()  # before StopSignals: a new SparkContext installs a signal handler of its own
    with StopSignals(shown.stopping) as stop:
        query = chosen.start(spark, observers=[shown.batch], batches=batches)
        shown.started()
        query.run_until(lambda: stop.wanted, grace_s=grace_s)
        summary = query.summary()
        if summary is not None:
            shown.end(summary)


_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SHOW_CURSOR = b"\x1b[?25h\n"


class StopSignals:
    """Handles both signals while entered, in the main thread only. Calls `on_stop` at the first signal."""

    def __init__(self, on_stop: Callable[[], None]) -> None:
        self._on_stop = on_stop
        self.wanted = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._stop) for number in _SIGNALS}
        return self

    def __exit__(self, *raised: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        if self.wanted:
            # Like a kill, without waiting for Spark: the next start recovers. The JVM ends when its input closes.
            if sys.stdout.isatty():
                os.write(sys.stdout.fileno(), _SHOW_CURSOR)
            os._exit(128 + number)
        self.wanted = True
        self._on_stop()
