"""The user's table: created to fit, or checked, with both sides named; what cannot be stored is refused before it is decided."""

import datetime as dt
import math
import sqlite3
from collections import Counter
from contextlib import closing

import pyarrow as pa
import pytest
from tests.unit.sqlite_target import Target
from tests.unit.table_target import spark_schema

from penstock.core.row_hash import row_hashes
from penstock.errors import Refused, StageFailed, Usage
from penstock.sink.sqlite.storage import affinity
from penstock.sink.sqlite.table_schema import table_schema_of
from penstock.spark.schema import arrow_schema
from penstock.testing.conformance.bench import attempt

HOSTILE_NAMES = [
    'a "quoted" one',
    "select",
    "sp ace",
    "semi;colon",
    "per%cent",
    "é",
    "1st",
    "a'b",
    "x.y",
    "[b]",
    "`c`",
    "--",
    "a" * 300,
]


@pytest.fixture
def target(tmp_path):
    made = []

    def make(**options):
        made.append(Target(tmp_path, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def array_of(element):
    return {"type": "array", "elementType": element, "containsNull": True}


# --- created


def test_columns_are_declared_for_what_they_hold(target):
    kinds = ("byte", "short", "integer", "long", "boolean", "float", "double", "decimal(9,2)", "string", "binary", "date")
    kinds += ("timestamp", "timestamp_ntz", "time(6)", "interval day to second", "void")
    table = target(schema=spark_schema(**{kind: kind for kind in kinds}, list=array_of("long")))
    table.sink()
    declared = dict(table.sql("SELECT name, type FROM pragma_table_info('t')"))
    assert declared == {
        **dict.fromkeys(("byte", "short", "integer", "long", "interval day to second"), "INTEGER"),
        **dict.fromkeys(("decimal(9,2)", "string", "date", "timestamp", "timestamp_ntz", "time(6)", "void", "list"), "TEXT"),
        "boolean": "BOOLEAN",
        "float": "REAL",
        "double": "REAL",
        "binary": "BLOB",
    }


def test_the_key_becomes_the_primary_key(target):
    table = target(schema=spark_schema(a="long", b="string", c="long"), write="upsert", key=["b", "A"])
    table.sink()
    assert table.sql("""SELECT name, pk, "notnull" FROM pragma_table_info('t') ORDER BY cid""") == [
        ("a", 2, 1),
        ("b", 1, 1),
        ("c", 0, 0),
    ]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_any_name_of_table_column_and_key(target, name):
    table = target(schema=spark_schema(**{name: "long", "other": "string"}), table=name, write="upsert", key=[name])
    sink = table.sink()
    shown = [table.put(sink, [(1, "old"), (2, "kept")], batch_id=0), table.put(sink, [(1, "new")], batch_id=1)]
    assert Counter(tuple(row.values()) for row in table.rig.read_back()) == Counter([(1, "new"), (2, "kept")])
    assert table.verify(sink, ledger=shown).ok


@pytest.mark.parametrize("name", ["", "nul\0"])
def test_names_that_sqlite_does_not_have(target, name):
    with pytest.raises(Usage, match="cannot name a table or column"):
        target(schema=spark_schema(**{name: "long"})).sink()


@pytest.mark.parametrize("table", ["sqlite_master", "PENSTOCK_marker", "penstock_batch", "penstock_ledger"])
def test_tables_that_are_taken(target, table):
    with pytest.raises(Usage, match="own"):
        target(table=table).sink()


def test_sqlite_does_not_tell_upper_from_lower_case(target):
    with pytest.raises(Usage, match="have column 'year' twice"):
        target(schema=spark_schema(year="long", YEAR="long")).sink()


def test_a_struct_with_one_name_twice(target):
    field = {"name": "x", "type": "long", "nullable": True, "metadata": {}}
    with pytest.raises(Usage, match="two fields of one name"):
        target(schema=spark_schema(s=array_of({"type": "struct", "fields": [field, field]}))).sink()


@pytest.mark.parametrize("columns", [0, 2001])
def test_too_few_and_too_many_columns(target, columns):
    with pytest.raises(Usage, match=f"have {columns} columns, expected 1 to 2000"):
        target(schema=spark_schema(**{f"c{at}": "long" for at in range(columns)})).sink()


def test_as_many_columns_as_sqlite_takes(target):
    table = target(schema=spark_schema(**{f"c{at}": "long" for at in range(2000)}))
    sink = table.sink()
    shown = table.put(sink, [tuple(range(2000)), tuple(range(1, 2001))], batch_id=0)
    assert table.verify(sink, ledger=[shown]).ok


def test_a_key_that_the_rows_do_not_have(target):
    with pytest.raises(Usage, match="names column 'nr', but the rows have id, name"):
        target(write="upsert", key=["nr"]).sink()


def test_a_missing_table_is_not_created_unasked(target):
    table = target(create=False)
    with pytest.raises(Exception, match="unable to open"):
        table.sink()
    assert not table.rig.path.exists()
    table.sql("CREATE TABLE other (x)")
    with pytest.raises(Refused, match="There is no table 't'"):
        table.sink()


# --- found


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("CREATE TABLE t (id INTEGER)", r"missing in the table: name; only in the table and without a default: none"),
        ("CREATE TABLE t (id INTEGER, name TEXT, extra NOT NULL)", r"missing in the table: none; .* without a default: extra"),
        ("CREATE TABLE t (id INTEGER, nom TEXT)", r"rows have the columns id, name, table 't' has id, nom"),
        ("CREATE TABLE t (id TEXT, name TEXT)", r"'id' .* is TEXT, .* type int64; expected INTEGER"),
        ("CREATE TABLE t (id REAL, name TEXT)", r"'id' .* is REAL"),
        ("CREATE TABLE t (id INTEGER, name NUMERIC)", r"'name' .* is NUMERIC, .* type string; expected TEXT"),
        ("CREATE TABLE t (id INTEGER, name STRING)", r"'name' .* is STRING"),
        ("CREATE TABLE x (id INTEGER, name TEXT); CREATE VIEW t AS SELECT * FROM x", "is a view"),
        ("CREATE VIRTUAL TABLE t USING fts5(id, name)", "is a virtual table"),
    ],
)
def test_a_table_that_would_change_or_lose_values_is_refused(target, ddl, message):
    table = target()
    connection = sqlite3.connect(table.rig.path)
    connection.executescript(ddl)
    connection.close()
    with pytest.raises(Refused, match=message):
        table.sink()


