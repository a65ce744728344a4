"""What every server of these tests is: a process of ours, and accounts on it."""

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

HOME = Path(os.environ.get("PENSTOCK_SERVERS", Path(__file__).parents[2] / ".servers"))
"""Where `make servers` puts what it fetched."""

START_S = 120
_ENDS_WITHIN_S = 20
_ANSWERS_EVERY_S = 0.02


_INSTALLING = HOME / "installing.lock"


@contextmanager
def installing() -> Iterator[None]:
    """While servers are being put into HOME: tests that need them wait for it."""
    HOME.mkdir(parents=True, exist_ok=True)
    with _INSTALLING.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def await_installation() -> None:
    """Until nobody is installing servers."""
    if _INSTALLING.exists():
        with _INSTALLING.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)


class NotInstalledError(Exception):
    """The server is not in HOME, or something that it runs on is not on this machine."""


@dataclass(frozen=True)
class Place:
    """An empty account: its URL and the options that the pipeline file would give."""

    url: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> Mapping[str, Any]:
        """As the pipeline file has it."""
        return {"url": self.url, "options": dict(self.options)}

    @property
    def written(self) -> str:
        """As it stands there."""
        return json.dumps(self.settings)


class Outside(Protocol):
    """An account looked at from outside, with another client than the product's. Picklable. Keys are relative to the account."""

    def listing(self) -> Mapping[str, object]:
        """Every object, and what tells it from another of that name."""
        ...

    def get(self, key: str) -> bytes: ...

    def put(self, key: str, data: bytes) -> None: ...

    def delete(self, key: str) -> None: ...

    def uploads(self) -> Sequence[str]:
        """Uploads that somebody must end; none where the store ends them."""
        ...

    def lose_uploads(self) -> None:
        """As if they had expired."""
        ...


def build(module: str, binary: Path) -> None:
    """Have Go build it, unless it is there."""
    if not binary.exists():
        go = shutil.which("go")
        if go is None:
            raise NotInstalledError(f"{binary.name} is built by Go, which is not on PATH")
        without_debugging = ["-gcflags=all=-dwarf=false", "-ldflags=-s -w"]  # which takes a fifth of the time
        subprocess.run([go, "install", *without_debugging, module], env={**os.environ, "GOBIN": str(binary.parent)}, check=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def started(
    command: Sequence[str], *, port: int, log: Path, env: Mapping[str, str] | None = None, **rights: Any
) -> "subprocess.Popen[bytes]":
    """The process once it accepts connections on `port`; what it says goes to `log`. `rights`: as `subprocess.Popen` takes."""
    with log.open("wb") as said:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env={**os.environ, **(env or {})},
            cwd=log.parent,
            **rights,
        )
    deadline = time.monotonic() + START_S
    while not _accepts(port):
        if process.poll() is not None or time.monotonic() > deadline:
            stop(process)
            raise AssertionError(f"{command[0]} did not start: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(_ANSWERS_EVERY_S)
    return process


def stop(process: "subprocess.Popen[bytes]", *, by: signal.Signals = signal.SIGTERM) -> None:
    """By SIGTERM, on which every one of these servers keeps what it acknowledged. One that does not end is killed."""
    if process.poll() is None:
        process.send_signal(by)
        try:
            process.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
