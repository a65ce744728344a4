"""The journal's writer and reader: what is durable, what is a repeat, what is refused, and what is removed when."""

import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.forgetful_disk import ForgetfulDisk
from tests.unit.journal_clients import COPY, HOME, SMALL, Clients, event, expected, opened

from penstock.core import faults
from penstock.errors import InputLost, JournalDamaged, LedgerMismatch, Retryable, Usage
from penstock.journal.event import Event, Receipt
from penstock.journal.format import SEGMENTS, Registration, encode_header, segment_path
from penstock.journal.frame import BadFrame, decode_frame, encode_frame, size_of
from penstock.journal.group import GroupLimits, GroupWriter, TooManyWaiting
from penstock.journal.inspection import inspect_journal, verify_journal
from penstock.journal.journal import Journal, JournalFull, JournalLimits
from penstock.journal.producers import FORGET_AFTER_US, MOST_PRODUCERS, NumberOutOfOrder
from penstock.journal.readers import forget, register, registrations
from penstock.journal.reading import JournalReader, Place
from penstock.journal.segment import open_segment, segment_firsts
from penstock.journal.storage import LocalStorage, Storage

PLAIN = Event(value=b"v")
ROOMY = replace(SMALL, segment_bytes=1 << 20)


@pytest.fixture
def disk() -> ForgetfulDisk:
    return ForgetfulDisk()


def content(storage: Storage, home: Path = HOME, first: int = 0) -> list[bytes]:
    reader = JournalReader(storage, home)
    extent = reader.extent()
    assert extent is not None
    return [each.event.value for each in reader.read(first, extent.next, journal_id=extent.journal_id)]


def released(storage: Storage, reader: str, next_: int) -> None:
    journal_id = open_segment(storage, HOME, segment_firsts(storage, HOME)[0]).header.journal_id
    register(storage, HOME, Registration(reader=reader, journal_id=journal_id, next=next_, released_at_us=0))


def pushed(disk: ForgetfulDisk, count: int, *, limits: JournalLimits = SMALL, copy: Path | None = None) -> None:
    journal = opened(disk, limits=limits, copy=copy)
    for number in range(journal.next, journal.next + count):
        journal.append([Event(value=b"%d" % number)])
        journal.commit()
    journal.close()


def push_many(journal: Journal, count: int) -> None:
    for _ in range(count):
        journal.append([event("a", journal.next)])
        journal.commit()


# --- frames


@pytest.mark.parametrize(
    "given",
    [
        Event(value=b""),
        Event(value=b"v", key=b"", headers=(("h", b""), ("h", b"\x00"), ("", b"x")), producer="", remote=""),
        Event(value=b"\xf5Pj\x01" * 3, key=b"k", producer="caf\u00e9", number=2**63 - 1, remote="127.0.0.1:1"),
        Event(value=bytes(70_000), key=None, producer="p", number=0),
    ],
)
def test_a_frame_holds_an_event_as_it_is(given: Event) -> None:
    data = encode_frame(given, sequence=7, durable=5, received_at_us=-3, seed=1)
    found = decode_frame(b"before" + data + b"after", 6, seed=1)
    assert (found.record.event, found.record.sequence, found.durable, found.record.received_at_us) == (given, 7, 5, -3)
    assert found.size == len(data) == size_of(given)


def test_every_changed_byte_of_a_frame_is_seen() -> None:
    data = encode_frame(event("a", 1), sequence=7, durable=5, received_at_us=1, seed=1)
    for at in range(len(data)):
        with pytest.raises(BadFrame):
            decode_frame(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], 0, seed=1)
    with pytest.raises(BadFrame):
        decode_frame(data, 0, seed=2)


# --- producers


def test_a_repeat_of_a_numbered_event_is_recognised_and_has_the_same_place(disk: ForgetfulDisk) -> None:
    journal = opened(disk)
    assert journal.append([event("a", 1), event("a", 1)]) == (Receipt(0), Receipt(None, is_repeat=True))
    journal.commit()
    assert journal.append([event("a", 1)]) == (Receipt(0, is_repeat=True),)
    assert journal.append([event("a", 2), event("a", 3), event("a", 2)]) == (
        Receipt(1),
        Receipt(2),
        Receipt(None, is_repeat=True),
    )
    journal.commit()
    assert content(disk) == [b"a 1", b"a 2", b"a 3"]


