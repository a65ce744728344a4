"""A batch is decided and not published, and then the rows, the table or the sink's settings change.

Each start works with exact content, or is refused with a remedy that leads there when it is carried out to the letter.
"""

from collections import Counter
from importlib import import_module
from itertools import count

import pytest
from tests.attack import altered_stand_in
from tests.attack.changing_table import ChangingTable
from tests.unit.table_target import targets_of

from penstock.errors import PublishFailed, Refused

KINDS = ["sqlite", "duckdb", "postgres", "mysql", "redshift", "dbapi"]
ALL = [*KINDS, "sqlserver", "cassandra"]
"""SQL Server is the stand-in for it. Cassandra only upserts by a key, so it has no part in what other ways to write do."""


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def only(*kinds):
    return pytest.mark.parametrize("kind", kinds, indirect=True)


@pytest.fixture
def changing(tmp_path, kind):
    module = altered_stand_in if kind == "sqlserver" else import_module(f"tests.unit.{kind}_target")
    targets = targets_of(module.TableRig)(tmp_path)
    make = next(targets)
    made = []

    def changing(**settings):
        table = ChangingTable(make(), **settings)
        table.kind = kind
        made.append(table)
        return table

    yield changing
    for _ in targets:
        pass


ADD = "ADD more bigint"
DROP_NAME = {"cassandra": "DROP name"}


def rows_gain_a_column(table):
    table.columns["more"] = "long"


def rows_lose_a_column(table):
    del table.columns["name"]


def rows_get_a_wider_type(table):
    table.columns["id"] = "string"


def rows_change_their_order(table):
    table.columns = {"name": "string", "id": "long"}


def table_gains_a_column(table):
    table.alter(ADD)


def rows_and_table_gain_a_column(table):
    rows_gain_a_column(table)
    table_gains_a_column(table)


def table_gains_a_column_with_a_default(table):
    table.alter(f"{ADD} DEFAULT 7")


def table_gains_a_column_that_must_have_a_value(table):
    for statement in MUST_HAVE_A_VALUE[table.kind]:
        table.bench.rig.sql(statement)
    table.make_anew = [statement.replace(" NOT NULL", "") for statement in MUST_HAVE_A_VALUE["sqlite"]]


def table_loses_a_column(table):
    table.alter(DROP_NAME.get(table.kind, "DROP COLUMN name"))


def rows_and_table_lose_a_column(table):
    rows_lose_a_column(table)
    table_loses_a_column(table)


def a_column_is_renamed_in_the_table(table):
    statement = {"sqlserver": "EXEC sp_rename 't.{}', '{}', 'COLUMN'"}.get(table.kind, "ALTER TABLE t RENAME COLUMN {} TO {}")
    table.bench.rig.sql(statement.format("name", "title"))
    table.rename_back = statement.format("title", "name")


def a_column_is_renamed_in_rows_and_table(table):
    a_column_is_renamed_in_the_table(table)
    table.columns = {"id": "long", "title": "string"}


MUST_HAVE_A_VALUE = {
    "mysql": [f"ALTER TABLE t {ADD} NOT NULL"],
    "duckdb": [f"ALTER TABLE t {ADD}", "UPDATE t SET more = 0", "ALTER TABLE t ALTER more SET NOT NULL"],
    "postgres": [f"ALTER TABLE t {ADD}", "UPDATE t SET more = 0", "ALTER TABLE t ALTER more SET NOT NULL"],
    "sqlserver": [f"ALTER TABLE t {ADD}", "UPDATE t SET more = 0", "ALTER TABLE t ALTER COLUMN more bigint NOT NULL"],
    "sqlite": [
        "CREATE TABLE u (id INTEGER, name TEXT, more INTEGER NOT NULL)",
        "INSERT INTO u (id, name, more) SELECT id, name, 0 FROM t",
        "DROP TABLE t",
        "ALTER TABLE u RENAME TO t",
    ],
}
"""For databases in which a column can come to be like that."""

CHANGES = [
    rows_gain_a_column,
    rows_lose_a_column,
    rows_get_a_wider_type,
    rows_change_their_order,
    table_gains_a_column,
    rows_and_table_gain_a_column,
    table_gains_a_column_with_a_default,
    table_gains_a_column_that_must_have_a_value,
    table_loses_a_column,
    rows_and_table_lose_a_column,
    a_column_is_renamed_in_the_table,
    a_column_is_renamed_in_rows_and_table,
]


