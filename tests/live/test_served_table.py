"""What each way of writing leaves in the user's table, and what is remembered of it: the same in every such database."""

import itertools
import random
import sys
from collections import Counter

import pytest
from tests.unit.served_target import every_target
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

from penstock.errors import PublishFailed, Refused, StageFailed, Usage
from penstock.testing.conformance import PIPELINE

target = pytest.fixture(every_target, params=["duckdb", "mysql", "postgres", "redshift"])


def test_rows_that_were_there_before_are_left_alone_and_do_not_count(target):
    table = target()
    table.sql(f"CREATE TABLE t (id bigint, name {table.rig.text})", "INSERT INTO t VALUES (7, 'theirs')")
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    report = table.verify(sink)
    assert report.ok, report
    assert Counter(table.sql("SELECT id, name FROM t")) == Counter([(7, "theirs"), (1, "a")])


def test_a_table_belongs_to_one_sink(target):
    table = target()
    table.sink()
    other = table.rig.make()
    other._name = "another"
    with pytest.raises(Refused, match="is filled by sink 'warehouse'"):
        other.prepare(pipeline=PIPELINE, schema=table.rig.schema)


SPELLINGS = {
    "postgres": ("public.t", '"t"', 'public."t"'),
    "redshift": ("public.t", '"t"', "PUBLIC.T"),
    "sqlserver": ("dbo.t", '"t"', '"dbo"."t"'),
}


@pytest.mark.parametrize(
    ("target", "spelled"), [(kind, name) for kind, names in SPELLINGS.items() for name in names], indirect=["target"]
)
def test_a_table_belongs_to_one_sink_however_it_is_named(target, spelled):
    table = target()
    table.put(table.sink(), [(1, "a")], batch_id=0)
    other = table.rig.make(table=spelled)
    other._name = "another"
    with pytest.raises(Refused, match="is filled by sink 'warehouse'"):
        other.prepare(pipeline=PIPELINE, schema=table.rig.schema)
    assert table.verify(table.rig.make(table=spelled)).ok


def test_new_columns_may_come_in(target):
    table = target()
    table.put(table.sink(), [(1, "a")], batch_id=0)
    table.sql("ALTER TABLE t ADD COLUMN more bigint")
    table.rig.schema = spark_schema(id="long", name="string", more="long")
    table.columns = ["id", "name", "more"]
    sink = table.sink()
    table.put(sink, [(2, "b", 3)], batch_id=1)
    assert table.verify(sink).ok


@pytest.mark.parametrize("write", ["append", "upsert", "replace"])
def test_names_are_taken_as_they_are(target, write):
    """Nothing in them is SQL, and nothing a place for a value."""
    signs = "{file} 'so' `too` 100% %s ;--"
    columns = spark_schema(**{"id": "long", f'"quoted" {signs}': "string"})
    table = target(schema=columns, table=f"t {signs}", write=write, **({"key": ["id"]} if write == "upsert" else {}))
    sink = table.sink()
    table.put(sink, [(1, "a"), (2, None)], batch_id=0)
    report = table.verify(sink)
    assert report.ok, report
    [account] = report.accounts.values()
    assert account.found.rows == 2


@ways("upsert", "insert_if_absent")
@pytest.mark.parametrize("seed", range(3))
def test_keys_that_come_again_and_again(target, options, seed):
    """Against a dictionary: several rows of one key in a batch and in others, in their frozen order."""
    chance = random.Random(seed)
    table = target(**options)
    sink, expected = table.sink(), {}
    for number in range(3):
        named = [[chance.choice([GONE, f"{number}-{part}-{at}"]) for at in range(40)] for part in range(2)]
        attempts = [[(chance.randrange(30), name) for name in names] for names in named]
        table.put(sink, *attempts, batch_id=number)
        written(expected, itertools.chain(*attempts), options)
    assert dict(table.sql("SELECT id, name FROM t")) == expected
    report = table.verify(sink)
    assert report.ok, report


@pytest.mark.parametrize("seed", range(2))
def test_an_older_change_never_wins(target, seed):
    require_newest_stay(target(**IN_SEQUENCE), seed)


@pytest.mark.parametrize("kind", [kind for kind in ORDERED if kind != "string"])
def test_what_is_newer_is_compared_exactly(target, kind):
    require_ordered(target, kind)


