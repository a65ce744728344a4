"""The trial of a table: what it finds out, what it refuses, and what it costs."""

import sqlite3
import sys
from collections import Counter

import pytest
from tests.attack.any_driver import AnyDriverRig
from tests.conformance.test_dbapi_conformance import MysqlRig
from tests.live.test_postgres_members import ELSEWHERE, LOW, PARTITIONED, SEES_SOME, TABLE, as_administrator
from tests.unit import postgres_target
from tests.unit.dbapi_target import TableRig, module
from tests.unit.table_target import SINK, content, spark_schema, targets_of

from penstock.errors import GuaranteeTooWeak, Refused, StageFailed
from penstock.sink.dbapi.load import load
from penstock.sink.dbapi.sink import DbapiSink
from penstock.sink.dbapi.statements import CREATE_MARKER_TABLE
from penstock.testing.conformance import PIPELINE

targets = pytest.fixture(targets_of(TableRig))


class PostgresRig(AnyDriverRig):
    """A table in a PostgreSQL database of its own, behind psycopg."""

    def __init__(self, directory, **options):
        served = postgres_target.TableRig(directory)
        super().__init__("postgres", served)
        self.running, self.name, self.options = served.running, served.name, options

    def make(self, **changed):
        return super().make(**{**self.options, **changed})


on_postgres = pytest.fixture(targets_of(PostgresRig))


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


# --- PostgreSQL: a rollback shows nothing of tables that a crash empties, nor of rows that are hidden or go elsewhere

REST = "CREATE TABLE rest PARTITION OF t DEFAULT"
ROWS = [(1, "a"), (11, "b")]
OWN = ["penstock_dbapi_marker", "penstock_dbapi_batch"]
DEEP = f"CREATE TABLE low {LOW} PARTITION BY LIST (name)"
AWAY = 'CREATE RULE "Away" AS ON INSERT TO t DO INSTEAD NOTHING'
NOT_KEPT = {
    "unlogged": ("CREATE UNLOGGED TABLE t (id bigint, name text)", GuaranteeTooWeak, r"Table 't' is unlogged"),
    "unlogged partition": (
        f'{PARTITIONED}; {REST}; CREATE SCHEMA more; CREATE UNLOGGED TABLE more."Low" {LOW}',
        GuaranteeTooWeak,
        r"Partition 'Low' of table 't' is unlogged",
    ),
    "deep": (
        f'{PARTITIONED}; {REST}; {DEEP}; CREATE UNLOGGED TABLE "Lower %s" PARTITION OF low DEFAULT',
        GuaranteeTooWeak,
        r"Partition 'Lower %s' of table 't' is unlogged",
    ),
    "unlogged heir": (
        f"{TABLE}; CREATE UNLOGGED TABLE child () INHERITS (t)",
        GuaranteeTooWeak,
        r"Table 'child', which inherits from table 't', is unlogged",
    ),
    "foreign partition": (
        f"{ELSEWHERE}; {PARTITIONED}; {REST}; CREATE FOREIGN TABLE low {LOW} SERVER elsewhere",
        Refused,
        r"Partition 'low' of table 't' is a foreign table",
    ),
    "foreign heir": (
        f"{ELSEWHERE}; {TABLE}; CREATE FOREIGN TABLE child () INHERITS (t) SERVER elsewhere",
        Refused,
        r"Table 'child', which inherits from table 't', is a foreign table",
    ),
    "row security": (
        f"{TABLE}; ALTER TABLE t {SEES_SOME.format('t')}",
        Refused,
        r"Row security of table 't' applies to role 'penstock'",
    ),
    "rule": (f"{TABLE}; {AWAY}", Refused, r"has the rule 'Away', which does something else in place of each INSERT"),
}


def can_be_run(remedy):
    """The statement of a remedy; of two, the one that a table's owner may run."""
    statement = remedy.rpartition(" BYPASSRLS, or ")[2].rstrip(".")
    return statement.removesuffix(", and start again").removesuffix(", or use a trigger")


