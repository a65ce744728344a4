"""What only the ledger of single objects has: hints, floors, strays, and stores that lie."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from threading import Barrier, BrokenBarrierError

import pytest

from penstock.commit.append import append_once
from penstock.core.codec import encode_entry
from penstock.core.faults import arm
from penstock.core.model import Entry, Position
from penstock.errors import Failed, LedgerMismatch, OutcomeUnknown, PositionTaken, Retryable, StoreIgnoresConditions
from penstock.ledger.log import LogLedger
from penstock.ledger.store import MemoryStore
from penstock.testing.entries import PIPELINE, chain, decided_entry


class CountingStore(MemoryStore):
    """Counts every operation."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()

    def put_if_absent(self, key: str, data: bytes) -> bool:
        self.count["put_if_absent"] += 1
        return super().put_if_absent(key, data)

    def get(self, key: str) -> bytes | None:
        self.count["get"] += 1
        return super().get(key)

    def put(self, key: str, data: bytes) -> None:
        self.count["put"] += 1
        super().put(key, data)

    def keys(self, folder: str) -> Iterator[str]:
        self.count["keys"] += 1
        return super().keys(folder)

    def cost(self) -> int:
        total = self.count.total()
        self.count.clear()
        return total


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    arm("")


def ledger_on(store: MemoryStore) -> LogLedger:
    return LogLedger(store, pipeline=PIPELINE)


def fill(store: MemoryStore, count: int) -> list[Entry]:
    ledger, entries = ledger_on(store), list(islice(chain(), count))
    for entry in entries:
        ledger.append(entry)
    return entries


@pytest.mark.parametrize("count", [100, 5_000])
def test_the_cost_of_tail_append_and_read_does_not_depend_on_the_number_of_entries(count: int) -> None:
    store = CountingStore()
    tail = fill(store, count)[-1]
    ledger = ledger_on(store)
    store.count.clear()
    assert ledger.tail() == tail
    assert store.cost() <= 12
    ledger.tail()
    assert store.cost() <= 3
    for _ in range(16):
        tail = decided_entry(after=tail)
        ledger.append(tail)
    assert store.cost() <= 16 * 2 + 2
    ledger.read(tail.position)
    assert store.cost() <= 2


@pytest.mark.parametrize("hint", [None, b"", b"{", b'{"format":"penstock.ledger.hint","position":"x","version":1}'])
def test_a_lost_or_damaged_hint_costs_a_search_and_nothing_else(hint: bytes | None) -> None:
    store = CountingStore()
    tail = fill(store, 5_000)[-1]
    store.delete("hint")
    if hint is not None:
        store.put("hint", hint)
    store.count.clear()
    assert ledger_on(store).tail() == tail
    assert store.cost() <= 30


@pytest.mark.parametrize("position", [1, 3, 49, 50, 51, 1_000_000])
def test_a_hint_that_points_anywhere_is_only_a_hint(position: int) -> None:
    store = MemoryStore()
    entries = fill(store, 50)
    ledger_on(store).prune(below=Position(20))
    store.put("hint", b'{"format":"penstock.ledger.hint","position":%d,"version":1}' % position)
    assert ledger_on(store).tail() == entries[-1]


def test_a_hint_that_cannot_be_written_does_not_fail_the_append() -> None:
    store = MemoryStore()
    arm("ledger.hint=error@1")
    entries = fill(store, 20)
    assert ledger_on(store).tail() == entries[-1]


def test_a_floor_that_cannot_be_read_after_the_put_leaves_the_outcome_unknown_and_is_read_back() -> None:
    store = MemoryStore()
    entries = fill(store, 3)
    ledger, entry = ledger_on(store), decided_entry(after=entries[-1])
    arm("ledger.read_floors=error")
    with pytest.raises(OutcomeUnknown):
        ledger.append(entry)
    assert ledger.read(entry.position) == entry
    assert append_once(ledger, entry) is None


def test_the_floor_is_written_before_anything_is_deleted() -> None:
    for occurrence in range(1, 12):
        store = MemoryStore()
        entries = fill(store, 12)
        arm(f"ledger.forget=error@{occurrence}")
        with pytest.raises(Retryable):
            ledger_on(store).prune(below=Position(12))
        zombie = ledger_on(store)
        with pytest.raises(PositionTaken):
            zombie.append(decided_entry(after=entries[3]))
        assert ledger_on(store).tail() == entries[-1]
        arm("ledger.write_floor=error")
        store = MemoryStore()
        entries = fill(store, 12)
        with pytest.raises(Retryable):
            ledger_on(store).prune(below=Position(12))
        assert list(ledger_on(store).newest_first()) == entries[::-1]


