"""What MariaDB stores comes back as the same Arrow values, through a real table of every type that will do, by both ways in."""

import datetime as dt
import math
import pickle
import random
import struct
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pymysql
import pytest
from tests.live.test_postgres_storage import require_same
from tests.servers.fixtures import server
from tests.unit.test_sqlite_storage import COLUMNS as SHARED

from penstock.core.model import RowDigest, SinkName
from penstock.core.row_hash import row_hashes
from penstock.errors import PublishFailed, StageFailed
from penstock.sink.mysql.load import load
from penstock.sink.mysql.row_validator import RowValidator
from penstock.sink.mysql.storage import STORAGES, storage_of
from penstock.sink.mysql.table_schema import TABLES, table_schema_of
from penstock.sink.table.target import NotStoredError, Target
from penstock.sql.mysql.database import Database

TARGET = Target(table="t", write="append", key=(), case_counts=True)
UTC = dt.timezone.utc
SEED = 20261122


def doubles(count):
    """Of all sizes, bit by bit."""
    chance = random.Random(SEED)
    found = [struct.unpack("d", chance.randbytes(8))[0] for _ in range(count)]
    return [value for value in found if value - value == 0]


def floats(count):
    chance = random.Random(SEED)
    found = [struct.unpack("f", chance.randbytes(4))[0] for _ in range(count)]
    return [value for value in found if value - value == 0]


def as_mysql_can(column):
    """Without NaN and the infinities."""
    return pc.if_else(pc.is_finite(column), column, None) if pa.types.is_floating(column.type) else column


SIGNS = ["\\N", "NULL", "\\", "a\tb", "a\\\tb", "a\r\nb", "'", "\\'", "''", '"', "%s", "{}", "\x1a"]
COLUMNS = {
    **{name: as_mysql_can(column) for name, column in SHARED.items() if len(column)},
    "any doubles": pa.array(doubles(500)),
    "any floats": pa.array(floats(500), pa.float32()),
    "time": pa.array([0, 1_000, 86_399_999_999_000, None], pa.int64()).cast(pa.time64("ns")),
    "decimal of many places": pa.array([Decimal("0." + "9" * 30), Decimal("-1E-30"), None], pa.decimal128(38, 30)),
    "texts with signs of the wire": pa.array([*SIGNS, None]),
    "bytes of all kinds": pa.array([bytes(range(256)), b"\\N", b"'\xe4\\'", b"\xff\xfe'", None]),
}
OTHER_TYPES = [
    ("bool", "tinyint"),
    ("int8", "tinyint"),
    ("int8", "tinyint(1)"),
    ("int8", "decimal(3,0)"),
    ("int16", "mediumint"),
    ("int32", "bigint"),
    ("int64", "decimal(21,2)"),
    ("any floats", "double"),
    ("decimal", "decimal(20,4)"),
    ("decimal scale -2", "decimal(10,3)"),
    ("string", "varchar(5000) CHARACTER SET utf8mb4"),
    ("large string", "text CHARACTER SET utf8mb4"),
    ("texts with signs of the wire", "tinytext CHARACTER SET utf8mb4"),
    ("bytes of all kinds", "varbinary(256)"),
    ("binary", "tinyblob"),
    ("struct", "mediumtext CHARACTER SET utf8mb4"),
    ("array of texts", "json"),
    ("null", "int"),
    ("null", "timestamp(6) NULL"),
]


@pytest.fixture(scope="module")
def database():
    database = Database(server("mysql").database("storage"), application="test")
    database.writable()
    yield database
    database.drop()


@pytest.fixture(params=[True, False], ids=["by LOAD DATA", "by INSERT"])
def connection(database, request, monkeypatch):
    """A connection to the server as it is, or would be with local_infile off."""
    connection = database.writable()
    monkeypatch.setattr(connection, "server", replace(connection.server, loads=request.param))
    return connection


@pytest.fixture
def lenient(database):
    """For sessions that are opened from here on."""
    database.drop()
    with server("mysql").admin() as admin, closing(admin.cursor()) as session:
        session.execute("SELECT @@GLOBAL.sql_mode")
        [before] = session.fetchone()
        session.execute("SET GLOBAL sql_mode = ''")
        yield
        session.execute("SET GLOBAL sql_mode = %s", (before,))


