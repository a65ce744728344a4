"""Columns of the rows get wider types and the sink has `schema_changes: widen`: the table follows, and `verify` proves it."""

from collections import Counter
from decimal import Decimal

import pytest
from tests.attack.test_grown_tables import growing, killed_at, rows_gain
from tests.unit.table_target import spark_schema

from penstock.errors import PenstockError, Refused
from penstock.testing.conformance import PIPELINE

__all__ = ["growing"]

ALTERED = ["duckdb", "postgres", "mysql"]
"""SQLite's columns take wider values as they are."""
KINDS = ["sqlite", *ALTERED]
A_FLOAT = 0.10000000149011612
CASES = {
    "int": ("integer", "long", 7, 1 << 40),
    "short": ("short", "integer", 7, 1 << 30),
    "byte": ("byte", "long", 7, 1 << 40),
    "decimal": ("decimal(10,2)", "decimal(20,2)", Decimal("1.25"), Decimal("123456789012345678.25")),
    "float": ("float", "double", A_FLOAT, 0.1),
}
STEPS = ["{}.prepare", "{}.begin", "{}.mark", "{}.commit"]


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def widening(growing):
    def widening(narrow, **settings):
        table = growing(**{"schema_changes": "widen", **settings})
        table.columns["n"] = narrow
        return table

    return widening


def numbers(table, kind=int):
    return Counter((id_, None if n is None else kind(n)) for id_, n in table.content("id", "n").elements())


def change(table, *, n, id_):
    table.bench.rig.sql(f"UPDATE {table.name} SET n = {n} WHERE id = {id_}")


def formats(table):
    return [row[0] for row in table.bench.rig.sql("SELECT format_version FROM penstock_marker")]


@pytest.mark.parametrize("outstanding", [True, False], ids=["outstanding", "published"])
@pytest.mark.parametrize("case", CASES)
def test_the_column_takes_wider_values_and_every_row_is_proved(widening, case, outstanding):
    narrow, wide, small, large = CASES[case]
    table = widening(narrow)
    table.deliver((1, "a", small), (2, "b", None))
    table.deliver((3, "c", small), killed=outstanding)
    table.columns["n"] = wide
    table.start()
    assert table.verify().ok
    table.deliver((4, "d", large))
    assert table.verify().ok
    table.deliver((5, "e", large), (6, "f", None))
    assert table.verify().ok
    expected = [(1, small), (2, None), (3, small), (4, large), (5, large), (6, None)]
    assert numbers(table, kind=type(large)) == Counter(expected)


@pytest.mark.parametrize("way", ["upsert", "insert_if_absent"])
def test_rows_by_key_are_proved(widening, way):
    """Rows that the wider ones replace were hashed with the narrow type."""
    table = widening("integer", write=way, key=["id"])
    table.deliver((1, "a", 7), (2, "b", 8))
    table.columns["n"] = "long"
    table.deliver((1, "x", 1 << 40), (3, "c", 9))
    assert table.verify().ok
    new = (1, 1 << 40) if way == "upsert" else (1, 7)
    assert numbers(table) == Counter([new, (2, 8), (3, 9)])


def test_a_table_that_is_replaced_has_the_wider_type(widening):
    table = widening("integer", write="replace")
    table.deliver((1, "a", 7))
    table.deliver((2, "b", 8), killed=True)
    table.columns["n"] = "long"
    table.deliver((3, "c", 1 << 40))
    assert numbers(table) == Counter([(3, 1 << 40)])
    assert table.verify().ok
    table.settings["write"] = "append"
    table.deliver((4, "d", 1 << 41))
    assert table.verify().ok


def test_rows_of_before_the_sink_are_counted_with_the_wider_type(widening):
    table = widening("integer")
    table.start()
    table.bench.rig.sql(f"INSERT INTO {table.name} (id, name, n) VALUES (1, 'a', 7)")
    table.bench.rig.sql("DELETE FROM penstock_marker")
    table.deliver((2, "b", 8))
    table.columns["n"] = "long"
    table.deliver((3, "c", 1 << 40))
    report = table.verify()
    assert report.ok
    assert [account.found.rows for account in report.accounts.values()] == [2]