COLLATED = (
    ("duckdb", "varchar COLLATE NOCASE"),
    ("mysql", "longtext COLLATE utf8mb4_general_ci"),
    ("mysql", "longtext COLLATE utf8mb4_bin"),
    ("postgres", 'text COLLATE "en-x-icu"'),
)


@pytest.mark.parametrize("target", ["duckdb", "mysql", "postgres"], indirect=True)
def test_texts_are_newer_by_their_code_points(target):
    require_ordered(target, "string")


@pytest.mark.parametrize(
    ("target", "collated"), COLLATED, ids=lambda given: str(given).rpartition(" ")[2].strip('"'), indirect=["target"]
)
def test_texts_are_newer_by_their_code_points_whatever_the_collation(target, collated):
    kind = collated.partition(" ")[0]
    require_ordered(target, "string", created=[f"CREATE TABLE t (id bigint PRIMARY KEY, name {kind}, version {collated})"])


@pytest.mark.parametrize("target", ["mysql"], indirect=True)
def test_a_text_of_which_a_sort_compares_only_a_part_is_refused(target):
    table = target(**{**IN_SEQUENCE, "schema": spark_schema(id="long", name="string", version="string")})
    sink, most = table.sink(), "ä" * 2047
    table.put(sink, [(1, "new", most + "zb"), (1, "old", most + "za")], batch_id=0)
    assert table.sql("SELECT name FROM t") == [("new",)]
    with pytest.raises(StageFailed, match=r"4097 bytes in column 'version'"):
        table.put(sink, [(1, "newer", most + "zbc")], batch_id=1)


@pytest.mark.parametrize("target", ["redshift"], indirect=True)
def test_texts_whose_order_nobody_knows_are_refused(target):
    table = target(**{**IN_SEQUENCE, "schema": spark_schema(id="long", name="string", version="string")})
    with pytest.raises(Usage, match="has the type string, expected a whole number, DATE, TIMESTAMP or DECIMAL, which compare"):
        table.sink()


def test_a_row_without_a_sequence_is_older_than_every_other(target):
    """The column came later, and a batch is published as it was decided."""
    table = target(write="upsert", key=["id"])
    table.put(table.sink(), [(1, "a"), (2, "b")], batch_id=0)
    table.sql("ALTER TABLE t ADD COLUMN version bigint")
    table.rig.schema, table.columns = IN_SEQUENCE["schema"], ["id", "name", "version"]
    table.rig.options["sequence_by"] = "version"
    sink = table.sink()
    table.put(sink, [(1, "c", -(2**63) + 1)], batch_id=1)
    with pytest.raises(StageFailed, match="NULL in column 'version', which allows none"):
        table.put(sink, [(1, "d", None)], batch_id=2)
    late = table.decided_but_not_published(sink, [(1, "late", -(2**63)), (2, "e", 1)], batch_id=2)
    other = table.rig.make(sequence_by=None)
    assert not other.publish(late).already
    other.close()
    assert content(table) == Counter([(1, "c"), (2, "e")])
    assert table.verify(sink).ok


@pytest.mark.parametrize("target", ["mysql", "postgres"], indirect=True)
def test_a_newer_row_that_another_session_writes_meanwhile_stays(target, monkeypatch):
    """It comes after the batch was compared with the table, and before its rows are locked."""
    table = target(**IN_SEQUENCE)
    sink = table.sink()
    table.put(sink, [(1, "a", 1)], batch_id=0)
    loading = sys.modules[f"penstock.sink.{table.rig.kind}.load"]
    compared, theirs = loading.take_out_outdated, iter(["INSERT INTO t (id, name, version) VALUES (2, 'theirs', 9)"])

    def overtaken(*given):
        outdated = compared(*given)
        for statement in itertools.islice(theirs, 1):
            table.sql(statement)
        return outdated

    monkeypatch.setattr(loading, "take_out_outdated", overtaken)
    table.put(sink, [(1, "b", 2), (2, "ours", 5)], batch_id=1)
    assert content(table) == Counter([(1, "b"), (2, "theirs")])
    assert sink.conflicts == 1
    table.sql("DELETE FROM t WHERE id = 2")
    assert table.verify(sink).ok


