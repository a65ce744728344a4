"""`penstock run`: runs the pipeline and shows its progress, until it ends or a signal stops it.

The first SIGTERM or Ctrl-C requests a clean stop, the second ends the process at once.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.text import Text
from typing_extensions import Self

from penstock.cli.opening import File, Json, Overrides, SparkLog, debugging, pipeline, quiet_session
from penstock.cli.output import console, name_file, print_line
from penstock.cli.table import OneLine, table
from penstock.errors import Failed, Retryable
from penstock.observe.last_error import noting_error
from penstock.observe.progress import RunSummary
from penstock.supervise.heartbeat import Heartbeat
from penstock.supervise.turn import Turn
from penstock.support import formatting

if TYPE_CHECKING:
    from penstock.observe.progress import BatchProgress, SinkProgress
    from penstock.run.pipeline import Pipeline


_EVERYTHING_NOW = "trigger={available_now: true}"
_GRACE_S = 30.0
_TURN_LOOK_S = 0.2


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
    heartbeat, turn = Heartbeat.of_environment(), Turn.of_environment()
    chosen = pipeline(file, [*(overrides or ()), *([_EVERYTHING_NOW] if available_now else [])])
    name_file(None if overrides else file)  # --available-now replaces nothing that another command goes by
    on_terminal = sys.stdout.isatty() and not as_json
    shown: Progress = Terminal(chosen.settings.pipeline) if on_terminal else JsonLines()
    log = SparkLog(chosen.settings.home) if on_terminal and not debugging(context) else None
    try:
        with shown, log or nullcontext(), chosen.observed(), noting_error(chosen.settings.home):
            if turn is None or _has_turn_come(chosen, heartbeat, turn):
                _deliver(chosen, shown, heartbeat, batches=batches, grace_s=grace)
    except (Failed, Retryable) as error:
        if log is not None and log.location():
            error.remedy = f"{error.remedy} Spark's own messages are in {log.location()}."
        raise


def _has_turn_come(chosen: "Pipeline", heartbeat: Heartbeat, turn: Turn) -> bool:
    """Get ready and wait, as the driver of a standby. Return whether its turn came before a stop was wanted."""
    from penstock.run.warming import Warmth

    chosen.require_startable()
    spark = quiet_session(chosen.session)
    with StopSignals(on_stop=lambda: None) as stop:
        warmth = Warmth(chosen.settings, chosen.plan, spark)
        while not stop.wanted and heartbeat.warm():
            if turn.has_come_within(_TURN_LOOK_S):
                return True
            warmth.keep()
    return False


def _deliver(chosen: "Pipeline", shown: "Progress", heartbeat: Heartbeat, *, batches: int | None, grace_s: float) -> None:
    chosen.require_startable()
    with chosen.metrics_served() as url:
        if url is not None:
            shown.serving(url)
        _run_query(chosen, shown, heartbeat, batches=batches, grace_s=grace_s)


def _run_query(chosen: "Pipeline", shown: "Progress", heartbeat: Heartbeat, *, batches: int | None, grace_s: float) -> None:
    spark = quiet_session(chosen.session)  # before StopSignals: a new SparkContext installs a signal handler of its own
    with StopSignals(shown.stopping) as stop, _told_if_spark_was_stopped(stop):
        query = chosen.start(spark, observers=[shown.batch], batches=batches, stop_wanted=lambda: stop.wanted)
        shown.started()
        query.run_until(lambda: stop.wanted or not heartbeat.beat(batch_id=query.delivering()), grace_s=grace_s)
        summary = query.summary()
        if summary is not None:
            shown.end(summary)


@contextmanager
def _told_if_spark_was_stopped(stop: "StopSignals") -> Iterator[None]:
    """Exit with 128 plus the signal if it ended Spark's Java process, too, as systemd sends it: no batch could be finished."""
    from penstock.run.failure import is_spark_gone

    try:
        yield
    except Exception as error:
        if stop.number is None or not is_spark_gone(error):
            raise
        sys.stderr.write(f"stopped: {_BOTH_STOPPED}\n")
        raise SystemExit(128 + stop.number) from error  # which tells nobody of a failure: it was asked for


_BOTH_STOPPED = (
    "the signal also ended Spark's Java process, so the current batch was not finished. Nothing is lost: the next start delivers "
    "it. Send the signal to the driver alone, such as by KillMode=mixed of systemd, and the batch is finished first."
)
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SHOW_CURSOR = b"\x1b[?25h\n"


