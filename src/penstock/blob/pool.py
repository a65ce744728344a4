"""Connections enough for all threads that use a store; a client's own pool of ten drops the others, each with a warning."""

from typing import Any

CONNECTIONS = 32


def widen(session: Any) -> None:
    """Give each pool of a session of `requests` that many connections. It was not used yet."""
    for adapter in session.adapters.values():
        adapter.init_poolmanager(CONNECTIONS, CONNECTIONS)
