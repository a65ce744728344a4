"""The dbapi sink where it differs from the others: drivers, parameters, quoting, and the trial of a table."""

import sqlite3
import sys
import threading
from collections import Counter
from contextlib import closing
from types import ModuleType

import pytest
from tests.conformance.test_dbapi_conformance import MysqlRig
from tests.servers.fixtures import server, unique
from tests.unit.table_target import SINK, spark_schema, targets_of

from penstock.errors import DependencyMissing, LedgerMismatch, PublishFailed, Refused, Retryable, StageFailed, Usage
from penstock.run.assembly import sinks_of
from penstock.run.pipeline import Pipeline
from penstock.sink.dbapi.sink import DbapiSink
from penstock.sink.dbapi.sql import STYLES, Value, statement
from penstock.sink.dbapi.statements import CREATE_MARKER_TABLE
from penstock.testing.conformance import PIPELINE, SinkRig


class TableRig(SinkRig):
    """Over sqlite3, or another module that is one with other manners."""

    def __init__(self, directory, *, schema=None, table="t", driver="sqlite3", **options):
        super().__init__(directory)
        self.schema = schema or spark_schema(id="long", name="string")
        self.path, self.driver, self.options = directory / "data.db", driver, {"longest": 50, "table": table, **options}

    def make(self, **changed):
        connect = {"database": str(self.path), "timeout": 0.1, "check_same_thread": False}
        given = {"driver": self.driver, "connect": connect, **self.options, **changed}
        return DbapiSink(name=SINK, spool=str(self.directory / "spool"), **given)

    def read_back(self):
        return self.sql('SELECT * FROM "t"')

    def sql(self, *statements):
        with closing(sqlite3.connect(self.path)) as connection, connection:
            for one in statements:
                rows = connection.execute(one).fetchall()
        return rows


targets = pytest.fixture(targets_of(TableRig))
server_url = pytest.fixture(lambda: server("mysql").database(unique("dbapi")))


def module(name, style, **changed):
    """sqlite3 under another name, which takes parameters in another style."""
    made = ModuleType(name)
    vars(made).update({key: value for key, value in vars(sqlite3).items() if not key.startswith("_")})
    vars(made).update({"paramstyle": style, **changed})
    return made


class Cursor(sqlite3.Cursor):
    """Takes what `format`, `pyformat` and `numeric` say, and doubles of percent signs."""

    def execute(self, text, values=()):
        return super().execute(*translated(text, values))

    def executemany(self, text, rows):
        for values in rows:
            self.execute(text, values)


def translated(text, values):
    if not values:
        return text, ()
    if isinstance(values, dict):
        return text % {name: f":{name}" for name in values}, values
    if "%s" in text:
        return text % tuple("?" * len(values)), values
    for at in range(len(values), 0, -1):
        text = text.replace(f":{at}", f"?{at}").replace(f"${at}", f"?{at}")
    return text, values


class Connection(sqlite3.Connection):
    def cursor(self):
        return Cursor(self)


@pytest.mark.parametrize("style", [*STYLES])
def test_every_style_of_parameters(targets, monkeypatch, style):
    def connect(**arguments):
        return sqlite3.connect(factory=sqlite3.Connection if style in {"qmark", "named"} else Connection, **arguments)

    monkeypatch.setitem(sys.modules, "other_driver", module("other_driver", style, connect=connect))
    odd = "per%cent s"
    target = targets(
        driver="other_driver", schema=spark_schema(id="long", **{odd: "string"}), write="insert_if_absent", key=["id"]
    )
    sink = target.sink()
    target.put(sink, [(1, "100%s"), (2, "?"), (1, "again")], batch_id=0)
    target.put(sink, [(2, "late"), (3, None)], batch_id=1)
    assert Counter(target.sql('SELECT * FROM "t"')) == Counter([(1, "100%s"), (2, "?"), (3, None)])
    assert target.verify(sink).ok


def test_statements_name_their_values_in_order():
    assert statement("a = :one AND b = :two_x").parts == ("a = ", Value("one"), " AND b = ", Value("two_x"), "")
    assert statement("LIKE '%' AND x = :one").rendered("format") == ("LIKE '%%' AND x = %s", ["one"])


