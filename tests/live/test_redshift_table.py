"""The user's own table in Redshift: created visibly, or respected; what is refused before anything is decided; what comes
back."""

import socket
from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.live.test_postgres_storage import COLUMNS as SHARED
from tests.servers.fixtures import server
from tests.unit.redshift_target import targets
from tests.unit.table_target import content, spark_schema

from penstock.core.model import RowDigest
from penstock.core.row_hash import row_hashes
from penstock.errors import Refused, Retryable, StageFailed, Usage
from penstock.sink.redshift.database import Database
from penstock.sink.redshift.load import load
from penstock.sink.redshift.statements import split_name
from penstock.sink.redshift.storage import storage_of
from penstock.sink.redshift.table_schema import TABLES as REDSHIFT
from penstock.sink.table.target import Target
from penstock.testing.conformance import PIPELINE

target = pytest.fixture(targets)
TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' AND table_name !~ '^penstock' ORDER BY 1"
TARGET = Target(table="t", write="append", key=())
COLUMNS = {
    name: column
    for name, column in SHARED.items()
    if "far away" not in name
    and name != "decimal of all digits"
    and not (pa.types.is_decimal(column.type) and column.type.scale > 37)
}
OTHER_TYPES = [
    ("int8", "numeric(3,0)"),
    ("int32", "bigint"),
    ("int64", "numeric(21,2)"),
    ("float", "double precision"),
    ("decimal", "numeric(20,4)"),
    ("string", "character varying(5000)"),
    ("null", "character varying(9)"),
]


@pytest.fixture(autouse=True)
def nothing_refused():
    """No statement of the product's asked for what Redshift lacks."""
    server("redshift").refused.clear()
    yield
    assert server("redshift").refused == []


@pytest.fixture(scope="module")
def connection():
    database = Database(server("redshift").database("storage"), application="test")
    yield database.writable()
    database.drop()


def test_a_cluster_that_is_gone_is_noticed(connection):
    held = connection._client._usock
    assert held.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    limits = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    assert [held.getsockopt(socket.IPPROTO_TCP, limit) for limit in limits] == [30, 10, 3]


def through_redshift(connection, column, declared=None):
    """In three batches, of which one is a slice in the middle of another's memory."""
    schema = pa.schema([pa.field("c", column.type)])
    connection.execute("DROP TABLE IF EXISTS t")
    connection.execute(f"CREATE TABLE t (c {declared or storage_of(column.type).declared(column.type)})")
    cut = len(column) // 3
    parts = [column.slice(0, cut), column.slice(cut, cut), column.slice(2 * cut)]
    connection.execute("BEGIN")
    batches = iter([pa.RecordBatch.from_arrays([part], schema=schema) for part in parts])
    assert load(connection, batches, schema, REDSHIFT.table_schema_of(connection, "public", "t"), TARGET).rows == len(column)
    found = pa.Table.from_batches(list(REDSHIFT.read(connection, schema, TARGET)), schema=schema)
    connection.execute("COMMIT")
    return found.combine_chunks().to_batches()[0]


@pytest.mark.parametrize(("name", "declared"), [*((name, None) for name in COLUMNS), *OTHER_TYPES])
def test_values_come_back_as_they_went(connection, name, declared):
    column = COLUMNS[name]
    found = through_redshift(connection, column, declared)
    sent = pa.RecordBatch.from_arrays([column], names=["c"])
    assert Counter(row_hashes(found, RowDigest.XXHASH64_NULLS).tolist()) == Counter(
        row_hashes(sent, RowDigest.XXHASH64_NULLS).tolist()
    )


@pytest.mark.parametrize(
    ("table", "parts"),
    [("t", ("public", "t")), ("S.T", ("s", "t")), ('"s.x"."t""Y"', ("s.x", 't"y')), ("t" * 127, ("public", "t" * 127))],
)
def test_names_are_in_small_letters(table, parts):
    assert split_name(table) == parts


@pytest.mark.parametrize("table", ["", ".", "a.b.c", '"a', 'a"b', "a\0", "t" * 128, "penstock_fence"])
def test_names_that_are_none(target, table):
    named = target(table=table)
    with pytest.raises(Usage):
        named.sink()