def test_a_column_that_the_rows_do_not_fit_is_told_with_a_cast_that_fits(target):
    table = target()
    table.sql("CREATE TABLE t (id REAL, name TEXT)")
    with pytest.raises(Refused) as refused:
        table.sink()
    assert (
        "Else cast the column in the transform, or in `select` of the sink, as in `CAST(id AS DOUBLE) AS id`."
        in refused.value.remedy
    )


def test_a_column_of_texts_is_told_with_a_cast_to_text(target):
    """SQLite keeps times as texts, too, and nobody casts a number to a time."""
    table = target()
    table.sql("CREATE TABLE t (id TEXT, name TEXT)")
    with pytest.raises(Refused) as refused:
        table.sink()
    assert "`CAST(id AS STRING) AS id`" in refused.value.remedy


def test_a_column_that_the_table_lacks_can_be_left_out(target):
    table = target()
    table.sql("CREATE TABLE t (id INTEGER)")
    with pytest.raises(Refused) as refused:
        table.sink()
    assert refused.value.remedy.endswith("Or leave them out: `exclude: [name]` of the sink.")


def test_a_table_that_fits_is_taken_as_it_is(target):
    table = target()
    table.sql("CREATE TABLE T (ID int primary key, Twice AS (id * 2), NAME varchar(10) NOT NULL)")
    sink = table.sink()
    shown = table.put(sink, [(1, "a"), (2, "b")], batch_id=0)
    assert Counter(table.sql("SELECT id, twice, name FROM t")) == Counter([(1, 2, "a"), (2, 4, "b")])
    assert table.verify(sink, ledger=[shown]).ok


