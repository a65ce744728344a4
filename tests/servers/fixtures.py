"""Servers that tests share, each started when a test first asks for it. Most run until the end of the test run.

A Cassandra node costs as much in twenty idle minutes as starting it does, so it is stopped between two files of tests once nobody
has asked for it for so long, and started anew for whoever asks again. A broker stays: clients of ended tests still look for it.
"""

import atexit
import math
import os
import time
from contextlib import AbstractContextManager, ExitStack
from itertools import count
from typing import Any, TypeVar

import pytest

from tests.memory import held_directory
from tests.servers import KINDS
from tests.servers.server import NotInstalledError, Outside, Place

T = TypeVar("T")

DATA_VARIABLE = "PENSTOCK_SERVERS_DATA"
"""Where the servers keep their data, if not among the temporary files: what is measured has them on the disk."""

IDLE_S = {"cassandra": 1200.0}
"""For how long nobody may have asked for one that is stopped then: about what its start costs."""


class _Shared:
    """A server that runs, and what is to be closed before it is stopped."""

    def __init__(self, kind: str) -> None:
        self.asked_s = time.monotonic()
        with ExitStack() as opened:
            directory = opened.enter_context(held_directory(f"{kind}-", parent=os.environ.get(DATA_VARIABLE)))
            self.running = opened.enter_context(KINDS[kind].running(directory))
            self._open = opened.pop_all()

    def keep(self, connection: AbstractContextManager[T]) -> T:
        return self._open.enter_context(connection)

    def stop(self) -> None:
        self._open.close()


_shared: dict[str, _Shared] = {}


def stop_servers() -> None:
    """All that were started here; may be called again."""
    while _shared:
        _shared.popitem()[1].stop()


def stop_idle_servers() -> None:
    """Between two files of tests, so that no fixture of a module holds one."""
    now_s = time.monotonic()
    for kind in [kind for kind, shared in _shared.items() if now_s - shared.asked_s > IDLE_S.get(kind, math.inf)]:
        _shared.pop(kind).stop()


atexit.register(stop_servers)


_numbers = count()


def unique(name: str) -> str:
    """That name and a number that no other test gets: the servers are shared by all of them."""
    return f"{name}{next(_numbers)}"


def accounts_on(**kinds: str) -> dict[str, tuple[Place, Outside]]:
    """An empty account on a server of that kind for each name, with a look from outside."""
    places = {name: (server(kind), server(kind).place(unique(name.lower()))) for name, kind in kinds.items()}
    return {name: (place, running.outside(place)) for name, (running, place) in places.items()}


def open_until_stopped(kind: str, connection: AbstractContextManager[T]) -> T:
    """Enter `connection`, which is closed before the server of that kind is stopped.

    Closed only when Python exits, a driver's threads meet one another half ended.
    """
    return _shared[kind].keep(connection)


def server(kind: str) -> Any:
    """The running server of that kind. Without it the test is skipped; in CI that is a failure (tests/conftest.py)."""
    if kind not in _shared:
        try:
            _shared[kind] = _Shared(kind)
        except NotInstalledError as missing:
            pytest.skip(str(missing))
    _shared[kind].asked_s = time.monotonic()
    return _shared[kind].running
