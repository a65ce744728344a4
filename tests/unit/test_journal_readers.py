"""The journal for its readers and clients: what is removed when, what is refused, what a batch reads, and groups of events."""

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.forgetful_disk import ForgetfulDisk
from tests.unit.journal_clients import (
    HOME,
    PLAIN,
    ROOMY,
    SMALL,
    Clients,
    content,
    event,
    expected,
    opened,
    push_many,
    pushed,
    registered,
    released,
)

from penstock.core import faults
from penstock.errors import LedgerMismatch, Retryable
from penstock.journal.event import Event, Receipt
from penstock.journal.format import NOTE, segment_path
from penstock.journal.frame import size_of
from penstock.journal.group import GroupLimits, GroupWriter, TooManyWaiting
from penstock.journal.inspection import inspect_journal, verify_journal
from penstock.journal.journal import Journal, JournalFull, JournalLimits
from penstock.journal.producers import NumberOutOfOrder
from penstock.journal.readers import forget, registrations, release
from penstock.journal.reading import JournalReader, Place
from penstock.journal.segment import segment_firsts
from penstock.journal.storage import LocalStorage


@pytest.fixture
def disk() -> ForgetfulDisk:
    return ForgetfulDisk()


# --- readers and limits


def test_a_segment_waits_for_the_slowest_reader(disk: ForgetfulDisk) -> None:
    pushed(disk, 40)
    journal = opened(disk)
    firsts = segment_firsts(disk, HOME)
    assert journal.remove_released() == 0, "without a reader nothing is removed"
    released(disk, "fast", 40)
    released(disk, "slow", firsts[2] + 1)
    assert journal.remove_released() == 2
    assert content(disk, first=firsts[2]) == [b"%d" % number for number in range(firsts[2], 40)]
    forget(disk, HOME, "slow")
    assert journal.remove_released() == len(firsts) - 3


def test_a_reader_never_goes_back(disk: ForgetfulDisk) -> None:
    pushed(disk, 5)
    released(disk, "sink/orders", 4)
    released(disk, "sink/orders", 2)
    assert [(each.reader, each.next) for each in registrations(disk, HOME)] == [("sink/orders", 4)]


class Watched(ForgetfulDisk):
    """Notes of each removal and each new registration whether the lock is held by which they exclude each other."""

    def __init__(self) -> None:
        super().__init__()
        self.excluded: list[bool] = []

    def remove(self, path: Path) -> None:
        self.excluded.append(self._moments.locked())
        super().remove(path)

    def replace(self, path: Path, by: Path) -> None:
        self.excluded.append(self._moments.locked())
        super().replace(path, by)


def test_nothing_is_removed_while_a_reader_registers() -> None:
    disk = Watched()
    pushed(disk, 40)
    disk.excluded.clear()
    released(disk, "r", 40)
    assert opened(disk).remove_released() > 0
    assert len(disk.excluded) > 4
    assert all(disk.excluded)


def test_released_segments_are_kept_as_long_as_asked(disk: ForgetfulDisk) -> None:
    now = [0]
    journal = Journal(HOME, now_us=lambda: now[0], limits=replace(SMALL, keep_us=100), storage=disk)
    push_many(journal, 20)
    released(disk, "r", 20)
    assert journal.remove_released() == 0
    now[0] = 100
    assert journal.remove_released() > 0


def test_a_full_journal_refuses_events_and_removes_none_that_is_unread(disk: ForgetfulDisk) -> None:
    limits = replace(SMALL, most_bytes=2_000)
    journal = opened(disk, limits=limits)
    with pytest.raises(JournalFull, match="and may have 2000"):
        push_many(journal, 100)
    taken = journal.next
    assert len(content(disk)) == taken
    released(disk, "r", taken)
    journal.append([event("a", taken + 1)])
    journal.commit()
    assert journal.next == taken + 1