@pytest.mark.parametrize(
    ("ddl", "options", "error", "said"),
    [
        ("CREATE TABLE t (id bigint)", {}, Refused, "missing in the table: name"),
        (
            "CREATE TABLE t (id bigint, name varchar(9), more int NOT NULL)",
            {},
            Refused,
            "only in the table and without a default: more",
        ),
        ("CREATE TABLE t (id integer, name varchar(9))", {}, Refused, "Column 'id' of table 't' is integer"),
        ("CREATE TABLE t (id bigint, name char(9))", {}, Refused, r"Column 'name' of table 't' is character\(9\)"),
        (
            "CREATE TABLE t (id bigint DEFAULT \"identity\"(1, 0, '1,1'), name varchar(9))",
            {},
            Refused,
            "generated by the database",
        ),
        ("CREATE VIEW t AS SELECT 1::bigint AS id, 'a'::varchar AS name", {}, Refused, "is a view, expected a table"),
        ("SELECT 1", {"create": False}, Refused, "There is no table 't' in the database"),
        ("SELECT 1", {"table": "nowhere.t"}, Refused, "There is no schema 'nowhere'"),
        ("SELECT 1", {"write": "upsert", "key": ["Id"]}, Usage, "The key names column 'Id'"),
        ("SELECT 1", {"schema": spark_schema(id="long", ID="long")}, Usage, "does not tell upper from lower case"),
        ("SELECT 1", {"schema": spark_schema(id="decimal(38,38)")}, Usage, "37 digits after the point at most"),
        (
            "SELECT 1",
            {"schema": spark_schema(x="double"), "write": "upsert", "key": ["x"]},
            Usage,
            "key's column 'x' is a double",
        ),
        (
            "CREATE TABLE t (id bigint, name varchar(9)); INSERT INTO t VALUES (1, 'a'); REVOKE DELETE ON t FROM penstock",
            {"write": "upsert", "key": ["id"]},
            Refused,
            "lacks DELETE",
        ),
    ],
)
def test_what_will_not_do_is_refused_before_the_start_and_nothing_is_created(target, ddl, options, error, said):
    table = target(**options)
    table.sql(ddl)
    before = table.sql(TABLES)
    sink = table.rig.make()
    with pytest.raises(error, match=said):
        sink.require_schema_accepted(pipeline=PIPELINE, schema=table.rig.schema)
    with pytest.raises(error, match=said):
        table.sink()
    after = table.sql(TABLES)
    assert after == before


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([(1, "a\0b")], "NUL"),
        ([(1, "é" * 33_000)], "66000 bytes in column 'name', which takes 65535"),
        ([(1, "a ")], "a blank at its end in the key's column 'name'"),
    ],
)
def test_values_that_redshift_would_change_are_refused_in_the_task(target, rows, said):
    table = target(write="upsert", key=["name"])
    with pytest.raises(StageFailed, match=said):
        table.stage(table.sink(), table.named(rows), batch_id=0)


def test_a_shorter_column_counts_bytes(target):
    table = target()
    table.sql("CREATE TABLE t (id bigint, name varchar(3), loaded timestamp DEFAULT getdate())")
    sink = table.sink()
    table.put(sink, [(1, "abc")], batch_id=0)
    assert content(table) == Counter([(1, "abc")])
    with pytest.raises(StageFailed, match="4 bytes in column 'name', which takes 3"):
        table.stage(sink, table.named([(2, "éé")]), batch_id=1)


def test_a_table_with_a_key_twice_has_both_rows_replaced(target):
    """Redshift keeps no key, so that foreign rows may be there twice."""
    table = target(write="upsert", key=["id"])
    sink = table.sink()
    table.put(sink, [(1, "a"), (2, "b")], batch_id=0)
    table.sql("INSERT INTO t VALUES (1, 'again')")
    table.put(sink, [(1, "c")], batch_id=1)
    assert content(table) == Counter([(1, "c"), (2, "b")])


def test_a_table_of_somebody_elses_by_the_name_of_the_staging_table_is_left_alone(target):
    table = target()
    table.sql("CREATE TABLE penstock_stage (theirs bigint)", "INSERT INTO penstock_stage VALUES (7)")
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    table.put(sink, [(2, "b")], batch_id=1)
    assert content(table) == Counter([(1, "a"), (2, "b")])
    assert table.sql("SELECT theirs FROM penstock_stage") == [(7,)]


def test_another_transaction_that_read_and_wrote_the_same_is_run_again_and_counted(target):
    """Serializable: the other one deletes what the upsert reads, and commits first."""
    table = target(write="upsert", key=["id"])
    sink = table.sink()
    table.put(sink, [(1, "a"), (2, "b")], batch_id=0)
    publication = table.decided_but_not_published(sink, [(1, "c")], batch_id=1)
    sink.conflicts = 0
    _meanwhile(table, sink, "DELETE FROM t WHERE id = 1")
    assert not sink.publish(publication).already
    assert sink.conflicts == 1
    assert content(table) == Counter([(1, "c"), (2, "b")])


def _meanwhile(table, sink, statement):
    """Just before the sink deletes, once."""
    connection = sink._database.writable()
    execute = connection.execute

    def interrupted(text, values=None):
        if text.startswith("DELETE FROM") and "USING" in text:
            connection.execute = execute
            table.sql(statement)
        return execute(text, values)

    connection.execute = interrupted


def test_a_fault_while_preparing_leaves_nothing_half_made(target):
    from penstock.core import faults

    table = target()
    for fault in ("redshift.prepare=error", "redshift.prepare=lost"):
        faults.arm(fault)
        with pytest.raises(Retryable):
            table.sink()
    table.put(table.sink(), [(1, "a")], batch_id=0)
    assert content(table) == Counter([(1, "a")])


def test_decimals_keep_their_digits(target):
    table = target(schema=spark_schema(price="decimal(38,37)"))
    table.put(table.sink(), [(Decimal("9." + "9" * 37),)], batch_id=0)
    assert table.sql("SELECT price FROM t") == [(Decimal("9." + "9" * 37),)]
