"""The trial of a table: what it finds out, what it refuses, and what it costs."""

import sqlite3
import sys
from collections import Counter

import pytest
from tests.conformance.test_dbapi_conformance import MysqlRig
from tests.unit.dbapi_target import TableRig, module
from tests.unit.table_target import SINK, content, spark_schema, targets_of

from penstock.errors import Refused, StageFailed
from penstock.sink.dbapi.sink import DbapiSink
from penstock.sink.dbapi.statements import CREATE_MARKER_TABLE
from penstock.testing.conformance import PIPELINE

targets = pytest.fixture(targets_of(TableRig))


@pytest.fixture
def statements(monkeypatch):
    """What the module `other_driver` sends to SQLite, with its values."""
    said = []

    def connect(**arguments):
        made = sqlite3.connect(**arguments)
        made.set_trace_callback(said.append)
        return made

    monkeypatch.setitem(sys.modules, "other_driver", module("other_driver", "qmark", connect=connect))
    return said


@pytest.mark.parametrize(
    ("declared", "kind", "said"),
    [
        ("name VARCHAR(2) CHECK (length(name) < 3)", "string", "column 'name' (string), value ':p1': CHECK constraint failed"),
        ("name DATE", "date", "a row of plain values: "),
        ("name DECIMAL(12, 2)", "decimal(12,2)", "a row of plain values: Error binding parameter 2"),
        ("name REAL", "long", "column 'name' (int64), value 9223372036854775807"),
        ("name TEXT", "long", "a row of plain values: column 'name': expected a stored int64"),
        ("name STRING", "string", "column 'name' (string), value '007': column 'name': expected str, found int"),
    ],
    ids=["short", "no dates", "no decimals", "rounding", "texts", "numbers out of texts"],
)
def test_a_column_that_does_not_give_back_what_it_got(targets, declared, kind, said):
    target = targets(schema=spark_schema(id="long", name=kind))
    target.sql(f"CREATE TABLE t (id BIGINT, {declared})")
    with pytest.raises(Refused) as refused:
        target.sink()
    assert f"Table 't' does not give back what is written into it: {said}" in refused.value.message
    assert target.sql("SELECT * FROM t") == []
    assert target.sql("SELECT * FROM penstock_dbapi_marker") == []


def test_a_table_that_cuts_values_in_silence(targets):
    """As MySQL does where it is not strict."""
    target = targets()
    cuts = "UPDATE t SET name = substr(name, 1, 2) WHERE rowid = new.rowid"
    target.sql("CREATE TABLE t (id BIGINT, name TEXT)", f"CREATE TRIGGER cut AFTER INSERT ON t BEGIN {cuts}; END")
    with pytest.raises(Refused, match=r"column 'name' \(string\), value ':p1': it came back changed"):
        target.sink()


def test_what_a_column_does_not_keep_is_refused_in_the_tasks(targets):
    target = targets(schema=spark_schema(id="long", name="string", number="double", raw="binary"))
    target.sql("CREATE TABLE t (id BIGINT, name TEXT CHECK (length(name) <= 10), number REAL NOT NULL, raw BLOB)")
    sink, fine = target.sink(), (1, "\U0001f600" * 10, float("inf"), b"x" * 50)
    target.put(sink, [fine], batch_id=0)
    for wrong, said in [
        ((2, "x" * 11, 1.0, b""), "11 characters in column 'name', which takes 10"),
        ((2, "x", float("nan"), b""), "NaN in column 'number', which does not come back"),
        ((2, "x", None, b""), "NULL in column 'number', which allows none"),
        ((2, "x", 1.0, b"x" * 51), "51 bytes in column 'raw', which takes 50"),
    ]:
        with pytest.raises(StageFailed, match=said):
            target.put(sink, [wrong], batch_id=1)
    assert target.sql("SELECT * FROM t") == [fine]


def test_a_table_is_tried_once_for_each_shape_of_rows(targets):
    target = targets()
    target.sink()
    seen = "CREATE TRIGGER seen BEFORE INSERT ON t BEGIN SELECT RAISE(ABORT, 'tried again'); END"
    target.sql(seen)
    target.sink()
    with pytest.raises(Refused, match="tried again"):
        target.rig.make(longest=51).prepare(pipeline=PIPELINE, schema=target.rig.schema)


@pytest.mark.parametrize("declared", ["BIGINT", "BIGINT NOT NULL PRIMARY KEY"])
def test_the_trial_reads_the_table_a_few_times_however_many_columns_it_has(targets, statements, declared):
    columns = {f"{kind}{at}": kind for kind in ("string", "double", "binary") for at in range(5)}
    target = targets(driver="other_driver", schema=spark_schema(id="long", **columns), columns={"id": declared})
    target.sink()
    read = [one for one in statements if one.startswith('SELECT "id", "string0"')]
    assert 0 < len(read) <= 16  # SQLite keeps no NaN, which is told column by column


