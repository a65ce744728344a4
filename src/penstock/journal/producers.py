"""Which events of numbering producers the journal has: so a repeat is recognised exactly, also after a restart."""

from collections.abc import Collection, Mapping, Sequence
from heapq import nsmallest

from penstock.errors import Refused, Usage
from penstock.journal.event import Event, Receipt
from penstock.journal.format import Numbered

FIRST_NUMBER = 1
"""What a producer begins with. Were it any number, a later one that arrives first would make the earlier one a repeat."""
MOST_PRODUCERS = 10_000
"""Producers that number their events and are remembered at a time: every segment begins with all of them."""
FORGET_AFTER_US = 7 * 24 * 3600 * 1_000_000
"""A producer that sent nothing for so long can give way to another one. No clock alone makes one forgotten (I2)."""


class NumberOutOfOrder(Usage):
    """A producer sent a number that does not follow its last one, or did not begin with the first. Its event was not taken."""


class Producers:
    """The newest number of each producer. A number may be the next one, or an older one, which is a repeat; the first is 1."""

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
        if (missing := self._count_with(newest) - MOST_PRODUCERS) > 0:
            self._forget_silent(missing, since_us=now_us - FORGET_AFTER_US, but=newest)
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

    def _forget_silent(self, places: int, *, since_us: int, but: Collection[str]) -> None:
        """Forget as many as `places`, the silent longest first. Raises Refused if fewer are silent, and then forgets none."""
        busy = {*but, *self._pending}
        silent = [name for name, known in self._durable.items() if known.received_at_us <= since_us and name not in busy]
        if len(silent) < places:
            raise Refused(
                f"The journal remembers {MOST_PRODUCERS} producers that number their events, and this would be one more.",
                remedy="Let producers keep their names, or send without numbers.",
            )
        for name in nsmallest(places, silent, key=lambda name: self._durable[name].sequence):  # clocks jump, sequences do not
            del self._durable[name]

    def _newest(self, name: str) -> Numbered | None:
        return self._pending.get(name) or self._durable.get(name)

    def _judge(self, name: str, number: int, last: int | None) -> Receipt | None:
        following = FIRST_NUMBER if last is None else last + 1
        if number == following:
            return None
        if number > following:
            raise _out_of_order(name, number, last)
        known = self._newest(name)  # I2: an older number is a repeat
        is_newest = known is not None and known.number == number
        return Receipt(known.sequence if known is not None and is_newest else None, is_repeat=True)


def _out_of_order(name: str, number: int, last: int | None) -> NumberOutOfOrder:
    if last is not None:
        return NumberOutOfOrder(
            f"Producer {name!r} sent number {number}, and its last one here is {last}.",
            remedy=f"Send {last + 1} first; only what follows without a gap is taken.",
        )
    return NumberOutOfOrder(
        f"Producer {name!r} sent number {number}, and the journal knows none of its numbers.",
        remedy=f"Send {FIRST_NUMBER} first, then what follows it. Was this producer forgotten? "
        f"Then begin with {FIRST_NUMBER} under another name.",
    )
