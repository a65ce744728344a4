"""A machine that stops at any operation of the journal: what was acknowledged is read once, whatever the disk forgot."""

import os
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.seed import SEED
from tests.unit.forgetful_disk import Crashed, ForgetfulDisk
from tests.unit.journal_clients import COPY, HOME, PLAIN, Clients, Pipeline, content, expected, opened, pushed, released

from penstock.errors import Failed, PenstockError
from penstock.journal.format import SEGMENTS, SegmentHeader, encode_header, segment_path
from penstock.journal.group import GroupLimits, GroupWriter
from penstock.journal.journal import JournalFull
from penstock.journal.segment import open_segment

ROUNDS = 4
UNTIL = 2 * ROUNDS


EVERYTHING = os.environ.get("PENSTOCK_SOAK_FAULTS") == "all"
DRAWN = 25


def drawn(total: int) -> Sequence[int]:
    """Return operations at which to crash: some of them, unless all are wanted."""
    every = range(1, total + 1)
    return every if EVERYTHING else random.Random(SEED).sample(every, DRAWN)


def run(disk: ForgetfulDisk, clients: Clients, pipeline: Pipeline, *, copy: Path | None) -> None:
    """Push, deliver and remove in turns, as a receiver and a driver do."""
    journal = opened(disk, copy=copy)
    for until in range(2, UNTIL + 1, 2):
        clients.push(journal, until=until)
        pipeline.deliver(disk)
        journal.remove_released()
    journal.close()


def operations(copy: Path | None) -> int:
    disk = ForgetfulDisk()
    run(disk, Clients(), Pipeline(), copy=copy)
    return disk.operations


@pytest.mark.parametrize("copy", [None, COPY], ids=["alone", "with a copy"])
def test_a_crash_of_the_machine_at_any_operation_loses_nothing_and_doubles_nothing(copy: Path | None) -> None:
    generator = random.Random(SEED)
    total = operations(copy)
    for at in drawn(total):
        disk, clients, pipeline = ForgetfulDisk(crash_at=at), Clients(), Pipeline()
        with pytest.raises(Crashed):
            run(disk, clients, pipeline, copy=copy)
        disk.crash(generator)
        disk.crash_at = disk.operations + generator.randint(1, 30)  # and once more while it starts, or soon after
        try:
            run(disk, clients, pipeline, copy=copy)
        except Crashed:
            disk.crash(generator)
        disk.crash_at = None
        disk.locked.clear()
        acknowledged = dict(clients.acknowledged)
        journal = opened(disk, copy=copy)
        clients.push(journal, until=UNTIL, again=True)
        pipeline.deliver(disk)
        journal.close()
        assert Counter(pipeline.read) == expected(UNTIL), f"PENSTOCK_SEED={SEED} operation {at} after {acknowledged}"


def test_what_a_reader_saw_is_never_given_to_another_event() -> None:
    """It reads the pages that are in memory: it must not go beyond what is on the disk."""
    disk, pipeline = ForgetfulDisk(), Pipeline()
    journal = opened(disk)
    Clients().push(journal, until=2)
    pipeline.deliver(disk)
    with pytest.raises(Failed):
        _commit_without_sync(disk, journal)
    seen = len(pipeline.read)
    pipeline.deliver(disk)
    assert len(pipeline.read) == seen


def _commit_without_sync(disk: ForgetfulDisk, journal: object) -> None:
    disk.failing_sync = disk.syncs + 1
    Clients({"a": 2, "b": 2, "c": 2}).push(journal, until=3)  # type: ignore[arg-type]


def test_an_fsync_that_failed_is_not_believed_by_the_next_writer() -> None:
    """The kernel takes the pages for clean then; unless they are written anew, another fsync says that all is well."""
    disk, clients, pipeline = ForgetfulDisk(), Clients(), Pipeline()
    journal = opened(disk)
    clients.push(journal, until=2)
    disk.failing_sync = disk.syncs + 1
    with pytest.raises(Failed, match="input/output error"):
        clients.push(journal, until=3)
    journal.close()
    disk.end_process()
    again = opened(disk)
    clients.push(again, until=3)  # the journal has them in its pages, and acknowledges them as repeats
    disk.crash(random.Random(0))
    last = opened(disk)
    clients.push(last, until=4)
    pipeline.deliver(disk)
    assert Counter(pipeline.read) == expected(4)


