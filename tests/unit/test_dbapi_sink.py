"""The dbapi sink where it differs from the others: drivers, parameters and quoting."""

import sqlite3
import sys
import threading
from collections import Counter
from contextlib import closing

import pytest
from tests.unit.dbapi_target import TableRig, module
from tests.unit.table_target import SINK, spark_schema, targets_of

from penstock.errors import DependencyMissing, LedgerMismatch, OutcomeUnknown, PublishFailed, Refused, Retryable, Usage
from penstock.run.assembly import sinks_of
from penstock.run.pipeline import Pipeline
from penstock.sink.dbapi.statements import STYLES, Value, statement
from penstock.testing.conformance import PIPELINE

targets = pytest.fixture(targets_of(TableRig))


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
        ({"write": "upsert", "key": ["id"]}, Usage, "Sink 'warehouse': `write: upsert` needs SQL that databases do not share."),
        ({"write": "insert_if_absent"}, Usage, "Sink 'warehouse': `write: insert_if_absent` needs a key."),
        ({"table": "penstock_dbapi_marker"}, Usage, "Sink 'warehouse': Table 'penstock_dbapi_marker' is Penstock's own."),
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
    with pytest.raises(Usage, match=f"Sink '{SINK}': Column 'odd' is .*, a type that some databases lack"):
        target.sink()


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
        with pytest.raises(Retryable, match="reported: database is locked"):
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


def test_a_row_that_is_refused_at_the_commit_is_told_as_one(targets, monkeypatch):
    """The database did answer: to say that the outcome is unknown would have it tried for ever."""

    def connect(**arguments):
        made = sqlite3.connect(**arguments)
        made.execute("PRAGMA foreign_keys = ON")
        return made

    monkeypatch.setitem(sys.modules, "other_driver", module("other_driver", "qmark", connect=connect))
    target = targets(driver="other_driver")
    target.sql("CREATE TABLE known (name TEXT PRIMARY KEY)")
    sink = target.sink()
    target.sql("DROP TABLE t", "CREATE TABLE t (id BIGINT, name TEXT REFERENCES known (name) DEFERRABLE INITIALLY DEFERRED)")
    publication = target.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    with pytest.raises(PublishFailed, match="refused the rows 5 times: FOREIGN KEY constraint failed"):
        sink.publish(publication)
    assert target.sql("SELECT * FROM t") == []
    target.sql("INSERT INTO known VALUES ('a')")
    assert not sink.publish(publication).already
    assert target.sql("SELECT * FROM t") == [(1, "a")]


def test_what_the_driver_says_of_a_commit_is_told_in_one_line_without_passwords(targets, monkeypatch):
    class Broken(sqlite3.Connection):
        def commit(self):
            if breaks.is_set():
                raise sqlite3.OperationalError("lost Server of postgresql://me:hunter22@host/db\nDETAIL: (secret row)")
            super().commit()

    def connect(**arguments):
        return sqlite3.connect(factory=Broken, **arguments)

    breaks = threading.Event()
    monkeypatch.setitem(sys.modules, "other_driver", module("other_driver", "qmark", connect=connect))
    target = targets(driver="other_driver")
    sink = target.sink()
    publication = target.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    breaks.set()
    with pytest.raises(OutcomeUnknown, match="gave no answer: lost Server") as found:
        sink.publish(publication)
    assert "hunter22" not in found.value.message
    assert "secret row" not in found.value.message
    breaks.clear()
    assert not sink.publish(publication).already


def test_what_the_driver_says_of_a_statement_is_told_without_passwords(targets, monkeypatch):
    class Denying(sqlite3.Cursor):
        def execute(self, text, values=()):
            if text.startswith('CREATE TABLE "t"'):
                raise sqlite3.OperationalError("denied by postgresql://me:hunter22@host/db\nDETAIL: (secret row)")
            return super().execute(text, values)

    class Guarded(sqlite3.Connection):
        def cursor(self):
            return Denying(self)

    def connect(**arguments):
        return sqlite3.connect(factory=Guarded, **arguments)

    monkeypatch.setitem(sys.modules, "other_driver", module("other_driver", "qmark", connect=connect))
    with pytest.raises(Refused, match="Table 't' cannot be created: denied by ") as found:
        targets(driver="other_driver").sink()
    assert "hunter22" not in found.value.message
    assert "secret row" not in found.value.message


