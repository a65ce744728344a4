"""A driver is started again by how it ended: never where it would end the same way, always where a place did not answer."""

import random

import pytest

from penstock.supervise.restarts import DriverError, Ended, Restarts

HEALTHY_S = 600.0


def restarts(most_failures=3, *, standby=False):
    return Restarts(most_failures=most_failures, standby=standby, healthy_s=HEALTHY_S, chance=random.Random(7))


def ended(exit_code, ran_s=1.0):
    return Ended(exit_code=exit_code, ran_s=ran_s)


@pytest.mark.parametrize("exit_code", [0, 2, 3, 4, 5])
def test_what_would_end_in_the_same_way_is_not_started_again(exit_code):
    assert restarts().pause_s(ended(exit_code)) is None


@pytest.mark.parametrize("exit_code", [1, -9, 143, None])
def test_a_failure_is_tried_some_times(exit_code):
    tried = restarts(most_failures=3)
    assert [tried.pause_s(ended(exit_code)) is None for _ in range(3)] == [False, False, True]


def lacks(kind, ran_s=1.0):
    error = DriverError(kind=kind, message="x", remedy="y", exit_code=1)
    return Ended(exit_code=1, ran_s=ran_s, error=error)


@pytest.mark.parametrize(("kind", "is_tried"), [("DependencyMissing", False), ("PackageNotFound", True), ("StageFailed", True)])
def test_what_is_not_installed_is_not_tried_again(kind, is_tried):
    assert (restarts().pause_s(lacks(kind)) is not None) is is_tried


def test_a_driver_that_ran_well_had_what_it_needs():
    assert restarts().pause_s(lacks("DependencyMissing", ran_s=HEALTHY_S)) is not None


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b'{"error": ',
        b'{"error": 7}',
        b'{"error": {"kind": "Failed"}}',
        b'{"error": {"kind": 1, "message": "", "remedy": "", "exit_code": 1}}',
    ],
)
def test_other_lines_of_a_driver_are_no_errors(line):
    assert DriverError.of_line(line) is None


def test_a_place_that_does_not_answer_is_waited_for_with_growing_pauses():
    tried = restarts(most_failures=1)
    pauses = [tried.pause_s(ended(75)) for _ in range(1_000)]
    for longest, pause_s in zip([1, 2, 4, 8, 16, 32, *[60] * 994], pauses, strict=True):
        assert longest / 2 <= pause_s <= longest
    assert len(set(pauses)) == len(pauses)


def test_a_driver_that_ran_well_begins_the_row_anew():
    tried = restarts(most_failures=2)
    assert tried.pause_s(ended(1)) is not None
    assert tried.pause_s(ended(1, ran_s=HEALTHY_S)) <= 1
    assert tried.pause_s(ended(1)) is None


@pytest.mark.parametrize(
    ("exit_code", "text"), [(75, "ended with exit code 75"), (-9, "was killed by signal 9"), (None, "hung and was killed")]
)
def test_how_a_driver_ended_is_told_in_words(exit_code, text):
    assert ended(exit_code).text == text


def test_a_standby_that_was_fenced_waits_again_and_has_not_failed():
    tried = restarts(most_failures=1, standby=True)
    assert all(tried.pause_s(ended(4)) is not None for _ in range(100))
    assert tried.pause_s(ended(3)) is None
