"""Publishing a batch beside the next one: the next is staged meanwhile, and is decided only when the last is shown everywhere."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from threading import Event, current_thread
from typing import Any

import pytest
from tests.unit.commit_bench import OPENED, PIPELINE, Bench, batch_of, trouble

from penstock.commit.coordinator import Coordinator
from penstock.commit.executor import DeferredPublish, Outstanding
from penstock.commit.outcome import Delivered, StagedBatch
from penstock.core.model import Decided, Generation
from penstock.errors import Failed, NotPublishedYet, PenstockError, StageFailed
from penstock.run.open_delivery import Publisher


class Later:
    """`Behind` that does nothing until it is waited for; what came of it, it tells as often as it is asked."""

    def __call__(self, task: Callable[[], None]) -> Callable[[], None]:
        done: Future[None] = Future()

        def wait() -> None:
            if not done.done():
                try:
                    done.set_result(task())
                except PenstockError as error:
                    done.set_exception(error)
            done.result()

        return wait


class Behind:
    """A pipeline whose batches are published as late as can be, and what was told of them."""

    def __init__(self, behind: DeferredPublish | None) -> None:
        self.bench, self.told = Bench(), list[Delivered]()
        self.coordinator = self.opened(behind)

    def opened(self, behind: DeferredPublish | None) -> Coordinator:
        coordinator = Coordinator(
            pipeline=PIPELINE,
            ledger=self.bench.ledger(),
            sinks=self.bench.sinks(),
            now_ms=lambda: 0,
            retrying=self.bench.retrying,
            deferred=behind,
        )
        coordinator.open(OPENED)
        return coordinator

    def begin(self, number: int) -> None:
        self.coordinator.begin(batch_of(number), self.bench.stage(batch_of(number)), on_delivered=self.told.append)

    @property
    def decided(self) -> list[int]:
        bodies = [entry.body for entry in self.bench.ledger().newest_first()]
        return sorted(body.decision.batch.batch_id for body in bodies if isinstance(body, Decided))


@pytest.fixture
def later() -> Behind:
    return Behind(Later())


def test_a_batch_is_decided_when_begin_returns_and_published_when_it_is_waited_for(later: Behind) -> None:
    later.begin(0)
    assert (later.decided, later.bench.shown(), later.told) == ([0], [Counter()] * 2, [])
    later.coordinator.wait()
    assert later.bench.shown() == [Counter([0])] * 2
    assert [(told.batch.batch_id, told.already, set(told.sinks)) for told in later.told] == [(0, False, {"files", "table"})]
    later.coordinator.wait()
    assert len(later.told) == 1


def test_the_next_batch_is_staged_meanwhile_and_decided_only_then(later: Behind) -> None:
    """At most one decision is ever outstanding: a start looks for the newest one only."""
    later.begin(0)
    staged = later.bench.stage(batch_of(1))

    def stage(generation: Generation) -> StagedBatch:
        assert later.bench.shown() == [Counter()] * 2
        return staged(generation)

    later.coordinator.begin(batch_of(1), stage, on_delivered=later.told.append)
    assert (later.decided, later.bench.shown()) == ([0, 1], [Counter([0])] * 2)
    later.coordinator.wait()
    assert later.bench.shown() == [Counter([0, 1])] * 2
    assert [told.batch.batch_id for told in later.told] == [0, 1]


def test_a_publication_that_fails_is_raised_by_the_next_batch_which_is_not_decided(later: Behind) -> None:
    later.begin(0)
    later.bench.steps.failing["transact table"] = [trouble()] * 5
    with pytest.raises(NotPublishedYet, match="could not publish batch 0"):
        later.begin(1)
    assert (later.decided, later.told) == ([0], [])
    with pytest.raises(Failed, match="failed earlier"):
        later.begin(1)
    later.coordinator = later.opened(Later())
    assert later.bench.shown() == [Counter([0])] * 2
    later.begin(1)
    later.coordinator.wait()
    assert later.bench.shown() == [Counter([0, 1])] * 2


def test_a_publication_that_fails_is_raised_where_it_is_waited_for_and_no_batch_follows(later: Behind) -> None:
    later.begin(0)
    later.bench.steps.failing["transact table"] = [trouble()] * 5
    for _ in range(2):
        with pytest.raises(NotPublishedYet):
            later.coordinator.wait()
    with pytest.raises(Failed, match="failed earlier"):
        later.begin(1)


def test_a_batch_that_cannot_be_staged_leaves_the_last_one_to_be_published(later: Behind) -> None:
    later.begin(0)

    def stage(_: Generation) -> StagedBatch:
        raise StageFailed("No.", remedy="Mend it.")

    with pytest.raises(StageFailed):
        later.coordinator.begin(batch_of(1), stage, on_delivered=later.told.append)
    later.coordinator.wait()
    assert later.bench.shown() == [Counter([0])] * 2
    with pytest.raises(Failed, match="failed earlier"):
        later.begin(1)


def test_a_batch_that_was_decided_before_is_told_when_it_is_published(later: Behind) -> None:
    later.begin(0)
    later.begin(0)
    assert [(told.batch.batch_id, told.already) for told in later.told] == [(0, False), (0, True)]
    assert later.bench.shown() == [Counter([0])] * 2


@pytest.mark.parametrize(("behind", "counted"), [(None, 7), (Later(), None)])
def test_requests_are_counted_unless_those_of_two_batches_mix(behind: DeferredPublish | None, counted: int | None) -> None:
    both = Behind(behind)
    staged = both.bench.stage(batch_of(0))
    both.coordinator.begin(batch_of(0), lambda generation: replace(staged(generation), requests=7), on_delivered=both.told.append)
    body = next(both.bench.ledger().newest_first()).body
    assert isinstance(body, Decided)
    assert body.decision.stage_requests == counted


def test_a_publisher_works_in_a_thread_of_its_own_while_the_next_batch_is_staged() -> None:
    publisher, is_staging, threads = Publisher(), Event(), list[str]()
    both = Behind(publisher)
    staged = both.bench.stage(batch_of(1))

    def stage(generation: Generation) -> StagedBatch:
        is_staging.set()
        return staged(generation)

    def told(_: Delivered) -> None:
        threads.append(current_thread().name)
        assert is_staging.wait(60)

    both.coordinator.begin(batch_of(0), both.bench.stage(batch_of(0)), on_delivered=told)
    assert not publisher.is_done_within(0)
    both.coordinator.begin(batch_of(1), stage, on_delivered=told)
    both.coordinator.wait()
    assert publisher.is_done_within(0)
    assert publisher.failure() is None
    assert both.bench.shown() == [Counter([0, 1])] * 2
    assert threads == ["penstock-behind_0"] * 2
    publisher.close()


@pytest.mark.parametrize("fails", [True, False])
def test_somebody_else_may_wait_while_the_next_batch_begins(fails: bool) -> None:  # noqa: FBT001
    """Who takes the waiting from the next batch would let it be decided before the last one is published."""
    publisher, go_on, pause = Publisher(), Event(), Event()
    both = Behind(publisher)
    do = both.bench.steps.do

    def held(operation: str, subject: str, act: Callable[[], Any]) -> Any:
        assert operation != "transact" or go_on.wait(60)
        return do(operation, subject, act)

    both.bench.steps.do = held  # type: ignore[method-assign]
    both.begin(0)
    if fails:
        both.bench.steps.failing["transact table"] = [trouble()] * 5
    with ThreadPoolExecutor(2) as threads:
        waiting = threads.submit(both.coordinator.wait)
        while not both.coordinator._outstanding._waiting.locked():
            pause.wait(0.01)
        beginning = threads.submit(both.begin, 1)
        while both.bench.steps.done.count("stage table") < 2:
            pause.wait(0.01)
        assert both.decided == [0]
        go_on.set()
        failures = [waiting.exception(60), beginning.exception(60)]
    assert [type(failure) for failure in failures] == ([NotPublishedYet] * 2 if fails else [type(None)] * 2)
    assert both.decided == ([0] if fails else [0, 1])
    publisher.close()


def test_what_is_started_while_somebody_waits_for_the_last_one_is_waited_for() -> None:
    outstanding, go_on, waited, pause = Outstanding(), Event(), list[int](), Event()
    outstanding.wait_for(lambda: waited.append(0) if go_on.wait(60) else None)
    with ThreadPoolExecutor(2) as threads:
        waiting = threads.submit(outstanding.wait)
        while not outstanding._waiting.locked():
            pause.wait(0.01)
        taking = threads.submit(outstanding.wait_for, lambda: waited.append(1))
        pause.wait(0.05)
        go_on.set()
        waiting.result(60)
        taking.result(60)
    outstanding.wait()
    outstanding.wait()
    assert waited == [0, 1]


def test_a_publisher_tells_of_a_failure_that_nobody_waited_for() -> None:
    publisher = Publisher()
    assert publisher.is_done_within(0)
    assert publisher.failure() is None
    both = Behind(publisher)
    both.bench.steps.failing["transact table"] = [trouble()] * 5
    both.begin(0)
    assert publisher.is_done_within(60)
    assert isinstance(publisher.failure(), NotPublishedYet)
    publisher.close()
