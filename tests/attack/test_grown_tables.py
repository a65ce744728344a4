"""Rows gain columns and the sink has `schema_changes: add`: the table follows, whatever is outstanding or dies over it."""

import os
import signal
from collections import Counter
from importlib import import_module

import pytest
from tests.attack.changing_table import ChangingTable
from tests.unit.table_target import spark_schema, targets_of

from penstock.core import faults
from penstock.errors import PenstockError, Refused
from penstock.testing.conformance import PIPELINE

KINDS = ["sqlite", "duckdb", "postgres", "mysql", "redshift", "dbapi", "cassandra"]


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def growing(tmp_path, kind):
    targets = targets_of(import_module(f"tests.unit.{kind}_target").TableRig)(tmp_path)
    make = next(targets)

    def growing(**settings):
        keyed = {"key": ["id"], "write": "upsert"} if kind == "cassandra" else {}
        return ChangingTable(make(), **{"schema_changes": "add", **keyed, **settings})

    yield growing
    for _ in targets:
        pass


def rows_gain(table, **columns):
    table.columns |= columns


@pytest.mark.parametrize("outstanding", [True, False], ids=["outstanding", "published"])
def test_older_rows_are_null_in_new_columns(growing, kind, outstanding):
    table = growing()
    table.deliver((1, "a"), (2, "b"))
    table.deliver((3, "c"), (4, None), killed=outstanding)
    other = "other" if kind == "cassandra" else "two words"  # which has plain names alone
    rows_gain(table, more="long", **{other: "string"})
    table.deliver((5, "e", 7, "f"))
    assert table.content("id", "name", "more") == Counter(
        [(1, "a", None), (2, "b", None), (3, "c", None), (4, None, None), (5, "e", 7)]
    )
    quoted = f"`{other}`" if kind == "mysql" else f'"{other}"'
    assert table.content(quoted) == Counter({(None,): 4, ("f",): 1})
    assert table.verify().ok


@pytest.mark.parametrize("outstanding", [True, False], ids=["outstanding", "published"])
@pytest.mark.parametrize("how", ["kill", "error", "lost"])
def test_a_start_that_dies_over_it_is_followed_by_one_that_works(growing, kind, how, outstanding):
    table = growing()
    table.deliver((1, "a"))
    table.deliver((2, "b"), killed=outstanding)
    rows_gain(table, more="long")
    point = "table.add_columns" if kind != "dbapi" else "dbapi.prepare"
    if how == "kill":
        killed_at(f"{point}=kill", table.start)
    else:
        faults.arm(f"{point}={how}")
        with pytest.raises(PenstockError):
            table.start()
        faults.arm("")
    table.deliver((3, "c", 7))
    assert table.content("id", "name", "more") == Counter([(1, "a", None), (2, "b", None), (3, "c", 7)])
    assert table.verify().ok


def killed_at(fault, act):
    """Do it in a process of its own, which dies there."""
    child = os.fork()
    if not child:
        try:
            faults.arm(fault)
            act()
        finally:
            os._exit(0)  # also after an exception, which would go on here with the tests of its parent
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_a_look_changes_nothing_and_says_whether_a_start_would_work(growing, kind):
    table = growing()
    table.deliver((1, "a"))
    sink = table.bench.rig.make(**table.settings)
    try:
        sink.require_schema_accepted(pipeline=PIPELINE, schema=spark_schema(id="long", name="string", more="long"))
        if kind != "dbapi":  # which tries its types in a start
            with pytest.raises(Refused):
                sink.require_schema_accepted(pipeline=PIPELINE, schema=spark_schema(id="string", name="string", more="long"))
    finally:
        sink.close()
    assert table.content("id", "name") == Counter([(1, "a")])
    with pytest.raises(Exception, match="more"):
        table.content("more")


@pytest.mark.parametrize("columns", [{"code": "long", "title": "string"}, {"id": "string", "name": "string", "more": "long"}])
def test_nothing_is_added_to_a_table_that_does_not_fit_besides(growing, columns):
    table = growing()
    table.deliver((1, "a"))
    table.columns = columns
    with pytest.raises(PenstockError):
        table.start()
    for name in columns.keys() - {"id", "name"}:
        with pytest.raises(Exception, match=name):
            table.content(name)


def test_without_it_a_start_is_refused(growing):
    table = growing(schema_changes="fail")
    table.deliver((1, "a"))
    rows_gain(table, more="long")
    with pytest.raises(Refused, match="missing in the table: more"):
        table.start()