@pytest.mark.parametrize("options", [{}, {"write": "insert_if_absent", "key": ["id"]}], ids=["append", "by key"])
def test_a_table_that_has_keys_of_the_trial_already(targets, options):
    target = targets(**options)
    target.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT)", "INSERT INTO t VALUES (7, 'a'), (0, 'b'), (1, 'c')")
    sink = target.sink()
    target.put(sink, [(2, "d")], batch_id=0)
    assert content(target) == Counter([(7, "a"), (0, "b"), (1, "c"), (2, "d")])
    assert target.verify(sink).ok


def test_values_that_are_too_long_only_together_are_kept(targets):
    target = targets(schema=spark_schema(id="long", name="string", more="string"))
    target.sql("CREATE TABLE t (id BIGINT, name TEXT, more TEXT, CHECK (length(name) + length(more) < 60))")
    sink, rows = target.sink(), [(1, "x" * 50, "y"), (2, "x", "y" * 50)]
    target.put(sink, rows, batch_id=0)
    assert target.sql("SELECT * FROM t") == rows


def test_no_more_is_tried_at_once_than_a_server_takes(targets, statements, monkeypatch):
    """A server ends the connection otherwise, and what went wrong could not be told from a server that is away."""
    monkeypatch.setattr("penstock.sink.dbapi.trial._BYTES_AT_ONCE", 1_000)
    texts = {f"text{at}": "string" for at in range(12)}
    targets(driver="other_driver", schema=spark_schema(id="long", **texts)).sink()
    sent = [one.count("\U0001f600") for one in statements if one.startswith("INSERT OR ABORT INTO")]
    assert [number for number in sent if number >= 50] == [250, 250, 100]


def test_a_database_that_commits_by_itself_is_refused_before_the_table_is_touched(targets):
    target = targets()
    target.sql("CREATE TABLE t (id BIGINT, name TEXT)")
    sink = target.rig.make(connect={"database": str(target.rig.path), "isolation_level": None})
    with pytest.raises(Refused, match="The database keeps what was rolled back, seen in penstock_dbapi_batch and "):
        sink.prepare(pipeline=PIPELINE, schema=target.rig.schema)
    assert target.sql("SELECT * FROM t") == target.sql("SELECT * FROM penstock_dbapi_batch") == []


def test_a_marker_without_transactions_is_refused(tmp_path):
    """MyISAM, beside rows of InnoDB: it would stand for rows that were rolled back."""
    rig = MysqlRig(tmp_path)
    rig.execute(f"{CREATE_MARKER_TABLE} ENGINE=MyISAM")
    sink = DbapiSink(name=SINK, spool=str(tmp_path / "spool"), driver="pymysql", connect=rig.arguments, table="t", longest=50)
    with pytest.raises(Refused, match="keeps what was rolled back, seen in penstock_dbapi_marker: rows and marker could not"):
        sink.prepare(pipeline=PIPELINE, schema=spark_schema(id="long", name="string"))
    sink.close()
    assert rig.execute("SELECT * FROM penstock_dbapi_marker") == 0


@pytest.mark.parametrize("options", [{}, {"write": "insert_if_absent", "key": ["id"]}], ids=["append", "by key"])
def test_a_table_that_lost_its_transactions_since_it_was_tried_is_refused(tmp_path, options):
    rig = MysqlRig(tmp_path)
    rig.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR(100))")
    filling = {"driver": "pymysql", "connect": rig.arguments, "table": "t", "longest": 50, **options}
    sink = DbapiSink(name=SINK, spool=str(tmp_path / "spool"), **filling)
    schema = spark_schema(id="long", name="string")
    sink.prepare(pipeline=PIPELINE, schema=schema)
    rig.execute("INSERT INTO t VALUES (7, 'as in the trial')")
    sink.prepare(pipeline=PIPELINE, schema=schema)
    rig.execute("ALTER TABLE t ENGINE=MyISAM")
    with pytest.raises(Refused, match="Table 't' keeps what was rolled back"):
        sink.prepare(pipeline=PIPELINE, schema=schema)
    sink.close()


def test_a_table_without_transactions_is_refused(tmp_path):
    """MyISAM, beside markers of InnoDB."""
    import pymysql

    rig = MysqlRig(tmp_path)
    with pymysql.connect(**rig.arguments, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id BIGINT, name VARCHAR(100)) ENGINE=MyISAM")
    sink = DbapiSink(name=SINK, spool=str(tmp_path / "spool"), driver="pymysql", connect=rig.arguments, table="t", longest=50)
    with pytest.raises(Refused, match=r"Table 't' (keeps what was rolled back|does not give back)"):
        sink.prepare(pipeline=PIPELINE, schema=spark_schema(id="long", name="string"))
    sink.close()
