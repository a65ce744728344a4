"""Programs for Python as forks of one that has imported the libraries: importing them takes most of a short program's time.

A program is a process of its own as ever, with its own environment, directory, outputs and session, and may be killed at any
moment. What it shares with others is memory that none of them changes; the product itself it imports on its own.
"""

import gc
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

LIBRARIES = (
    *("numpy", "pandas", "pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "pyspark.sql", "pydantic"),
    *("typer", "rich.console", "ruamel.yaml", "tenacity", "confluent_kafka", "sqlite3"),
)
"""Not deltalake and DuckDB: they start threads, which a fork would be without."""

_STATUS = struct.Struct("i")
_forker: list[subprocess.Popen[bytes]] = []
"""Kept, since a process that runs on after its object is garbage is warned of."""


class Forked(subprocess.Popen[str]):
    """A program that runs in a fork, to be awaited and killed like any process; its outputs are pipes."""

    stdout: Any
    stderr: Any

    def __init__(self, words: Sequence[str], *, cwd: Path, env: Mapping[str, str], new_session: bool = False) -> None:
        self.args, self.returncode, self.stdin = [sys.executable, *words], None, None
        request = {"words": list(words), "cwd": str(cwd), "env": dict(env), "new_session": new_session}
        self._keeper, theirs = socket.socketpair()
        (out, its_out), (err, its_err) = os.pipe(), os.pipe()
        self.stdout, self.stderr = os.fdopen(out, encoding="utf-8"), os.fdopen(err, encoding="utf-8")
        asked = os.memfd_create("request")
        os.write(asked, json.dumps(request).encode())
        socket.send_fds(_server(), [b"."], [asked, theirs.fileno(), its_out, its_err])
        for number in (asked, its_out, its_err):
            os.close(number)
        theirs.close()
        self.pid = self._told()

    def _told(self) -> int:
        data = self._keeper.recv(_STATUS.size)
        if not data:
            raise RuntimeError("the process that was to run the program is gone")
        return int(_STATUS.unpack(data)[0])

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._keeper], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = self._told()
            self._keeper.close()
        return self.returncode

    def communicate(self, input: str | None = None, timeout: float | None = None) -> tuple[str, str]:  # noqa: A002 - as Popen's
        assert input is None
        read: dict[Any, str] = {}
        deadline = None if timeout is None else time.monotonic() + timeout
        readers = [threading.Thread(target=_read, args=(pipe, read), daemon=True) for pipe in (self.stdout, self.stderr)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(None if deadline is None else max(deadline - time.monotonic(), 0))
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self.wait(None if deadline is None else max(deadline - time.monotonic(), 0))
        return read[self.stdout], read[self.stderr]


def _read(pipe: Any, into: dict[Any, str]) -> None:
    into[pipe] = "" if pipe.closed else pipe.read()
    pipe.close()


@cache
def _server() -> socket.socket:
    """Of the process that forks; it ends with this one."""
    ours, theirs = socket.socketpair()
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-m", __name__, str(theirs.fileno())]
    _forker.append(
        subprocess.Popen(command, cwd=root, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True)
    )
    theirs.close()
    return ours


def _serve(asked: socket.socket) -> dict[str, Any]:
    """Fork for whoever asks; returns in the fork that is to become the program, with what it was asked for."""
    for library in LIBRARIES:
        with suppress(ImportError):
            import_module(library)
    gc.collect()
    gc.freeze()  # so that nothing copies its pages only to look for garbage
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers that end leave nothing
    while True:
        data, numbers, _, _ = socket.recv_fds(asked, 1, 4)
        if not data:
            os._exit(0)
        if os.fork() == 0:
            asked.close()
            return _keep(*numbers)
        for number in numbers:
            os.close(number)


def _keep(asked: int, client: int, out: int, err: int) -> dict[str, Any]:
    """Fork the program's process, tell the client its number, and its end. As long as the client asks nobody gets that number."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with open(asked, encoding="utf-8") as file:
        file.seek(0)
        request: dict[str, Any] = json.load(file)
    pid = os.fork()
    if pid == 0:
        os.close(client)
        for number, opened in ((1, out), (2, err)):
            os.dup2(opened, number)
            os.close(opened)
        return request
    for number in (1, 2, out, err):
        os.close(number)
    with socket.socket(fileno=client) as told, suppress(OSError):
        told.send(_STATUS.pack(pid))
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        told.send(_STATUS.pack(ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status))
        told.recv(1)
    os._exit(0)


def _become(request: dict[str, Any]) -> None:
    """Run the program as Python does."""
    if request["new_session"]:
        os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    first, *rest = request["words"]
    sys.path[:] = [*filter(None, request["env"].get("PYTHONPATH", "").split(os.pathsep)), *_BEFORE]
    if first == "-m":
        sys.path.insert(0, os.getcwd())
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.path.insert(0, "")
        sys.argv = ["-c", *rest[1:]]
        sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), sys.modules["__main__"].__dict__)
    else:
        sys.path.insert(0, str(Path(first).resolve().parent))
        sys.argv = [first, *rest]
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    _GIVEN = {os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path}
    _BEFORE = [path for path in sys.path[1:] if path not in _GIVEN]
    _become(_serve(socket.socket(fileno=int(sys.argv[1]))))