def test_a_driver_whose_rows_are_lists(targets, monkeypatch):
    """As pg8000's are. A batch that is there is recognised all the same."""

    def connect(**arguments):
        made = sqlite3.connect(**arguments)
        made.row_factory = lambda _, row: [*row]
        return made

    monkeypatch.setitem(sys.modules, "other_driver", module("other_driver", "qmark", connect=connect))
    target = targets(driver="other_driver")
    shown = target.put(target.sink(), [(1, "a")], batch_id=0)
    assert target.sink().publish(shown.publication).already
    assert target.sql("SELECT * FROM t") == [(1, "a")]


@pytest.mark.parametrize(
    ("changed", "kind", "said"),
    [
        (
            {"driver": "nosuch.driver"},
            DependencyMissing,
            "The module nosuch.driver cannot be imported: No module named 'nosuch'.",
        ),
        ({"driver": "json"}, Usage, "Module json is no driver of the DB-API 2.0: it lacks connect, paramstyle, Error, "),
        ({"write": "upsert", "key": ["id"]}, Usage, "`write: upsert` needs SQL that databases do not share."),
        ({"write": "insert_if_absent"}, Usage, "Sink 'warehouse': `write: insert_if_absent` needs a key."),
        ({"table": "penstock_dbapi_marker"}, Usage, "Table 'penstock_dbapi_marker' is Penstock's own."),
    ],
)
def test_settings_that_cannot_be(targets, changed, kind, said):
    with pytest.raises(kind) as refused:
        targets().rig.make(**changed)
    assert refused.value.message.startswith(said)


def test_arguments_that_connect_does_not_take(targets):
    sink = targets().rig.make(connect={"databas": "x"})
    [finding] = sink.check()
    assert not finding.ok
    assert "sqlite3.connect() does not take these arguments" in finding.message


@pytest.mark.parametrize("kind", ["interval day to second", "void", "time(6)"])
def test_types_that_not_every_database_has_are_refused(targets, kind):
    target = targets(schema=spark_schema(id="long", odd=kind))
    with pytest.raises(Usage, match=f"Sink '{SINK}': Column 'odd' is .*, which not every database has"):
        target.sink()


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


def test_a_table_without_transactions_is_refused(server_url, tmp_path):
    """MyISAM, beside markers of InnoDB."""
    import pymysql

    rig = MysqlRig(tmp_path)
    with pymysql.connect(**rig.arguments, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id BIGINT, name VARCHAR(100)) ENGINE=MyISAM")
    sink = DbapiSink(name=SINK, spool=str(tmp_path / "spool"), driver="pymysql", connect=rig.arguments, table="t", longest=50)
    with pytest.raises(Refused, match=r"Table 't' (keeps what was rolled back|does not give back)"):
        sink.prepare(pipeline=PIPELINE, schema=spark_schema(id="long", name="string"))
    sink.close()


def test_keys_that_the_database_takes_for_one(targets):
    """The first of them counts, in one batch and over batches."""
    target = targets(schema=spark_schema(id="string", n="long"), write="insert_if_absent", key=["id"])
    target.sql("CREATE TABLE t (id TEXT COLLATE NOCASE PRIMARY KEY, n BIGINT)")
    sink = target.sink()
    target.put(sink, [("a", 1), ("A", 2), ("b", 3)], batch_id=0)
    target.put(sink, [("B", 4), ("c", 5)], batch_id=1)
    assert target.sql("SELECT * FROM t") == [("a", 1), ("b", 3), ("c", 5)]
    assert target.verify(sink).ok


def test_each_batch_may_be_the_whole_table(targets):
    target = targets(write="replace")
    sink = target.sink()
    target.put(sink, [(1, "a"), (2, "b")], batch_id=0)
    shown = target.put(sink, [(1, "c")], [(3, "d")], batch_id=1)
    assert Counter(target.sql("SELECT * FROM t")) == Counter([(1, "c"), (3, "d")])
    assert sink.publish(shown.publication).already
    assert target.verify(sink).ok
    target.sql("INSERT INTO t VALUES (4, 'foreign')")
    assert not target.verify(sink).ok


def test_many_keys_come_in_stretches(targets):
    target = targets(write="insert_if_absent", key=["id"])
    sink = target.sink()
    target.put(sink, [(at, "x") for at in range(0, 1000, 2)], batch_id=0)
    target.put(sink, [(at, "y") for at in range(1000)], batch_id=1)
    assert Counter(target.sql("SELECT name, count(*) FROM t GROUP BY name")) == Counter([("x", 500), ("y", 500)])
    assert target.verify(sink).ok


