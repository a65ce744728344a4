"""Servers for the whole test run, each started when a test first asks for it."""

import atexit
import os
from contextlib import AbstractContextManager, ExitStack
from functools import cache
from itertools import count
from typing import Any, TypeVar

import pytest

from tests.memory import held_directory
from tests.servers import KINDS
from tests.servers.server import NotInstalledError, Outside, Place

T = TypeVar("T")

DATA_VARIABLE = "PENSTOCK_SERVERS_DATA"
"""Where the servers keep their data, if not among the temporary files: what is measured has them on the disk."""

_running = ExitStack()


def stop_servers() -> None:
    """All that were started here; may be called again."""
    _running.close()


atexit.register(stop_servers)


_numbers = count()


def unique(name: str) -> str:
    """That name and a number that no other test gets: the servers are shared by all of them."""
    return f"{name}{next(_numbers)}"


def accounts_on(**kinds: str) -> dict[str, tuple[Place, Outside]]:
    """An empty account on a server of that kind for each name, with a look from outside."""
    places = {name: (server(kind), server(kind).place(unique(name.lower()))) for name, kind in kinds.items()}
    return {name: (place, running.outside(place)) for name, (running, place) in places.items()}


def open_until_servers_stop(connection: AbstractContextManager[T]) -> T:
    """Enter `connection`, which is closed before its server is stopped.

    Closed only when Python exits, a driver's threads meet one another half ended.
    """
    return _running.enter_context(connection)


@cache
def server(kind: str) -> Any:
    """The running server of that kind. Without it the test is skipped; in CI that is a failure (tests/conftest.py)."""
    try:
        directory = _running.enter_context(held_directory(f"{kind}-", parent=os.environ.get(DATA_VARIABLE)))
        return _running.enter_context(KINDS[kind].running(directory))
    except NotInstalledError as missing:
        pytest.skip(str(missing))
