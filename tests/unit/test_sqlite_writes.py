"""Append, upsert, insert_if_absent and replace: what the table shows, and what the marker counts."""

import math
import random
import sqlite3
from collections import Counter
from contextlib import closing

import pytest
from tests.unit.sqlite_target import targets
from tests.unit.table_target import (
    DELETING,
    GONE,
    IN_SEQUENCE,
    ORDERED,
    content,
    require_newest_stay,
    require_ordered,
    spark_schema,
    ways,
    written,
)

from penstock.core.model import NEWEST_ROW_DIGEST
from penstock.core.row_hash import digest, row_hashes
from penstock.errors import PublishFailed, Refused, StageFailed, Usage
from penstock.testing.conformance import as_batch

target = pytest.fixture(targets)


def test_upsert_replaces_the_row_with_the_key(target):
    table = target(write="upsert", key=["id"])
    sink = table.sink()
    table.put(sink, [(1, "a"), (2, "b")], batch_id=0)
    table.put(sink, [(2, "B"), (3, "c")], batch_id=1)
    assert content(table) == Counter([(1, "a"), (2, "B"), (3, "c")])


def test_of_several_rows_with_one_key_upsert_keeps_the_last_in_frozen_order(target):
    table = target(write="upsert", key=["id"])
    sink = table.sink()
    shown = table.put(sink, [(1, "first"), (2, "x"), (1, "second")], [(1, "last"), (2, None)], batch_id=0)
    assert content(table) == Counter([(1, "last"), (2, None)])
    assert sink.publish(shown.publication).already
    assert table.verify(sink).ok
    assert table.sql("SELECT rows_decided, rows_after FROM penstock_marker") == [(5, 2)]


@pytest.fixture
def existing(target, tmp_path):
    def make(*statements, **options):
        with sqlite3.connect(tmp_path / "data.db") as connection:
            for statement in statements:
                connection.execute(statement)
        connection.close()
        return target(**options)

    return make


def test_of_a_row_that_deletes_only_the_key_has_to_fit(existing):
    """Also where SQLite would make up a number in place of NULL."""
    schema = spark_schema(key="string", name="string", id="long", note="string", size="double")
    statement = "CREATE TABLE t (key TEXT COLLATE NOCASE, name TEXT, id INTEGER PRIMARY KEY, note TEXT NOT NULL, size ANY) STRICT"
    unique = "CREATE UNIQUE INDEX keys ON t (key COLLATE BINARY)"
    table = existing(statement, unique, schema=schema, key=["KEY"], **DELETING)
    sink = table.sink()
    table.put(sink, [("a", "x", 1, "kept", None), ("A", "x", 2, "", None), ("b", "x", 3, "", None)], batch_id=0)
    shown = table.put(
        sink, [("A", GONE, None, None, math.nan), ("c", GONE, None, None, None), ("b", "y", 3, "", 0.5)], batch_id=1
    )
    assert table.sql("SELECT key, name, id FROM t ORDER BY id") == [("a", "x", 1), ("b", "y", 3)]
    assert sink.publish(shown.publication).already
    assert table.verify(sink).ok
    with pytest.raises(StageFailed, match="NULL in column 'key'"):
        table.put(sink, [(None, GONE, 1, "", None)], batch_id=2)
    with pytest.raises(StageFailed, match="NULL in column 'note'"):
        table.put(sink, [("d", "x", 1, None, None)], batch_id=2)


def test_a_batch_is_written_as_it_was_decided_whether_rows_delete_or_not(target):
    table = target(key=["id"], **DELETING)
    sink = table.sink()
    table.put(sink, [(1, "a"), (2, "b")], batch_id=0)
    deleting = table.decided_but_not_published(sink, [(1, GONE)], batch_id=1)
    assert not table.rig.make(deletes=False).publish(deleting).already
    assert content(table) == Counter([(2, "b")])
    table.rig.options["deletes"] = False
    plain = table.sink()
    upserting = table.decided_but_not_published(plain, [(2, GONE)], batch_id=2)
    assert not table.rig.make(deletes=True).publish(upserting).already
    assert content(table) == Counter([(2, GONE)])
    assert table.verify(plain).ok


def test_a_large_whole_number_is_read_back_from_a_numeric_column(existing):
    """SQLite keeps it there as an integer; an upsert reads what it replaces."""
    schema = spark_schema(id="long", x="double")
    table = existing("CREATE TABLE t (id INTEGER PRIMARY KEY, x NUMERIC)", schema=schema, write="upsert", key=["id"])
    sink = table.sink()
    table.put(sink, [(1, 2.0**60), (2, -9.2e18), (3, float("nan")), (4, None), (5, 3.0)], batch_id=0)
    assert table.verify(sink).ok
    table.put(sink, [(1, 0.5)], batch_id=1)
    assert table.verify(sink).ok
    assert table.sql("SELECT x FROM t WHERE id = 1") == [(0.5,)]


