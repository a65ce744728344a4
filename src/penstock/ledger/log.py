"""A ledger as single objects, one per entry, in any store with put-if-absent.

```
entries/000000000/000000000001   an entry, written once and never again; 1,000 to a folder
hint                             a position not far below the tail; best effort, nothing depends on it
floor/000000020001               entries below this position may be deleted; the greatest floor counts
prove/…                          scratch keys of the self-test
lease/000000000017               the newest record of the lease, and the one before; no entry depends on it
```

A pruned position is absent, so put-if-absent alone would let a driver that slept for very long take it a second time. Hence two
rules: a floor is written before anything below it is deleted, and floors are read *after* every put. A put that landed on a
pruned position therefore always sees a floor above itself, and is answered PositionTaken. Its object is no entry: `read` looks at
the floor after it looked at the object, for the same reason. The next `prune` collects it.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeVar

from penstock.core.codec import decode_document, encode_document, encode_entry
from penstock.core.faults import FaultPoint
from penstock.core.model import Entry, PipelineName, Position, RequestEstimate
from penstock.errors import Failed, LedgerMismatch, OutcomeUnknown, PositionTaken, Refused, Retryable
from penstock.ledger.base_ledger import BaseLedger, require_tail_kept
from penstock.ledger.self_test import prove_conditions
from penstock.ledger.store import BillingStore, ConditionalStore
from penstock.protocols import InTransaction

APPEND = FaultPoint("ledger.append", "The entry is put at its position, if that is free.")
FLOORS = FaultPoint("ledger.read_floors", "After the put, the floors are read: the position may have been pruned long ago.")
HINT = FaultPoint("ledger.hint", "The hint is moved near the new tail.")
FLOOR = FaultPoint("ledger.write_floor", "The floor is raised before entries below it are deleted.")
FORGET = FaultPoint("ledger.forget", "One entry below the floor is deleted.")

HINT_EVERY = 8
FOLDER_ENTRIES = 1_000
_HINT_FORMAT, _HINT_VERSION = "penstock.ledger.hint", 1
_FLOOR_FORMAT, _FLOOR_VERSION = "penstock.ledger.floor", 1
_FIRST = Position(1)
_LEASES_KEPT = 2
_ABSENT = 1
"""Requests of a `get` that finds nothing."""
_NUMBER = re.compile(r"/(\d{12})(?!\d)")
_T = TypeVar("_T")


class LogLedger(BaseLedger):
    """A `Ledger` over a `ConditionalStore`. Reading is thread-safe; one thread appends."""

    home = None

    def __init__(self, store: ConditionalStore, *, pipeline: PipelineName) -> None:
        self._store, self._pipeline = store, pipeline
        self._newest: Entry | None = None
        self._lease_number = 0

    @property
    def location(self) -> str:
        return self._store.location

    def tail(self) -> Entry | None:
        """Takes some ten lookups after a start, two once the tail is known."""
        while True:
            floor = self._floor()
            newest = self._newest_from(floor)
            if newest is not None and newest.position >= self._floor():
                self._newest = newest
                return newest
            if newest is None and self._floor() == floor:
                if floor != _FIRST:
                    raise LedgerMismatch(
                        f"The ledger at {self.location} was pruned below position {floor}, but nothing is at that position.",
                        remedy="Entries were removed by hand: restore the ledger from a backup.",
                    )
                return None

    def read(self, position: Position) -> Entry | None:
        data = self._get(position)
        if data is None or position < self._floor():
            return None
        return self._decode(data, position)

    def append(self, entry: Entry, *, within: InTransaction | None = None) -> None:
        """Raises ValueError for `within`: there is no transaction to join."""
        if within is not None:
            raise ValueError("this ledger has no transaction to join")
        self._require_pipeline(entry.pipeline)
        self._require_follows(entry)
        with APPEND.around():
            created = self._store.put_if_absent(_key(entry.position), encode_entry(entry))  # I7
        if not created or entry.position < self._floor_after_put():
            raise PositionTaken
        self._newest = entry
        self._leave_hint(entry.position)

    def prove(self) -> None:
        """A later `prune` collects the scratch keys of a killed run."""
        tail = self.tail()
        prove_conditions(self._store, folder=f"prove/{0 if tail is None else tail.position:012d}")

    def prune(self, *, below: Position) -> None:
        """Raises ValueError for a `below` above the tail."""
        tail = self.tail()
        require_tail_kept(tail, below=below)
        floor = self._raise_floor(below)
        self._delete_below("entries/", floor)
        self._delete_below("prove/", floor)
        self._delete_below("lease/", Position(max(self._lease_numbers(), default=0) - 1))
        self._store.sweep()

    def requests_sent(self) -> Mapping[str, int]:
        return self._store.requests_sent() if isinstance(self._store, BillingStore) else {}

    def estimated_requests(self) -> Mapping[str, RequestEstimate]:
        """An append puts the entry, reads the floors, and sometimes leaves a hint. A look at the tail reads the floors twice."""
        if not isinstance(self._store, BillingStore):
            return {}
        each = self._store.requests_each
        append = each.put + each.list + each.put / HINT_EVERY
        return {self.location: RequestEstimate(small=append, uploaded=append, look=each.list + _ABSENT + each.list)}

    def close(self) -> None:
        """Do nothing: connections to stores belong to the process."""

    # --- the lease

    def newest_lease(self) -> tuple[int, bytes] | None:
        """Takes two lookups once a record is known."""
        found = last_present(self._lease_at, self._lease_number) if self._lease_number else None
        while found is None and (numbers := self._lease_numbers()):  # what was listed may be forgotten before it is read
            found = last_present(self._lease_at, max(numbers))
        if found is not None:
            self._lease_number = found[0]
        return found

    def append_lease(self, number: int, data: bytes) -> bool:
        if not self._store.put_if_absent(_lease_key(number), data):
            return False
        self._lease_number = number
        self._store.delete(_lease_key(number - _LEASES_KEPT))
        return True

    def _lease_at(self, number: int) -> bytes | None:
        return self._store.get(_lease_key(number))

    def _lease_numbers(self) -> list[Position]:
        return [number for key in self._store.keys("lease/") if (number := _number_in(key)) is not None]

    # --- entries

    def _get(self, position: int) -> bytes | None:
        return self._store.get(_key(position)) if position >= _FIRST else None

    def _require_follows(self, entry: Entry) -> None:
        newest = self._newest
        if entry.position == _FIRST or (newest is not None and entry.position <= newest.position + 1):
            return
        if self._get(entry.position - 1) is None:
            if entry.position <= self._floor():
                raise PositionTaken
            raise self._gap(entry)

    # --- the tail

    def _newest_from(self, floor: Position) -> Entry | None:
        known = self._newest
        if known is not None and known.position >= floor:
            found = last_present(self._get, known.position + 1)
            return known if found is None else self._decode(found[1], found[0])
        found = last_present(self._get, max(floor, self._hint())) or last_present(self._get, floor)
        return None if found is None else self._decode(found[1], found[0])

    def _hint(self) -> Position:
        data = self._store.get("hint")
        if data is None:
            return _FIRST
        try:
            _, fields = decode_document(data, kind=_HINT_FORMAT, newest=_HINT_VERSION, where="The hint")
        except Refused:  # torn by a power cut, or of a newer version: the search merely takes a few more lookups
            return _FIRST
        position = fields.get("position")
        return Position(position) if isinstance(position, int) else _FIRST

    def _leave_hint(self, position: Position) -> None:
        if position % HINT_EVERY:
            return
        with suppress(Retryable, Failed), HINT.around():  # the entry is in the ledger; nothing depends on the hint
            self._store.put("hint", encode_document(_HINT_FORMAT, _HINT_VERSION, {"position": position}))

    # --- the floor

    def _floor(self) -> Position:
        return max((floor for floor, _ in self._floors()), default=_FIRST)

    def _floors(self) -> list[tuple[Position, str]]:
        return [(number, key) for key in self._store.keys("floor/") if (number := _number_in(key)) is not None]

    def _floor_after_put(self) -> Position:
        try:
            with FLOORS.around():
                return self._floor()
        except Retryable as error:
            raise OutcomeUnknown(
                f"The entry was written, but then the ledger at {self.location} could not be read: {error.message}",
                remedy=error.remedy,
            ) from error

    def _raise_floor(self, below: Position) -> Position:
        floors = sorted(self._floors())
        if not floors or floors[-1][0] < below:
            data = encode_document(_FLOOR_FORMAT, _FLOOR_VERSION, {"pipeline": self._pipeline, "position": below})
            with FLOOR.around():
                self._store.put_if_absent(f"floor/{below:012d}", data)
        for _, key in floors[:-1]:  # the previous floor stays for processes that are listing now
            self._store.delete(key)
        return max([below, *(floor for floor, _ in floors)])

    def _delete_below(self, folder: str, floor: Position) -> None:
        for key in self._store.keys(folder):
            number = _number_in(key)
            if number is not None and number >= floor:
                return
            with FORGET.around():
                self._store.delete(key)


def _number_in(key: str) -> Position | None:
    found = _NUMBER.search(key)
    return None if found is None else Position(int(found[1]))


def _lease_key(number: int) -> str:
    return f"lease/{number:012d}"


def _key(position: int) -> str:
    return f"entries/{position // FOLDER_ENTRIES:09d}/{position:012d}"


def last_present(look: Callable[[int], _T | None], start: int) -> tuple[int, _T] | None:
    """Return the last number of the dense run that contains `start`, and its object; None if nothing is at `start`.

    Exponential, then binary search (Bentley and Yao, 1976), so an old hint costs a few more lookups and never a walk over all
    entries. A run that grows meanwhile is seen as it was at some moment of the call.
    """
    found = look(start)
    if found is None:
        return None
    low, newest, step = start, found, 1
    while (further := look(low + step)) is not None:
        low, newest, step = low + step, further, step * 2
    absent = low + step
    while absent - low > 1:
        middle = (low + absent) // 2
        found = look(middle)
        if found is None:
            absent = middle
        else:
            low, newest = middle, found
    return low, newest