UNKNOWN_TO_CASSANDRA = {
    table_gains_a_column_with_a_default,
    a_column_is_renamed_in_the_table,
    a_column_is_renamed_in_rows_and_table,
}
"""It has no defaults, and renames no columns but those of the key."""


def can_happen(kind, change):
    if change is table_gains_a_column_that_must_have_a_value:
        return kind in MUST_HAVE_A_VALUE
    return kind != "cassandra" or change not in UNKNOWN_TO_CASSANDRA


THAT_DESTROY_VALUES = {table_loses_a_column, rows_and_table_lose_a_column}
"""What was published is not there any more, and `verify` says so, whatever the columns are called now."""


@pytest.mark.parametrize("outstanding", [True, False], ids=["outstanding", "published"])
@pytest.mark.parametrize(
    ("kind", "change"),
    [
        pytest.param(kind, change, id=f"{kind}-{change.__name__}")
        for kind in ALL
        for change in CHANGES
        if can_happen(kind, change)
    ],
    indirect=["kind"],
)
def test_a_start_works_or_says_how(changing, kind, change, outstanding):
    table = changing()
    table.deliver((1, "a"), (2, "b"))
    table.deliver((3, "c"), (4, None), killed=outstanding)
    change(table)
    table.started_by_the_book()
    if outstanding and "title" not in table.columns:
        assert table.content("id", "name") >= Counter([(3, "c"), (4, None)]), table.remedies
    table.deliver(*(tuple({"id": number, "name": "e", "title": "e"}.get(name) for name in table.columns) for number in (5, 6)))
    assert Counter(int(value) for (value,) in table.content("id").elements()) == Counter(range(1, 7)), table.remedies
    report = table.verify()
    if change in THAT_DESTROY_VALUES:
        assert [problem.message for problem in report.problems] == [
            f"Table {table.name!r} holds as many rows as were published into it, but other values."
        ]
    else:
        assert report.ok, (report, table.remedies)


@only("dbapi")
@pytest.mark.parametrize("by", ["start", "recover"])
def test_a_constraint_that_a_decided_batch_breaks_is_told_with_what_to_do(changing, kind, by):
    """By the trial of an altered table; or by the driver's error, where nothing is tried."""
    table = changing()
    table.kind = "sqlite"  # the database behind the driver
    table.deliver((1, "a"), (2, "b"))
    table.deliver((3, "c"), (4, None), killed=True)
    table_gains_a_column_that_must_have_a_value(table)
    said = {
        "start": "does not give back what is written into it: a row of plain values",
        "recover": "refused the rows 5 times",
    }
    told = f"Table 't' {said[by]}: NOT NULL constraint failed: t.more"
    with pytest.raises((Refused, PublishFailed), match=told) as refused:
        getattr(table, by)()
    assert "create the table again without it" in refused.value.remedy
    table.started_by_the_book()
    assert rows_of(table) == Counter([(1, "a"), (2, "b"), (3, "c"), (4, None)])
    assert table.verify().ok


def rows_of(table):
    return Counter(table.content("id", "name"))


def keyed(changing, **settings):
    """A table whose rows are told apart by `id`, and that is made for that."""
    return changing(key=["id"], **settings)


@only("sqlite", "duckdb", "postgres", "mysql", "redshift")  # the others have no upsert
def test_an_update_stays_one_when_the_sink_only_inserts_by_now(changing, kind):
    table = keyed(changing, write="upsert")
    table.deliver((1, "a"), (2, "b"))
    table.deliver((1, "new"), (3, "c"), killed=True)
    table.settings["write"] = "insert_if_absent"
    table.started_by_the_book()
    assert rows_of(table) == Counter([(1, "new"), (2, "b"), (3, "c")])
    table.deliver((1, "newer"), (4, "d"))
    assert rows_of(table) == Counter([(1, "new"), (2, "b"), (3, "c"), (4, "d")])
    assert table.verify().ok


def test_a_row_stays_inserted_when_the_sink_updates_by_now(changing, kind):
    table = keyed(changing, write="insert_if_absent")
    table.deliver((1, "a"), (2, "b"))
    table.deliver((1, "not this"), (3, "c"), killed=True)
    table.settings["write"] = "insert_if_absent" if kind == "dbapi" else "upsert"
    table.recover()
    assert rows_of(table) == Counter([(1, "a"), (2, "b"), (3, "c")])
    assert table.verify().ok


@pytest.mark.parametrize("now", ["replace", "append"])
def test_an_appended_batch_stays_appended_and_a_whole_table_stays_whole(changing, now):
    table = changing(write="append" if now == "replace" else "replace")
    table.deliver((1, "a"))
    table.deliver((2, "b"), killed=True)
    table.settings["write"] = now
    table.recover()
    assert rows_of(table) == (Counter([(1, "a"), (2, "b")]) if now == "replace" else Counter([(2, "b")]))
    assert table.verify().ok


