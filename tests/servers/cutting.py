"""A network that is cut at the worst moment: a TCP proxy before a real database that breaks off around a COMMIT."""

import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

_RESET = struct.pack("ii", 1, 0)
_COMMITS = (b"COMMIT\0", b"\x03COMMIT")
"""The statement as a whole, as PostgreSQL's and as MySQL's clients send it."""
_BIND = b"B"
KINDS = ("before", "after")
"""Before COMMIT reaches the server, or after it was done and before its answer reaches the client."""


Commits = Callable[[bytes], bool]
"""Whether a client that sends this commits by it."""


class _Parsed:
    """For one connection: committing is the message after the one that had it parsed."""

    def __init__(self, commits: Commits) -> None:
        self._commits, self._parsed = commits, False

    def __call__(self, data: bytes) -> bool:
        due = self._parsed and data.startswith(_BIND)
        self._parsed = self._commits(data) or (self._parsed and not data.startswith(_BIND))
        return due


class Cutter:
    """Takes connections at `port` and hands them on to `target`. Once armed, it cuts the next connection that commits.

    `watching` makes for each connection what tells whether that which its client sends commits.
    """

    def __init__(self, target: int, watching: Callable[[], Commits], *, at: int = 0) -> None:
        self._target, self._kind, self._watching, self._at = target, "", watching, at
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", at))
        self.port: int = self._listener.getsockname()[1]
        self.cuts = 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, kind: str) -> None:
        """Cut once from now on."""
        assert kind in KINDS
        self._kind = kind

    def close(self) -> None:
        if self._at:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # else who waits for a connection keeps the port
        for one in (self._listener, *self._open):
            reset(one)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                there = socket.create_connection(("127.0.0.1", self._target))
                self._open += [client, there]
                threading.Thread(target=self._talk, args=(client, there), daemon=True).start()

    def _talk(self, client: socket.socket, there: socket.socket) -> None:
        with suppress(OSError, ValueError):  # the latter of a socket that `close` has closed
            self._hand_on(client, there)
        reset(client)
        reset(there)

    def _hand_on(self, client: socket.socket, there: socket.socket) -> None:
        """Until either side ends, or the cut is due. The answer to a COMMIT proves that it is done, and goes nowhere."""
        kind, commits = "", self._watching()
        while True:
            for source in select.select([client, there], [], [])[0]:
                data = source.recv(1 << 16)
                if source is client and not kind:
                    kind = self._due() if commits(data) else ""
                if not data or kind == "before" or (kind == "after" and source is there):
                    return
                (there if source is client else client).sendall(data)

    def _due(self) -> str:
        with self._lock:
            if not self._kind:
                return ""
            kind, self._kind = self._kind, ""
            self.cuts += 1
            return kind


def reset(one: socket.socket) -> None:
    with suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    one.close()


@contextmanager
def before(port: int, commits: Sequence[bytes] = _COMMITS, *, parses_first: bool = False) -> Iterator[Cutter]:
    """A cutter before the server at `port`."""
    with at_requests(port, lambda data: any(commit in data for commit in commits), parses_first=parses_first) as cutter:
        yield cutter


@contextmanager
def at_requests(port: int, commits: Commits, *, at: int = 0, parses_first: bool = False) -> Iterator[Cutter]:
    """As `before`, for requests that no fixed bytes tell; it listens at port `at`.

    `parses_first`: as PostgreSQL's protocol has it, which executes what was parsed in a message of its own.
    """
    cutter = Cutter(port, partial(_Parsed, commits) if parses_first else lambda: commits, at=at)
    try:
        yield cutter
    finally:
        cutter.close()
