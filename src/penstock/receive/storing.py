"""Keeps an event for a client that would not send it again on a refusal."""

import asyncio
from collections.abc import Callable

from penstock.errors import Retryable
from penstock.journal.event import Event
from penstock.journal.group import GroupWriter

_AGAIN_S = 0.5


async def store(event: Event, writer: GroupWriter, *, gives_up: Callable[[], bool]) -> None:
    """Submit `event` again and again until it is durable. Raises the last refusal once `gives_up()`, and what does not pass."""
    while True:
        try:
            await asyncio.wrap_future(writer.submit([event]))
        except Retryable:
            if gives_up():
                raise
            await asyncio.sleep(_AGAIN_S)
        else:
            return