def test_events_that_wait_for_too_long_stop_new_ones(disk: ForgetfulDisk) -> None:
    now = [0]
    journal = Journal(HOME, now_us=lambda: now[0], limits=replace(SMALL, oldest_us=2_000_000), storage=disk)
    push_many(journal, 20)
    now[0] = 3_000_000
    with pytest.raises(JournalFull, match="wait for 3 s, and may keep them for 2 s"):
        journal.append([PLAIN])
    released(disk, "r", 20)
    journal.append([PLAIN])


def test_a_disk_that_is_nearly_full_is_left_alone(tmp_path: Path) -> None:
    free = LocalStorage().free_bytes(tmp_path)
    journal = Journal(tmp_path, now_us=lambda: 0, limits=JournalLimits(least_free_bytes=2 * free))
    with pytest.raises(JournalFull, match="bytes free"):
        journal.append([PLAIN])
    journal.close()


# --- reading


def test_a_batch_ends_at_its_limits(disk: ForgetfulDisk) -> None:
    pushed(disk, 40)
    reader = JournalReader(disk, HOME)
    size = size_of(Event(value=b"10"))
    assert reader.place_behind(3, records=5, size=None)[0] == 8
    assert reader.place_behind(10, records=None, size=3 * size)[0] == 13
    assert reader.place_behind(10, records=2, size=3 * size)[0] == 12
    assert reader.place_behind(10, records=None, size=1)[0] == 11, "one at least"
    assert reader.place_behind(10, records=None, size=None)[0] == 40


def test_the_place_of_a_batch_is_where_the_next_one_begins(disk: ForgetfulDisk) -> None:
    pushed(disk, 40)
    reader = JournalReader(disk, HOME)
    extent = reader.extent()
    assert extent is not None
    at: Place | None = None
    next_, found = 0, list[bytes]()
    while next_ < extent.next:
        end, behind = reader.place_behind(next_, records=7, size=None, at=at)
        found += [each.event.value for each in reader.read(next_, end, journal_id=extent.journal_id, at=at)]
        next_, at = end, behind
    assert found == [b"%d" % number for number in range(40)]


def test_another_journal_in_the_same_place_is_refused(disk: ForgetfulDisk) -> None:
    pushed(disk, 3)
    with pytest.raises(LedgerMismatch, match="was read before"):
        list(JournalReader(disk, HOME).read(0, 3, journal_id="other"))


def test_a_note_that_is_torn_shows_nothing_until_the_next_one(disk: ForgetfulDisk) -> None:
    pushed(disk, 3)
    disk.node(HOME / "durable").change(60, b"9")
    assert JournalReader(disk, HOME).extent() is None
    pushed(disk, 1)
    assert content(disk) == [b"0", b"1", b"2", b"3"]


# --- the real disk, and groups


def test_a_note_that_is_read_while_it_is_written_is_read_again(disk: ForgetfulDisk) -> None:
    pushed(disk, 3)

    class BesideWriter(ForgetfulDisk):
        def read(self, path: Path, start: int = 0, size: int = -1) -> bytes:
            data = disk.read(path, start, size)
            return data.replace(b'"next"', b'"nex"', 1) if path.name == NOTE and torn.pop() else data

    beside, torn = BesideWriter(), [False, True, True]
    beside.names = disk.names  # type: ignore[method-assign]
    extent = JournalReader(beside, HOME).extent()
    assert (extent is not None and extent.next, torn) == (3, [])


def test_a_journal_has_one_writer(tmp_path: Path) -> None:
    with closing(Journal(tmp_path / "j", now_us=lambda: 1)), pytest.raises(Retryable, match="has a writer already: process"):
        Journal(tmp_path / "j", now_us=lambda: 1).close()
    Journal(tmp_path / "j", now_us=lambda: 1).close()