def test_keys_differ_by_case_whatever_the_column_thinks_of_it(existing):
    table = existing(
        "CREATE TABLE t (id INTEGER, name TEXT COLLATE NOCASE)",
        "CREATE UNIQUE INDEX names ON t (name COLLATE BINARY)",
        write="insert_if_absent",
        key=["name"],
    )
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    table.put(sink, [(2, "A"), (3, "a")], batch_id=1)
    assert content(table) == Counter([(1, "a"), (2, "A")])
    assert table.verify(sink).ok


@pytest.mark.parametrize("when", ["UPDATE OF name", "INSERT"])
def test_a_trigger_of_the_user_that_sets_another_column_does_not_count(existing, when):
    """It would count a row as replaced that was written once."""
    table = existing(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, touched TEXT)",
        f"CREATE TRIGGER touch AFTER {when} ON t BEGIN UPDATE t SET touched = NEW.name WHERE id = NEW.id; END",
        write="upsert",
        key=["id"],
    )
    sink = table.sink()
    table.put(sink, [(1, "a"), (2, "b")], batch_id=0)
    table.put(sink, [(2, "B"), (3, "c")], batch_id=1)
    assert Counter(table.sql("SELECT id, name FROM t")) == Counter([(1, "a"), (2, "B"), (3, "c")])
    assert table.sql("SELECT rows_after FROM penstock_marker") == [(3,)]
    assert table.verify(sink).ok


@pytest.mark.parametrize("what", ["REPLACE", "IGNORE"])
def test_a_table_that_would_drop_rows_at_a_conflict_does_not(existing, what):
    table = existing(f"CREATE TABLE t (id INTEGER UNIQUE ON CONFLICT {what}, name TEXT)")
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    with pytest.raises(PublishFailed, match="refused a row"):
        table.put(sink, [(1, "b")], batch_id=1)
    assert content(table) == Counter([(1, "a")])


def test_of_several_rows_with_one_key_insert_if_absent_keeps_the_first(target):
    table = target(write="insert_if_absent", key=["id"])
    sink = table.sink()
    table.put(sink, [(1, "first"), (1, "second")], [(1, "third"), (2, "b")], batch_id=0)
    table.put(sink, [(1, "late"), (3, "c")], batch_id=1)
    assert content(table) == Counter([(1, "first"), (2, "b"), (3, "c")])
    assert table.verify(sink).ok


def test_a_table_that_is_all_key(target):
    table = target(write="upsert", key=["id", "name"])
    sink = table.sink()
    table.put(sink, [(1, "a"), (1, "b"), (1, "a")], batch_id=0)
    assert content(table) == Counter([(1, "a"), (1, "b")])
    assert table.verify(sink).ok


def test_replace_shows_the_newest_batch_only_even_an_empty_one(target):
    table = target(write="replace")
    sink = table.sink()
    first = table.put(sink, [(1, "a"), (1, "a")], batch_id=0)
    table.put(sink, [(2, "b")], batch_id=1)
    assert content(table) == Counter([(2, "b")])
    assert sink.publish(first.publication).already
    assert content(table) == Counter([(2, "b")])
    table.put(sink, batch_id=2)
    assert content(table) == Counter()
    assert table.verify(sink).ok


@ways("upsert", "insert_if_absent")
def test_the_marker_counts_what_is_there_through_any_history(target, options):
    seed = random.randrange(2**32)
    print("seed", seed)
    numbers = random.Random(seed)
    table = target(**options)
    sink, model = table.sink(), {}
    for batch_id in range(12):
        names = [GONE, *map(str, range(4))]
        attempts = [[(numbers.randrange(40), numbers.choice(names)) for _ in range(numbers.randrange(60))] for _ in range(2)]
        table.put(sink, *attempts, batch_id=batch_id)
        written(model, (row for rows in attempts for row in rows), options)
        assert content(table) == Counter(model.items())
        marked = table.sql("SELECT rows_after, digest_after FROM penstock_marker")
        expected = digest(row_hashes(as_batch(table.named(model.items()), table.rig.schema), NEWEST_ROW_DIGEST))
        assert marked == [(len(model), f"{expected:016x}")]
    assert table.verify(sink).ok


@pytest.mark.parametrize("seed", range(3))
def test_an_older_change_never_wins(target, seed):
    require_newest_stay(target(**IN_SEQUENCE), seed)


@pytest.mark.parametrize("kind", [kind for kind in ORDERED if not kind.startswith("decimal")])
def test_what_is_newer_is_compared_exactly(target, kind):
    require_ordered(target, kind)


