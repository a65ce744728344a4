"""What only the sink for DuckDB does: types as they are, a file that is closed in between, and its refusals before a decision."""

import json
import os
import resource
import subprocess
import sys
from contextlib import closing

import duckdb
import pyarrow as pa
import pytest
from tests.unit.duckdb_target import TableRig, targets
from tests.unit.table_target import SINK, TableBench, spark_schema

from penstock.core.model import RowDigest
from penstock.core.row_hash import row_hashes
from penstock.errors import OutcomeUnknown, PublishFailed, Refused, Retryable, StageFailed, Usage
from penstock.sink.duckdb.database import Database, is_conflict
from penstock.sink.duckdb.storage import RowValidator, restored, stored
from penstock.testing.conformance import PIPELINE

target = pytest.fixture(targets)

HOSTILE = ['a "quoted" one', "select", "sp ace", "semi;colon", "per%cent", "é", "a'b", "$name", "--", "rows", "penstock_row"]
LEAST, MOST = -(1 << 63), (1 << 63) - 1
TIMES = pa.array([LEAST, -1, MOST, None], pa.int64())
DAYS = pa.array([-(1 << 31), 0, (1 << 31) - 1, None], pa.int32())
COLUMNS = {
    "float": pa.array([float("nan"), float("-inf"), 1.5, None], pa.float32()),
    "double": pa.array([float("nan"), -0.0, 5e-324, None]),
    "decimal(38,10)": pa.array(["9" * 28 + "." + "9" * 10, "-0.0000000001", "0", None]).cast(pa.decimal128(38, 10)),
    "string": pa.array(["a\0b", "", "ü😀", None]),
    "binary": pa.array([b"\0\xff", b"", b"x", None]),
    "date": DAYS.view(pa.date32()),
    "timestamp": TIMES.view(pa.timestamp("us", "UTC")),
    "timestamp_ntz": TIMES.view(pa.timestamp("us")),
    "time(6)": pa.array([0, 1, 86_399_999_999_999, None], pa.int64()).view(pa.time64("ns")),
    "interval day to second": TIMES.view(pa.duration("us")),
    "void": pa.nulls(4),
    "list": pa.array([[LEAST, None], [], [MOST], None], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("us", "UTC"))),
    "struct": pa.array([{"a": 5, "b": ["x", None]}, {"a": None, "b": None}, {"a": -1, "b": []}, None]).cast(
        pa.struct([("a", pa.duration("us")), ("b", pa.list_(pa.string()))])
    ),
    "map": pa.array([[("k", 1.0), ("j", None)], [], [("", float("nan"))], None], pa.map_(pa.string(), pa.float64())),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_every_value_comes_back_as_it_was(name):
    rows = pa.RecordBatch.from_arrays([COLUMNS[name]], names=["x"])
    kept = stored(rows)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'Asia/Tokyo'")
        connection.register("incoming", kept)
        connection.execute("CREATE TABLE t AS SELECT * FROM incoming")
        (found,) = connection.execute("SELECT * FROM t").to_arrow_reader(1000)
    back = pa.RecordBatch.from_arrays([restored(found.column(0), COLUMNS[name].type)], names=["x"])
    assert list(row_hashes(back, RowDigest.XXHASH64_NULLS)) == list(row_hashes(rows, RowDigest.XXHASH64_NULLS))
    assert back.column(0).null_count == rows.column(0).null_count


def test_hostile_names(target):
    table = target(schema=spark_schema(**dict.fromkeys(HOSTILE, "long")), table='a "t;" --', write="upsert", key=[HOSTILE[0]])
    sink = table.sink()
    table.put(sink, [tuple(range(len(HOSTILE)))], batch_id=0)
    assert table.verify(sink).ok
    assert table.sql('SELECT * FROM "a ""t;"" --"') == [tuple(range(len(HOSTILE)))]


def test_offsets_are_told_in_plain_sql(target):
    table = target()
    table.put(table.sink(), [(1, "a")], batch_id=0)
    ((name, source, end),) = table.sql("SELECT table_name, source, end_offset FROM penstock_offsets")
    assert (name, source) == ("t", "rows")
    assert json.loads(end) is not None