def through_mysql(connection, column, declared=None):
    """In three batches, of which one is a slice in the middle of another's memory."""
    schema = pa.schema([pa.field("c", column.type)])
    connection.execute("DROP TABLE IF EXISTS t")
    connection.execute(f"CREATE TABLE t (c {declared or storage_of(column.type).declared(column.type)}) CHARACTER SET utf8mb4")
    shape = table_schema_of(connection, "", "t")
    [there] = shape.columns
    assert storage_of(column.type).takes(there.declared, column.type)
    cut = max(1, len(column) // 3)
    parts = [part for part in (column.slice(0, cut), column.slice(cut, cut), column.slice(2 * cut)) if len(part)]
    connection.execute("BEGIN")
    batches = iter([pa.RecordBatch.from_arrays([part], schema=schema) for part in parts])
    assert load(connection, batches, schema, shape, TARGET).rows == len(column)
    assert connection.in_transaction
    query = TABLES.statements_of(schema, TARGET).read()
    found = pa.Table.from_batches(STORAGES.batches(connection.stream(query), schema), schema).combine_chunks()["c"]
    connection.execute("COMMIT")
    return found


@pytest.mark.parametrize("name", COLUMNS)
def test_values_come_back(connection, name):
    require_same(through_mysql(connection, COLUMNS[name]), COLUMNS[name])


@pytest.mark.parametrize("texts", [["", "", ""], [None, "", None], ["\\", "\t", "\n"], ["N", "\\N", "a\\\tb\n\n"]])
def test_lines_of_one_column_that_are_empty_or_hold_what_separates_them(connection, texts):
    require_same(through_mysql(connection, pa.array(texts)), pa.array(texts))


@pytest.mark.parametrize(("name", "declared"), OTHER_TYPES)
def test_values_come_back_from_other_columns_that_will_do(connection, name, declared):
    require_same(through_mysql(connection, COLUMNS[name], declared), COLUMNS[name])


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()], ids=str)
def test_a_negative_zero_becomes_zero_which_counts_as_the_same(connection, kind):
    """It travels with its sign: it is the server that drops it. Once one keeps it, this fails, and what the pages say with it."""
    column = pa.array([-0.0, 0.0], kind)
    assert storage_of(kind).encode(column).to_pylist() == ["-0", "0"]
    found = through_mysql(connection, column).combine_chunks()
    assert [math.copysign(1, value) for value in found.to_pylist()] == [1, 1]
    assert connection.execute("SELECT DISTINCT SIGN(c), ATAN2(c, -1) > 0 FROM t").fetchall() == ((0, 1),)
    hashes = [row_hashes(pa.record_batch({"c": one}), RowDigest.XXHASH64_NULLS) for one in (found, column)]
    assert hashes[0].equals(hashes[1])


@pytest.mark.parametrize("zero", ["-0e0", "-0.0", "'-0'", "-(0e0)", "-1e-400", "CAST('-0' AS DOUBLE)", "0e0 * -1"])
def test_the_server_has_no_negative_zero_however_it_is_written(database, zero):
    connection = database.writable()
    connection.execute("CREATE OR REPLACE TEMPORARY TABLE zeros (d double, f float)")
    connection.execute(f"INSERT INTO zeros VALUES ({zero}, {zero})")
    [row] = connection.execute("SELECT d, f, ATAN2(d, -1) > 0, ATAN2(f, -1) > 0 FROM zeros").fetchall()
    assert [math.copysign(1, value) for value in row] == [1, 1, 1, 1]


def test_moments_in_a_column_of_type_timestamp(connection):
    moments = [dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), dt.datetime(2038, 1, 19, 3, 14, 7, 999999, tzinfo=UTC), None]
    column = pa.array(moments, pa.timestamp("us", "UTC"))
    require_same(through_mysql(connection, column, "timestamp(6) NULL"), column)


