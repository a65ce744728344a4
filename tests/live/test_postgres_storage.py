"""What PostgreSQL stores comes back as the same Arrow values, through a real table of every type that will do."""

import itertools
import pickle
import subprocess
import sys
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.servers.fixtures import server
from tests.unit.test_sqlite_storage import COLUMNS as SHARED

from penstock.core.model import RowDigest, SinkName
from penstock.core.row_hash import row_hashes
from penstock.errors import StageFailed
from penstock.sink.postgres.load import load
from penstock.sink.postgres.row_validator import RowValidator
from penstock.sink.postgres.storage import STORAGES, storage_of
from penstock.sink.postgres.table_schema import TABLES, table_schema_of
from penstock.sink.table.target import NotStoredError, Target
from penstock.sql.postgres.database import Database

TARGET = Target(table="t", write="append", key=(), case_counts=True)


def without_nul(column):
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return pa.array([None if text is None else text.replace("\0", "␀") for text in column.to_pylist()], column.type)
    return column


COLUMNS = {
    **{name: without_nul(column) for name, column in SHARED.items() if len(column)},
    "time": pa.array([0, 1_000, 86_399_999_999_000, None], pa.int64()).cast(pa.time64("ns")),
    "decimal of all digits": pa.array([Decimal("0." + "9" * 38), Decimal("-1E-38"), None], pa.decimal128(38, 38)),
    "dates far away": pa.array([-2_440_588, 2_145_031_948, None], pa.int32()).cast(pa.date32()),
    "times far away": pa.array([-210_866_803_200_000_000, (1 << 63) - 1, None], pa.timestamp("us", "UTC")),
    "unzoned times far away": pa.array([-210_866_803_200_000_000, (1 << 63) - 1, None], pa.timestamp("us")),
}
OTHER_TYPES = [
    ("int8", "numeric(3,0)"),
    ("int16", "bigint"),
    ("int32", "bigint"),
    ("int64", "numeric"),
    ("int64", "numeric(21,2)"),
    ("float", "double precision"),
    ("decimal", "numeric"),
    ("decimal", "numeric(20,4)"),
    ("decimal scale -2", "numeric(10,3)"),
    ("string", "character varying"),
    ("large string", "character varying(5000)"),
    ("timestamp", "timestamp(6) with time zone"),
    ("struct", "jsonb"),
    ("array of texts", "text"),
    ("map", "text"),
    ("null", "integer"),
    ("null", "jsonb"),
]


@pytest.fixture(scope="module")
def connection():
    database = Database(server("postgres").database("storage"), application="test")
    yield database.writable()
    database.drop()


def through_postgres(connection, column, declared=None):
    """In three batches, of which one is a slice in the middle of another's memory."""
    schema = pa.schema([pa.field("c", column.type)])
    connection.execute("DROP TABLE IF EXISTS t")
    connection.execute(f"CREATE TABLE t (c {declared or storage_of(column.type).declared(column.type)})")
    shape = table_schema_of(connection, "public", "t")
    cut = len(column) // 3
    parts = [column.slice(0, cut), column.slice(cut, cut), column.slice(2 * cut)]
    connection.execute("BEGIN")
    batches = iter([pa.RecordBatch.from_arrays([part], schema=schema) for part in parts])
    assert load(connection, batches, schema, shape, TARGET).rows == len(column)
    query = TABLES.statements_of(schema, TARGET).read()
    found = pa.Table.from_batches(TABLES.scan(connection, query, schema), schema).combine_chunks()["c"]
    connection.execute("COMMIT")
    return found


def require_same(found, column):
    whole = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    assert [repr(value) for value in plain(whole)] == [repr(value) for value in plain(column)]
    schema = pa.schema([pa.field("c", column.type)])
    hashes = [row_hashes(pa.RecordBatch.from_arrays([one], schema=schema), RowDigest.XXHASH64_NULLS) for one in (whole, column)]
    assert hashes[0].equals(hashes[1])


def plain(column):
    """Times as numbers, for those that Python's own do not reach."""
    if pa.types.is_timestamp(column.type):
        return column.view(pa.int64()).to_pylist()
    return (column.cast(pa.int32()) if pa.types.is_date32(column.type) else column).to_pylist()


@pytest.mark.parametrize("name", COLUMNS)
def test_values_come_back(connection, name):
    require_same(through_postgres(connection, COLUMNS[name]), COLUMNS[name])


@pytest.mark.parametrize(("name", "declared"), OTHER_TYPES)
def test_values_come_back_from_other_columns_that_will_do(connection, name, declared):
    assert storage_of(COLUMNS[name].type).takes(declared, COLUMNS[name].type)
    require_same(through_postgres(connection, COLUMNS[name], declared), COLUMNS[name])


