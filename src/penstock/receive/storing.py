"""Keeps events for clients that would not send them again on a refusal."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol, TypeVar

from penstock.errors import PenstockError, Retryable
from penstock.journal.event import Event
from penstock.journal.group import GroupWriter, Receipts
from penstock.receive.rate import RateLimit

GROUP_BYTES = 1 << 20
"""Of events that wait, and are to be submitted together."""
_AGAIN_S = 0.5


class Message(Protocol):
    """A message of a broker, with the event that it becomes."""

    @property
    def event(self) -> Event: ...


_Message = TypeVar("_Message", bound=Message)


async def next_group(arrived: "asyncio.Queue[_Message]", rate: RateLimit) -> list[_Message]:
    """Wait for a message, and return it with those that have arrived behind it, in their order: they are stored together."""
    group = [await arrived.get()]
    size = len(group[0].event.value)
    while size < GROUP_BYTES and not arrived.empty():
        group.append(arrived.get_nowait())
        size += len(group[-1].event.value)
    if delay_s := rate.delay_s():
        await asyncio.sleep(delay_s)
    rate.count(len(group))
    return group


async def stored(events: Sequence[Event], writer: GroupWriter, *, gives_up: Callable[[], bool]) -> AsyncIterator[Receipts]:
    """Make `events` durable in their order, and yield the receipts of those that now are, again and again.

    What has no room waits, and what is behind it, too. Raises the last refusal once `gives_up()`, and what does not pass: none of
    that event and of those behind it was taken.
    """
    at, size = 0, len(events)
    while at < len(events):
        group = events[at : at + size]
        try:
            receipts = await asyncio.wrap_future(writer.submit(group))
        except PenstockError as refused:
            if len(group) > 1:
                size = 1  # of a group all or none are taken: those in front of the one that is refused are to be
            elif isinstance(refused, Retryable) and not gives_up():
                await asyncio.sleep(_AGAIN_S)
            else:
                raise
        else:
            yield receipts
            at, size = at + len(group), 2 * size