@pytest.mark.parametrize(
    ("kind", "declared"),
    [
        (pa.int64(), "int"),
        (pa.int64(), "bigint unsigned"),
        (pa.int64(), "double"),
        (pa.int64(), "decimal(18,0)"),
        (pa.int16(), "tinyint(1)"),
        (pa.int32(), "float"),
        (pa.float64(), "float"),
        (pa.float64(), "double(10,2)"),
        (pa.float64(), "decimal(30,10)"),
        (pa.decimal128(12, 2), "decimal(12,1)"),
        (pa.decimal128(12, 2), "decimal(12,3)"),
        (pa.decimal128(12, 2), "decimal(14,2) unsigned"),
        (pa.decimal128(12, 2), "double"),
        (pa.string(), "char(10)"),
        (pa.string(), "varchar(10) character set latin1"),
        (pa.string(), "longtext character set utf8mb3"),
        (pa.string(), "enum('a','b')"),
        (pa.string(), "varbinary(10)"),
        (pa.string(), "uuid"),
        (pa.binary(), "binary(10)"),
        (pa.binary(), "longtext"),
        (pa.date32(), "datetime(6)"),
        (pa.timestamp("us", "UTC"), "datetime"),
        (pa.timestamp("us", "UTC"), "timestamp"),
        (pa.timestamp("us"), "timestamp(6)"),
        (pa.timestamp("us"), "datetime(3)"),
        (pa.time64("ns"), "time(3)"),
        (pa.struct([("a", pa.int64())]), "json"),
        (pa.struct([("a", pa.int64())]), "varchar(5000)"),
        (pa.bool_(), "int"),
        (pa.bool_(), "bit(1)"),
    ],
    ids=str,
)
def test_columns_that_would_change_values_are_refused(kind, declared):
    assert not storage_of(kind).takes(declared, kind)


def test_a_type_that_spark_has_not():
    with pytest.raises(TypeError, match="has no place in MySQL"):
        storage_of(pa.uint64())


@pytest.mark.parametrize(
    ("kind", "declared", "value"),
    [
        (pa.date32(), "date", "'0000-00-00'"),
        (pa.timestamp("us", "UTC"), "datetime(6)", "'0000-00-00 00:00:00'"),
        (pa.timestamp("us"), "datetime(6)", "'2013-00-00 00:00:00'"),
        (pa.time64("ns"), "time(6)", "'-01:00:00'"),
        (pa.time64("ns"), "time(6)", "'25:00:00'"),
        (pa.decimal128(12, 2), "decimal(20,4)", "1.2345"),
        (pa.int64(), "decimal(30,2)", "1.5"),
        (pa.int64(), "decimal(30,0)", "1e29"),
        (pa.float32(), "double", "0.1"),
        (pa.bool_(), "tinyint(1)", "2"),
        (pa.struct([("a", pa.int64())]), "longtext", "'[1]'"),
        (pa.struct([("a", pa.int64())]), "longtext", "'no json'"),
        (pa.null(), "int", "1"),
    ],
    ids=str,
)
def test_what_penstock_cannot_have_written_is_told(database, kind, declared, value):
    connection = database.writable()
    connection.execute("DROP TABLE IF EXISTS t")
    connection.execute(f"CREATE TABLE t (c {declared})")
    connection.execute("SET @mode = @@sql_mode, sql_mode = ''")
    connection.execute(f"INSERT INTO t VALUES ({value})")
    connection.execute("SET sql_mode = @mode")
    schema = pa.schema([pa.field("c", kind)])
    with pytest.raises(NotStoredError, match="column 'c'"):
        list(STORAGES.batches(connection.stream(TABLES.statements_of(schema, TARGET).read()), schema))


@pytest.mark.parametrize(
    ("declared", "column"),
    [
        ("varchar(3)", pa.array(["ok", "too long"])),
        ("varchar(3)", pa.array(["ok", "ok    "])),
        ("int", pa.array([1, 1 << 40])),
        ("decimal(4,2)", pa.array([Decimal("123.45")])),
        ("decimal(4,1)", pa.array([Decimal("1.25")])),
        ("int NOT NULL", pa.array([1, None])),
        ("varchar(9) CHARACTER SET latin1", pa.array(["\u0416"])),
    ],
    ids=str,
)
def test_mysql_itself_changes_no_value_however_lenient_the_server_is(lenient, connection, declared, column):
    """The last line: a column that no check would have let through, on a server that would cut and round by default."""
    schema = pa.schema([pa.field("c", column.type)])
    connection.execute("DROP TABLE IF EXISTS t")
    connection.execute(f"CREATE TABLE t (c {declared})")
    batches = iter([pa.RecordBatch.from_arrays([column], schema=schema)])
    connection.execute("BEGIN")
    with pytest.raises((PublishFailed, pymysql.err.Error)):
        load(connection, batches, schema, table_schema_of(connection, "", "t"), TARGET)
    connection.execute("ROLLBACK")
    assert connection.execute("SELECT COUNT(*) FROM t").fetchone() == (0,)