def test_columns_are_added_and_widened_at_once(widening):
    table = widening("integer")
    table.deliver((1, "a", 7))
    table.deliver((2, "b", 8), killed=True)
    table.columns |= {"n": "long", "more": "long"}
    table.deliver((3, "c", 1 << 40, 5))
    assert table.content("id", "more") == Counter([(1, None), (2, None), (3, 5)])
    assert table.verify().ok


# --- a crash


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_each_step_with_a_narrow_decision_outstanding(widening, kind, step):
    killed_over_a_narrow_decision(widening("integer"), f"{step.format(kind)}=kill")


@pytest.mark.parametrize("kind", ALTERED, indirect=True)
def test_killed_after_the_columns_are_widened(widening):
    killed_over_a_narrow_decision(widening("integer"), "table.add_columns=kill")


def killed_over_a_narrow_decision(table, fault):
    table.deliver((1, "a", 7))
    table.deliver((2, "b", 8), killed=True)
    table.columns["n"] = "long"
    killed_at(fault, table.start)
    table.deliver((3, "c", 1 << 40))
    assert table.verify().ok
    assert numbers(table) == Counter([(1, 7), (2, 8), (3, 1 << 40)])


@pytest.mark.parametrize("step", STEPS[1:])
def test_killed_at_each_step_of_the_first_wide_batch(widening, kind, step):
    table = widening("integer")
    table.deliver((1, "a", 7))
    table.columns["n"] = "long"
    table.deliver((2, "b", 1 << 40), killed=True)
    killed_at(f"{step.format(kind)}=kill", table.recover)
    table.recover()
    assert table.verify().ok
    assert numbers(table) == Counter([(1, 7), (2, 1 << 40)])


@pytest.mark.parametrize("setting", ["fail", "add"])
def test_a_wide_decision_is_published_whatever_the_setting_is_by_now(widening, setting):
    """Its rows and those that were there are hashed alike, also by `penstock recover`."""
    table = widening("integer")
    table.deliver((1, "a", 7))
    table.columns["n"] = "long"
    table.deliver((2, "b", 1 << 40), killed=True)
    table.settings["schema_changes"] = setting
    table.recover()
    assert table.verify().ok


def test_an_older_penstock_does_not_publish_the_first_wide_batch(widening):
    """It would count the rows that are there with the narrow type, and refuses a marker of a newer format."""
    table = widening("integer")
    table.deliver((1, "a", 7))
    assert formats(table) == [2]
    table.columns["n"] = "long"
    table.deliver((2, "b", 1 << 40), killed=True)
    assert formats(table) == [3]
    table.recover()
    assert formats(table) == [2]


# --- rows that somebody changed


def test_a_start_that_widens_waits_until_changed_rows_are_right(widening):
    table = widening("integer")
    table.deliver((1, "a", 7), (2, "b", 8))
    change(table, n=9, id_=2)
    table.columns["n"] = "long"
    with pytest.raises(Refused, match=r"Somebody has changed rows of table .*: it holds 2 rows with digest") as refused:
        table.start()
    assert "put the rows right" in refused.value.remedy
    assert "cast the columns in the transform" in refused.value.remedy
    assert not table.verify().ok
    change(table, n=8, id_=2)
    table.deliver((3, "c", 1 << 40))
    assert table.verify().ok


@pytest.mark.parametrize("how", ["UPDATE {} SET n = 9 WHERE id = 2", "DELETE FROM {} WHERE id = 2"], ids=["changed", "deleted"])
def test_a_wide_batch_waits_until_rows_that_were_changed_are_right(widening, how):
    """Else what was changed would count as published, and what is put right later as wrong."""
    table = widening("integer")
    table.deliver((1, "a", 7), (2, "b", 8))
    table.columns["n"] = "long"
    table.deliver((3, "c", 1 << 40), killed=True)
    table.bench.rig.sql(how.format(table.name))
    for act in (table.recover, table.start):
        with pytest.raises(Refused, match="Somebody has changed rows of table"):
            act()
    assert not table.verify().ok
    table.bench.rig.sql(f"DELETE FROM {table.name} WHERE id = 2")
    table.bench.rig.sql(f"INSERT INTO {table.name} (id, name, n) VALUES (2, 'b', 8)")
    table.recover()
    assert table.verify().ok
    change(table, n=9, id_=2)
    assert not table.verify().ok