def test_of_a_row_that_deletes_only_the_key_has_to_fit(target):
    table = target(schema=spark_schema(id="long", name="string", size="double"), key=["id"], **DELETING)
    table.sql(f"CREATE TABLE t (id bigint PRIMARY KEY, name {table.rig.text} NOT NULL, size double precision NOT NULL)")
    sink = table.sink()
    table.put(sink, [(1, "a", 0.5), (2, "b", 1.5)], batch_id=0)
    shown = table.put(sink, [(1, GONE, None), (3, GONE, None), (2, "c", 1.5)], batch_id=1)
    assert table.sql("SELECT id, name FROM t") == [(2, "c")]
    assert sink.publish(shown.publication).already
    assert table.verify(sink).ok
    with pytest.raises(StageFailed, match="NULL in column 'id'"):
        table.put(sink, [(None, GONE, 0.5)], batch_id=2)


def test_rows_that_are_keys_alone_and_rows_that_do_not_change(target):
    table = target(schema=spark_schema(id="long"), write="upsert", key=["id"])
    sink = table.sink()
    table.put(sink, [(1,), (2,)], batch_id=0)
    table.put(sink, [(2,), (3,), (3,)], batch_id=1)
    assert table.sql("SELECT id FROM t ORDER BY id") == [(1,), (2,), (3,)]
    assert table.verify(sink).ok


def test_a_foreign_row_that_is_replaced_does_not_count_twice(target):
    table = target(write="upsert", key=["id"])
    sink = table.sink()
    table.put(sink, [(1, "a"), (2, "b")], batch_id=0)
    table.sql("UPDATE t SET name = 'changed' WHERE id = 1")
    assert not table.verify(sink).ok
    table.sql("UPDATE t SET name = 'a' WHERE id = 1")
    table.put(sink, [(1, "c")], batch_id=1)
    assert table.verify(sink).ok


def test_replace_shows_the_last_batch_and_an_empty_one_shows_nothing(target):
    table = target(write="replace")
    sink = table.sink()
    table.put(sink, [(1, "a"), (2, "b")], batch_id=0)
    table.put(sink, [(3, "c")], batch_id=1)
    assert table.sql("SELECT id, name FROM t") == [(3, "c")]
    table.put(sink, batch_id=2)
    assert table.sql("SELECT id, name FROM t") == []
    assert table.verify(sink).ok


def test_presence_is_remembered_and_nothing_else_is_read(target):
    table = target()
    assert table.rig.make().high_water_mark("", pipeline=PIPELINE) is None
    sink = table.sink()
    shown = table.put(sink, [(1, "a")], batch_id=0)
    assert sink.high_water_mark("", pipeline=PIPELINE).position == shown.publication.position
    assert sink.high_water_mark("other", pipeline=PIPELINE) is None


def test_check_says_what_will_happen(target):
    table = target()
    assert [finding.message for finding in table.rig.make().check()] == ["table t will be created"]
    assert not table.rig.make(create=False).check()[0].ok
    table.sink()
    [finding] = table.rig.make().check()
    assert finding.ok
    assert f"table t with 2 columns in {table.rig.where}" in finding.message


def test_a_table_of_markers_that_was_removed_is_told_as_a_marker_is(target):
    table = target()
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    table.sql("DROP TABLE penstock_marker CASCADE")
    with pytest.raises(PublishFailed, match="has no marker of pipeline"):
        sink.publish(publication)
    assert table.sql("SELECT id, name FROM t") == []


def test_bad_rows_fail_before_anything_is_decided(target):
    table = target(write="upsert", key=["id"])
    with pytest.raises(StageFailed, match="NULL in column 'id'"):
        table.stage(table.sink(), table.named([(1, "a"), (None, "b")]), batch_id=0)
    assert Counter(table.sql("SELECT id, name FROM t")) == Counter()


def test_an_older_copy_under_a_run_that_goes_on_is_noticed(target):
    """Restored, or taken over by a standby that lacked the newest batch: the next one would hide what is missing for ever."""
    table = target()
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    table.sql("CREATE TABLE copy AS SELECT * FROM penstock_marker")
    table.put(sink, [(2, "b")], batch_id=1)
    table.sql("DELETE FROM t WHERE id = 2", "DELETE FROM penstock_marker", "INSERT INTO penstock_marker SELECT * FROM copy")
    with pytest.raises(Refused, match="stands at position 2 of the ledger, but this run published there up to position 3"):
        table.put(sink, [(3, "c")], batch_id=2)
    assert Counter(table.sql("SELECT id, name FROM t")) == Counter([(1, "a")])