def test_an_empty_batch_clears_no_table_that_was_appended_to(changing):
    """It has no piece that says how it was decided."""
    table = changing(write="append")
    table.deliver((1, "a"))
    table.deliver_in_one_run([(2, "b")], [])
    table.settings["write"] = "replace"
    table.start()
    assert rows_of(table) == Counter([(1, "a"), (2, "b")])
    table.deliver((3, "c"))
    assert rows_of(table) == Counter([(3, "c")])
    assert table.verify().ok


@pytest.mark.parametrize("was", ["append", "replace"])
def test_an_empty_batch_of_an_earlier_run_clears_only_what_was_replaced_before(changing, was):
    """The marker is of a run before that one, and the first batch of this one says how it is written by now."""
    table = changing(write=was)
    table.deliver((1, "a"))
    table.deliver(killed=True)
    table.settings["write"] = "replace"
    table.recover()
    assert rows_of(table) == (Counter([(1, "a")]) if was == "append" else Counter())
    assert table.verify().ok
    table.deliver((2, "b"))
    table.deliver()
    assert rows_of(table) == Counter()
    assert table.verify().ok


@only("sqlite", "duckdb", "postgres", "mysql")  # keys of the others are no indexes of the table
def test_the_key_of_the_decision_counts(changing, kind):
    table = changing(write="upsert", key=["id"])
    table.deliver((1, "a"))
    table.bench.rig.sql(f"CREATE UNIQUE INDEX by_both ON t (id, name{'(100)' if kind == 'mysql' else ''})")
    table.deliver((1, "b"), killed=True)
    table.settings["key"] = ["id", "name"]
    table.recover()
    assert rows_of(table) == Counter([(1, "b")])
    assert table.verify().ok


@only("cassandra")
@pytest.mark.parametrize("key", ["id", "number"])
def test_a_key_column_that_was_renamed_gets_its_name_back(changing, kind, key):
    """Whatever key the sink has by now. Cassandra renames no other columns."""
    table = changing()
    table.deliver((1, "a"), (2, "b"))
    table.deliver((1, "x"), (3, "c"), killed=True)
    table.alter("RENAME id TO number")
    with pytest.raises(Refused, match=r"the primary key \(\(number\)\), but the sink has \(\(id\)\)") as refused:
        table.start()
    assert "If a column of it was renamed in the table, rename it back. Else write key: [number]" in refused.value.remedy
    table.settings["key"] = [key]
    with pytest.raises(Refused, match=r"but the decided batch has the key id\.") as refused:
        table.recover()
    table._carry_out(refused.value)
    assert rows_of(table) == Counter([(1, "x"), (2, "b"), (3, "c")])
    table.settings["key"] = ["id"]
    table.deliver((2, "y"))
    assert rows_of(table) == Counter([(1, "x"), (2, "y"), (3, "c")])
    assert table.verify().ok


@only("postgres", "mysql")  # which have `merge`
def test_sql_of_the_users_own_that_is_gone_is_asked_for(changing):
    merge = {"write": "merge", "merge": "INSERT INTO {table} SELECT id, name FROM {staged}"}
    table = changing(**merge)
    table.deliver((1, "a"))
    table.deliver((2, "b"), killed=True)
    table.settings = {"write": "append"}
    with pytest.raises(Refused, match="was decided with `write: merge`") as refused:
        table.recover()
    assert "Set `write: merge` and `merge` back and run `penstock recover`" in refused.value.remedy
    table.settings = merge
    table.recover()
    assert rows_of(table) == Counter([(1, "a"), (2, "b")])


@only(*ALL)
def test_pieces_of_an_older_penstock_are_written_as_configured(changing, kind):
    table = changing(write="append")
    table.deliver((1, "a"))
    table.forgetting = {"write", "key"}
    table.deliver((2, "b"), killed=True)
    table.recover()
    assert rows_of(table) == Counter([(1, "a"), (2, "b")])