def test_a_repeat_is_recognised_after_a_start_and_after_its_segment_is_gone(disk: ForgetfulDisk) -> None:
    journal = opened(disk)
    Clients().push(journal, until=9)
    released(disk, "r", journal.next)
    assert journal.remove_released() > 0
    journal.close()
    again = opened(disk)
    assert all(receipt.is_repeat for receipt in again.append([event(each, 1) for each in "abc"]))
    assert again.append([event("a", 10)]) == (Receipt(27),)


def test_a_number_that_leaves_a_gap_is_refused_and_nothing_of_its_request_is_taken(disk: ForgetfulDisk) -> None:
    journal = opened(disk)
    journal.append([event("a", 5)])
    with pytest.raises(NumberOutOfOrder, match="sent number 8, and its last one here is 6") as refused:
        journal.append([event("a", 6), event("a", 8)])
    assert refused.value.remedy.startswith("Send 7 first")
    journal.append([event("a", 6)])
    journal.commit()
    assert content(disk) == [b"a 5", b"a 6"]


def test_events_that_were_lost_with_their_group_are_no_repeats(disk: ForgetfulDisk) -> None:
    """A segment begins with the producers' numbers: those that are only waiting must not be among them."""
    journal = opened(disk, limits=replace(SMALL, segment_bytes=1))
    Clients().push(journal, until=1)
    journal.append([event("a", 2)])
    disk.crash_at = disk.operations + 4  # the new segment has its header and its name by then
    with pytest.raises(BaseException, match=r"^$"):
        journal.commit()
    disk.end_process()
    again = opened(disk)
    Clients({"a": 1, "b": 1, "c": 1}).push(again, until=2)
    assert Counter(content(disk)) == expected(2)


def test_a_silent_producer_is_forgotten_and_too_many_are_refused(disk: ForgetfulDisk) -> None:
    now = [0]
    journal = Journal(HOME, now_us=lambda: now[0], limits=replace(SMALL, segment_bytes=1), storage=disk)
    journal.append([event("old", 1)])
    journal.append([Event(value=b"", producer=f"p{number}", number=1) for number in range(MOST_PRODUCERS - 1)])
    journal.commit()
    with pytest.raises(Exception, match=f"remembers {MOST_PRODUCERS} producers"):
        journal.append([event("new", 1)])
    now[0] = FORGET_AFTER_US
    journal.append([PLAIN])
    journal.commit()  # a segment begins
    assert journal.append([event("new", 1)]) == (Receipt(MOST_PRODUCERS + 1),)


@pytest.mark.parametrize(
    "wrong",
    [
        Event(value=b"", producer="p" * 256),
        Event(value=b"", headers=(("h" * 65_536, b""),)),
        Event(value=b"", number=1),
        Event(value=b"", producer="p", number=-1),
        Event(value=b"", producer="p", number=2**63),
        Event(value=bytes(64 << 20)),
    ],
)
def test_what_no_frame_can_hold_is_refused(disk: ForgetfulDisk, wrong: Event) -> None:
    with pytest.raises(Usage):
        opened(disk).append([PLAIN, wrong])


# --- what is damaged


def last_segment(disk: ForgetfulDisk) -> Path:
    return segment_path(HOME, segment_firsts(disk, HOME)[-1])


@pytest.mark.parametrize("left", [1, 11, 12, 40, 57])
def test_a_torn_tail_is_cut(disk: ForgetfulDisk, left: int) -> None:
    pushed(disk, 3, limits=ROOMY)
    node = disk.node(last_segment(disk))
    whole = len(node.data)
    node.change(whole, encode_frame(PLAIN, sequence=3, durable=3, received_at_us=0, seed=0)[:left])
    journal = opened(disk, limits=ROOMY)
    assert len(node.data) == whole
    journal.append([Event(value=b"3")])
    journal.commit()
    assert content(disk) == [b"0", b"1", b"2", b"3"]