@pytest.mark.parametrize(
    "ddl",
    [
        "CREATE TABLE t (id INTEGER, name TEXT)",
        "CREATE TABLE t (id INTEGER, name TEXT); CREATE INDEX i ON t (id)",
        "CREATE TABLE t (id INTEGER, name TEXT); CREATE UNIQUE INDEX i ON t (id, name)",
        "CREATE TABLE t (id INTEGER, name TEXT); CREATE UNIQUE INDEX i ON t (id) WHERE name = 'x'",
        "CREATE TABLE t (id INTEGER, name TEXT); CREATE UNIQUE INDEX i ON t (id + 1)",
        "CREATE TABLE t (id INTEGER, name TEXT); CREATE UNIQUE INDEX i ON t (id COLLATE NOCASE)",
    ],
)
def test_upsert_needs_a_unique_index_on_exactly_the_key(target, ddl):
    table = target(write="upsert", key=["id"])
    with closing(sqlite3.connect(table.rig.path)) as connection:
        connection.executescript(ddl)
        with pytest.raises(Refused, match=r'no unique index on exactly \("id"\)') as refused:
            table.sink()
        statement = refused.value.remedy.split("`")[1]
        assert statement == 'CREATE UNIQUE INDEX "t_id_key" ON "t" ("id")'
        connection.execute(statement)
    table.sink()


@pytest.mark.parametrize(
    "ddl",
    [
        "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)",
        "CREATE TABLE t (id INT PRIMARY KEY, name TEXT)",
        "CREATE TABLE t (id INTEGER, name TEXT, UNIQUE (ID))",
        "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT) WITHOUT ROWID",
        "CREATE TABLE t (id INTEGER, name TEXT); CREATE UNIQUE INDEX i ON t (id)",
    ],
)
def test_any_unique_index_on_the_key_will_do(target, ddl):
    table = target(write="upsert", key=["id"])
    connection = sqlite3.connect(table.rig.path)
    connection.executescript(ddl)
    connection.close()
    sink = table.sink()
    shown = [table.put(sink, [(1, "old"), (2, "b")], batch_id=0), table.put(sink, [(1, "new")], batch_id=1)]
    assert Counter(table.sql("SELECT id, name FROM t")) == Counter([(1, "new"), (2, "b")])
    assert table.verify(sink, ledger=shown).ok


@pytest.mark.parametrize(
    ("declared", "strict", "expected"),
    [
        ("INT", False, "INTEGER"),
        ("CHARINT", False, "INTEGER"),
        ("VARCHAR(9)", False, "TEXT"),
        ("", False, "BLOB"),
        ("FLOATING POINT", False, "INTEGER"),
        ("DOUBLE PRECISION", False, "REAL"),
        ("STRING", False, "NUMERIC"),
        ("BOOLEAN", False, "NUMERIC"),
        ("ANY", False, "NUMERIC"),
        ("ANY", True, "BLOB"),
    ],
)
def test_affinity_is_what_sqlite_says(declared, strict, expected):
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE t (c {declared}) {'STRICT' if strict else ''}")
    table_schema = table_schema_of(connection, "", "t")
    assert table_schema is not None
    assert affinity(table_schema.columns[0].declared) == expected
    found = [connection.execute("INSERT INTO t VALUES (?) RETURNING typeof(c)", (value,)).fetchone()[0] for value in ("1", 1)]
    connection.close()
    become = {
        "INTEGER": ("integer", "integer"),
        "NUMERIC": ("integer", "integer"),
        "REAL": ("real", "real"),
        "TEXT": ("text", "text"),
    }
    assert tuple(found) == become.get(expected, ("text", "integer"))


def test_nested_and_odd_types_go_all_the_way(target):
    """Through spool, table and verify, in a session whose time zone is not UTC."""
    inner = {"type": "struct", "fields": [{"name": "when", "type": "timestamp", "nullable": True, "metadata": {}}]}
    pairs = {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": True}
    kinds = {"list": array_of("double"), "struct": inner, "map": pairs, "time": "time(6)", "void": "void"}
    table = target(schema=spark_schema(**kinds, span="interval day to second", moment="timestamp"), inline_limit_bytes=0)
    sink = table.sink()
    moment = dt.datetime(2013, 1, 31, 5, 15, 0, 250000, dt.timezone.utc)
    row = [math.nan, 0.1, None], {"when": moment}, [("a", {"when": moment}), ("b", None)], dt.time(1, 2, 3, 4), None
    rows = [(*row, dt.timedelta(days=-1), moment), (None,) * 7]
    schema = arrow_schema(table.rig.schema, timezone="Asia/Kolkata")
    batch = pa.RecordBatch.from_pylist(table.named(rows), schema=schema)
    writer = sink.stager().open(attempt(0, 1, 0, 0), schema)
    writer.write(batch, hashes=row_hashes(batch), accounts=None)
    shown = table.decide((table.named(rows), tuple(writer.finish())), batch_id=0)
    sink.publish(shown.publication)
    assert table.verify(sink).ok
    assert table.sql("SELECT moment, json_extract(map, '$.a.when'), json_extract(list, '$[0]') FROM t LIMIT 1") == [
        ("2013-01-31 05:15:00.250000Z", "2013-01-31 05:15:00.250000Z", "nan")
    ]


# --- rows that no table could take


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("timestamp", dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.timezone.utc), None),
        ("date", dt.date(1, 1, 1), None),
        ("string", None, None),
        ("double", math.nan, None),
    ],
)
def test_the_last_value_that_fits(target, kind, value, message):
    table = target(schema=spark_schema(c=kind))
    sink = table.sink()
    shown = table.put(sink, [(value,)], batch_id=0)
    assert table.verify(sink, ledger=[shown]).ok