def test_what_a_late_driver_put_below_the_floor_is_no_entry_and_is_collected() -> None:
    store = MemoryStore()
    entries = fill(store, 30)
    pruner = ledger_on(store)
    pruner.prune(below=Position(20))
    store.put("entries/000000000/000000000007", encode_entry(decided_entry(after=entries[5])))
    store.put("entries/000000000/000000000019", encode_entry(decided_entry(after=entries[17])))
    assert ledger_on(store).read(Position(7)) is None
    assert list(ledger_on(store).newest_first()) == entries[:18:-1]
    late = LogLedger(store, pipeline=PIPELINE)
    with pytest.raises(PositionTaken):
        late.append(decided_entry(after=entries[6]))  # position 8, behind the stray at 7
    pruner.prune(below=Position(5))
    assert list(store.keys("entries/")) == [f"entries/000000000/{position:012d}" for position in range(20, 31)]


def test_a_driver_that_slept_while_its_next_position_was_filled_and_forgotten_is_refused() -> None:
    store = MemoryStore()
    entries = fill(store, 20)
    sleeper = ledger_on(store)
    assert sleeper.tail() == entries[-1]
    awake = ledger_on(store)
    awake.append(first := decided_entry(after=entries[-1]))
    awake.append(decided_entry(after=first))
    awake.prune(below=Position(22))
    with pytest.raises(PositionTaken):
        sleeper.append(first)


def test_a_late_driver_that_raises_an_old_floor_again_lowers_nothing() -> None:
    store = MemoryStore()
    entries = fill(store, 60)
    ledger_on(store).prune(below=Position(40))
    ledger_on(store).prune(below=Position(50))
    store.put("floor/000000000010", b"late")
    with pytest.raises(PositionTaken):
        ledger_on(store).append(decided_entry(after=entries[20]))
    ledger_on(store).prune(below=Position(55))
    ledger_on(store).prune(below=Position(56))
    assert list(store.keys("floor/")) == ["floor/000000000055", "floor/000000000056"]


def test_entries_removed_by_hand_are_noticed() -> None:
    store = MemoryStore()
    fill(store, 30)
    ledger_on(store).prune(below=Position(20))
    for key in list(store.keys("entries/")):
        store.delete(key)
    with pytest.raises(LedgerMismatch, match="pruned below position 20"):
        ledger_on(store).tail()


def test_an_entry_moved_by_hand_is_noticed() -> None:
    store = MemoryStore()
    entries = fill(store, 3)
    store.put("entries/000000000/000000000003", encode_entry(entries[1]))
    with pytest.raises(LedgerMismatch, match="holds the entry of position 2 at position 3"):
        ledger_on(store).tail()


def test_a_damaged_entry_names_the_ledger_and_the_position() -> None:
    store = MemoryStore()
    fill(store, 3)
    store.put("entries/000000000/000000000003", b'{"format":"penst')
    with pytest.raises(LedgerMismatch, match="Entry 3 of the ledger at memory is damaged"):
        ledger_on(store).tail()


def test_nothing_rides_in_single_objects() -> None:
    ledger = ledger_on(MemoryStore())
    assert ledger.home is None
    with pytest.raises(ValueError, match="no transaction"):
        ledger.append(next(chain()), within=lambda _: None)


# --- a lost answer is read back (bug 10: the retry that met its own write reported failure)


class ForgetfulStore(MemoryStore):
    """Loses the answer of the next put: it happened or not, as told; a retry meets its own write."""

    lands: bool | None = None

    def put_if_absent(self, key: str, data: bytes) -> bool:
        lands, self.lands = self.lands, None
        if lands is None:
            return super().put_if_absent(key, data)
        if lands:
            super().put_if_absent(key, data)
        raise OutcomeUnknown("The answer was lost.", remedy="Look.")


@pytest.mark.parametrize("lands", [True, False])
def test_a_lost_answer_ends_with_one_entry_and_no_failure(lands: bool) -> None:  # noqa: FBT001
    store = ForgetfulStore()
    entries = fill(store, 2)
    ledger, entry = ledger_on(store), decided_entry(after=entries[-1])
    store.lands = lands
    assert append_once(ledger, entry) is None
    assert list(ledger_on(store).newest_first()) == [entry, *entries[::-1]]