def test_what_the_driver_says_keeps_its_letters(targets, monkeypatch):
    def connect(**_):
        raise sqlite3.OperationalError("no database 'Orders'")

    monkeypatch.setitem(sys.modules, "other_driver", module("other_driver", "qmark", connect=connect))
    with pytest.raises(Retryable, match="The database behind other_driver reported: no database 'Orders'"):
        targets(driver="other_driver").sink()


@pytest.mark.parametrize("action", ["REPLACE", "IGNORE", "ROLLBACK"])
def test_a_conflict_is_an_error_whatever_the_table_says_of_it(targets, action):
    """`ON CONFLICT REPLACE` would remove a row that was published, and tell the new one as written."""
    target = targets()
    target.sql(f"CREATE TABLE t (id BIGINT UNIQUE ON CONFLICT {action}, name TEXT)")
    sink = target.sink()
    target.put(sink, [(1, "a"), (2, "b")], batch_id=0)
    publication = target.decided_but_not_published(sink, [(1, "c")], batch_id=1)
    with pytest.raises(PublishFailed, match=r"UNIQUE constraint failed.*create the table again without it, and copy"):
        sink.publish(publication)
    assert Counter(target.sql("SELECT * FROM t")) == Counter([(1, "a"), (2, "b")])
    target.sql("ALTER TABLE t RENAME TO old", "CREATE TABLE t (id BIGINT, name TEXT)", "INSERT INTO t SELECT * FROM old")
    assert not target.rig.make().publish(publication).already
    assert Counter(target.sql("SELECT * FROM t")) == Counter([(1, "a"), (2, "b"), (1, "c")])
    assert target.verify(sink).ok


def test_a_key_that_comes_in_meanwhile_is_found_by_the_next_try(targets, monkeypatch):
    target = targets(write="insert_if_absent", key=["id"])
    sink, theirs = target.sink(), threading.Event()
    publication = target.decided_but_not_published(sink, [(1, "mine")], batch_id=0)
    real = sink._load

    def late(connection, wanted, decided_as):
        if not theirs.is_set():
            theirs.set()
            connection.rollback()
            target.sql("INSERT INTO t VALUES (1, 'theirs')")
            raise sink._database.driver.refused("UNIQUE constraint failed: t.id")
        return real(connection, wanted, decided_as)

    monkeypatch.setattr(sink, "_load", late)
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


def test_a_table_of_another_sink_is_refused_in_other_letters_too(targets):
    """Most databases take both names for one table."""
    table = targets()
    table.put(table.sink(), [(1, "a")], batch_id=0)
    other = table.rig.make(table="T", name="another")
    with pytest.raises(Refused, match="Table 'T' is filled by sink 'warehouse'"):
        other.prepare(pipeline=PIPELINE, schema=table.rig.schema)
    assert table.verify(table.rig.make(table="T")).ok


def test_columns_that_do_not_fit(targets):
    target = targets()
    target.sql("CREATE TABLE t (id BIGINT, nam TEXT)")
    with pytest.raises(Refused, match=r"\(missing in the table: name"):
        target.rig.make().require_schema_accepted(pipeline=PIPELINE, schema=target.rig.schema)
    with pytest.raises(Refused, match=r"\(missing in the table: name"):
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


def test_a_locked_database_is_not_one_without_markers(targets, monkeypatch):
    """Of a driver that has one error for both, as adbc_driver_sqlite, whose error says that the statement is wrong."""

    class NeverRaisedError(sqlite3.DatabaseError):
        pass

    monkeypatch.setitem(sys.modules, "other_driver", module("other_driver", "qmark", OperationalError=NeverRaisedError))
    target = targets(driver="other_driver")
    sink = target.sink()
    target.put(sink, [(1, "a")], batch_id=0)
    publication = target.decided_but_not_published(sink, [(2, "b")], batch_id=1)
    with closing(sqlite3.connect(target.rig.path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Retryable, match="database is locked"):
            sink.publish(publication)
    target.sql("DROP TABLE penstock_dbapi_marker")
    with pytest.raises(PublishFailed, match="has no marker of pipeline"):
        sink.publish(publication)
