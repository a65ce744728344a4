"""One driver in a process of its own, from its start to its end: its messages, its signs of life, and how it is ended."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from penstock.supervise.heartbeat import environment
from penstock.supervise.restarts import DONE, Ended
from penstock.support.private_files import make_private_directory, open_private

Say = Callable[[str], None]

_LOG_BYTES, _OLD_LOGS = 10_000_000, 5
_TO_SHOW_STACKS_S = 5.0
"""Seconds in which a hung driver can write where its threads stand."""

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
    """`grace_s`: how long the driver's batch may take once it is to end. `hung_after_s`: how long a driver may be silent."""

    grace_s: float
    hung_after_s: float


async def run_driver(command: Sequence[str], log: "DriverLog", limits: Limits, stop: Stop, say: Say) -> Ended:
    """Run `command` until it ends, is asked to end by `stop`, or is silent for too long; its messages go to `log`."""
    began = time.monotonic()
    heartbeat, beating = os.pipe()
    reading, writing = os.pipe()  # of our own: asyncio would wait for the end of all that hold its pipe, not for the driver's
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=writing,
            stderr=asyncio.subprocess.STDOUT,
            env={**environment(beating), "PYTHONFAULTHANDLER": "1"},
            pass_fds=[beating],
            start_new_session=True,
        )
    finally:
        os.close(beating)
        os.close(writing)
    say(f"started as process {process.pid}")
    messages = asyncio.create_task(_keep(log, reading))
    hung = await _until_over(process, heartbeat, limits, stop, say)
    await process.wait()
    if process.returncode != DONE:
        _signal_all(process, signal.SIGKILL)  # Spark's Java process may outlive its driver
    await asyncio.wait({messages}, timeout=_BEYOND_GRACE_S)
    if not messages.done():
        say("left processes that keep its log open, which are not waited for")
        messages.cancel()
    return Ended(exit_code=None if hung else process.returncode, ran_s=time.monotonic() - began)


async def _until_over(process: asyncio.subprocess.Process, heartbeat: int, limits: Limits, stop: Stop, say: Say) -> bool:
    """Wait until the driver has ended or has to be killed. Return whether it hung."""
    end = asyncio.create_task(process.wait())
    stopping = asyncio.create_task(stop.wanted.wait())
    silent = asyncio.create_task(_is_silent(heartbeat, limits.hung_after_s))
    await asyncio.wait({end, stopping, silent}, return_when=asyncio.FIRST_COMPLETED)
    silent.cancel()
    stopping.cancel()
    if end.done():
        return False
    if stop.wanted.is_set():
        await _end(process, limits, stop, say)
        return False
    say(f"gave no sign of life for {limits.hung_after_s:g} s and is killed")
    process.send_signal(signal.SIGABRT)  # Python writes where its threads stand
    await _happens(process.wait(), within_s=_TO_SHOW_STACKS_S)
    _signal_all(process, signal.SIGKILL)
    return True


async def _is_silent(heartbeat: int, after_s: float) -> None:
    """Return when the driver has given no sign of life for `after_s` seconds; never, once it has closed its end."""
    reader, transport = await _reader(heartbeat)
    try:
        while await asyncio.wait_for(reader.read(1 << 10), after_s):
            pass
        await asyncio.Event().wait()
    except asyncio.TimeoutError:
        return
    finally:
        transport.close()


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
    """The messages of a pipeline's drivers in one file, and in five older ones of 10 MB each."""

    def __init__(self, path: Path) -> None:
        self.path = path

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
            _write(handler, rest)
        finally:
            handler.close()


class _PrivateFile(RotatingFileHandler):
    def _open(self) -> TextIOWrapper:
        return TextIOWrapper(open_private(Path(self.baseFilename), "ab"), encoding=self.encoding, errors=self.errors)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Drop what cannot be written."""


def _write(handler: logging.Handler, text: bytes) -> None:
    if text:
        handler.emit(logging.makeLogRecord({"msg": text.decode("utf-8", "replace")}))