class RepeatingStore(MemoryStore):
    """Sends every put twice, as a client library does after a lost answer, and tells the second answer."""

    def put_if_absent(self, key: str, data: bytes) -> bool:
        super().put_if_absent(key, data)
        return super().put_if_absent(key, data)


def test_a_client_that_repeats_by_itself_and_meets_its_own_write_has_written() -> None:
    store = RepeatingStore()
    ledger = ledger_on(store)
    entries = list(islice(chain(), 3))
    for entry in entries:
        assert append_once(ledger, entry) is None
    assert list(ledger_on(store).newest_first()) == entries[::-1]


class ConflictingStore(MemoryStore):
    """Answers of the puts that race for one key are lost, as told: those that landed, or all, or all and none landed."""

    def __init__(self, loses: str) -> None:
        super().__init__()
        self._loses = loses

    def put_if_absent(self, key: str, data: bytes) -> bool:
        if data == b"too late":
            return super().put_if_absent(key, data)
        created = self._loses != "each, and none landed" and super().put_if_absent(key, data)
        if created or self._loses != "the winner's":
            raise OutcomeUnknown("A conflicting request was under way.", remedy="Try again.")
        return created


@pytest.mark.parametrize("store", [RepeatingStore(), ConflictingStore("the winner's"), ConflictingStore("each")])
def test_the_self_test_reads_who_won_where_no_answer_tells(store: MemoryStore) -> None:
    ledger_on(store).prove()
    assert list(store.keys("")) == []


def test_a_self_test_of_which_nothing_arrived_accuses_no_store() -> None:
    with pytest.raises(OutcomeUnknown, match="under way"):
        ledger_on(ConflictingStore("each, and none landed")).prove()


# --- stores that do not honour conditions (bug 11)


class IgnoringStore(MemoryStore):
    """Overwrites, and says that it created."""

    def put_if_absent(self, key: str, data: bytes) -> bool:
        self.put(key, data)
        return True


class LyingStore(MemoryStore):
    """Keeps the first object, but answers as if it had created the second."""

    def put_if_absent(self, key: str, data: bytes) -> bool:
        super().put_if_absent(key, data)
        return True


class LastWinsStore(MemoryStore):
    """Answers right and overwrites all the same."""

    def put_if_absent(self, key: str, data: bytes) -> bool:
        absent = self.get(key) is None
        self.put(key, data)
        return absent


class TwoStepStore(MemoryStore):
    """Looks first and writes then, so that racing writers all see nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._looked = Barrier(4)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        absent = self.get(key) is None
        if absent:
            try:
                self._looked.wait(timeout=5)
            except BrokenBarrierError:
                raise AssertionError("the self-test does not race") from None
            self.put(key, data)
        return absent


class TwoStepAnswerStore(TwoStepStore):
    """Keeps the first object, but every racing writer is told that it created it."""

    def put(self, key: str, data: bytes) -> None:
        if self.get(key) is None:
            super().put(key, data)


@pytest.mark.parametrize("kind", [IgnoringStore, LyingStore, LastWinsStore, TwoStepStore, TwoStepAnswerStore])
def test_a_store_that_ignores_conditions_is_found_out(kind: type[MemoryStore]) -> None:
    with pytest.raises(StoreIgnoresConditions, match="expected exactly one"):
        ledger_on(kind()).prove()


def test_the_self_test_removes_its_scratch_and_a_killed_one_is_collected_later() -> None:
    store = MemoryStore()
    ledger_on(store).prove()
    assert list(store.keys("")) == []
    fill(store, 30)
    store.put_if_absent("prove/000000000005-0123456789abcdef/003", b"killed long ago")
    store.put_if_absent("prove/000000000029-0123456789abcdef/003", b"running now")
    ledger_on(store).prune(below=Position(20))
    assert list(store.keys("prove/")) == ["prove/000000000029-0123456789abcdef/003"]


def test_trouble_while_proving_is_told_as_what_it_is() -> None:
    class BrokenStore(MemoryStore):
        def put_if_absent(self, key: str, data: bytes) -> bool:
            raise Failed("No.", remedy="Mend it.")

    with pytest.raises(Failed, match="No"):
        ledger_on(BrokenStore()).prove()
