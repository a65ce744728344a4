"""What `penstock` exports: all of it is there, on its page, and without arguments that read as a bare `True`."""

import inspect
import re
from enum import Enum

import pytest
from tests.architecture.reading import ROOT

import penstock
from penstock import protocols

PAGE = (ROOT / "docs/howto/python.md").read_text()
OLD = {"Postgres": "PostgreSQL", "SqlServer": "SQLServer", "Sqlite": "SQLite", "Duckdb": "DuckDB", "Dbapi": "DBAPI"}


def test_every_name_is_there_and_on_its_page():
    table = PAGE.partition("## All names")[2]
    assert set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (.*?) \|", table, re.M)))) == set(penstock.__all__)
    assert all(getattr(penstock, name) is not None for name in penstock.__all__)
    assert {*penstock.__all__, *penstock._HOMES} <= set(dir(penstock))
    assert set(penstock._HOMES) == set(penstock.__all__) - {"__version__"}


@pytest.mark.parametrize(("old", "new"), OLD.items())
def test_an_old_name_goes_on_and_says_the_new_one(old, new):
    with pytest.warns(DeprecationWarning, match=f"penstock.{old} is now penstock.{new}") as warned:
        assert getattr(penstock, old) is getattr(penstock, new)
    assert warned[0].filename == __file__


@pytest.mark.parametrize("old", ["ChecksFromTasks", "ClaimsPlaces", "ReportsStaging", "SignsStaging"])
def test_a_protocol_that_was_joined_with_others_goes_on_and_says_with_which(old):
    with pytest.warns(DeprecationWarning, match=f"penstock.protocols.{old} is now a part of HasStaging"):
        assert getattr(protocols, old) is protocols.HasStaging


def test_a_name_that_never_was_is_none():
    with pytest.raises(AttributeError, match="'penstock' has no attribute 'Postgress'"):
        penstock.Postgress  # noqa: B018
    with pytest.raises(AttributeError, match="has no attribute 'HoldsStaging'"):
        protocols.HoldsStaging  # noqa: B018


def callables():
    for name in penstock.__all__:
        public = getattr(penstock, name)
        if inspect.isfunction(public):
            yield public
        elif inspect.isclass(public) and not issubclass(public, Enum):
            yield from (
                member for called, member in inspect.getmembers(public, inspect.isfunction) if _is_for_users(called, member)
            )


def _is_for_users(called, member):
    return (called == "__init__" or not called.startswith("_")) and member.__module__.startswith("penstock.")


def test_no_argument_is_a_bare_boolean():
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    looked_at = list(callables())
    bare = [
        f"{function.__qualname__}({parameter.name})"
        for function in looked_at
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in by_place and (parameter.annotation in (bool, "bool") or isinstance(parameter.default, bool))
    ]
    assert (bare, len(looked_at) > 60) == ([], True), len(looked_at)
