"""What stands between a batch and a receiver: it never waits, never raises, and counts what it drops."""

import logging
import os
import threading
import time
import warnings
from collections.abc import Sequence

import pytest

from penstock.observe.export.queue import ExportQueue, Patience
from penstock.support.secret import Secret, remember


def soon() -> float:
    return time.monotonic() + 30


def test_all_is_sent_in_order_before_the_end() -> None:
    sent: list[int] = []
    queue = ExportQueue[int]("x", lambda values, _: sent.extend(values))
    for number in range(500):
        queue.put(number)
    queue.close(until_s=soon())
    assert sent == list(range(500))
    assert queue.lost == 0


def test_a_receiver_that_hangs_holds_up_nobody_and_is_not_waited_for() -> None:
    hanging, entered = threading.Event(), threading.Event()

    def send(values: Sequence[int], patience: Patience) -> None:
        entered.set()
        hanging.wait()

    queue = ExportQueue[int]("x", send, capacity=10)
    queue.put(0)
    assert entered.wait(30)
    for number in range(50):
        queue.put(number)
    assert queue.lost == 40
    queue.close(until_s=time.monotonic())
    assert queue.lost == 51
    hanging.set()


def test_what_a_receiver_raises_is_counted_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    remember(Secret("geheim-1234567"))
    turn = threading.Semaphore(0)

    def send(values: Sequence[int], patience: Patience) -> None:
        turn.acquire()
        raise ValueError("no geheim-1234567 here")

    queue = ExportQueue[int]("x", send)
    with caplog.at_level(logging.WARNING, "penstock"):
        for _ in range(3):
            queue.put(1)
            turn.release()
        for _ in range(3):
            turn.release()
        queue.close(until_s=soon())
    assert queue.lost == 3
    assert [record.getMessage() for record in caplog.records] == [
        "x does not take what is sent: no *** here",
        "x: 3 of what was to be sent was dropped or not taken.",
    ]


def test_after_the_end_nothing_is_sent() -> None:
    sent: list[int] = []
    queue = ExportQueue[int]("x", lambda values, _: sent.extend(values))
    queue.close(until_s=soon())
    queue.put(1)
    assert (sent, queue.lost) == ([], 1)


def test_a_forked_process_sends_nothing() -> None:
    sent: list[int] = []
    queue = ExportQueue[int]("x", lambda values, _: sent.extend(values))
    queue.put(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of newer Pythons: other threads run
        child = os.fork()
    if child == 0:
        queue.put(2)
        queue.close(until_s=time.monotonic() + 3600)
        os._exit(queue.lost)
    assert os.waitpid(child, 0)[1] == 0
    queue.close(until_s=soon())
    assert sent == [1]


def test_pauses_end_with_the_run() -> None:
    patience = Patience()
    waiting = threading.Thread(target=patience.pause, args=(3600.0,))
    waiting.start()
    patience.end()
    waiting.join(30)
    assert not waiting.is_alive()
    assert patience.is_over
