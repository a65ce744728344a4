"""What every ledger must do, on every home that this version has."""

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path

import pytest
from tests.conformance.ledger_child import Child
from tests.servers.fixtures import accounts_on, server, unique

import penstock.ledger.mysql  # its fault points, as those of the next one
import penstock.ledger.postgres  # noqa: F401
from penstock.commit.append import append_once
from penstock.core.faults import FaultKind, points
from penstock.core.model import Entry, PipelineName, Position
from penstock.errors import LedgerMismatch, PositionTaken
from penstock.ledger.log import LogLedger
from penstock.ledger.open import open_ledger
from penstock.ledger.store import MemoryStore
from penstock.protocols import Ledger
from penstock.supervise.lease import KeepsLease
from penstock.testing.entries import PIPELINE, chain, decided_entry, opened_entry

Open = Callable[..., Ledger]


OWN_PLACES, STORES, SHARED_PLACES = ("sqlite", "directory", "memory"), ("az", "gs", "hdfs", "s3"), ("mysql", "postgres")
"""A shared place holds the ledgers of many pipelines."""


def place_of(home: str, directory: Path) -> str:
    if home in SHARED_PLACES:
        return database_for(home, directory)
    return f"sqlite:///{directory}/ledger.db" if home == "sqlite" else f"{directory}/ledger"


@cache
def database_for(kind: str, directory: Path) -> str:
    """The URL of an empty database, always the same one for a directory."""
    return str(server(kind).database(unique("ledger")))


