"""A table behind any driver is altered after it was tried: it is tried anew, or gives back what is written into it."""

from collections import Counter

import pytest
from tests.attack.test_decided_columns import changing, kind, only, rows_of

from penstock.errors import Refused
from penstock.sink.dbapi.trial import Trial

__all__ = ["changing", "kind"]
pytestmark = only("dbapi")

AS_NUMBERS = "CREATE TABLE u (id BIGINT, name INTEGER)"
NUMBERED = "CREATE TABLE u (id INTEGER PRIMARY KEY, name TEXT)"
AS_IT_WAS = "CREATE TABLE u (id BIGINT, name TEXT)"


def made_anew(declared):
    return [declared, "INSERT INTO u (id, name) SELECT id, name FROM t", "DROP TABLE t", "ALTER TABLE u RENAME TO t"]


@pytest.mark.parametrize(("declared", "row"), [(AS_NUMBERS, (2, "007")), (NUMBERED, (None, "b"))], ids=["numbers", "numbered"])
def test_a_decided_batch_is_read_back_from_an_altered_table(changing, declared, row):
    table = changing()
    table.deliver((1, "a"))
    table.deliver(row, killed=True)
    for statement in made_anew(declared):
        table.bench.rig.sql(statement)
    with pytest.raises(Refused, match="Table 't' was altered since it was tried, and does not give back the rows") as refused:
        table.recover()
    assert "create the table again" in refused.value.remedy
    assert rows_of(table) == Counter([(1, "a")])
    table.make_anew = made_anew(AS_IT_WAS)
    for statement in table.make_anew:
        table.bench.rig.sql(statement)
    table.recover()
    table.deliver((3, "008"))
    assert rows_of(table) == Counter([(1, "a"), row, (3, "008")])
    assert table.verify().ok


def test_an_altered_table_that_keeps_less_is_refused_at_a_start(changing):
    table = changing()
    table.deliver((1, "a"))
    for statement in made_anew(AS_NUMBERS):
        table.bench.rig.sql(statement)
    with pytest.raises(Refused, match="Table 't' does not give back what is written into it: column 'name'"):
        table.deliver((2, "007"))
    for statement in made_anew(AS_IT_WAS):
        table.bench.rig.sql(statement)
    table.deliver((2, "007"))
    assert rows_of(table) == Counter([(1, "a"), (2, "007")])
    assert table.verify().ok


@pytest.mark.parametrize("write", ["append", "insert_if_absent", "replace"])
def test_a_decided_batch_goes_into_an_altered_table_that_keeps_it(changing, write):
    table = changing(write=write, key=["id"] if write == "insert_if_absent" else [])
    table.deliver((1, "a"))
    table.deliver((1, "not this"), (2, "007"), killed=True)
    table.bench.rig.sql("ALTER TABLE t ADD COLUMN more BIGINT")
    table.recover()
    table.start()
    expected = {"append": [(1, "a"), (1, "not this")], "insert_if_absent": [(1, "a")], "replace": [(1, "not this")]}
    assert rows_of(table) == Counter([*expected[write], (2, "007")])
    assert table.verify().ok


def test_a_table_that_nobody_alters_is_tried_once_and_never_read_back(changing, monkeypatch):
    table = changing()
    table.deliver((1, "a"))
    monkeypatch.setattr(Trial, "run", None)
    monkeypatch.setattr("penstock.sink.dbapi.sink.read_back", None)
    table.deliver_in_one_run([(2, "b")], [(3, "c")])
    table.deliver((4, "d"), killed=True)
    table.recover()
    assert rows_of(table) == Counter([(1, "a"), (2, "b"), (3, "c"), (4, "d")])


def test_a_table_that_is_altered_in_a_run_is_read_back_and_tried_before_the_next_batch(changing, monkeypatch):
    table, tried = changing(), []
    table.deliver((1, "a"))
    run = Trial.run
    monkeypatch.setattr(Trial, "run", lambda trial: tried.append(trial) or run(trial))
    altered_before = {1: ["ALTER TABLE t ADD COLUMN more BIGINT"], 4: made_anew(AS_NUMBERS)}
    batches = [[(number, "b")] for number in (2, 3, 4, 5)]
    with pytest.raises(Refused, match="Table 't' was altered since it was tried, and does not give back the rows"):
        table.deliver_in_one_run(*batches, [(6, "007")], altered_before=altered_before)
    assert rows_of(table) == Counter([(1, "a"), *((number, "b") for number in (2, 3, 4, 5))])
    assert len(tried) == 1