def refused(table, sink, column, message):
    batch = pa.record_batch({"c": column})
    stager = sink.stager()
    with pytest.raises(StageFailed, match=message):
        stager.check(batch)


@pytest.mark.parametrize("moment", [-62_135_596_800_000_001, 253_402_300_800_000_000])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Kolkata"])
def test_moments_outside_of_four_digit_years(target, moment, zone):
    table = target(schema=spark_schema(c="timestamp"))
    refused(table, table.sink(), pa.array([0, moment]).cast(pa.timestamp("us", zone)), "'c' outside the years 0001 to 9999")


@pytest.mark.parametrize("day", [-719_163, 2_932_897])
def test_days_outside_of_four_digit_years(target, day):
    table = target(schema=spark_schema(c="date"))
    refused(table, table.sink(), pa.array([0, day], pa.int32()).cast(pa.date32()), "'c' outside the years 0001 to 9999")


def test_numbers_beyond_64_bits_with_sign(target):
    table = target(schema=spark_schema(c="long"))
    refused(table, table.sink(), pa.array([2**63], pa.uint64()), "outside 64 bits with sign")


def test_text_that_is_no_unicode(target):
    table = target(schema=spark_schema(c="string"))
    broken = pa.array([b"\xff\xfe"]).view(pa.string())
    refused(table, table.sink(), broken, "damaged values.*UTF8")


def test_null_in_a_key(target):
    table = target(schema=spark_schema(C="long", v="long"), write="insert_if_absent", key=["c"])
    refused(table, table.sink(), pa.array([1, None]), "NULL in column 'c', which allows none")


def test_null_where_the_table_allows_none(target):
    table = target(schema=spark_schema(c="long"))
    table.sql("CREATE TABLE t (c INTEGER NOT NULL)")
    refused(table, table.sink(), pa.array([None], pa.int64()), "NULL in column 'c'")


def test_nan_in_a_strict_table(target):
    table = target(schema=spark_schema(c="double"))
    table.sql("CREATE TABLE t (c REAL) STRICT")
    sink = table.sink()
    refused(table, sink, pa.array([math.nan]), "NaN in column 'c' of a STRICT table")
    shown = table.put(sink, [(math.inf,), (1.0,), (None,)], batch_id=0)
    assert table.verify(sink, ledger=[shown]).ok


def test_nested_dates_that_have_no_text(target):
    table = target(schema=spark_schema(c=array_of("timestamp_ntz")))
    far = pa.array([[2**60]], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("us")))
    refused(table, table.sink(), far, "has no JSON")


def test_no_row_gets_a_number_in_place_of_null(target):
    """An INTEGER PRIMARY KEY takes NULL, and makes the number of the row of it."""
    table = target()
    table.sql("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)")
    sink = table.sink()
    table.put(sink, [(7, "a")], batch_id=0)
    with pytest.raises(StageFailed, match="NULL in column 'id', which allows none"):
        table.put(sink, [(None, "b")], batch_id=1)


def test_a_number_of_rows_that_nobody_gives_is_left_to_sqlite(target):
    table = target()
    table.sql("CREATE TABLE t (row_id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, id BIGINT, name TEXT)")
    sink = table.sink()
    table.put(sink, [(7, "a"), (8, "b")], batch_id=0)
    assert [tuple(row) for row in table.sql("SELECT row_id, id, name FROM t ORDER BY 1")] == [(1, 7, "a"), (2, 8, "b")]
    assert table.verify(sink).ok