@pytest.mark.parametrize("room", range(0, 3000, 170))
def test_a_full_disk_acknowledges_nothing_and_loses_nothing(room: int) -> None:
    disk, clients, pipeline = ForgetfulDisk(), Clients(), Pipeline()
    journal = opened(disk)
    disk.room = room
    with pytest.raises(JournalFull, match="the disk is full"):
        clients.push(journal, until=UNTIL)
    journal.close()
    disk.room = None
    again = opened(disk)
    clients.push(again, until=UNTIL, again=True)
    pipeline.deliver(disk)
    assert Counter(pipeline.read) == expected(UNTIL)


@pytest.mark.parametrize("room", range(0, 900, 60))
def test_what_is_released_makes_room_on_a_full_disk(room: int) -> None:
    """Also where it was full while a segment or its index began, and where the disk tells no free bytes."""
    disk = ForgetfulDisk()
    pushed(disk, 40)
    disk.room = room
    writer = GroupWriter(lambda: opened(disk), GroupLimits(look_s=3600))  # it is never time to look at readers
    while not isinstance(writer.submit([PLAIN]).exception(), JournalFull):
        pass
    assert disk.room < 900
    disk.room = None  # readers have a disk of their own
    released(disk, "sink", 40)
    disk.room = 0
    assert [receipt.sequence for receipt in writer.submit([PLAIN]).result()]
    writer.close()


def test_every_operation_may_be_the_last_before_the_process_ends() -> None:
    """SIGKILL: the machine goes on, and so everything that was written is there."""
    for at in drawn(operations(None)):
        disk, clients, pipeline = ForgetfulDisk(crash_at=at), Clients(), Pipeline()
        with pytest.raises(Crashed):
            run(disk, clients, pipeline, copy=None)
        disk.end_process()
        try:
            run(disk, clients, pipeline, copy=None)
        except PenstockError as error:  # pragma: no cover - shown with the place
            raise AssertionError(f"operation {at}: {error}") from error
        pipeline.deliver(disk)
        assert Counter(pipeline.read) == expected(UNTIL), f"operation {at}"


def test_a_new_segment_has_its_name_on_the_disk() -> None:
    """A file whose directory was not forced to the disk is gone after a crash, with all that is in it."""
    disk, clients = ForgetfulDisk(), Clients()
    journal = opened(disk)
    for until in range(1, 9):
        clients.push(journal, until=until)
        disk.forget_renamings()
    assert Counter(_all_of(disk)) == expected(8)


@pytest.mark.parametrize("missing", [1, 2, 60])
@pytest.mark.parametrize("events", [0, 3])
def test_a_header_that_is_not_whole_is_begun_anew(missing: int, events: int) -> None:
    """A line feed that is missing too: what comes behind it would stand a byte further than whoever reads expects."""
    disk = ForgetfulDisk()
    if events:
        pushed(disk, events)
        header = open_segment(disk, HOME, 0).header
    else:
        header = SegmentHeader(journal_id="0" * 16, first=0, created_at_us=0, producers={})
        disk.make_directory(HOME / SEGMENTS)
    disk.create(segment_path(HOME, events)).write(encode_header(replace(header, first=events))[:-missing])
    pushed(disk, 2)
    pushed(disk, 2)
    assert content(disk) == [b"%d" % number for number in range(events + 4)]


def _all_of(disk: ForgetfulDisk) -> list[bytes]:
    disk.crash(random.Random(0))
    pipeline = Pipeline()
    opened(disk).close()
    pipeline.deliver(disk)
    return pipeline.read


def test_the_disk_of_these_tests_forgets() -> None:
    disk = ForgetfulDisk()
    disk.make_directory(HOME)
    file = disk.create(HOME / "a")
    file.write(b"x")
    disk.crash(random.Random(1))
    assert disk.names(HOME) == [] or disk.read(HOME / "a") in {b"", b"x"}
    file = disk.create(HOME / "b")
    file.write(b"x")
    file.sync()
    disk.sync_directory(HOME)
    disk.crash(random.Random(1))
    assert disk.read(HOME / "b") == b"x"
    disk = ForgetfulDisk(crash_at=2)
    with pytest.raises(Crashed):
        disk.make_directory(HOME)
    disk.crash(random.Random(1))
    assert disk.names(HOME.parent) in ([], [HOME.name]), "its name was not on the disk"
    with pytest.raises(FileNotFoundError):
        ForgetfulDisk().create(HOME / "a")
