"""How a query ends, for all who wait for it; Spark's side is played."""

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import penstock
from penstock.errors import Fenced, NotPublishedYet, PenstockError, PublishFailed, Retryable
from penstock.observe.progress import RunSummary
from penstock.run.delivery import Delivery
from penstock.run.query import Query

GONE = PublishFailed("The target is gone.", remedy="Bring it back.")


class Streaming:
    """Spark's query: runs until it is stopped."""

    def __init__(self) -> None:
        self.isActive = True  # Spark's name
        self.interrupted: Exception | None = None

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802
        threading.Event().wait(min(timeout, 0.01))
        return not self.isActive

    def stop(self) -> None:
        self.isActive = False

    def exception(self) -> Exception | None:
        return None if self.isActive else self.interrupted


class Opened:
    """A delivery whose newest batch is being published until `published` is set, and then fails with `failing`."""

    def __init__(self, failing: PenstockError | None = None) -> None:
        self.published, self.failing, self.closed = threading.Event(), failing, 0
        self.drained = False
        self.coordinator, self.generation, self.summary = self, 1, RunSummary(pipeline="flights", sinks={})

    def is_published_within(self, seconds: float | None) -> bool:
        return self.published.wait(seconds)

    def failure(self) -> PenstockError | None:
        return self.failing if self.published.is_set() else None

    def drain(self, *, grace_s: float) -> bool:
        self.drained = True
        return grace_s >= 0

    def require_newest(self) -> None:
        return None

    def close(self) -> None:
        assert self.published.wait(60)
        self.closed += 1
        if self.failing is not None:
            raise self.failing


PLAN = Delivery("flights", home="/nowhere", sinks={"out": penstock.Console()}).plan


class Told:
    """What of a delivery a query asks; `newer`: what the ledger knows better."""

    def __init__(self, opened: Opened, newer: PenstockError | None = None) -> None:
        self.opened, self.failure, self._newer, self.plan = opened, None, newer, PLAN

    def diagnose(self, error: PenstockError) -> PenstockError:
        return self._newer or error

    def release(self) -> None:
        return None


def made(failing: PenstockError | None = None, newer: PenstockError | None = None) -> tuple[Query, Streaming, Opened]:
    streaming, opened = Streaming(), Opened(failing)
    delivery: Any = Told(opened, newer)
    return Query(streaming, delivery), streaming, opened  # type: ignore[arg-type]


def test_a_time_limit_holds_while_the_last_batch_is_published() -> None:
    query, streaming, opened = made()
    streaming.stop()
    assert not query.awaitTermination(0.01)
    opened.published.set()
    assert query.awaitTermination(60)
    assert query.awaitTermination()
    assert opened.closed == 1


def test_ctrl_c_lets_the_batch_end_and_stops_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    query, streaming, opened = made()
    opened.published.set()
    monkeypatch.setattr(streaming, "awaitTermination", lambda _: signal.raise_signal(signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            query.awaitTermination()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert (opened.drained, opened.closed, streaming.isActive) == (True, 1, False)


def test_all_who_wait_are_told_what_ended_the_query_and_a_stop_afterwards_is_quiet() -> None:
    query, streaming, opened = made(GONE)
    with ThreadPoolExecutor(2) as threads:
        waiting, stopping = threads.submit(query.awaitTermination), threads.submit(query.stop)
        while streaming.isActive:
            threading.Event().wait(0.01)
        opened.published.set()
        assert (waiting.exception(60), stopping.exception(60)) == (GONE, GONE)
    with pytest.raises(PublishFailed):
        query.awaitTermination()
    query.stop()


def test_a_newer_run_is_what_is_told_where_it_kept_a_batch_from_being_published() -> None:
    fenced = Fenced("A newer run works.", remedy="Let it.")
    query, streaming, opened = made(GONE, newer=fenced)
    opened.published.set()
    with pytest.raises(Fenced):
        query.awaitTermination()
    assert not streaming.isActive


def test_a_run_that_is_fenced_lets_go_of_a_sink_that_does_not_answer() -> None:
    """Spark's stop waits for the batch, and the batch for its tries."""
    query, streaming, opened = made()

    def require_newest() -> None:
        raise Fenced("A newer run works.", remedy="Let it.")

    opened.require_newest = require_newest  # type: ignore[method-assign]
    opened.published.set()
    query._look_at_s = 0
    with pytest.raises(Fenced):
        query.awaitTermination(60)
    assert (opened.drained, streaming.isActive) == (True, False)


def test_where_java_dies_a_batch_is_not_tried_for_long_any_more() -> None:
    """The end of the process waits for the threads that publish."""
    query, streaming, opened = made()

    def gone(_: float) -> bool:
        raise ConnectionRefusedError

    streaming.awaitTermination = gone  # type: ignore[method-assign]
    with pytest.raises(Retryable, match="Java process ended"):
        query.awaitTermination()
    assert opened.drained


def test_a_stop_while_the_last_batch_is_published_hides_no_failure() -> None:
    query, _, opened = made(GONE)
    opened.published.set()
    with pytest.raises(PublishFailed):
        query.stop(grace=0)


def test_a_stop_hides_no_batch_that_waits_for_a_sink() -> None:
    """Its last try began before the stop, and ends while Spark stops: a scheduler must be told to start again."""
    query, streaming, opened = made()
    waits = NotPublishedYet("The database does not answer.", remedy="Start it.")
    stop = streaming.stop

    def fail_and_stop() -> None:
        query._delivery.failure = waits
        stop()

    streaming.stop = fail_and_stop  # type: ignore[method-assign]
    opened.published.set()
    with pytest.raises(NotPublishedYet):
        query.stop()


def test_a_stop_that_interrupts_spark_where_it_writes_its_checkpoint_is_no_failure() -> None:
    """Google's connector wraps the interruption in an error of its own."""
    query, streaming, opened = made()
    streaming.interrupted = RuntimeError("Failed to write 0 bytes in 'gs://b/offsets/.1.tmp'. cause=null")
    opened.published.set()
    query.stop()
    query.awaitTermination()
    assert opened.closed == 1


def test_what_stops_a_query_is_not_hidden_by_the_batch_that_spark_cancels_then(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery = Delivery("flights", home=tmp_path, sinks={"out": penstock.Console()})

    def cancelled(*_: object) -> None:
        delivery.failure = GONE
        raise RuntimeError("Job 7 cancelled.")

    monkeypatch.setattr(delivery, "_open_in_batch", cancelled)
    with pytest.raises(RuntimeError, match="The target is gone"):
        delivery(None, 0)  # type: ignore[arg-type]
    assert delivery.failure is GONE


def test_a_stop_that_was_asked_for_is_no_exception() -> None:
    """Spark says that its batch failed: a query is stopped by an exception in its batch."""
    query, streaming, opened = made()
    opened.published.set()
    streaming.interrupted = RuntimeError(
        "Traceback:\npenstock.run.failure.Undelivered: stopped on request\n\n=== Streaming Query ==="
    )
    query.stop()
    assert query.exception() is None
    streaming.interrupted = RuntimeError("Undelivered: PublishFailed: The target is gone.")
    assert query.exception() is streaming.interrupted