# --- a file that others use, too


def other_process(path):
    """One that holds the file open until it is told to end."""
    code = f"import duckdb, sys\nheld = duckdb.connect({str(path)!r})\nprint('open', flush=True)\nsys.stdin.readline()"
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_others_read_between_publications_and_the_sink_waits_for_them(target):
    table = target()
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    publication = table.decided_but_not_published(sink, [(2, "b")], batch_id=1)
    with other_process(table.rig.path) as other:
        assert other.stdout.readline() == "open\n"
        with pytest.raises(Retryable, match=r"is open elsewhere: .*Conflicting lock"):
            sink.publish(publication)
        other.stdin.write("\n")
        other.stdin.close()
        assert other.wait() == 0
    assert not sink.publish(publication).already
    assert sorted(table.sql("SELECT * FROM t")) == [(1, "a"), (2, "b")]


def test_a_connection_of_another_kind_in_this_process_is_waited_for(target):
    table = target()
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    with duckdb.connect(table.rig.path, read_only=True), pytest.raises(Retryable, match="different configuration"):
        sink.publish(publication)
    assert not sink.publish(publication).already


def test_another_transaction_of_this_process_is_in_the_way(target):
    table = target(write="upsert", key=["id"])
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    publication = table.decided_but_not_published(sink, [(1, "b")], batch_id=1)
    with duckdb.connect(table.rig.path) as other:
        other.execute("BEGIN")
        other.execute("UPDATE t SET name = 'c' WHERE id = 1")
        with pytest.raises(Retryable, match="Publishing into table 't' conflicted with another session 5 times"):
            sink.publish(publication)
        other.execute("ROLLBACK")
    assert sink.conflicts == 5
    assert not sink.publish(publication).already
    assert table.sql("SELECT * FROM t") == [(1, "b")]


def test_a_transaction_that_lost_at_its_commit_shows_no_values_of_rows(target, monkeypatch, caplog):
    table = target(schema=spark_schema(name="string", n="long"), write="upsert", key=["name"])
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [("of a person", 1)], batch_id=0)
    commit = sink._commit

    def late(connection):
        if not sink.conflicts:
            with duckdb.connect(table.rig.path) as other:
                other.execute("INSERT INTO t VALUES ('of a person', 2)")
        commit(connection)

    monkeypatch.setattr(sink, "_commit", late)
    assert not sink.publish(publication).already
    assert sink.conflicts == 1
    assert "constraint violation: duplicate key" in caplog.text
    assert "of a person" not in caplog.text
    assert table.sql("SELECT * FROM t") == [("of a person", 1)]


def test_a_disk_that_is_full_at_the_commit_is_named(target):
    """DuckDB tells of it as of a transaction that lost, which would be run again in vain."""
    table = target()
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a" * 60_000)], batch_id=0)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, limits[1]))
    try:
        with pytest.raises(OutcomeUnknown, match=r"Could not write file .*File too large"):
            sink.publish(publication)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert sink.conflicts == 0
    assert not sink.publish(publication).already
    assert table.sql("SELECT id FROM t") == [(1,)]


@pytest.mark.parametrize(
    ("said", "conflict"),
    [
        ('Failed to commit: PRIMARY KEY or UNIQUE constraint violation: duplicate key "1"', True),
        ('Catalog write-write conflict on create with "t"', True),
        ("Conflict on tuple deletion!", True),
        ("Attempting to modify table t but another transaction has altered this table", True),
        ('Failed to commit: Could not write file "/data/conflicts/a.duckdb.wal": No space left on device', False),
    ],
)
def test_which_transactions_lost_to_another(said, conflict):
    assert is_conflict(duckdb.TransactionException(f"TransactionContext Error: {said}")) == conflict


def test_a_disk_that_is_full_before_a_publication_is_named(target):
    database = Database(target().rig.path)
    with pytest.raises(PublishFailed, match="the disk is full"), database.translate_errors(PublishFailed, runs_again=True):
        raise duckdb.TransactionException("TransactionContext Error: Failed to commit: No space left on device")


