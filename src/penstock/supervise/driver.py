"""One driver in a process of its own, from its start to its end: its messages, its signs of life, and how it is ended."""

import asyncio
import logging
import math
import os
import signal
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, NamedTuple

from penstock.supervise import turn
from penstock.supervise.heartbeat import Signs, environment
from penstock.supervise.memory import resident_bytes
from penstock.supervise.restarts import DONE, DriverError, Ended
from penstock.support.private_files import make_private_directory, open_private

Say = Callable[[str], None]
Attend = Callable[[Signs, Callable[[], None]], Coroutine[Any, Any, None]]
"""Runs beside a driver that waits for its turn, until that has ended: is given its signs, and what lets it begin."""

_LOG_BYTES, _OLD_LOGS = 10_000_000, 5
_TO_SHOW_STACKS_S = 5.0
"""Seconds in which a hung driver can write where its threads stand."""

_LIMITS_LOOK_S = 1.0
_BEYOND_GRACE_S = 15.0
"""Seconds that a driver takes to end after its own grace period for the batch."""


class Stop:
    """Whether drivers are to end (`wanted`), and whether without waiting for their batches (`at_once`)."""

    def __init__(self) -> None:
        self.wanted, self.at_once = asyncio.Event(), asyncio.Event()

    def want(self) -> None:
        """Called for each signal: the second one does not wait."""
        (self.at_once if self.wanted.is_set() else self.wanted).set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`grace_s`: how long the driver's batch may take once it is to end. `hung_after_s`: how long a driver may be silent.

    `batch_s`: how long any batch may take. `memory_bytes`: what the driver and all that it started may take.
    """

    grace_s: float
    hung_after_s: float
    batch_s: float = math.inf
    memory_bytes: float = math.inf


async def run_driver(
    command: Sequence[str], log: "DriverLog", limits: Limits, stop: Stop, say: Say, *, attend: Attend | None = None
) -> Ended:
    """Run `command` until it ends, is asked to end by `stop`, or exceeds a limit; its messages go to `log`.

    With `attend` the driver gets ready, and begins when that says so.
    """
    began, signs = time.monotonic(), Signs()
    heartbeat, beating = os.pipe()
    waiting, beginning = os.pipe()
    reading, writing = os.pipe()  # of our own: asyncio would wait for the end of all that hold its pipe, not for the driver's
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=writing,
            stderr=asyncio.subprocess.STDOUT,
            env={**environment(beating), **(turn.environment(waiting) if attend else {}), "PYTHONFAULTHANDLER": "1"},
            pass_fds=[beating, waiting],
            start_new_session=True,
        )
    finally:
        for theirs in (beating, waiting, writing):
            os.close(theirs)
    say(f"started as process {process.pid}")
    messages = asyncio.create_task(_keep(log, reading))
    attending = None if attend is None else asyncio.create_task(attend(signs, lambda: turn.begin(beginning)))
    watching = (_is_silent(heartbeat, signs, limits.hung_after_s), _exceeds(process.pid, signs, limits))
    fault = await _until_over(process, watching, limits, stop, say)
    await process.wait()
    if attending is not None:
        await _cancelled(attending)
    os.close(beginning)
    if process.returncode != DONE:
        _signal_all(process, signal.SIGKILL)  # Spark's Java process may outlive its driver
    await asyncio.wait({messages}, timeout=_BEYOND_GRACE_S)
    if not messages.done():
        say("left processes that keep its log open, which are not waited for")
        messages.cancel()
    ran_s = time.monotonic() - began
    if fault is not None:
        return Ended(exit_code=None, ran_s=ran_s, fault=fault.name)
    error = None if log.error is None or log.error.exit_code != process.returncode else log.error
    return Ended(exit_code=process.returncode, ran_s=ran_s, error=error)


async def _cancelled(task: "asyncio.Task[None]") -> None:
    """Cancel `task` and wait for its end. Raises what it raised."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


class Fault(NamedTuple):
    """Why a driver has to be killed: in a few words, and in a sentence about the driver."""

    name: str
    text: str


async def _until_over(
    process: asyncio.subprocess.Process, watching: Sequence[Coroutine[Any, Any, Fault]], limits: Limits, stop: Stop, say: Say
) -> Fault | None:
    """Wait until the driver has ended, or has to be killed for what one of `watching` returns: then return that."""
    end = asyncio.create_task(process.wait())
    stopping = asyncio.create_task(stop.wanted.wait())
    faults = [asyncio.create_task(each) for each in watching]
    await asyncio.wait({end, stopping, *faults}, return_when=asyncio.FIRST_COMPLETED)
    found = next((fault.result() for fault in faults if fault.done()), None)
    for waiting in (stopping, *faults):
        waiting.cancel()
    if end.done() or found is None:
        if not end.done():
            await _end(process, limits, stop, say)
        return None
    say(f"{found.text} and is killed")
    process.send_signal(signal.SIGABRT)  # Python writes where its threads stand
    await _happens(process.wait(), within_s=_TO_SHOW_STACKS_S)
    _signal_all(process, signal.SIGKILL)
    return found


