"""A machine's way to a server: a TCP proxy that can be cut, as a network is, and healed."""

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.servers.cutting import reset

KINDS = ("reset", "silent")
"""Connections break off and new ones are refused; or nobody hears anything, and what was sent comes late, after the healing."""


class Link:
    """Takes connections at `port` and hands them on to `target`."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._whole, self._refuses = threading.Event(), False
        self._whole.set()
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, kind: str) -> None:
        """Cut it in one of KINDS, until `heal`."""
        assert kind in KINDS
        self._refuses = kind == "reset"
        self._whole.clear()
        if self._refuses:
            for one in list(self._open):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)  # wakes its thread, which resets it

    def heal(self) -> None:
        self._refuses = False
        self._whole.set()

    def close(self) -> None:
        self.heal()
        for one in (self._listener, *list(self._open)):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._talk, args=(client,), daemon=True).start()
        self._listener.close()

    def _talk(self, client: socket.socket) -> None:
        ends = [client]
        self._open.add(client)
        with suppress(OSError):
            if self._may_go_on():
                ends.append(socket.create_connection(("127.0.0.1", self._target)))
                self._open.add(ends[1])
                self._hand_on(*ends)
        for one in ends:
            self._open.discard(one)
            reset(one)

    def _may_go_on(self) -> bool:
        """Wait while nothing is heard. False: the connection breaks off."""
        if not self._refuses:
            self._whole.wait()
        return not self._refuses

    def _hand_on(self, client: socket.socket, there: socket.socket) -> None:
        while True:
            for source in select.select([client, there], [], [])[0]:
                data = source.recv(1 << 16)
                if not data or not self._may_go_on():
                    return
                (there if source is client else client).sendall(data)


@contextmanager
def before(port: int) -> Iterator[Link]:
    """A link to the server at `port`."""
    link = Link(port)
    try:
        yield link
    finally:
        link.close()