def test_a_file_that_is_gone_is_not_made_anew(target):
    table = target()
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    publication = table.decided_but_not_published(sink, [(2, "b")], batch_id=1)
    aside = table.rig.path.rename(table.rig.path.with_name("aside"))
    with pytest.raises(PublishFailed, match="is gone"):
        sink.publish(publication)
    assert not table.rig.path.exists()
    aside.rename(table.rig.path)
    assert not sink.publish(publication).already


def test_a_file_that_is_no_database(target):
    table = target()
    table.rig.path.write_bytes(b"no database" * 1000)
    with pytest.raises(PublishFailed.__base__, match="cannot be used as a database"):
        table.sink()
    (finding,) = table.rig.make().check()
    assert not finding.ok


def test_check_says_what_is_there(target, tmp_path):
    table = target()
    (before,) = table.rig.make().check()
    table.put(table.sink(), [(1, "a")], batch_id=0)
    (after,) = table.rig.make().check()
    assert (before.ok, before.message) == (True, "table t will be created")
    assert (after.ok, after.message) == (True, f"table t with 2 columns in {os.path.realpath(table.rig.path)}")
    (nowhere,) = table.rig.make(path=tmp_path / "nowhere" / "x.duckdb").check()
    assert not nowhere.ok
    assert "cannot be created" in nowhere.message


def test_nothing_is_made_before_the_rows_are_known(target):
    table = target()
    sink = table.rig.make()
    sink.prepare(pipeline=PIPELINE, schema=None)
    assert sink.high_water_mark("", pipeline=PIPELINE) is None
    assert not table.rig.path.exists()


# --- refused before anything is decided

BY_ID = {"write": "upsert", "key": ["id"]}
BY_NAME = {"write": "upsert", "key": ["name"]}
UNFIT = {
    "view": ("CREATE VIEW t AS SELECT 1::BIGINT AS id, '' AS name", {}, "is a view"),
    "type": ("CREATE TABLE t (id INTEGER, name VARCHAR)", {}, "Column 'id' of table 't' is INTEGER, .* expected BIGINT"),
    "missing": ("CREATE TABLE t (id BIGINT)", {}, "missing in the table: name"),
    "no key": ("CREATE TABLE t (id BIGINT, name VARCHAR)", BY_ID, r'no unique index on exactly \("id"\)'),
    "generated": ("CREATE TABLE t (id BIGINT, name VARCHAR AS ('x'))", {}, r"cannot be written .* generated column"),
    "collation": (
        "CREATE TABLE t (id BIGINT, name VARCHAR COLLATE NOCASE PRIMARY KEY)",
        BY_NAME,
        "takes different texts for equal",
    ),
    "required": ("CREATE TABLE t (id BIGINT, name VARCHAR, more BIGINT NOT NULL)", {}, "without a default: more"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_a_table_that_does_not_fit(target, case):
    statement, options, said = UNFIT[case]
    table = target(**options)
    table.sql(statement)
    with pytest.raises(Refused, match=said):
        table.sink()


def test_a_column_that_somebody_altered_is_told_by_both_types(target):
    """Arrow names a function of its own there."""
    table = target(schema=spark_schema(id="long", name="double"))
    sink = table.sink()
    table.put(sink, [(1, 0.5)], batch_id=0)
    table.sql("ALTER TABLE t ALTER name TYPE VARCHAR")
    (problem,) = table.verify(sink).problems
    assert problem.message == "Table 't': column 'name': expected values of type double, found string."


def test_a_column_that_somebody_altered_is_altered_back_as_the_refusal_says(target):
    """A cast of the rows to the column's type would be refused in turn: it is not the type that was published."""
    table = target(schema=spark_schema(id="long", name="double"))
    sink = table.sink()
    shown = table.put(sink, [(1, 0.5)], batch_id=0)
    table.sql("ALTER TABLE t ALTER name TYPE VARCHAR")
    with pytest.raises(Refused, match="is VARCHAR") as refused:
        table.sink()
    assert refused.value.remedy.startswith("If somebody altered the column since rows were published there")
    table.sql(refused.value.remedy.partition("run `")[2].partition("`")[0])
    assert table.verify(table.sink(), ledger=[shown]).ok


def test_the_statement_that_makes_a_missing_key_works_as_it_is_shown(target):
    table = target(**BY_ID)
    table.sql("CREATE TABLE t (id BIGINT, name VARCHAR)")
    with pytest.raises(Refused) as refused:
        table.sink()
    table.sql(refused.value.remedy.split("`")[1])
    table.sink()


def test_a_table_that_is_not_to_be_created(target):
    table = target(create=False)
    table.sql("SELECT 1")
    with pytest.raises(Refused, match="There is no table 't'"):
        table.sink()


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ({"a": "long", "A": "long"}, {}, "have column 'a' twice"),
        ({"": "long"}, {}, "without a name"),
        ({"a": "long"}, {"table": "PENSTOCK_marker"}, "is Penstock's own"),
        ({"a": "long"}, {"table": "Penstock_stage"}, "is Penstock's own"),
        ({"a": {"type": "array", "elementType": "void", "containsNull": True}}, {}, "Column 'a' holds a list"),
        ({"a": {"type": "struct", "fields": []}}, {}, "Column 'a' has a type that DuckDB lacks"),
        ({"a": "long"}, {"write": "upsert", "key": ["b"]}, "The key names column 'b'"),
    ],
)
def test_rows_that_no_table_could_hold(target, columns, options, said):
    with pytest.raises(Usage, match=said):
        target(schema=spark_schema(**columns), **options).sink()


