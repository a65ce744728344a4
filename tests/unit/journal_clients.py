"""Clients that push numbered events into a journal, resend what was not acknowledged, and know what they sent."""

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from penstock.journal.event import Event
from penstock.journal.format import Registration
from penstock.journal.journal import Journal, JournalLimits
from penstock.journal.readers import register, registration_of, release, settled
from penstock.journal.reading import JournalReader
from penstock.journal.segment import open_segment, segment_firsts
from penstock.journal.storage import Storage

HOME, COPY = Path("/journal"), Path("/copy")
PRODUCERS = ("a", "b", "c")
SMALL = JournalLimits(segment_bytes=600, least_free_bytes=0)
PLAIN = Event(value=b"v")
ROOMY = replace(SMALL, segment_bytes=1 << 20)
_clock = count(1_700_000_000_000_000, 1_000)


def opened(storage: Storage, *, limits: JournalLimits = SMALL, copy: Path | None = None) -> Journal:
    return Journal(HOME, now_us=lambda: next(_clock), copy=copy, limits=limits, storage=storage)


def event(producer: str, number: int) -> Event:
    return Event(value=f"{producer} {number}".encode(), key=producer.encode(), producer=producer, number=number)


@dataclass
class Clients:
    """Three producers. `acknowledged`: the newest number of each that the journal said is durable."""

    acknowledged: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PRODUCERS, 0))

    def push(self, journal: Journal, *, until: int, again: bool = False) -> None:
        """Send every number up to `until`, in groups; with `again` also those that were acknowledged already."""
        for number in range(1, until + 1):
            for each in PRODUCERS:
                if again or number > self.acknowledged[each]:
                    journal.append([event(each, number)])
            journal.commit()
            for each in PRODUCERS:
                self.acknowledged[each] = max(self.acknowledged[each], number)


@dataclass
class Pipeline:
    """A registered reader that keeps what it read for ever, as a sink does, and releases it afterwards."""

    read: list[bytes] = field(default_factory=list)
    next: int = 0

    def deliver(self, storage: Storage) -> None:
        reader = JournalReader(storage, HOME)
        extent = reader.extent()
        if extent is None or extent.next <= self.next:
            return
        found = reader.read(self.next, extent.next, journal_id=extent.journal_id)
        self.read += [record.event.value for record in found]
        self.next = extent.next
        registered(storage, HOME, "sink", 0)
        release(storage, HOME, "sink", journal_id=extent.journal_id, below=self.next, now_us=next(_clock))


def expected(until: int) -> Counter[bytes]:
    return Counter(f"{each} {number}".encode() for each in PRODUCERS for number in range(1, until + 1))


def content(storage: Storage, home: Path = HOME, first: int = 0) -> list[bytes]:
    reader = JournalReader(storage, home)
    extent = reader.extent()
    assert extent is not None
    return [each.event.value for each in reader.read(first, extent.next, journal_id=extent.journal_id)]


def id_of(storage: Storage, home: Path = HOME) -> str:
    return open_segment(storage, home, segment_firsts(storage, home)[0]).header.journal_id


def registered(storage: Storage, home: Path, reader: str, next_: int, *, planned: int | None = None) -> None:
    """Register a reader that needs `next_` and has planned no more, unless it is registered."""
    with settled(storage, home):
        if registration_of(storage, home, reader) is None:
            known = Registration(
                reader=reader,
                journal_id=id_of(storage, home),
                next=next_,
                planned=next_ if planned is None else planned,
                released_at_us=1_700_000_000_000_000,
            )
            register(storage, home, known)


def released(storage: Storage, reader: str, next_: int, home: Path = HOME) -> None:
    """Let a reader need nothing below `next_`."""
    registered(storage, home, reader, next_)
    release(storage, home, reader, journal_id=id_of(storage, home), below=next_, now_us=0)


def pushed(disk: Storage, count: int, *, limits: JournalLimits = SMALL, copy: Path | None = None) -> None:
    journal = opened(disk, limits=limits, copy=copy)
    for number in range(journal.next, journal.next + count):
        journal.append([Event(value=b"%d" % number)])
        journal.commit()
    journal.close()


def push_many(journal: Journal, count: int) -> None:
    """Push as a producer that the journal does not know yet: `a` if it is empty."""
    before = journal.next
    name = "a" if before == 0 else f"a{before}"
    for number in range(1, count + 1):
        journal.append([event(name, number)])
        journal.commit()