@pytest.mark.parametrize(
    ("kind", "declared"),
    [
        (pa.int64(), "integer"),
        (pa.int64(), "double precision"),
        (pa.int64(), "numeric(18,0)"),
        (pa.int64(), "numeric(20,2)"),
        (pa.int32(), "real"),
        (pa.float64(), "real"),
        (pa.float64(), "numeric"),
        (pa.decimal128(12, 2), "numeric(12,1)"),
        (pa.decimal128(12, 2), "numeric(12,3)"),
        (pa.decimal128(12, 2), "double precision"),
        (pa.decimal128(5, -2), "numeric(5,0)"),
        (pa.string(), "character(10)"),
        (pa.string(), "uuid"),
        (pa.string(), "jsonb"),
        (pa.binary(), "text"),
        (pa.date32(), "timestamp without time zone"),
        (pa.timestamp("us", "UTC"), "timestamp without time zone"),
        (pa.timestamp("us"), "timestamp with time zone"),
        (pa.timestamp("us"), "timestamp(3) without time zone"),
        (pa.time64("ns"), "time(3) without time zone"),
        (pa.map_(pa.string(), pa.int64()), "jsonb"),
        (pa.list_(pa.map_(pa.string(), pa.int64())), "jsonb"),
        (pa.struct([("a", pa.int64())]), "hstore"),
        (pa.bool_(), "integer"),
    ],
    ids=str,
)
def test_columns_that_would_change_values_are_refused(kind, declared):
    assert not storage_of(kind).takes(declared, kind)


def test_a_type_that_spark_has_not():
    with pytest.raises(TypeError, match="has no place in PostgreSQL"):
        storage_of(pa.uint64())


@pytest.mark.parametrize(
    ("kind", "declared", "value"),
    [
        (pa.timestamp("us", "UTC"), "timestamptz", "'infinity'"),
        (pa.date32(), "date", "'-infinity'"),
        (pa.decimal128(12, 2), "numeric", "'NaN'"),
        (pa.decimal128(12, 2), "numeric", "1.234"),
        (pa.int64(), "numeric", "1.5"),
        (pa.int64(), "numeric", "1e30"),
        (pa.float32(), "double precision", "0.1"),
        (pa.duration("us"), "interval", "'1 day'"),
        (pa.struct([("a", pa.int64())]), "json", "'[1]'"),
        (pa.struct([("a", pa.int64())]), "text", "'no json'"),
        (pa.null(), "integer", "1"),
    ],
    ids=str,
)
def test_what_penstock_cannot_have_written_is_told(connection, kind, declared, value):
    connection.execute("DROP TABLE IF EXISTS t")
    connection.execute(f"CREATE TABLE t (c {declared})")
    connection.execute(f"INSERT INTO t VALUES ({value})")
    schema = pa.schema([pa.field("c", kind)])
    connection.execute("BEGIN")
    try:
        with pytest.raises(NotStoredError):
            list(TABLES.scan(connection, TABLES.statements_of(schema, TARGET).read(), schema))
    finally:
        connection.execute("ROLLBACK")


def admission(**changed):
    settings = {"required": frozenset(), "longest": {}, "jsonb": frozenset(), **changed}
    return pickle.loads(pickle.dumps(RowValidator(sink=SinkName("db"), table="t", **settings)))


def batch(column):
    return pa.RecordBatch.from_arrays([column], names=["c"])


@pytest.mark.parametrize(
    ("column", "settings", "said"),
    [
        (pa.array(["a\0b"]), {}, r"NUL \(U\+0000\) in column 'c'"),
        (pa.array(["ab\0"], pa.large_string()), {}, "NUL"),
        (pa.array(["äöü", "äöüß"]), {"longest": {"c": 3}}, "4 characters in column 'c', which takes 3"),
        (pa.array([1, None]), {"required": frozenset({"c"})}, "NULL in column 'c'"),
        (pa.array([1], pa.time64("ns")), {}, "part of a microsecond"),
        (pa.array([-210_866_803_200_000_001], pa.timestamp("us")), {}, "outside what PostgreSQL holds"),
        (pa.array([-2_440_589], pa.int32()).cast(pa.date32()), {}, "outside what PostgreSQL holds"),
        (pa.array([2_145_031_949], pa.int32()).cast(pa.date32()), {}, "outside what PostgreSQL holds"),
        (pa.array([["a\0"]]), {"jsonb": frozenset({"c"})}, "of type jsonb"),
        (pa.array([["a\0"]]), None, ""),
        (pa.array([["\\u0000"]]), {"jsonb": frozenset({"c"})}, None),
        (pa.array(["abc", None]), {"longest": {"c": 3}}, None),
    ],
)
def test_admission(column, settings, said):
    check = admission(**(settings or {}))
    if not said:
        check(batch(column))
        return
    with pytest.raises(StageFailed, match=said):
        check(batch(column))


def test_what_admission_takes_at_its_limits_the_server_takes(connection):
    for name, kind in itertools.product(["dates far away", "times far away", "unzoned times far away"], [None]):
        admission()(batch(COLUMNS[name]))
        require_same(through_postgres(connection, COLUMNS[name], kind), COLUMNS[name])


def test_tasks_need_no_client_of_postgresql():
    """What is pickled to them is checked with the client's packages out of reach."""
    program = (
        "import sys; sys.modules['psycopg'] = sys.modules['pgpq'] = None\n"
        "import pickle; check = pickle.loads(sys.stdin.buffer.read())\n"
        "import pyarrow as pa; check(pa.record_batch({'c': [1]}))\n"
    )
    data = pickle.dumps(RowValidator(sink=SinkName("db"), table="t", required=frozenset(), longest={}, jsonb=frozenset()))
    assert subprocess.run([sys.executable, "-c", program], input=data, check=False).returncode == 0


def test_restoring_says_what_it_expected():
    with pytest.raises(NotStoredError, match="expected a stored decimal128"):
        STORAGES.restored([Decimal("1.234")], pa.decimal128(12, 2))