def test_a_lock_that_another_holds_is_told_as_passing(targets):
    target = targets()
    sink = target.sink()
    publication = target.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    with closing(sqlite3.connect(target.rig.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Retryable, match="said: database is locked"):
            sink.publish(publication)
        other.execute("ROLLBACK")
    assert not sink.publish(publication).already


def test_a_row_that_the_table_refuses_is_told(targets):
    target = targets()
    sink = target.sink()
    target.sql("CREATE UNIQUE INDEX one ON t (name)")
    target.put(sink, [(1, "a")], batch_id=0)
    publication = target.decided_but_not_published(sink, [(2, "a")], batch_id=1)
    with pytest.raises((PublishFailed, Retryable), match="UNIQUE constraint failed"):
        sink.publish(publication)
    target.sql("DROP INDEX one")
    assert not sink.publish(publication).already


def test_a_key_that_comes_in_meanwhile_is_found_by_the_next_try(targets, monkeypatch):
    target = targets(write="insert_if_absent", key=["id"])
    sink, theirs = target.sink(), threading.Event()
    publication = target.decided_but_not_published(sink, [(1, "mine")], batch_id=0)
    real = sink._move

    def late(connection, wanted):
        if not theirs.is_set():
            theirs.set()
            connection.rollback()
            target.sql("INSERT INTO t VALUES (1, 'theirs')")
            raise sink._database.driver.refused("UNIQUE constraint failed: t.id")
        return real(connection, wanted)

    monkeypatch.setattr(sink, "_move", late)
    assert not sink.publish(publication).already
    assert target.sql("SELECT * FROM t") == [(1, "theirs")]
    assert sink.conflicts == 1


def test_a_table_or_marker_that_is_not_there(targets):
    target = targets(create=False)
    with pytest.raises(Refused, match="There is no table 't' in the database"):
        target.sink()
    [finding] = target.rig.make().check()
    assert (finding.ok, finding.message) == (False, "table t is missing and `create` is false")
    created = targets()
    sink = created.sink()
    created.put(sink, [(1, "a")], batch_id=0)
    created.sql("DROP TABLE t")
    with pytest.raises(Refused, match="Table 't' is gone, and 1 rows with it"):
        created.sink()
    assert not created.verify(sink).ok
    with pytest.raises(LedgerMismatch, match="filled table 't' so far"):
        created.rig.make(table="u").prepare(pipeline=PIPELINE, schema=created.rig.schema)


def test_columns_that_do_not_fit(targets):
    target = targets()
    target.sql("CREATE TABLE t (id BIGINT, nam TEXT)")
    with pytest.raises(Refused, match="Table 't' does not have the rows' columns id, name: no such column"):
        target.rig.make().require_admitted(pipeline=PIPELINE, schema=target.rig.schema)
    with pytest.raises(Refused, match="Table 't' does not have the rows' columns id, name: no such column"):
        target.sink()
    with pytest.raises(Usage, match="`columns` names 'other', but the rows have id, name"):
        targets(columns={"other": "TEXT"}).sink()
    with pytest.raises(Refused, match=r"Table 't' cannot be created: .*The statement was: CREATE TABLE \"t\" "):
        targets(columns={"name": "TEXT CHECK ("}).sink()


def test_from_the_pipeline_file(tmp_path, monkeypatch):
    monkeypatch.setenv("SHOP_PASSWORD", "very-secret")
    (tmp_path / "p.yaml").write_text("""
pipeline: p
home: ./state
sources: {rows: {format: csv, path: ./incoming, schema: "id INT"}}
sinks:
  shop:
    type: dbapi
    driver: sqlite3
    connect: {database: ./x.db, timeout: 5, password: "${SHOP_PASSWORD}"}
    table: public.t
    columns: {id: NUMERIC}
""")
    pipeline = Pipeline.from_file(tmp_path / "p.yaml")
    [sink] = sinks_of(pipeline.plan)
    assert sink.describe()["publish"] == "one transaction over sqlite3: rows (append) and marker into table public.t"
    assert pipeline.settings.sinks["shop"].connect == {"database": "./x.db", "timeout": 5, "password": "very-secret"}
    assert "very-secret" not in str(pipeline.settings.shown())