def test_what_is_on_a_real_disk_is_private_and_read_again(tmp_path: Path) -> None:
    home = tmp_path / "j"
    journal = Journal(home, now_us=lambda: 1, copy=tmp_path / "copy", limits=replace(SMALL, least_free_bytes=0))
    Clients().push(journal, until=9)
    journal.close()
    Journal(home, now_us=lambda: 1, copy=tmp_path / "copy").close()
    assert Counter(content(LocalStorage(), home)) == expected(9)
    assert {path.stat().st_mode & 0o77 for path in home.rglob("*")} == {0}
    facts = inspect_journal(LocalStorage(), home)
    assert (facts.first, facts.next, facts.producers) == (0, 27, 3)
    assert [each.is_sealed for each in facts.segments] == [True] * (len(facts.segments) - 1) + [False]
    assert verify_journal(LocalStorage(), home).events == 27


@pytest.mark.parametrize("fault", ["journal.write=lost", "journal.sync=lost", "journal.note=error", "journal.create=error"])
def test_a_step_that_fails_acknowledges_nothing(tmp_path: Path, fault: str) -> None:
    journal = Journal(tmp_path / "j", now_us=lambda: 1, limits=replace(SMALL, segment_bytes=1))
    Clients().push(journal, until=1)
    faults.arm(fault)
    try:
        with pytest.raises(Exception, match="What was waiting is not acknowledged"):
            Clients({"a": 1, "b": 1, "c": 1}).push(journal, until=2)
    finally:
        faults.arm("")
    journal.close()
    again = Journal(tmp_path / "j", now_us=lambda: 1)
    Clients().push(again, until=2, again=True)
    again.close()
    assert Counter(content(LocalStorage(), tmp_path / "j")) == expected(2)


@pytest.mark.parametrize("fault", ["journal.remove=lost", "journal.release=lost", "journal.release=error"])
def test_a_removal_or_a_release_that_fails_is_done_again(tmp_path: Path, fault: str) -> None:
    storage, home = LocalStorage(), tmp_path / "j"

    def once() -> int:
        journal = Journal(home, now_us=lambda: 1, limits=SMALL)
        try:
            Clients().push(journal, until=9, again=True)
            extent = JournalReader(storage, home).extent()
            assert extent is not None
            registered(storage, home, "r", 0)
            release(storage, home, "r", journal_id=extent.journal_id, below=20, now_us=0)
            journal.remove_released()
            return segment_firsts(storage, home)[0]
        finally:
            journal.close()

    faults.arm(fault)
    try:
        with pytest.raises((OSError, Retryable, Exception)):
            once()
    finally:
        faults.arm("")
    first = once()
    assert 0 < first <= 20
    assert len(content(storage, home, first=first)) == 27 - first