async def _exceeds(leader: int, signs: Signs, limits: Limits) -> Fault:
    """Return when the driver exceeds a limit of a batch's time or of memory."""
    while True:
        await asyncio.sleep(_LIMITS_LOOK_S)
        if signs.batch_s() > limits.batch_s:
            return Fault("took too long for a batch", f"is busy with one batch for more than {limits.batch_s:g} s")
        if limits.memory_bytes < math.inf and (taken := resident_bytes(leader)) > limits.memory_bytes:
            sizes = f"{taken / 1e6:,.0f} MB of memory, more than {limits.memory_bytes / 1e6:,.0f} MB,"
            return Fault("took too much memory", f"takes {sizes}")


async def _is_silent(heartbeat: int, signs: Signs, after_s: float) -> Fault:
    """Return when the driver has given no sign of life for `after_s` seconds; never, once it has closed its end."""
    reader, transport = await _reader(heartbeat)
    try:
        while heard := await asyncio.wait_for(reader.read(1 << 10), after_s):
            signs.heard(heard)
        await asyncio.Event().wait()
    except asyncio.TimeoutError:
        pass
    finally:
        transport.close()
    return Fault("hung", f"gave no sign of life for {after_s:g} s")


async def _keep(log: "DriverLog", handle: int) -> None:
    reader, transport = await _reader(handle)
    try:
        await log.keep(reader)
    finally:
        transport.close()


async def _reader(handle: int) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    """Return a reader of the pipe's end `handle`, and the transport that closes it."""
    reader = asyncio.StreamReader()
    pipe = os.fdopen(handle, "rb", buffering=0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader, transport


async def _end(process: asyncio.subprocess.Process, limits: Limits, stop: Stop, say: Say) -> None:
    """Ask the driver to end after its batch, and kill it where it takes too long, or where nobody waits."""
    process.send_signal(signal.SIGTERM)
    at_once = asyncio.create_task(stop.at_once.wait())
    end = asyncio.create_task(process.wait())
    done, _ = await asyncio.wait({end, at_once}, timeout=limits.grace_s + _BEYOND_GRACE_S, return_when=asyncio.FIRST_COMPLETED)
    at_once.cancel()
    if not end.done():
        say("is killed, as nobody waits for it" if done else f"did not end within {limits.grace_s:g} s and is killed")
        _signal_all(process, signal.SIGKILL)


async def _happens(event: Coroutine[Any, Any, Any], *, within_s: float) -> bool:
    try:
        await asyncio.wait_for(event, within_s)
    except asyncio.TimeoutError:
        return False
    return True


def _signal_all(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Signal the driver and what it started, unless all of it is gone."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


class DriverLog:
    """The messages of a pipeline's drivers in one file, and in five older ones of 10 MB each. `error`: the newest one in them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.error: DriverError | None = None

    async def keep(self, messages: asyncio.StreamReader) -> None:
        """Write `messages` until they end. Those that cannot be written, to a full disk, are dropped: the driver goes on."""
        make_private_directory(self.path.parent)
        handler = _PrivateFile(self.path, maxBytes=_LOG_BYTES, backupCount=_OLD_LOGS, encoding="utf-8", errors="replace")
        handler.terminator = ""
        rest = b""
        try:
            while chunk := await messages.read(1 << 16):
                lines, line_feed, rest = (rest + chunk).rpartition(b"\n")
                _write(handler, lines + line_feed)
                self._look_for_error(lines)
            _write(handler, rest)
        finally:
            handler.close()

    def _look_for_error(self, lines: bytes) -> None:
        for line in lines.split(b"\n"):
            self.error = DriverError.of_line(line) or self.error


class _PrivateFile(RotatingFileHandler):
    def _open(self) -> TextIOWrapper:
        return TextIOWrapper(open_private(Path(self.baseFilename), "ab"), encoding=self.encoding, errors=self.errors)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Drop what cannot be written."""


def _write(handler: logging.Handler, text: bytes) -> None:
    if text:
        handler.emit(logging.makeLogRecord({"msg": text.decode("utf-8", "replace")}))
