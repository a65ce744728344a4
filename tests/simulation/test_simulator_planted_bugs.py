"""A simulator that cannot fail proves nothing: bugs that other systems shipped, planted, and each one is found."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from penstock.commit import append, coordinator
from penstock.commit.coordinator import Coordinator
from penstock.commit.identity import recognise
from penstock.commit.publication import share_of
from penstock.core.model import Attempt, Batch, Entry, Position, Published, SweepCut, Totals
from penstock.errors import PenstockError, PositionTaken
from penstock.ledger.log import LogLedger
from penstock.testing.simulator.explore import shape, singles
from penstock.testing.simulator.schedule import Schedule, ViolationError, draw
from penstock.testing.simulator.simulation import run
from penstock.testing.simulator.store import SteppedStore

Plant = Callable[[pytest.MonkeyPatch], None]

SEEDS = 6_000


def schedules() -> Iterator[Schedule]:
    """Cheap ones first."""
    return chain(
        map(draw, range(200)), singles(shape(lose_commits=False)), singles(shape(lose_commits=True)), map(draw, range(200, SEEDS))
    )


def bug_1_replayed_batch_is_decided_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(coordinator, "recognise", lambda batch, **_: None)


def bug_2_batches_are_known_by_their_number(patch: pytest.MonkeyPatch) -> None:
    def by_number(batch: Batch, *, summary: Any, decision_of: Any) -> Any:
        return decision_of(batch.batch_id) if batch.batch_id < (summary.next_batch_id or 0) else None

    patch.setattr(coordinator, "recognise", by_number)


def bug_3_query_id_is_not_compared(patch: pytest.MonkeyPatch) -> None:
    def any_query(batch: Batch, *, summary: Any, decision_of: Any) -> Any:
        same = replace(batch, query_id=summary.query_id or batch.query_id)
        return recognise(same, summary=summary, decision_of=decision_of)

    patch.setattr(coordinator, "recognise", any_query)


def bug_7_checked_and_then_written(patch: pytest.MonkeyPatch) -> None:
    def two_steps(self: SteppedStore, key: str, data: bytes) -> bool:
        if self.get(key) is not None:
            return False

        def put() -> bool:
            self._history.created(key, data)
            self._shared.put(key, data)
            return True

        return self._stepper.do("put", key, put)

    patch.setattr(SteppedStore, "put_if_absent", two_steps)


def bug_8_retried_on_a_new_head(patch: pytest.MonkeyPatch) -> None:
    def retry(ledger: LogLedger, entry: Entry, **_: Any) -> None:
        while True:
            try:
                return ledger.append(entry)
            except PositionTaken:
                tail = ledger.tail()
                assert tail is not None
                entry = replace(entry, position=Position(tail.position + 1))

    patch.setattr(coordinator, "append_once", retry)


def bug_10_meets_its_own_write_and_reports_failure(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(append, "_holder", lambda found, entry: append.Occupied(found))


def _delete_on_error(patch: pytest.MonkeyPatch, method: str) -> None:
    original = getattr(Coordinator, method)

    def cleaning(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        except PenstockError:
            for sink in self._sinks:
                for name in list(sink._target.staged):
                    attempt = Attempt.find(name)
                    if attempt is not None and attempt.generation == self.generation:
                        sink._collect(name)
            raise

    patch.setattr(Coordinator, method, cleaning)


def bug_12_cleaned_up_after_an_unknown_append(patch: pytest.MonkeyPatch) -> None:
    _delete_on_error(patch, "_append")


def bug_13_aborted_after_publishing_failed(patch: pytest.MonkeyPatch) -> None:
    _delete_on_error(patch, "_publish_everywhere")


def bug_16_last_writer_wins(patch: pytest.MonkeyPatch) -> None:
    def overwrite(self: SteppedStore, key: str, data: bytes) -> bool:
        self.put(key, data)
        return True

    patch.setattr(SteppedStore, "put_if_absent", overwrite)


def visible_before_it_is_decided(patch: pytest.MonkeyPatch) -> None:
    original = Coordinator._append

    def publish_first(self: Any, entry: Entry, **kwargs: Any) -> Entry:
        if hasattr(entry.body, "decision"):
            for sink in self._sinks:
                sink.publish(share_of(sink, entry, self.summary))
        return original(self, entry, **kwargs)

    patch.setattr(Coordinator, "_append", publish_first)


def recovery_publishes_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Coordinator, "_publish_newest", lambda self: {})


def errors_of_publishing_are_ignored(patch: pytest.MonkeyPatch) -> None:
    def ignoring(self: Any) -> Callable[[Any], Published]:
        def publish(sink: Any) -> Published:
            try:
                return sink.publish(share_of(sink, self._newest, self.summary))
            except PenstockError:
                return Published(totals=Totals(), already=True)

        return publish

    patch.setattr(Coordinator, "_publishing", ignoring)


def opening_does_not_fence(patch: pytest.MonkeyPatch) -> None:
    original = Coordinator._entry

    def same_generation(self: Any, body: Any, *, new_generation: bool = False, after: Any, **kwargs: Any) -> Entry:
        return original(self, body, new_generation=new_generation and after is None, after=after, **kwargs)

    patch.setattr(Coordinator, "_entry", same_generation)


def pruned_positions_are_free_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogLedger, "_floor_after_put", lambda self: Position(1))


def entries_below_the_floor_are_read(patch: pytest.MonkeyPatch) -> None:
    def careless(self: Any, position: Position) -> Any:
        data = self._get(position)
        return None if data is None else self._decode(data, position)

    patch.setattr(LogLedger, "read", careless)


def the_floor_is_written_after_the_deletion(patch: pytest.MonkeyPatch) -> None:
    original = LogLedger._raise_floor

    def delete_first(self: Any, below: Position) -> Position:
        self._delete_below("entries/", below)
        return original(self, below)

    patch.setattr(LogLedger, "_raise_floor", delete_first)


def the_hint_is_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("penstock.ledger.log.HINT_EVERY", 1)

    def believe(self: Any, floor: Position) -> Any:
        position = max(floor, self._hint())
        data = self._get(position)
        return None if data is None else self._decode(data, position)

    patch.setattr(LogLedger, "_newest_from", believe)


def the_sweep_takes_what_is_decided(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SweepCut, "is_dead", lambda self, attempt: attempt.generation <= self.generation)
    patch.setattr(Coordinator, "_publish_newest", _swept_first(Coordinator._publish_newest))


def _swept_first(original: Any) -> Any:
    def publish_newest(self: Any) -> Any:
        self.sweep()
        return original(self)

    return publish_newest


def the_sweep_takes_what_a_newer_run_stages(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SweepCut, "is_dead", lambda self, attempt: attempt.token not in self.kept)


def the_next_batch_is_decided_before_the_last_one_is_published(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Coordinator, "_join", lambda self: None)


def a_publication_beside_the_next_batch_fails_unheard(patch: pytest.MonkeyPatch) -> None:
    original = Coordinator._join

    def deaf(self: Any) -> None:
        with suppress(PenstockError):
            original(self)

    patch.setattr(Coordinator, "_join", deaf)


PLANTS: tuple[Plant, ...] = (
    bug_1_replayed_batch_is_decided_again,
    bug_2_batches_are_known_by_their_number,
    bug_3_query_id_is_not_compared,
    bug_7_checked_and_then_written,
    bug_8_retried_on_a_new_head,
    bug_10_meets_its_own_write_and_reports_failure,
    bug_12_cleaned_up_after_an_unknown_append,
    bug_13_aborted_after_publishing_failed,
    bug_16_last_writer_wins,
    visible_before_it_is_decided,
    recovery_publishes_nothing,
    errors_of_publishing_are_ignored,
    opening_does_not_fence,
    pruned_positions_are_free_again,
    entries_below_the_floor_are_read,
    the_floor_is_written_after_the_deletion,
    the_hint_is_believed,
    the_sweep_takes_what_is_decided,
    the_sweep_takes_what_a_newer_run_stages,
    the_next_batch_is_decided_before_the_last_one_is_published,
    a_publication_beside_the_next_batch_fails_unheard,
)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    tried = 0
    with pytest.raises(ViolationError) as found:  # noqa: PT012 - whichever schedule it is
        for schedule in schedules():
            tried += 1
            run(schedule)
    print(f"{plant.__name__} after {tried} schedules: {found.value}")