def test_a_hole_in_a_group_that_was_never_acknowledged_is_cut(disk: ForgetfulDisk) -> None:
    """A disk writes the pages of a group in any order."""
    pushed(disk, 2, limits=ROOMY)
    node = disk.node(last_segment(disk))
    journal = opened(disk, limits=ROOMY)
    whole = len(node.data)
    journal.append([Event(value=bytes(50)), Event(value=b"x")])
    note = bytes(disk.node(HOME / "durable").data)
    journal.commit()
    journal.close()
    disk.node(HOME / "durable").change(0, note)
    node.change(whole, bytes(70))
    opened(disk, limits=ROOMY)
    assert content(disk) == [b"0", b"1"]


@pytest.mark.parametrize("at", range(3))
def test_a_bad_frame_in_the_middle_is_an_alarm_with_its_place(disk: ForgetfulDisk, at: int) -> None:
    pushed(disk, 4, limits=ROOMY)
    path = last_segment(disk)
    begin = open_segment(disk, HOME, 0).begin
    size = size_of(Event(value=b"0"))
    disk.node(path).change(begin + at * size + 20, b"\xff")
    with pytest.raises(JournalDamaged, match=rf"{path.name} is damaged at byte {begin + at * size}: expected event {at}"):
        opened(disk, limits=ROOMY)
    assert not verify_journal(disk, HOME).ok


def test_a_bad_frame_of_a_sealed_segment_is_found_by_verify_and_by_whoever_reads_it(disk: ForgetfulDisk) -> None:
    pushed(disk, 30)
    assert verify_journal(disk, HOME).ok
    disk.node(segment_path(HOME, 0)).change(open_segment(disk, HOME, 0).begin + 30, b"\xff")
    found = verify_journal(disk, HOME)
    assert not found.ok
    assert "Segment 0 has" in found.problems[0]
    with pytest.raises(Retryable, match="at event 0 it has a frame with a wrong checksum"):
        content(disk)


def test_an_acknowledged_event_that_is_missing_at_the_end_is_an_alarm(disk: ForgetfulDisk) -> None:
    pushed(disk, 3, limits=ROOMY)
    node = disk.node(last_segment(disk))
    node.change(len(node.data) - 5, None)
    with pytest.raises(JournalDamaged, match=r"acknowledged events up to 2, and .* ends before event 2"):
        opened(disk, limits=ROOMY)
    disk.remove(HOME / "durable")
    released(disk, "r", 3)
    with pytest.raises(JournalDamaged, match="Reader 'r' has events up to 2"):
        opened(disk, limits=ROOMY)


@pytest.mark.parametrize("missing", [0, 1, -1])
def test_a_missing_segment_is_an_alarm(disk: ForgetfulDisk, missing: int) -> None:
    pushed(disk, 40)
    firsts = segment_firsts(disk, HOME)
    assert len(firsts) > 3
    disk.remove(segment_path(HOME, firsts[missing]))
    if missing == 0:  # as if it had been released: the readers tell
        with pytest.raises(InputLost, match=r"Event 0 of the journal .* is gone: the first is"):
            content(disk)
    else:
        with pytest.raises(JournalDamaged):
            opened(disk)


def test_an_index_that_is_lost_or_torn_is_made_again(disk: ForgetfulDisk) -> None:
    pushed(disk, 40)
    paths = [segment_path(HOME, first).with_suffix(".index") for first in segment_firsts(disk, HOME)[:-1]]
    before = [disk.read(path) for path in paths]
    disk.remove(paths[0])
    disk.node(paths[1]).change(20, None)
    disk.node(paths[2]).change(0, b"[")
    opened(disk)
    assert [disk.read(path) for path in paths] == before