class StopSignals:
    """Handles both signals while entered, in the main thread only. Calls `on_stop` at the first signal."""

    def __init__(self, on_stop: Callable[[], None]) -> None:
        self._on_stop = on_stop
        self.number: int | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._stop) for number in _SIGNALS}
        return self

    def __exit__(self, *raised: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def wanted(self) -> bool:
        """Whether a signal came."""
        return self.number is not None

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        if self.wanted:
            # Like a kill, without waiting for Spark: the next start recovers. The JVM ends when its input closes.
            if sys.stdout.isatty():
                os.write(sys.stdout.fileno(), _SHOW_CURSOR)
            os._exit(128 + number)
        self.number = number
        self._on_stop()


_FRAMES_PER_S = 8
_STARTING = "starting Spark"
_INDENT = 12
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class Progress:
    """Shows a run; this one shows nothing. Entered before Spark starts. `batch` is called by another thread than the others."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        return None

    def serving(self, url: str) -> None:
        """Metrics are served there."""

    def started(self) -> None:
        """The query runs; batches follow once there is input."""

    def batch(self, progress: "BatchProgress") -> None:
        """A batch was delivered, or recognised as already committed."""

    def stopping(self) -> None:
        """A stop was requested; the current batch is finished first."""

    def end(self, summary: RunSummary) -> None:
        """The run ended without an error."""


class JsonLines(Progress):
    """Prints one object per batch, and the summary as the last line."""

    def batch(self, progress: "BatchProgress") -> None:
        print_line(progress)

    def end(self, summary: "RunSummary") -> None:
        print_line(summary)


class Terminal(Progress):
    """Prints a line per batch, and below them a line with what the run is doing now."""

    def __init__(self, pipeline: str) -> None:
        self._so_far = RunSummary(pipeline=pipeline, sinks={})
        self._started_s = time.monotonic()
        self._lock = threading.Lock()
        self._doing = _STARTING
        self._stopping = False
        self._live = Live(get_renderable=self._now, console=console(), refresh_per_second=_FRAMES_PER_S, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._live.stop()

    def serving(self, url: str) -> None:
        self._live.console.print(f"metrics at {url}/metrics", highlight=False)

    def started(self) -> None:
        """Show that the query runs, unless the first batch was faster."""
        with self._lock:
            self._doing = "running" if self._doing == _STARTING else self._doing

    def batch(self, progress: "BatchProgress") -> None:
        with self._lock:
            self._doing = self._doing if self._stopping else "running"
            self._so_far = self._so_far.plus(progress)
        self._live.console.print(batch_line(progress))

    def stopping(self) -> None:
        with self._lock:
            self._stopping = True
            self._doing = "stopping after the current batch (once more: stop at once, the next start recovers)"

    def end(self, summary: "RunSummary") -> None:
        self._live.stop()
        self._live.console.print(summary_text(summary, spent_s=time.monotonic() - self._started_s, stopped=self._stopping))

    def _now(self) -> OneLine:
        spent_s = time.monotonic() - self._started_s
        frame = _FRAMES[int(spent_s * _FRAMES_PER_S) % len(_FRAMES)]
        with self._lock:
            done, doing = self._so_far, self._doing
        total = f"{formatting.counted(done.batches, 'batch', 'batches')}, {formatting.counted(done.rows_out, 'row')}"
        short = Text.assemble((f"{frame} ", "cyan"), (done.pipeline, "bold"), f"  {doing}")
        return OneLine((Text.assemble(short, "  ", (total, "dim")), short))


def batch_line(progress: "BatchProgress") -> RenderableType:
    """Render a batch as one line, which says less where the terminal is narrow; below it what was dropped, and each warning."""
    line = OneLine([Text.assemble("batch ", (f"{progress.batch_id:>4}", "bold"), "  ", text) for text in _variants(progress)])
    below = [Text(f"warning: {warning}", "yellow") for warning in progress.warnings]
    if progress.dropped:
        below.insert(0, Text(f"dropped: {formatting.dropped(progress.dropped)}"))
    return Group(line, *(Padding(text, (0, 0, 0, _INDENT)) for text in below))


def _variants(progress: "BatchProgress") -> Iterator[Text]:
    """Yield what happened to a batch, then the same in fewer words."""
    if progress.already:
        yield Text.assemble(("already committed", "yellow"), f"  nothing written: {', '.join(progress.sinks)}")
        yield Text("already committed", "yellow")
    elif progress.recovered:
        for shares in (_shares(progress.sinks), _shares(progress.sinks, files=False)):
            yield Text.assemble(("recovered", "yellow"), f"  decided by an earlier run, published now: {shares}")
        yield Text.assemble(("recovered", "yellow"), f"  published now: {_shares(progress.sinks, files=False)}")
    else:
        spent_ms = progress.stage_ms + progress.decide_ms + progress.publish_ms
        rows, spent = f"{formatting.counted(progress.rows_out, 'row'):>12}", f"{formatting.duration(spent_ms):>7}"
        speed = f"{formatting.rate(progress.rows_per_s):>7} rows/s"
        yield Text(f"{rows} {speed} {spent}  {_shares(progress.sinks)}")
        yield Text(f"{rows} {speed} {spent}  {_shares(progress.sinks, files=False)}")
        yield Text(f"{rows} {spent}  {_shares(progress.sinks, files=False)}")


def _shares(sinks: "Mapping[Any, SinkProgress]", *, files: bool = True) -> str:
    return "  ".join(f"{name}: {_share(share, files=files)}" for name, share in sinks.items())


def _share(share: "SinkProgress", *, files: bool) -> str:
    if share.already_committed and not share.rows:
        return "already committed"
    count = f" in {formatting.counted(share.files, 'file')}" if files and share.files else ""
    return f"{formatting.counted(share.rows, 'row')}{count}"


def summary_text(summary: "RunSummary", *, spent_s: float, stopped: bool = False) -> RenderableType:
    """Render the totals of a run."""
    rows = [
        (
            name,
            formatting.count(share.rows),
            formatting.count(share.files),
            formatting.size(share.bytes),
            share.already_committed or "",
        )
        for name, share in summary.sinks.items()
    ]
    batches = formatting.counted(summary.batches, "batch", "batches")
    last = "" if summary.last_batch_id is None else f"; the last one is batch {summary.last_batch_id}"
    head = Text.assemble(
        ("stopped after " if stopped else "done ", "bold green"),
        f"{batches} with {formatting.counted(summary.rows_out, 'row')} in {formatting.duration(spent_s * 1000)}{last}",
        " (after a recovery)" if summary.recovered else "",
        f"; dropped: {formatting.dropped(summary.dropped)}" if summary.dropped else "",
        "\n",
    )
    return Group(Text(), head, table(("sink", "rows", "files", "size", "batches already committed"), rows))