@pytest.mark.parametrize("key", [[], ["id"]], ids=["append", "by key"])
@pytest.mark.parametrize("recovered", [True, False], ids=["recover", "start"])
def test_a_decision_of_an_older_penstock_is_outstanding_when_this_one_starts(changing, kind, key, recovered):
    """Its entry has an older format, its pieces say nothing of `write` and `key`, and ledger and marker have no identity."""
    by_key = "insert_if_absent" if kind == "dbapi" else "upsert"
    table = changing(write=by_key if key else "append", key=key)
    table.use_older_penstock()
    table.deliver((1, "a"), (2, None))
    table.deliver((1, "b"), (3, "c"), killed=True)
    markers = "penstock_dbapi_marker" if kind == "dbapi" else "penstock_marker"
    table.upgrade(markers=markers)
    if recovered:
        table.recover()
    else:
        table.start()
    first = [(1, "a")] if not key or kind == "dbapi" else []
    second = [(1, "b")] if not key or kind != "dbapi" else []
    assert rows_of(table) == Counter([*first, *second, (2, None), (3, "c")])
    table.deliver((4, "d"))
    assert rows_of(table) == Counter([*first, *second, (2, None), (3, "c"), (4, "d")])
    assert table.verify().ok
    [(ledger_id,)] = table.bench.sql(f"SELECT ledger_id FROM {markers}")
    assert ledger_id


@only("sqlite", "duckdb", "postgres", "mysql")
def test_a_table_that_would_hold_other_values_is_not_filled_by_recover(changing, kind):
    """`recover` knows no rows' columns before it publishes; the database would make 7 of '007' where it converts."""
    table = changing()
    table.deliver((1, "008"))
    table.deliver((2, "007"), killed=True)
    table.bench.rig.sql("ALTER TABLE t RENAME TO as_it_was")
    table.bench.rig.sql("CREATE TABLE t (id BIGINT, name INTEGER)")
    with pytest.raises(Refused, match="name"):
        table.recover()
    assert not table.content("id")
    table.bench.rig.sql("DROP TABLE t")
    table.bench.rig.sql("ALTER TABLE as_it_was RENAME TO t")
    table.recover()
    assert rows_of(table) == Counter([(1, "008"), (2, "007")])
    assert table.verify().ok


@only(*ALL)
@pytest.mark.parametrize("outstanding", [True, False], ids=["outstanding", "published"])
@pytest.mark.parametrize("name", ["userId", "order", "two words"])
def test_a_column_of_any_name_comes_in_as_the_refusal_says(changing, kind, name, outstanding):
    """What is told can be run as it is: most databases fold names and know words, unless a name is quoted."""
    table = changing()
    table.deliver((1, "a"))
    table.deliver((2, "b"), killed=outstanding)
    table.columns[name] = "long"
    table.started_by_the_book()
    table.deliver((3, "c", 7))
    assert rows_of(table) == Counter([(1, "a"), (2, "b"), (3, "c")])
    assert table.verify().ok, table.remedies


@only(*ALL)
def test_rows_without_a_column_of_the_outstanding_batch_are_refused_before_they_are_staged(changing, kind):
    """A column is added, the driver is killed over the first batch that has it, and the transform is set back."""
    table = changing()
    table.deliver((1, "a"))
    table.alter(ADD)
    table.columns["more"] = "long"
    table.deliver((2, "b", 7), killed=True)
    del table.columns["more"]
    with pytest.raises(Refused, match="The rows lack column 'more'"):
        table.deliver_in_one_run([(3, "not this")])
    assert rows_of(table) == Counter([(1, "a"), (2, "b")])
    table.numbers = count(2)
    table.started_by_the_book()
    table.deliver_in_one_run([(3, "c", None)], [(4, "d", 8)])
    assert rows_of(table) == Counter([(1, "a"), (2, "b"), (3, "c"), (4, "d")])
    assert table.verify().ok


@only("dbapi")
def test_rows_of_other_types_are_told_where_the_table_is_replaced(changing, kind):
    table = changing(write="replace")
    table.deliver((1, "a"))
    table.columns["id"] = "string"
    with pytest.raises(Refused, match="holds rows that could not be read as those that are to come: column 'id'") as refused:
        table.start()
    assert "then empty the table" in refused.value.remedy
    for statement in ("DROP TABLE t", "CREATE TABLE t (id TEXT, name TEXT)"):
        table.bench.rig.sql(statement)
    table.deliver(("x", "b"))
    assert rows_of(table) == Counter([("x", "b")])
    assert table.verify().ok


@only("sqlite", "duckdb")
@pytest.mark.parametrize("name", ["userId", "order", "two words"])
def test_a_column_of_any_name_is_left_out_as_the_refusal_says(changing, kind, name):
    table = changing()
    table.columns[name] = "long"
    table.deliver((1, "a", 7))
    del table.columns[name]
    table.started_by_the_book()
    table.deliver((2, "b", None))
    assert table.verify().ok
