"""Which events of numbering producers the journal has: so a repeat is recognised exactly, also after a restart."""

from collections.abc import Collection, Mapping, Sequence

from penstock.errors import Refused, Usage
from penstock.journal.event import Event, Receipt
from penstock.journal.format import Numbered

MOST_PRODUCERS = 10_000
"""Producers that number their events and are remembered at a time: every segment begins with all of them."""
FORGET_AFTER_US = 7 * 24 * 3600 * 1_000_000
"""A producer that sent nothing for so long gives way when another one needs its place. Else no clock makes one forgotten (I2)."""


class NumberOutOfOrder(Usage):
    """A producer sent a number that does not follow its last one. Its event was not taken."""


class Producers:
    """The newest number of each producer. A number may be the next one, or an older one, which is a repeat."""

    def __init__(self, known: Mapping[str, Numbered]) -> None:
        self._durable, self._pending = dict(known), dict[str, Numbered]()

    def judge(self, events: Sequence[Event], *, now_us: int) -> tuple[Receipt | None, ...]:
        """Return for each of `events`, which arrive together, its receipt if it is a repeat, None if it is new.

        Raises NumberOutOfOrder for a number that leaves a gap, Refused for one producer too many, and then takes none of them.
        """
        receipts: list[Receipt | None] = []
        newest: dict[str, int] = {}
        for event in events:
            if event.number is None or event.producer is None:
                receipts.append(None)
                continue
            name, known = event.producer, self._newest(event.producer)
            last = newest.get(name, None if known is None else known.number)
            receipts.append(self._judge(name, event.number, last))
            if receipts[-1] is None:
                newest[name] = event.number
        if self._count_with(newest) > MOST_PRODUCERS:
            self._forget_silent(now_us - FORGET_AFTER_US, but=newest)
        if self._count_with(newest) > MOST_PRODUCERS:
            raise Refused(
                f"The journal remembers {MOST_PRODUCERS} producers that number their events, and this would be one more.",
                remedy="Let producers keep their names, or send without numbers.",
            )
        return tuple(receipts)

    def note(self, producer: str, numbered: Numbered) -> None:
        """Remember a producer's newest event, which is not durable yet."""
        self._pending[producer] = numbered

    def settle(self) -> None:
        """Count every noted event as durable."""
        self._durable |= self._pending
        self._pending.clear()

    @property
    def durable(self) -> Mapping[str, Numbered]:
        """What a new segment begins with: without events that may still be lost."""
        return dict(self._durable)

    def _count_with(self, sending: Collection[str]) -> int:
        return len({*self._durable, *self._pending, *sending})

    def _forget_silent(self, since_us: int, *, but: Collection[str]) -> None:
        self._durable = {name: known for name, known in self._durable.items() if name in but or known.received_at_us > since_us}

    def _newest(self, name: str) -> Numbered | None:
        return self._pending.get(name) or self._durable.get(name)

    def _judge(self, name: str, number: int, last: int | None) -> Receipt | None:
        if last is None or number == last + 1:
            return None
        if number > last:
            raise NumberOutOfOrder(
                f"Producer {name!r} sent number {number}, and its last one here is {last}.",
                remedy=f"Send {last + 1} first; only what follows without a gap is taken.",
            )
        known = self._newest(name)  # I2: an older number is a repeat
        is_newest = known is not None and known.number == number
        return Receipt(known.sequence if known is not None and is_newest else None, is_repeat=True)
