"""The rate limit of a listener, by a clock of the test's own."""

import math

import pytest

from penstock.receive.rate import RateLimit


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_events_of_a_second_may_come_at_once_and_then_so_many_a_second() -> None:
    clock = Clock()
    limit = RateLimit(10, now_s=clock)
    for _ in range(10):
        assert limit.delay_s() == 0
        limit.count(1)
    limit.count(1)
    assert limit.delay_s() == pytest.approx(0.1)
    clock.now_s += 0.1
    assert limit.delay_s() == pytest.approx(0, abs=1e-9)


def test_in_the_long_run_no_more_are_taken_whatever_clients_do() -> None:
    clock = Clock()
    limit, taken = RateLimit(100, now_s=clock), 0
    for _ in range(6_000):  # a minute
        while limit.delay_s() == 0:
            limit.count(7)
            taken += 7
        clock.now_s += 0.01
    assert 6_000 <= taken <= 6_000 + 100 + 14


def test_a_large_request_is_taken_whole_and_paid_for_later() -> None:
    clock = Clock()
    limit = RateLimit(10, now_s=clock)
    limit.count(100)
    assert limit.delay_s() == pytest.approx(9)
    clock.now_s += 60
    limit.count(5)
    assert limit.delay_s() == 0, "what nobody sent in a minute is not kept for longer than a second"
    limit.count(6)
    assert limit.delay_s() == pytest.approx(0.1)


def test_without_a_limit_nobody_waits() -> None:
    limit = RateLimit(math.inf, now_s=Clock())
    limit.count(10**9)
    assert limit.delay_s() == 0