def test_texts_are_newer_by_their_code_points_whatever_the_collation(target):
    require_ordered(target, "string", created=["CREATE TABLE t (id bigint PRIMARY KEY, name text, version text COLLATE NOCASE)"])


def test_texts_in_utf_16_put_rows_in_no_order(target):
    table = target(**{**IN_SEQUENCE, "schema": spark_schema(id="long", name="string", version="string")})
    with closing(sqlite3.connect(table.rig.path)) as connection, connection:
        connection.execute("PRAGMA encoding = 'UTF-16le'")
        connection.execute("CREATE TABLE t (id bigint PRIMARY KEY, name text, version text)")
    with pytest.raises(Refused, match="compared as UTF-8, and the SQLite file stores UTF-16le"):
        table.sink()


def test_a_row_without_a_sequence_is_older_than_every_other(target):
    table = target(**{**IN_SEQUENCE, "sequence_by": None})
    table.put(table.sink(), [(1, "a", None), (2, "b", None)], batch_id=0)
    table.rig.options["sequence_by"] = "VERSION"
    sink = table.sink()
    table.put(sink, [(1, "c", -(2**63))], batch_id=1)
    assert content(table, "SELECT * FROM t") == Counter([(1, "c", -(2**63)), (2, "b", None)])
    with pytest.raises(StageFailed, match="NULL in column 'version', which allows none"):
        table.put(sink, [(1, "d", None)], batch_id=2)
    assert table.verify(sink).ok


def test_a_batch_is_published_in_the_sequence_that_it_was_decided_with(target):
    table = target(**IN_SEQUENCE)
    table.put(table.sink(), [(1, "new", 7)], batch_id=0)
    late = table.decided_but_not_published(table.sink(), [(1, "late", 3)], batch_id=1)
    assert not table.rig.make(sequence_by=None).publish(late).already
    assert table.sql("SELECT name FROM t") == [("new",)]
    table.rig.options["sequence_by"] = None
    late = table.decided_but_not_published(table.sink(), [(1, "late", 3)], batch_id=2)
    assert not table.rig.make(sequence_by="version").publish(late).already
    assert table.sql("SELECT name FROM t") == [("late",)]
    assert table.verify(table.sink()).ok


def test_an_older_penstock_publishes_nothing_that_may_be_decided_with_a_sequence(target):
    """It would not look which row is newer, and refuses a marker of a newer format."""

    def formats():
        return [tuple(row) for row in table.sql("SELECT format_version FROM penstock_marker")]

    table = target(**{**IN_SEQUENCE, "sequence_by": None})
    table.put(table.sink(), [(1, "a", 7)], batch_id=0)
    assert formats() == [(2,)]
    early = table.decided_but_not_published(table.sink(), [(1, "b", 6)], batch_id=1)
    table.rig.options["sequence_by"] = "version"
    sink = table.sink()
    assert formats() == [(4,)]
    sink.publish(early)
    assert formats() == [(4,)]
    late = table.decided_but_not_published(sink, [(1, "c", 5)], batch_id=2)
    table.rig.options["sequence_by"] = None
    sink = table.sink()
    sink.publish(late)
    assert (table.sql("SELECT name FROM t"), formats()) == ([("b",)], [(4,)])
    table.put(sink, [(1, "d", 1)], batch_id=3)
    assert formats() == [(2,)]
    assert table.verify(sink).ok


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (
            {"version": "decimal(12,2)"},
            r"has the type decimal128\(12, 2\), expected a whole number, DATE, TIMESTAMP or STRING, which compare",
        ),
        ({"version": "double"}, "has the type double"),
        ({"version": "binary"}, "has the type binary"),
        ({"when": "long"}, "sequence_by names column 'version', but the rows have id, name, when"),
    ],
)
def test_a_column_that_puts_rows_in_no_order(target, columns, said):
    table = target(**{**IN_SEQUENCE, "schema": spark_schema(id="long", name="string", **columns)})
    with pytest.raises(Usage, match=said):
        table.sink()


@pytest.mark.parametrize("options", [{"write": "append"}, {**DELETING, "key": ["id"]}, {"write": "replace"}])
def test_a_sequence_where_no_older_row_could_be_told(target, options):
    with pytest.raises(Usage, match="`sequence_by` is for `write: upsert` without rows that delete"):
        target(**options, sequence_by="version").sink()


def test_a_row_of_the_user_that_is_replaced_must_be_readable(target):
    table = target(write="upsert", key=["id"])
    sink = table.sink()
    table.sql("INSERT INTO t VALUES (1, x'ff')")
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    with pytest.raises(PublishFailed, match=r"a row under a key of this batch .* column 'name'"):
        sink.publish(publication)
    table.sql("DELETE FROM t")
    assert not sink.publish(publication).already
    assert table.verify(sink).ok