def test_segments_of_two_journals_are_refused(disk: ForgetfulDisk) -> None:
    pushed(disk, 40)
    path = segment_path(HOME, segment_firsts(disk, HOME)[-1])
    header = open_segment(disk, HOME, int(path.stem)).header
    disk.node(path).change(0, encode_header(replace(header, journal_id="f" * 16)))
    with pytest.raises(LedgerMismatch, match="are of two journals"):
        opened(disk)


# --- the copy


def test_both_directories_have_an_event_before_it_is_acknowledged(disk: ForgetfulDisk) -> None:
    pushed(disk, 20, copy=COPY)
    firsts = segment_firsts(disk, HOME)
    assert firsts == segment_firsts(disk, COPY)
    assert [disk.node(segment_path(COPY, first)).durable for first in firsts] == [
        disk.read(segment_path(HOME, first)) for first in firsts
    ]


def test_a_copy_that_is_new_or_was_left_out_is_brought_level(disk: ForgetfulDisk) -> None:
    pushed(disk, 10)
    pushed(disk, 2, copy=COPY)
    pushed(disk, 25)
    released(disk, "r", 20)
    journal = opened(disk)
    assert journal.remove_released() > 0
    journal.close()
    pushed(disk, 1, copy=COPY)
    firsts = segment_firsts(disk, HOME)
    assert firsts == segment_firsts(disk, COPY)
    assert [disk.read(segment_path(COPY, first)) for first in firsts] == [
        disk.read(segment_path(HOME, first)) for first in firsts
    ]


def test_a_journal_that_lost_its_end_gets_it_from_the_copy(disk: ForgetfulDisk) -> None:
    pushed(disk, 5, limits=ROOMY, copy=COPY)
    disk.remove(HOME / "durable")
    node = disk.node(last_segment(disk))
    node.change(len(node.data) - 1, None)
    opened(disk, limits=ROOMY, copy=COPY)
    assert content(disk) == [b"%d" % number for number in range(5)]


def test_a_journal_that_is_gone_is_not_begun_anew_beside_its_copy(disk: ForgetfulDisk) -> None:
    pushed(disk, 3, limits=ROOMY, copy=COPY)
    disk.remove(last_segment(disk))
    disk.remove(HOME / "durable")
    with pytest.raises(JournalDamaged, match="is empty, and its copy in /copy has events") as refused:
        opened(disk, limits=ROOMY, copy=COPY)
    assert refused.value.remedy == f"Restore it: copy the files of {COPY / SEGMENTS} into {HOME / SEGMENTS}."
    disk.create(segment_path(HOME, 0)).write(disk.read(segment_path(COPY, 0)))
    opened(disk, limits=ROOMY, copy=COPY)
    assert content(disk) == [b"0", b"1", b"2"]


def test_a_damaged_segment_is_restored_from_the_copy(disk: ForgetfulDisk) -> None:
    pushed(disk, 5, limits=ROOMY, copy=COPY)
    node = disk.node(segment_path(HOME, 0))
    node.change(open_segment(disk, HOME, 0).begin + 20, b"\xff")
    with pytest.raises(JournalDamaged, match="is damaged at byte") as refused:
        opened(disk, limits=ROOMY, copy=COPY)
    assert refused.value.remedy.startswith("Restore the file from the copy of the journal")
    node.change(0, disk.read(segment_path(COPY, 0)))
    opened(disk, limits=ROOMY, copy=COPY)
    assert content(disk) == [b"%d" % number for number in range(5)]


def test_the_copy_of_another_journal_is_refused(disk: ForgetfulDisk) -> None:
    Journal(COPY, now_us=lambda: 0, limits=SMALL, storage=disk).close()
    pushed(disk, 1)
    with pytest.raises(LedgerMismatch, match="holds a copy of the journal"):
        opened(disk, copy=COPY)


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
    journal.append([event("a", taken)])
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


def test_a_journal_has_one_writer(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", now_us=lambda: 1)
    with pytest.raises(Retryable, match="has a writer already: process"):
        Journal(tmp_path / "j", now_us=lambda: 1)
    journal.close()
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
            register(storage, home, Registration(reader="r", journal_id=extent.journal_id, next=20, released_at_us=0))
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