@pytest.mark.parametrize(("case", "other"), [("int", 1 << 40), ("float", 0.1), ("decimal", "99999999999.25")])
def test_values_that_only_the_wider_type_has_are_not_taken_for_published(widening, case, other):
    narrow, wide, small, large = CASES[case]
    table = widening(narrow)
    table.deliver((1, "a", small))
    table.columns["n"] = wide
    table.deliver((2, "b", large), killed=True)
    change(table, n=f"'{other}'" if isinstance(other, str) else other, id_=1)
    with pytest.raises(Refused, match=r"Somebody has changed rows of table .*: column 'n'"):
        table.recover()
    assert not table.verify().ok


# --- what is refused


def test_an_older_driver_with_the_narrow_type_is_refused_and_loses_nothing(widening):
    table = widening("integer")
    table.deliver((1, "a", 7))
    table.columns["n"] = "long"
    table.deliver((2, "b", 1 << 40))
    table.columns["n"] = "integer"
    with pytest.raises(Refused, match=r"Column 'n' was int64 when table .* was filled and is int32 now") as refused:
        table.start()
    assert "Cast it in the transform to what it was" in refused.value.remedy
    assert "widen" not in refused.value.remedy
    assert table.verify().ok


@pytest.mark.parametrize("setting", ["fail", "add"])
def test_without_it_a_start_is_refused_with_the_setting(widening, setting):
    table = widening("integer", schema_changes=setting)
    table.deliver((1, "a", 7))
    table.columns["n"] = "long"
    with pytest.raises(Refused) as refused:
        table.start()
    assert "schema_changes: widen" in refused.value.remedy


@pytest.mark.parametrize(
    ("was", "now"),
    [("long", "integer"), ("integer", "string"), ("integer", "double"), ("decimal(10,2)", "decimal(12,4)")],
)
def test_what_is_not_wider_is_refused_before_anything_is_altered(widening, was, now):
    table = widening(was)
    table.columns["m"] = "integer"
    table.deliver((1, "a", None, 7))
    table.columns |= {"n": now, "m": "long"}
    rows_gain(table, more="long")
    with pytest.raises(PenstockError):
        table.start()
    with pytest.raises(Exception, match="more"):
        table.content("more")
    assert table.verify().ok


def test_a_column_is_not_left_out_while_another_is_widened(widening):
    table = widening("integer")
    table.deliver((1, None, 7))
    table.columns = {"id": "long", "n": "long"}
    with pytest.raises(Refused, match="The rows lack column 'name'"):
        table.start()
    assert table.verify().ok


def test_a_look_says_that_a_start_would_work(widening):
    table = widening("integer")
    table.deliver((1, "a", 7))
    sink = table.bench.rig.make(**table.settings)
    try:
        sink.require_schema_accepted(pipeline=PIPELINE, schema=spark_schema(id="long", name="string", n="long", more="long"))
    finally:
        sink.close()
    assert formats(table) == [2]
    assert table.content("id", "n") == Counter([(1, 7)])


@pytest.mark.parametrize("kind", ALTERED, indirect=True)
@pytest.mark.parametrize("has", ["DEFAULT 5", "NOT NULL"])
def test_a_column_that_has_more_than_its_type_is_left_to_a_person(widening, kind, has):
    """The statement would drop it in some databases."""
    table = widening("integer")
    table.deliver((1, "a", 7))
    table.alter(f"MODIFY n int {has}" if kind == "mysql" else f"ALTER n SET {has}")
    table.columns["n"] = "long"
    with pytest.raises(Refused, match=r"Column 'n' of table .* is .*, which is too narrow") as refused:
        table.start()
    assert "ALTER TABLE" in refused.value.remedy
    table.alter("MODIFY n bigint" if kind == "mysql" else "ALTER n TYPE bigint")
    table.deliver((2, "b", 1 << 40))
    assert table.verify().ok