@pytest.mark.parametrize(("ddl", "error", "message"), NOT_KEPT.values(), ids=NOT_KEPT)
@pytest.mark.parametrize("write", ["append", "replace"])
def test_what_a_table_of_postgres_does_not_keep_is_refused_before_the_start(on_postgres, write, ddl, error, message):
    """And what is told can be run as it is, whatever the schema is."""
    table = on_postgres(write=write)
    as_administrator(table, ddl)
    with pytest.raises(error, match=message):
        table.rig.make().require_schema_accepted(pipeline=PIPELINE, schema=table.rig.schema)
    with pytest.raises(error, match=message) as refused:
        table.sink()
    assert table.sql("SELECT 1 FROM pg_class WHERE relname = 'penstock_dbapi_marker'") == []
    as_administrator(table, can_be_run(refused.value.remedy))
    sink = table.sink()
    table.put(sink, ROWS, batch_id=0)
    assert content(table) == dict.fromkeys(ROWS, 1)
    assert table.verify(sink).ok


@pytest.mark.parametrize(
    ("ddl", "options", "message"),
    [
        (f"{TABLE}; ALTER TABLE t RENAME TO u; CREATE VIEW t AS SELECT * FROM u", {}, "'t' is a view, expected a table"),
        (
            f"{TABLE}; CREATE RULE stays AS ON DELETE TO t DO INSTEAD NOTHING",
            {"write": "replace"},
            "has the rule 'stays', which does something else in place of each DELETE",
        ),
    ],
)
def test_rows_that_would_lie_elsewhere_or_stay_are_refused(on_postgres, ddl, options, message):
    table = on_postgres(**options)
    table.sql(ddl)
    with pytest.raises(Refused, match=message):
        table.sink()


@pytest.mark.parametrize(
    "ddl",
    [
        f"{DEEP}; CREATE TABLE lower PARTITION OF low DEFAULT",
        f"CREATE TABLE low {LOW}; ALTER TABLE low {SEES_SOME.format('low')}",
        f"CREATE TABLE low {LOW}; CREATE RULE away AS ON INSERT TO low DO INSTEAD NOTHING",
        f"CREATE TABLE low {LOW}; ALTER TABLE t DETACH PARTITION low; ALTER TABLE low SET UNLOGGED; CREATE TABLE logged {LOW}",
        "CREATE RULE kept AS ON DELETE TO t DO INSTEAD NOTHING",
        "CREATE SCHEMA more; CREATE UNLOGGED TABLE more.t (id bigint, name text)",
    ],
)
def test_tables_of_postgres_that_keep_rows_take_them(on_postgres, ddl):
    """The schema of the connection's search path counts, and what rows go through."""
    table = on_postgres()
    table.sql(f"{PARTITIONED}; {REST}; {ddl}")
    sink = table.sink()
    table.put(sink, ROWS, batch_id=0)
    assert content(table) == dict.fromkeys(ROWS, 1)
    assert table.verify(sink).ok


CHANGES = [
    ("ALTER TABLE low SET UNLOGGED", "ALTER TABLE low SET LOGGED", GuaranteeTooWeak, "'low' of table 't' is unlogged"),
    (
        f"ALTER TABLE t {SEES_SOME.format('t')}",
        "ALTER TABLE t DISABLE ROW LEVEL SECURITY",
        Refused,
        "Row security of table 't' applies",
    ),
    (AWAY, 'DROP RULE "Away" ON t', Refused, "has the rule 'Away'"),
    *((f"ALTER TABLE {own} SET UNLOGGED", f"ALTER TABLE {own} SET LOGGED", GuaranteeTooWeak, f"'{own}' is") for own in OWN),
]


@pytest.mark.parametrize("changed", CHANGES)
@pytest.mark.parametrize("options", [{}, {"write": "insert_if_absent", "key": ["id"]}], ids=["append", "by key"])
def test_what_changes_after_the_decision_stops_the_publication(on_postgres, options, changed):
    change, undo, error, message = changed
    table = on_postgres(**options)
    table.sql(PARTITIONED, REST, f"CREATE TABLE low {LOW}")
    sink = table.sink()
    publication = table.decided_but_not_published(sink, ROWS, batch_id=0)
    table.sql(change)
    with pytest.raises(error, match=message):
        sink.publish(publication)
    assert table.sql("SELECT at_position FROM penstock_dbapi_marker") == [(0,)]
    table.sql(undo)
    assert content(table) == {}
    assert not sink.publish(publication).already
    assert content(table) == dict.fromkeys(ROWS, 1)
    assert table.verify(sink).ok


