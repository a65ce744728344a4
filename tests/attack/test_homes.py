"""Two homes of one pipeline on one target: new ones, copies and older copies. Whoever delivers, every row is there once."""

import shutil
from collections import Counter

import pytest
from tests.attack.pipeline import Pipeline
from tests.attack.places import KINDS, pipelines
from tests.attack.reading import expected

from penstock.errors import LedgerMismatch, PenstockError, Refused

__all__ = ["pipelines"]


def rows_of(number):
    return [(10 * number + at, f"batch {number}") for at in range(3)]


def shows(pipeline, *numbers):
    """Exactly the rows of these batches, and `verify` of that home says so."""
    assert pipeline.content() == sum((expected(pipeline.batch(rows_of(number))) for number in numbers), Counter())
    assert pipeline.verify().ok


def another(pipeline, name="another"):
    """A home beside this one: a copy of what it is now, if there is something in it."""
    home = pipeline.home.with_name(f"{pipeline.home.name} {name}")
    if (pipeline.home / "ledger").exists():
        shutil.copytree(pipeline.home, home)
    return Pipeline(pipeline.rig, home, columns=pipeline.columns, **pipeline.settings)


def refused(run, *arguments, **options):
    with pytest.raises(PenstockError) as caught:
        run(*arguments, **options)
    assert isinstance(caught.value, Refused), caught.value


@pytest.fixture(params=KINDS)
def home(request, pipelines):
    return pipelines(request.param)


@pytest.mark.parametrize("starts", [0, 1, 5])
def test_a_second_home_is_refused_however_long_it_is(home, starts):
    other = another(home)
    for _ in range(starts):
        other.run()
    home.run(rows_of(0), rows_of(1))
    refused(other.run, rows_of(0))
    refused(other.recover)
    home.run(rows_of(2))
    shows(home, 0, 1, 2)


@pytest.mark.parametrize("starts", [0, 3])
def test_a_second_home_that_runs_already_is_refused_when_it_publishes(home, starts):
    other = another(home)
    for _ in range(starts):
        other.run()
    with other.driver() as deliver:
        home.run(rows_of(0))
        refused(deliver, rows_of(0))
    refused(other.recover)
    home.run(rows_of(1))
    shows(home, 0, 1)


def test_of_two_homes_with_a_decision_the_first_one_that_publishes_has_the_place(home):
    other = another(home)
    try:
        other.run(rows_of(0), is_dying=True)
        home.run(rows_of(0), is_dying=True)
    except LedgerMismatch:  # the place was claimed before it was decided
        other.recover()
        shows(other, 0)
        return
    home.recover()
    refused(other.recover)
    home.run(rows_of(1))
    shows(home, 0, 1)


@pytest.mark.parametrize("starts", [0, 1, 5])
def test_a_copied_home_that_is_behind_is_refused(home, starts):
    home.run(rows_of(0))
    older = another(home)
    for _ in range(starts):
        older.run()
    home.run(rows_of(1))
    refused(older.run, rows_of(1))
    refused(older.recover)
    home.run(rows_of(2))
    shows(home, 0, 1, 2)


@pytest.mark.parametrize(("starts", "decided"), [(0, 9), (1, 1), (5, 1)], ids=["other rows", "longer", "longest"])
def test_a_copied_home_that_runs_already_is_refused_when_it_publishes(home, starts, decided):
    """Whether its ledger is longer by then, or decided another content at the same position."""
    home.run(rows_of(0))
    copied = another(home)
    for _ in range(starts):
        copied.run()
    with copied.driver() as deliver:
        home.run(rows_of(1))
        refused(deliver, rows_of(decided))
    refused(copied.recover)
    home.run(rows_of(2))
    shows(home, 0, 1, 2)


def test_an_outstanding_decision_that_was_copied_is_delivered_by_one_of_both(home):
    home.run(rows_of(0))
    home.run(rows_of(1), is_dying=True)
    copied = another(home)
    copied.recover()
    home.recover()
    shows(home, 0, 1)
    home.run(rows_of(2))
    refused(copied.run, rows_of(2))
    shows(home, 0, 1, 2)


def test_a_home_that_was_restored_from_a_backup_is_refused(home):
    home.run(rows_of(0))
    backup = another(home, "backup")
    home.run(rows_of(1), rows_of(2))
    shutil.rmtree(home.home)
    shutil.copytree(backup.home, home.home)
    refused(home.run, rows_of(1))
    refused(home.run, rows_of(1))
    assert home.content() == sum((expected(home.batch(rows_of(number))) for number in range(3)), Counter())
    assert not home.verify().ok


def test_a_new_home_on_a_place_that_is_filled_is_refused(home):
    home.run(rows_of(0))
    shutil.rmtree(home.home)
    home.home.mkdir()
    refused(home.run, rows_of(0))
    refused(home.recover)
    assert home.content() == expected(home.batch(rows_of(0)))