@pytest.mark.parametrize(
    ("kind", "depends", "take_away"),
    [
        ("duckdb", "CREATE INDEX depends ON {} (n)", "DROP INDEX depends"),
    ],
    indirect=["kind"],
)
def test_what_depends_on_the_column_is_told_with_the_statement_that_failed(widening, depends, take_away):
    table = widening("integer")
    table.deliver((1, "a", 7))
    table.bench.rig.sql(depends.format(table.name))
    table.columns["n"] = "long"
    with pytest.raises(Refused, match=r"too narrow, and `ALTER TABLE .* ALTER .*n.* TYPE .*` fails: .*depend.*") as refused:
        table.start()
    assert refused.value.remedy.startswith("Take away what depends on the column")
    table.bench.rig.sql(take_away)
    table.deliver((2, "b", 1 << 40))
    assert table.content("id", "n") == Counter([(1, 7), (2, 1 << 40)])
    assert table.verify().ok


@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
@pytest.mark.parametrize(
    ("depends", "named", "take_away"),
    [
        ("CREATE VIEW depends AS SELECT n + 1 AS m FROM {}", "view depends", "DROP VIEW depends"),
        (
            "CREATE MATERIALIZED VIEW depends AS SELECT id FROM {} WHERE n > 3",
            "materialized view depends",
            "DROP MATERIALIZED VIEW depends",
        ),
        (
            "ALTER TABLE {} ADD twice integer GENERATED ALWAYS AS (n * 2) STORED",
            "column twice of table",
            "ALTER TABLE {} DROP twice",
        ),
        ("CREATE POLICY depends ON {} USING (n > 0)", "policy depends", "DROP POLICY depends ON {}"),
    ],
    ids=["view", "materialized", "generated", "policy"],
)
def test_what_depends_on_the_column_is_found_before_anything_is_written(widening, depends, named, take_away):
    """`check` finds it, too, which alters nothing. An index does not depend on the type: it is built anew."""
    table = widening("integer")
    table.deliver((1, "a", 7))
    table.bench.rig.sql(depends.format(table.name), f"CREATE INDEX ON {table.name} (n)")
    table.columns["n"] = "long"
    other, schema = table.bench.rig.make(**table.settings), spark_schema(**table.columns)
    for start in (table.start, lambda: other.require_schema_accepted(pipeline=PIPELINE, schema=schema)):
        with pytest.raises(Refused, match=f"no other type while something depends on it: .*{named}") as refused:
            start()
        assert "ALTER TABLE" in refused.value.remedy
    other.close()
    table.bench.rig.sql(take_away.format(table.name))
    table.deliver((2, "b", 1 << 40))
    assert table.content("id", "n") == Counter([(1, 7), (2, 1 << 40)])
    assert table.verify().ok


@pytest.mark.parametrize("kind", ["mysql"], indirect=True)
@pytest.mark.parametrize("has", ["COMMENT 'do not lose'", "CHECK (n < 1000)", "INVISIBLE"])
def test_what_modify_would_drop_is_left_to_a_person(widening, has):
    table = widening("integer")
    table.deliver((1, "a", 7))
    table.alter(f"MODIFY n int {has}")
    table.columns["n"] = "long"
    with pytest.raises(Refused, match=r"Column 'n' of table .* is int, which is too narrow .* a comment or a CHECK"):
        table.start()
    assert has.partition(" ")[0] in table.bench.rig.sql(f"SHOW CREATE TABLE {table.name}")[0][1]


@pytest.mark.parametrize("kind", ALTERED, indirect=True)
def test_a_column_of_the_key_is_left_to_a_person(widening):
    table = widening("integer", write="upsert", key=["n"])
    table.deliver((1, "a", 7))
    table.columns["n"] = "long"
    with pytest.raises(Refused, match=r"Column 'n' of table .* is .*, which is too narrow"):
        table.start()
    assert table.verify().ok