class CountedDisk(ForgetfulDisk):
    """Lets the first fsync of events wait until `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def step(self) -> None:
        if threading.current_thread().name == "penstock-journal":
            assert self.go.wait(30)
        super().step()


def grouped(disk: ForgetfulDisk, limits: GroupLimits | None = None) -> GroupWriter:
    return GroupWriter(lambda: opened(disk, limits=ROOMY), limits)


def test_one_fsync_serves_many_that_wait() -> None:
    disk = CountedDisk()
    writer = grouped(disk)
    before = disk.syncs
    first = writer.submit([PLAIN])
    others = [writer.submit([PLAIN, PLAIN]) for _ in range(100)]
    assert not first.done()
    disk.go.set()
    assert first.result(30) == (Receipt(0),)
    assert [other.result(30) for other in others] == [(Receipt(at), Receipt(at + 1)) for at in range(1, 201, 2)]
    assert disk.syncs - before <= 3
    writer.close()


def test_what_waits_is_bounded_and_is_answered_at_the_end() -> None:
    disk = CountedDisk()
    writer = grouped(disk, GroupLimits(waiting_bytes=1_000))
    large = [Event(value=bytes(100))]
    taken = [writer.submit(large) for _ in range(6)]  # one of them may be with the thread already
    with pytest.raises(TooManyWaiting):
        _ = [taken.append(writer.submit(large)) for _ in range(3)]
    closing = threading.Thread(target=writer.close)
    closing.start()
    disk.go.set()
    closing.join(30)
    assert [each.result(0) for each in taken] == [(Receipt(at),) for at in range(len(taken))]
    with pytest.raises(Retryable, match="stopping"):
        writer.submit([PLAIN])


def test_one_wrong_request_of_a_group_does_not_harm_the_others(disk: ForgetfulDisk) -> None:
    writer = grouped(disk, GroupLimits(linger_s=0.05))
    good, wrong, other = writer.submit([event("a", 1)]), writer.submit([event("a", 9)]), writer.submit([event("b", 1)])
    with pytest.raises(NumberOutOfOrder):
        wrong.result(30)
    assert (good.result(30), other.result(30)) == ((Receipt(0),), (Receipt(1),))
    writer.close()


def test_after_a_full_disk_events_are_taken_again_and_after_a_failed_fsync_none(disk: ForgetfulDisk) -> None:
    writer = grouped(disk)
    assert writer.submit([event("a", 1)]).result(30)
    disk.room = 10
    with pytest.raises(JournalFull):
        writer.submit([event("a", 2)]).result(30)
    disk.room = None
    assert writer.submit([event("a", 2)]).result(30) == (Receipt(1),)
    disk.failing_sync = disk.syncs + 1
    with pytest.raises(Exception, match="input/output error"):
        writer.submit([event("a", 3)]).result(30)
    assert writer.failure is not None
    with pytest.raises(Exception, match="input/output error"):
        writer.submit([event("a", 3)])
    writer.close()


def test_the_thread_removes_what_is_released(disk: ForgetfulDisk) -> None:
    pushed(disk, 40)
    released(disk, "r", 40)
    writer = GroupWriter(lambda: opened(disk), GroupLimits(look_s=0.0))
    assert writer.submit([PLAIN]).result(30)
    assert writer.submit([PLAIN]).result(30)
    writer.close()
    assert segment_firsts(disk, HOME)[0] > 0


class Beside(ForgetfulDisk):
    """Lets somebody else act before one of the next readings of a file."""

    def __init__(self) -> None:
        super().__init__()
        self.acts: list[Callable[[], object]] = []

    def after(self, readings: int, act: Callable[[], object]) -> None:
        self.acts = [act, *[lambda: None] * readings]

    def read(self, path: Path, start: int = 0, size: int = -1) -> bytes:
        if self.acts:
            self.acts.pop()()
        return super().read(path, start, size)


def test_a_reader_that_is_forgotten_at_this_moment_is_none() -> None:
    disk = Beside()
    pushed(disk, 1)
    released(disk, "r", 0)
    disk.after(0, lambda: forget(disk, HOME, "r"))
    assert registrations(disk, HOME) == ()


@pytest.mark.parametrize("reads", range(16))
def test_verify_and_inspect_find_no_damage_beside_the_writer(reads: int) -> None:
    """It takes events, seals and begins segments, and removes some, between any two reads."""
    disk = Beside()
    pushed(disk, 20)
    released(disk, "r", 20)
    journal = opened(disk)

    def act() -> None:
        push_many(journal, 6)
        journal.remove_released()

    disk.after(reads, act)
    assert verify_journal(disk, HOME).problems == ()
    disk.after(reads, act)
    assert inspect_journal(disk, HOME).segments


def test_a_segment_that_begins_at_this_moment_is_no_damage(disk: ForgetfulDisk) -> None:
    pushed(disk, 3)
    path = segment_path(HOME, 3)
    disk.create(path).write(disk.read(segment_path(HOME, 0), 0, 50))
    assert verify_journal(disk, HOME).unacknowledged == 50
    assert verify_journal(disk, HOME).ok
    assert [each.first for each in inspect_journal(disk, HOME).segments] == [0]
