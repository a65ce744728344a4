"""The journal's writer: frames, what it does about damage, and its second copy."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.forgetful_disk import ForgetfulDisk
from tests.unit.journal_clients import (
    COPY,
    HOME,
    PLAIN,
    ROOMY,
    SMALL,
    Clients,
    content,
    event,
    opened,
    pushed,
    released,
)

from penstock.errors import InputLost, JournalDamaged, LedgerMismatch, Retryable, Usage
from penstock.journal.event import Event, Receipt
from penstock.journal.format import SEGMENTS, encode_header, segment_path
from penstock.journal.frame import BadFrame, decode_frame, encode_frame, size_of
from penstock.journal.inspection import verify_journal
from penstock.journal.journal import Journal, JournalFull
from penstock.journal.readers import forget
from penstock.journal.segment import open_segment, segment_firsts


@pytest.fixture
def disk() -> ForgetfulDisk:
    return ForgetfulDisk()


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


@pytest.mark.parametrize(
    "wrong",
    [
        Event(value=b"", producer="p" * 256),
        Event(value=b"", headers=(("h" * 65_536, b""),)),
        Event(value=b"", number=1),
        Event(value=b"", producer="p", number=-1),
        Event(value=b"", producer="p", number=0),
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


def test_a_header_that_is_damaged_is_an_alarm(disk: ForgetfulDisk) -> None:
    """Its numbers say which events of a producer are repeats: one that is wrong would take new events for them."""
    Clients().push(opened(disk, limits=ROOMY), until=1)
    disk.end_process()
    node = disk.node(segment_path(HOME, 0))
    node.change(node.data.index(b'"created_at_us":1') + 16, b"2")
    with pytest.raises(LedgerMismatch, match="expected a whole first line"):
        opened(disk, limits=ROOMY)


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


@pytest.mark.parametrize("sealed", [0, 40])
@pytest.mark.parametrize("other", [b"other", b"x", b"longer than the one"])
def test_a_copy_that_has_other_events_than_the_journal_is_an_alarm(disk: ForgetfulDisk, sealed: int, other: bytes) -> None:
    """The journal's disk forgot a group that only the copy has, and the receiver went on without the copy."""
    pushed(disk, 1, copy=COPY)
    path = segment_path(COPY, 0)
    seed = open_segment(disk, COPY, 0).seed
    disk.node(path).change(disk.size(path), encode_frame(Event(value=other), sequence=1, durable=1, received_at_us=0, seed=seed))
    journal = opened(disk)
    journal.append([Event(value=b"taken")])
    journal.commit()
    journal.close()
    pushed(disk, sealed)
    with pytest.raises(JournalDamaged, match="should begin alike, and do not") as refused:
        opened(disk, copy=COPY)
    assert "keep the copy elsewhere" in refused.value.remedy
    disk.remove(path)
    pushed(disk, 1, copy=COPY)
    assert disk.read(path) == disk.read(segment_path(HOME, 0))


def removed_alone(disk: ForgetfulDisk, released_to: int) -> list[int]:
    """Remove in the journal what its only reader released, as `penstock journal trim` does, and return the copy's segments."""
    pushed(disk, 40, copy=COPY)
    released(disk, "r", released_to)
    with closing(opened(disk)) as journal:
        assert journal.remove_released() > 0
    return segment_firsts(disk, COPY)


def test_what_was_removed_in_the_journal_alone_goes_in_the_copy(disk: ForgetfulDisk) -> None:
    removed_alone(disk, 40)
    opened(disk, copy=COPY)
    assert segment_firsts(disk, COPY) == segment_firsts(disk, HOME)


def test_what_was_removed_before_the_last_reader_was_forgotten_is_no_damage(disk: ForgetfulDisk) -> None:
    before = removed_alone(disk, 40)
    forget(disk, HOME, "r")
    opened(disk, copy=COPY)
    assert segment_firsts(disk, COPY) == segment_firsts(disk, HOME) == before, "nobody knows that they may go"
    assert len(content(disk)) == 40


def test_the_copy_keeps_a_segment_of_which_a_reader_needs_a_part(disk: ForgetfulDisk) -> None:
    pushed(disk, 40, copy=COPY)
    before = segment_firsts(disk, COPY)
    released(disk, "r", before[2] + 1)
    for first in before[:3]:
        disk.remove(segment_path(HOME, first))  # lost
    opened(disk, copy=COPY)
    assert segment_firsts(disk, COPY) == segment_firsts(disk, HOME) == before[2:]
    assert content(disk, first=before[2] + 1)[0] == b"%d" % (before[2] + 1)


def test_an_old_copy_that_does_not_join_the_journal_is_an_alarm(disk: ForgetfulDisk) -> None:
    pushed(disk, 2, copy=COPY)
    pushed(disk, 40)
    released(disk, "r", 40)
    with closing(opened(disk)) as journal:
        journal.remove_released()
    forget(disk, HOME, "r")
    with pytest.raises(JournalDamaged, match=r"some before it that were not released by every reader, and ends before it"):
        opened(disk, copy=COPY)


def test_a_repeat_needs_no_room(disk: ForgetfulDisk) -> None:
    with closing(opened(disk)) as journal:
        journal.append([event("a", 1)])
        journal.commit()
    full = opened(disk, limits=replace(SMALL, most_bytes=1))
    with pytest.raises(JournalFull):
        full.append([event("a", 1), event("a", 2)])
    assert full.append([event("a", 1)]) == (Receipt(0, is_repeat=True),)


def test_sealed_segments_are_compared_by_their_checksums(disk: ForgetfulDisk) -> None:
    pushed(disk, 40, copy=COPY)
    assert segment_firsts(disk, COPY)[1] > 0
    segment = open_segment(disk, COPY, 0)
    frame = encode_frame(Event(value=b"x"), sequence=0, durable=0, received_at_us=0, seed=segment.seed)
    disk.node(segment.path).change(segment.begin, frame)
    disk.remove(segment.path.with_suffix(".index"))
    with pytest.raises(JournalDamaged, match="should begin alike, and do not"):
        opened(disk, copy=COPY)


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