@pytest.fixture(params=[*OWN_PLACES, *STORES, *SHARED_PLACES])
def home(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def handle(home: str, tmp_path: Path) -> Iterator[Open]:
    """Opens one handle after another on the same place."""
    store = MemoryStore()
    handles: list[Ledger] = []
    blob = accounts_on(ledger=home)["ledger"][0] if home in STORES else None

    def open_one(pipeline: PipelineName = PIPELINE) -> Ledger:
        ledger: Ledger
        if home == "memory":
            ledger = LogLedger(store, pipeline=pipeline)
        elif blob is not None:
            ledger = open_ledger(blob.url, pipeline=pipeline, options=blob.options)
        else:
            ledger = open_ledger(place_of(home, tmp_path), pipeline=pipeline)
        handles.append(ledger)
        return ledger

    yield open_one
    for ledger in handles:
        ledger.close()


def fill(ledger: Ledger, count: int) -> list[Entry]:
    entries = list(islice(chain(), count))
    for entry in entries:
        ledger.append(entry)
    return entries


def leases(ledger: Ledger) -> KeepsLease:
    assert isinstance(ledger, KeepsLease)
    return ledger


def test_the_newest_record_of_the_lease_is_seen_by_every_handle_and_older_ones_are_forgotten(handle: Open) -> None:
    one, other = leases(handle()), leases(handle())
    assert one.newest_lease() is None
    for number in range(1, 6):
        assert one.append_lease(number, b'"%d"' % number)
        assert other.newest_lease() == (number, b'"%d"' % number)
    assert leases(handle()).newest_lease() == (5, b'"5"')
    assert other.append_lease(1, b'"forgotten"'), "a number that was forgotten may be taken again"
    assert leases(handle()).newest_lease() == one.newest_lease() == (5, b'"5"')


def test_a_record_of_the_lease_is_taken_once(handle: Open) -> None:
    one, other = leases(handle()), leases(handle())
    assert one.append_lease(1, b'"one"')
    assert not other.append_lease(1, b'"other"')
    assert other.newest_lease() == (1, b'"one"')
    assert other.append_lease(2, b'"other"')
    assert one.newest_lease() == (2, b'"other"')


def test_the_lease_and_the_entries_do_not_see_each_other(handle: Open) -> None:
    ledger = handle()
    assert leases(ledger).append_lease(1, b'"one"')
    assert ledger.tail() is None
    entries = fill(ledger, 5)
    assert leases(ledger).append_lease(2, b'"two"')
    ledger.prune(below=Position(3))
    assert handle().tail() == entries[-1]
    assert list(handle().newest_first()) == entries[:1:-1]
    assert leases(handle()).newest_lease() == (2, b'"two"')


def test_an_empty_ledger_has_no_tail_and_reading_creates_nothing(handle: Open, tmp_path: Path) -> None:
    ledger = handle()
    assert ledger.tail() is None
    assert ledger.read(Position(1)) is None
    assert list(ledger.newest_first()) == []
    assert list(tmp_path.iterdir()) == []


def test_what_was_appended_is_read_back_by_every_handle(handle: Open) -> None:
    entries = fill(handle(), 21)
    ledger = handle()
    assert ledger.tail() == entries[-1]
    assert [ledger.read(entry.position) for entry in entries] == entries
    assert list(ledger.newest_first()) == entries[::-1]
    assert ledger.read(Position(22)) is None
    assert ledger.read(Position(0)) is None


def test_the_tail_is_seen_while_another_handle_appends(handle: Open) -> None:
    reader, writer = handle(), handle()
    for entry in islice(chain(), 40):
        writer.append(entry)
        assert reader.tail() == entry
        assert handle().tail() == entry


def test_an_occupied_position_is_taken_and_keeps_its_first_entry(handle: Open) -> None:
    first, second = handle(), handle()
    entries = fill(first, 3)
    late = decided_entry(after=entries[1])
    for ledger in (first, second):
        with pytest.raises(PositionTaken):
            ledger.append(late)
        assert ledger.read(Position(3)) == entries[2]
        assert ledger.tail() == entries[2]


def test_the_first_position_is_taken_only_once(handle: Open) -> None:
    one, other = handle(), handle()
    assert one.tail() is None
    assert other.tail() is None
    won, lost = opened_entry(), opened_entry()
    one.append(won)
    with pytest.raises(PositionTaken):
        other.append(lost)
    assert other.tail() == won


def test_a_hole_is_refused(handle: Open) -> None:
    entries = list(islice(chain(), 5))
    handle().append(entries[0])
    with pytest.raises(LedgerMismatch, match="position 3 is empty"):
        handle().append(entries[3])
    assert handle().tail() == entries[0]
    with pytest.raises(LedgerMismatch):
        handle().append(decided_entry(after=entries[3]))


@pytest.mark.parametrize("home", [*OWN_PLACES, *STORES])
def test_another_pipeline_may_neither_read_nor_append(handle: Open) -> None:
    entries = fill(handle(), 2)
    stranger = PipelineName("stranger")
    with pytest.raises(LedgerMismatch, match="belongs to pipeline 'example', not to 'stranger'"):
        handle(stranger).tail()
    with pytest.raises((LedgerMismatch, PositionTaken)):
        handle(stranger).append(opened_entry(pipeline=stranger))
    with pytest.raises(LedgerMismatch):
        handle().append(decided_entry(after=opened_entry(after=entries[1], pipeline=stranger)))
    assert handle().tail() == entries[1]


@pytest.mark.parametrize("home", SHARED_PLACES)
def test_pipelines_in_one_place_never_meet(handle: Open) -> None:
    entries, stranger = fill(handle(), 5), PipelineName("stranger")
    assert handle(stranger).tail() is None
    theirs = opened_entry(pipeline=stranger)
    handle(stranger).append(theirs)
    with pytest.raises(LedgerMismatch):
        handle().append(decided_entry(after=theirs))
    handle().prune(below=Position(5))
    assert list(handle().newest_first()) == entries[4:]
    assert list(handle(stranger).newest_first()) == [theirs]


def test_pruned_entries_are_gone_and_their_positions_stay_taken(handle: Open) -> None:
    ledger = handle()
    entries = fill(ledger, 30)
    ledger.prune(below=Position(25))
    for reader in (ledger, handle()):
        assert reader.tail() == entries[-1]
        assert list(reader.newest_first()) == entries[:23:-1]
        assert reader.read(Position(24)) is None
    for position in (1, 2, 24, 25):
        zombie = entries[0] if position == 1 else decided_entry(after=entries[position - 2])
        for writer in (ledger, handle()):
            with pytest.raises(PositionTaken):
                writer.append(zombie)
            assert writer.tail() == entries[-1]
    ledger.append(decided_entry(after=entries[-1]))


def test_pruning_again_and_less_changes_nothing(handle: Open) -> None:
    ledger = handle()
    entries = fill(ledger, 30)
    ledger.prune(below=Position(20))
    for below in (20, 5, 1):
        handle().prune(below=Position(below))
        assert list(handle().newest_first()) == entries[:18:-1]
    ledger.prune(below=Position(30))
    assert list(handle().newest_first()) == entries[:28:-1]


def test_the_tail_is_never_pruned(handle: Open) -> None:
    with pytest.raises(ValueError, match="forget the tail"):
        handle().prune(below=Position(1))
    entries = fill(handle(), 3)
    with pytest.raises(ValueError, match="forget the tail"):
        handle().prune(below=Position(4))
    assert handle().tail() == entries[-1]


def test_a_driver_that_slept_while_its_position_was_pruned_is_too_late(handle: Open) -> None:
    zombie = handle()
    entries = fill(zombie, 4)
    zombie_entry = decided_entry(after=entries[-1])
    new = handle()
    tail = entries[-1]
    for _ in range(20):
        tail = decided_entry(after=tail)
        new.append(tail)
    new.prune(below=Position(20))
    with pytest.raises(PositionTaken):
        zombie.append(zombie_entry)
    assert append_once(zombie, zombie_entry) is not None
    for ledger in (zombie, new, handle()):
        assert ledger.read(zombie_entry.position) is None
        assert ledger.tail() == tail
        assert [entry.position for entry in ledger.newest_first()] == [24, 23, 22, 21, 20]
    new.prune(below=Position(21))
    assert [entry.position for entry in handle().newest_first()] == [24, 23, 22, 21]


def test_newest_first_reads_only_what_is_asked_for(handle: Open) -> None:
    entries = fill(handle(), 12)
    ledger = handle()
    assert list(islice(ledger.newest_first(), 2)) == entries[:9:-1]


def test_the_self_test_passes_and_leaves_the_ledger_as_it_was(handle: Open) -> None:
    ledger = handle()
    ledger.prove()
    entries = fill(ledger, 3)
    handle().prove()
    assert list(handle().newest_first()) == entries[::-1]


def test_a_closed_ledger_opens_again(handle: Open) -> None:
    ledger = handle()
    entries = fill(ledger, 2)
    ledger.close()
    assert ledger.tail() == entries[1]


# --- in processes of their own


def start(directory: Path, place: str, count: int, prune_at: int | None = None, *, faults: str = "") -> Child:
    return Child(place, count, prune_at, faults=faults, told=directory / unique("told"))


@pytest.mark.crash
@pytest.mark.parametrize("home", ["sqlite", "directory", *SHARED_PLACES])
def test_racing_processes_take_every_position_once(home: str, tmp_path: Path) -> None:
    place = place_of(home, tmp_path)
    children = [start(tmp_path, place, 25) for _ in range(4)]
    ended = [child.end() for child in children]
    assert [code for code, _ in ended] == [0, 0, 0, 0], ended
    claimed = [claim for _, claims in ended for claim in claims]
    ledger = open_ledger(place, pipeline=PIPELINE)
    entries = list(ledger.newest_first())[::-1]
    ledger.close()
    assert [entry.position for entry in entries] == list(range(1, 101))
    assert Counter(claimed) == Counter((entry.position, entry.nonce) for entry in entries)


POINTS = (
    "ledger.append",
    "ledger.directory_link",
    "ledger.directory_sync",
    "ledger.directory_sync_file",
    "ledger.directory_unlink",
    "ledger.directory_write",
    "ledger.forget",
    "ledger.hint",
    "ledger.mysql_commit",
    "ledger.mysql_create",
    "ledger.mysql_insert",
    "ledger.mysql_prune",
    "ledger.postgres_commit",
    "ledger.postgres_create",
    "ledger.postgres_insert",
    "ledger.postgres_prune",
    "ledger.read_floors",
    "ledger.sqlite_commit",
    "ledger.sqlite_insert",
    "ledger.sqlite_prune",
    "ledger.write_floor",
)
RARE = {
    *("ledger.hint", "ledger.sqlite_prune", "ledger.write_floor"),
    *(f"ledger.{kind}_{step}" for kind in SHARED_PLACES for step in ("create", "prune")),
}
"""Points that the child reaches less than nine times."""


def _faults() -> list[tuple[str, str, int]]:
    mine = [point for point in points() if point.name in POINTS]
    early = [(point.name, _armed(kind), 1) for point in mine for kind in point.kinds]
    return early + [(point.name, kind, 9) for point in mine if point.name not in RARE for kind in ("kill", "lost")]


def _armed(kind: FaultKind) -> str:
    return "stall:0.05" if kind is FaultKind.STALL else kind.value


def _home_of(point: str) -> str:
    kind = point.removeprefix("ledger.").partition("_")[0]
    return kind if kind in {*SHARED_PLACES, "sqlite"} else "directory"


@pytest.mark.crash
@pytest.mark.parametrize(("point", "kind", "occurrence"), _faults())
def test_a_fault_at_any_step_loses_no_acknowledged_entry(point: str, kind: str, occurrence: int, tmp_path: Path) -> None:
    place = place_of(_home_of(point), tmp_path)
    code, claimed = start(tmp_path, place, 12, 11, faults=f"{point}={kind}@{occurrence}").end()
    if kind in {"kill", "torn"}:
        assert code == -signal.SIGKILL, claimed
    _, after = start(tmp_path, place, 12, 11).end()
    claimed += after
    ledger = open_ledger(place, pipeline=PIPELINE)
    entries = list(ledger.newest_first())[::-1]
    ledger.close()
    assert [entry.position for entry in entries] == list(range(11, entries[-1].position + 1))
    found = Counter((entry.position, entry.nonce) for entry in entries)
    assert not Counter(claim for claim in claimed if claim[0] >= 11) - found
    assert len({position for position, _ in claimed}) == len(claimed)
    assert len(claimed) in {entries[-1].position, entries[-1].position - 1}  # one may have landed without an answer
    _assert_nothing_is_left(tmp_path / "ledger")


def _assert_nothing_is_left(ledger: Path) -> None:
    if ledger.exists():
        assert list((ledger / "tmp").iterdir()) == []
        assert not (ledger / "prove").exists()


def test_every_fault_point_of_a_ledger_is_in_the_table_above() -> None:
    assert tuple(point.name for point in points() if point.name.startswith("ledger.")) == POINTS