def test_a_key_that_cannot_be_one(target):
    columns = {"a": {"type": "array", "elementType": "long", "containsNull": True}}
    with pytest.raises(Refused, match="Invalid type for index key"):
        target(schema=spark_schema(**columns), write="upsert", key=["a"]).sink()


def test_a_null_where_none_may_be(target):
    table = target(write="upsert", key=["ID"])
    with pytest.raises(StageFailed, match="NULL in column 'id'"):
        table.put(table.sink(), [(None, "a")], batch_id=0)


def test_a_memory_database_is_refused(tmp_path):
    with pytest.raises(Usage, match="lost at exit"):
        TableRig(tmp_path).make(path=":memory:")


@pytest.mark.parametrize("sign", ["#", "%41", "&b=c", " "])
def test_signs_of_urls_in_a_path_are_signs_of_the_path(tmp_path, sign):
    folder = tmp_path / f"a{sign}b"
    folder.mkdir()
    with closing(TableBench(TableRig(folder))) as table:
        sink = table.sink()
        table.put(sink, [(1, "a")], batch_id=0)
        assert table.verify(sink).ok
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


def test_a_path_that_duckdb_cuts_at_a_question_mark_is_refused(tmp_path):
    """The database would be in one place, and its log in another."""
    with pytest.raises(Usage, match=r"has a \? in its name, at which DuckDB cuts the path of its log"):
        Database(str(tmp_path / "a?b" / "c.duckdb"))
    Database(str(tmp_path / "c?d.duckdb"))


@pytest.mark.parametrize("moment", [LEAST, LEAST + 1, -9_223_372_022_400_000_001, MOST])
@pytest.mark.parametrize(
    "made",
    [
        pytest.param(lambda column: column, id="plain"),
        pytest.param(lambda column: pa.ListArray.from_arrays([0, 1], column), id="list"),
        pytest.param(lambda column: pa.StructArray.from_arrays([column], ["a"]), id="struct"),
        pytest.param(lambda column: pa.MapArray.from_arrays([0, 1], pa.array(["k"]), column), id="map"),
    ],
)
def test_the_ends_of_the_calendar_are_refused_at_any_depth(made, moment):
    """To DuckDB they are infinity, or it cannot show them."""
    admission = RowValidator(sink=SINK, table="t", required=frozenset())
    with pytest.raises(StageFailed, match="outside what DuckDB holds"):
        admission(pa.record_batch({"x": made(pa.array([moment]).view(pa.timestamp("us")))}))
    admission(pa.record_batch({"x": made(pa.array([MOST - 1]).view(pa.timestamp("us")))}))
