"""Programs for Python as forks of one that has imported the libraries: importing them takes most of a short program's time.

A program is a process of its own as ever, with its own environment, directory, outputs and session, and may be killed at any
moment. What it shares with others is memory that none of them changes: libraries, and the product unless its PYTHONPATH names
another one. Unlike a process of `subprocess`, it is killed once nobody can await it any more. All programs of a test worker have
the same limits, umask and secret of `hash`; what users do is seen in processes that are `unforked`: each page of docs/howto has
such a run, and so has the campaign of random kills.
"""

import faulthandler
import gc
import json
import os
import re
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
from importlib import import_module, invalidate_caches
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

LIBRARIES = (
    *("numpy", "pandas", "pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "pyspark.sql", "pydantic"),
    *("typer", "rich.console", "ruamel.yaml", "tenacity", "confluent_kafka", "sqlite3"),
)
"""Not deltalake and DuckDB: they start threads, which a fork would be without."""

PRODUCT = "penstock"
MODULES = (
    *("cli.app", "run.pipeline", "run.open_delivery", "run.start", "run.table_sinks", "stage.staging", "transform.apply"),
    *("sink.parquet.directory.account", "sink.parquet.object.account", "sink.spool.spool", "sink.sqlite.sink"),
)
"""Of the product, with all that they import: what most programs need. Making their classes takes longer than a batch does.

Not the supervisor, which notes the number of its process as it is imported.
"""

_READ_BY_PYTHON_AS_IT_STARTS = re.compile("PYTHON(?!PATH$)|LC_|LANG")
_USUAL_AT_SIGINT = signal.getsignal(signal.SIGINT)
_NUMBER = struct.Struct("i")
_starting = threading.Lock()


class Forked(subprocess.Popen[str]):
    """A program that runs in a fork, to be awaited and killed like any process, by one thread; its outputs are pipes."""

    stdout: TextIO
    stderr: TextIO

    def __init__(self, words: Sequence[str], *, cwd: Path, env: Mapping[str, str], new_session: bool = False) -> None:
        _assert_read_before(env)
        self.args, self.returncode, self.stdin = [sys.executable, *words], None, None
        self._keeper, theirs = socket.socketpair()
        (out, its_out), (err, its_err) = os.pipe(), os.pipe()
        self.stdout, self.stderr = os.fdopen(out, encoding="utf-8"), os.fdopen(err, encoding="utf-8")
        self._read: dict[TextIO, str] = {}
        self._readers = [
            threading.Thread(target=self._read_all, args=(pipe,), daemon=True) for pipe in (self.stdout, self.stderr)
        ]
        with theirs, _starting:
            socket.send_fds(_forker()[1], [b"."], [theirs.fileno(), its_out, its_err])
        os.close(its_out)
        os.close(its_err)
        request = {"words": list(words), "cwd": str(cwd), "env": dict(env), "new_session": new_session}
        self._keeper.sendall(json.dumps(request).encode() + b"\n")
        self.pid = self._told()

    def _told(self) -> int:
        data = self._keeper.recv(_NUMBER.size)
        if not data:
            raise RuntimeError("the process that was to run the program is gone")
        return int(_NUMBER.unpack(data)[0])

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
        deadline = None if timeout is None else time.monotonic() + timeout
        for reader in self._readers:
            if reader.ident is None:
                reader.start()
        for reader in self._readers:
            reader.join(_until(deadline))
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self.wait(_until(deadline))
        return self._read[self.stdout], self._read[self.stderr]

    def _read_all(self, pipe: TextIO) -> None:
        self._read[pipe] = "" if pipe.closed else pipe.read()
        pipe.close()


def _until(deadline: float | None) -> float | None:
    return None if deadline is None else max(deadline - time.monotonic(), 0)


def _assert_read_before(env: Mapping[str, str]) -> None:
    names = filter(_READ_BY_PYTHON_AS_IT_STARTS.match, {*env, *os.environ})
    other = [name for name in names if env.get(name) != os.environ.get(name)]
    assert not other, f"Python reads {other} as it starts, which it did before: use subprocess"


def unforked(words: Sequence[str], *, cwd: Path, env: Mapping[str, str], new_session: bool = False) -> "subprocess.Popen[str]":
    """The same, started as a user does."""
    pipe = subprocess.PIPE
    command = [sys.executable, *words]
    return subprocess.Popen(command, cwd=cwd, env=env, stdout=pipe, stderr=pipe, text=True, start_new_session=new_session)


@cache
def _forker() -> tuple["subprocess.Popen[bytes]", socket.socket]:
    """The process that forks, which ends with this one, and what asks it.

    Its outputs are none that a terminal may stand behind, so that Python buffers a program's as it does for pipes.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno()), str(_place_of_product())],
            cwd=Path(__file__).parent,
            env={**env, "OPENBLAS_NUM_THREADS": "1"},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
    return process, ours


def _place_of_product() -> Path:
    spec = find_spec(PRODUCT)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parents[1]


def stop() -> None:
    """Stop the process that forks, if there is one, and so all programs that still run."""
    if _forker.cache_info().currsize:
        process, asking = _forker()
        asking.close()
        process.wait(timeout=30)
        _forker.cache_clear()


def _serve(asked: socket.socket, product: str) -> Mapping[str, Any]:
    """Fork for whoever asks; returns in the fork that is to become the program, with what it was asked for."""
    sys.path.insert(0, product)
    for name in (*LIBRARIES, *(f"{PRODUCT}.{module}" for module in MODULES)):
        with suppress(ImportError):
            import_module(name)
    sys.path.remove(product)
    gc.collect()
    gc.freeze()  # so that nothing copies its pages only to look for garbage
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal; it ends when the tests' process has
    signal.signal(signal.SIGCHLD, lambda *_: _reap())  # not ignored: what programs computed would be counted nowhere
    while (received := socket.recv_fds(asked, 1, 3))[0]:
        client, *outputs = received[1]
        if os.fork() == 0:
            asked.close()
            return _keep(socket.socket(fileno=client), *outputs)
        for number in (client, *outputs):
            os.close(number)
    os._exit(0)


def _reap() -> None:
    """Keepers that end leave nothing."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _keep(client: socket.socket, out: int, err: int) -> Mapping[str, Any]:
    """Fork the program's process, and tell the client its end; until the client knows, nobody else gets its number.

    In a session of its own, so that it outlives whoever kills the client's, and kills the program.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with client.makefile(encoding="utf-8") as lines:
        request: dict[str, Any] = json.loads(lines.readline())
    pid = os.fork()
    if pid == 0:
        _begin(client, out, err, new_session=request.pop("new_session"))
        return request
    os.close(out)
    os.close(err)
    os.setsid()
    ended = os.pidfd_open(pid)
    if ended not in select.select([client, ended], [], [])[0]:
        _kill(pid)
    end = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert end is not None
    with suppress(OSError):
        client.sendall(_NUMBER.pack(end.si_status if end.si_code == os.CLD_EXITED else -end.si_status))
        client.recv(1)
    os.waitpid(pid, 0)
    os._exit(0)


def _kill(pid: int) -> None:
    """With what it started, if it leads a session."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)


def _begin(client: socket.socket, out: int, err: int, *, new_session: bool) -> None:
    """Have the outputs and the session that a process has from its first instruction on, and only then tell the client of it."""
    for number, opened in ((1, out), (2, err)):
        os.dup2(opened, number)
        os.close(opened)
    if new_session:
        os.setsid()
    with client:
        client.sendall(_NUMBER.pack(os.getpid()))


def _become(words: Sequence[str], *, cwd: str, env: Mapping[str, str]) -> None:
    """Run the program as Python does."""
    signal.signal(signal.SIGINT, _USUAL_AT_SIGINT)
    faulthandler.register(signal.SIGUSR2)  # for tests/crash/awaited.py
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    invalidate_caches()
    sys.path[:1] = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]  # was this file's folder
    first, *rest = words
    sys.path.insert(0, {"-m": os.getcwd(), "-c": ""}.get(first, str(Path(first).resolve().parent)))
    _keep_product()
    if first == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), sys.modules["__main__"].__dict__)
    else:
        sys.argv = [first, *rest]
        runpy.run_path(first, run_name="__main__")


def _keep_product() -> None:
    """Keep what is imported of the product if it is the one that would be found now, with the faults of this environment."""
    modules = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == PRODUCT}
    spec = find_spec(PRODUCT)
    if modules and spec is not None and spec.origin == modules[PRODUCT].__file__:
        sys.modules.update(modules)
        modules[f"{PRODUCT}.core.faults"].arm(os.environ.get("PENSTOCK_FAULTS", ""))


if __name__ == "__main__":
    _become(**_serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2]))