def test_a_recovery_looks_before_it_publishes(on_postgres):
    """It prepares no table, since it knows no schema of the rows."""
    table = on_postgres()
    table.sql(TABLE)
    publication = table.decided_but_not_published(table.sink(), ROWS, batch_id=0)
    table.sql("ALTER TABLE t SET UNLOGGED")
    sink = table.rig.make()
    sink.prepare(pipeline=PIPELINE, schema=None)
    with pytest.raises(GuaranteeTooWeak, match="Table 't' is unlogged"):
        sink.publish(publication)
    sink.close()
    assert content(table) == {}


def test_a_partition_that_is_attached_while_rows_are_written_is_looked_at(on_postgres, monkeypatch):
    """ATTACH waits for no writer. Values of the trial have partitions, the batch's row has none before."""
    table = on_postgres()
    table.sql(
        PARTITIONED,
        "CREATE TABLE below PARTITION OF t FOR VALUES FROM (MINVALUE) TO (100)",
        "CREATE TABLE above PARTITION OF t FOR VALUES FROM (200) TO (MAXVALUE)",
    )
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(150, "a")], batch_id=0)

    def attaches_first(*args, **kwargs):
        table.sql("CREATE UNLOGGED TABLE late (id bigint, name text)")
        table.sql("ALTER TABLE t ATTACH PARTITION late FOR VALUES FROM (100) TO (200)")
        return load(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr("penstock.sink.dbapi.sink.load", attaches_first)
        with pytest.raises(GuaranteeTooWeak, match="Partition 'late' of table 't' is unlogged"):
            sink.publish(publication)
    assert content(table) == {}
    table.sql("ALTER TABLE late SET LOGGED")
    sink.publish(publication)
    assert content(table) == {(150, "a"): 1}


@pytest.mark.parametrize("own", OWN)
def test_tables_of_our_own_keep_and_show_their_rows_too(on_postgres, own):
    """Without its marker, the newest batch would be published once more."""
    table = on_postgres()
    table.put(table.sink(), ROWS, batch_id=0)
    for ddl, error, message in [
        (f"ALTER TABLE {own} SET UNLOGGED", GuaranteeTooWeak, f"Table '{own}' is unlogged"),
        (f"ALTER TABLE {own} {SEES_SOME.format(own)}".replace("id < 5", "false"), Refused, f"Row security of table '{own}'"),
    ]:
        table.sql(ddl)
        with pytest.raises(error, match=message):
            table.rig.make().require_schema_accepted(pipeline=PIPELINE, schema=table.rig.schema)
        with pytest.raises(error, match=message) as refused:
            table.sink()
        table.sql(can_be_run(refused.value.remedy))
    table.put(table.sink(), [(2, "c")], batch_id=1)
    assert content(table) == dict.fromkeys([*ROWS, (2, "c")], 1)


def test_what_postgres_was_given_is_there_after_it_was_killed(on_postgres):
    """The refusal is right, and enough: an unlogged table is empty after a crash, all others keep their rows."""
    table = on_postgres()
    table.sql(PARTITIONED, REST, f"CREATE TABLE low {LOW}")
    sink = table.sink()
    table.put(sink, ROWS, batch_id=0)
    table.sql("CREATE UNLOGGED TABLE beside (id bigint, name text)", "INSERT INTO beside VALUES (1, 'a')")
    with pytest.raises(GuaranteeTooWeak, match="Table 'beside' is unlogged"):
        table.rig.make(table="beside", name="other").prepare(pipeline=PIPELINE, schema=table.rig.schema)
    table.rig.running.kill()
    table.rig.running.start()
    assert table.sql("SELECT * FROM beside") == []
    assert content(table) == dict.fromkeys(ROWS, 1)
    assert table.verify(table.sink()).ok