def admission(**changed):
    none = {"required": frozenset(), "characters": {}, "octets": {}, "since_1970": frozenset()}
    settings = {**none, "max_value_bytes": 1000, "max_insert_bytes": None, **changed}
    return pickle.loads(pickle.dumps(RowValidator(sink=SinkName("db"), table="t", **settings)))


def batch(column):
    return pa.RecordBatch.from_arrays([column], names=["C"])


@pytest.mark.parametrize(
    ("column", "settings", "said"),
    [
        (pa.array([1.0, float("nan")]), {}, "NaN or an infinity in column 'C'"),
        (pa.array([float("-inf")], pa.float32()), {}, "NaN or an infinity"),
        (pa.array([1.0, None]), {}, None),
        (pa.array(["a\0b"]), {}, None),
        (pa.array(["äöü", "äöüß"]), {"characters": {"c": 3}}, "4 characters in column 'C', which takes 3"),
        (pa.array(["äöü"]), {"characters": {"c": 3}}, None),
        (pa.array(["äöü"]), {"octets": {"c": 5}}, "6 bytes in column 'C', which takes 5"),
        (pa.array([b"abcd"]), {"characters": {"c": 3}}, "4 characters"),
        (pa.array([[["a" * 20]]]), {"octets": {"c": 5}}, "26 bytes in column 'C', which takes 5"),
        (pa.array(["a" * 1001]), {}, "1001 bytes in column 'C', which takes 1000"),
        (pa.array([1, None]), {"required": frozenset({"c"})}, "NULL in column 'C'"),
        (pa.array([1], pa.time64("ns")), {}, "part of a microsecond"),
        (pa.array([-62_135_596_800_000_001], pa.timestamp("us")), {}, "outside the years 0001 to 9999"),
        (pa.array([253_402_300_800_000_000], pa.timestamp("us", "UTC")), {}, "outside the years 0001 to 9999"),
        (pa.array([-719_163], pa.int32()).cast(pa.date32()), {}, "outside the years"),
        (pa.array([2_932_897], pa.int32()).cast(pa.date32()), {}, "outside the years"),
        (pa.array([999_999], pa.timestamp("us", "UTC")), {"since_1970": frozenset({"c"})}, r"outside what timestamp\(6\) holds"),
        (pa.array([1 << 51], pa.timestamp("us", "UTC")), {"since_1970": frozenset({"c"})}, r"outside what timestamp\(6\) holds"),
        (pa.array(["a" * 900] * 3), {"max_row_bytes": 500}, "a row of more than 500 bytes"),
        (pa.array(["a" * 900] * 3), {"max_insert_bytes": 1000}, None),
        (pa.array([None, "'" * 450]), {"max_insert_bytes": 900}, "a row whose INSERT takes 9.. bytes"),
        (pa.array([[False] * 150]), {"max_insert_bytes": 950}, "a row whose INSERT takes 9.. bytes"),
    ],
)
def test_admission(column, settings, said):
    check = admission(**settings)
    if said is None:
        check(batch(column))
        return
    with pytest.raises(StageFailed, match=said):
        check(batch(column))


def test_tasks_need_no_client_of_mysql():
    """What is pickled to them is checked with the client's package out of reach."""
    program = (
        "import sys; sys.modules['pymysql'] = None\n"
        "import pickle; check = pickle.loads(sys.stdin.buffer.read())\n"
        "import pyarrow as pa; check(pa.record_batch({'c': [1]}))\n"
    )
    assert subprocess.run([sys.executable, "-c", program], input=pickle.dumps(admission()), check=False).returncode == 0


def test_restoring_says_what_it_expected():
    with pytest.raises(NotStoredError, match="expected a stored decimal128"):
        STORAGES.restored([Decimal("1.234")], pa.decimal128(12, 2))


def test_a_server_gets_no_file_that_it_asks_for_unasked(database):
    """Any answer of a server could name any file of the driver."""
    connection = database.writable()
    connection.execute("CREATE TEMPORARY TABLE lured (line longtext)")
    with pytest.raises(RuntimeError, match="local_infile"):
        connection.execute("LOAD DATA LOCAL INFILE '/etc/hostname' INTO TABLE lured")
    database.drop()
