"""What a table of Cassandra cannot hold exactly is refused before anything is decided, each with the remedy."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.servers import tls
from tests.servers.cassandra import connected
from tests.unit.cassandra_target import KEYSPACE, targets
from tests.unit.table_target import DELETING, GONE, spark_schema

from penstock.errors import Failed, PublishFailed, Refused, Retryable, StageFailed, Usage
from penstock.sink.cassandra.address import address_of
from penstock.sink.cassandra.database import Database
from penstock.sink.cassandra.storage import RowValidator
from penstock.sink.cassandra.table_schema import target_of
from penstock.spec.table import Cassandra
from penstock.testing.conformance import PIPELINE

target = pytest.fixture(targets)


def moment(micros):
    """Without a zone, as the driver and Spark's timestamp_ntz have it."""
    return pa.scalar(micros, pa.timestamp("us")).as_py()


@pytest.mark.parametrize(
    ("created", "options", "said"),
    [
        ("(id bigint PRIMARY KEY, name counter)", {}, "has counters, which a repeated write would raise again"),
        ("(id bigint PRIMARY KEY, name list<text>)", {}, r"Column 'name' .* is list<text>, which does not keep .* expected text"),
        ("(id bigint PRIMARY KEY, name blob)", {}, r"Column 'name' .* is blob, .* expected text"),
        ("(id int PRIMARY KEY, name text)", {}, r"Column 'id' .* is int, .* expected bigint \(or wider integers, varint\)"),
        ("(id bigint PRIMARY KEY, name text) WITH default_time_to_live = 60", {}, "has a default_time_to_live of 60 s"),
        ("(id bigint, at int, name text, PRIMARY KEY (id, at))", {}, r"primary key \(\(id\), at\), but the sink has \(\(id\)\)"),
        (
            "(id bigint, name text, PRIMARY KEY ((id, name)))",
            {"key": ["id", "name"]},
            r"\(\(id, name\)\), but .* \(\(id\), name\)",
        ),
        ("(id bigint PRIMARY KEY)", {}, "missing in the table: name"),
        ("(id bigint, at int, name text STATIC, PRIMARY KEY (id, at))", {"key": ["id", "at"]}, "Column 'name' .* is static"),
    ],
)
def test_a_table_that_repeated_writes_would_change_is_refused_by_check_and_start(target, created, options, said):
    schema = spark_schema(id="long", at="integer", name="string") if options.get("key") == ["id", "at"] else None
    table = target(created=created, schema=schema, **options)
    with pytest.raises(Refused, match=said):
        table.rig.make().require_schema_accepted(pipeline=PIPELINE, schema=table.rig.schema)
    with pytest.raises(Refused, match=said):
        table.sink()


def test_rows_are_deleted_only_where_nodes_remember_that_for_some_hours(target):
    table = target(created="(id bigint PRIMARY KEY, name text) WITH gc_grace_seconds = 600", write="upsert")
    table.put(table.sink(), [(1, "a")], batch_id=0)
    table.rig.options |= DELETING
    with pytest.raises(Refused, match="has gc_grace_seconds = 600: after that, nodes may forget") as told:
        table.rig.make().require_schema_accepted(pipeline=PIPELINE, schema=table.rig.schema)
    table.sql(told.value.remedy.partition(",")[0])
    sink = table.sink()
    table.put(sink, [(1, GONE)], batch_id=1)
    assert table.verify(sink).ok
    assert table.sql("SELECT id FROM {}") == []


def test_a_view_is_refused(target):
    table = target(created="(id bigint, name text, PRIMARY KEY (id))")
    table.sql(
        "CREATE MATERIALIZED VIEW {}_view AS SELECT id, name FROM {} WHERE name IS NOT NULL AND id IS NOT NULL "
        "PRIMARY KEY (name, id)"
    )
    view = table.rig.make(table=f"{table.rig.table}_view")
    assert [(finding.ok, "is a view" in finding.message) for finding in view.check()] == [(False, True)]


def test_check_warns_of_a_keyspace_whose_only_copy_dies_with_its_node(target):
    fine, warning = target().rig.make().check()
    assert (fine.ok, warning.ok, warning.warns) == (True, True, True)
    assert "keeps replication_factor 1 copies" in warning.message


def test_a_keyspace_without_a_commit_log_is_refused_until_the_remedy_was_run(target):
    table = target()
    sink, keep = table.sink(), f"ALTER KEYSPACE {KEYSPACE} WITH durable_writes = true"
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    table.sql(keep.replace("true", "false"))
    try:
        for act in (lambda: sink.publish(publication), table.sink):
            with pytest.raises(Refused, match=f"Keyspace {KEYSPACE} has durable_writes = false") as told:
                act()
            assert told.value.remedy.partition(";")[0] == keep
        assert [finding.ok for finding in table.rig.make().check()] == [False]
    finally:
        table.sql(keep)
    assert not table.sink().publish(publication).already
    assert table.verify(table.sink()).ok


def test_check_tells_of_counters_without_knowing_the_rows(target):
    [finding] = target(created="(id bigint PRIMARY KEY, name counter)").rig.make().check()
    assert not finding.ok
    assert "has counters" in finding.message


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"key": ()}, "need a key"),
        ({"write": "insert_if_absent", "key": ("id",)}, "cannot do exactly"),
        ({"key": ("id", "name"), "partition_by": ("name",)}, "expected the first columns of the key, id, name"),
        ({"table": "a-b"}, "expected 1 to 48 letters"),
        ({"table": "penstock_batch"}, "Penstock's own"),
    ],
)
def test_settings_that_no_table_could_have(changed, said):
    with pytest.raises(Usage, match=said):
        target_of(**{"table": "t", "write": "upsert", "key": ("id",), "partition_by": (), **changed})


def test_a_setting_that_no_table_could_have_names_the_sink(target):
    with pytest.raises(Usage, match=r"Sink 'into_\w+': `table` is 'a-b'"):
        target().rig.make(table="a-b")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"key": []}, "key"),
        ({"write": "replace"}, "write"),
        ({"write": "append", "delete_when": "id = 1"}, "delete_when is given, but write is append"),
        ({"partition_by": ["name"]}, r"partition_by should be the first columns of key \(id\), found name"),
        ({"url": "cassandra://host"}, "should be a Cassandra URL with a keyspace"),
    ],
)
def test_a_pipeline_file_that_asks_for_what_cassandra_cannot_do(changed, said):
    with pytest.raises(Usage, match=said):
        Cassandra(**{"url": "cassandra://host/shop", "table": "t", "key": ["id"], **changed})


@pytest.mark.parametrize(
    ("kind", "said"), [("double", "identifies nothing"), ("array<int>", "has no order"), ("void", "identifies nothing")]
)
def test_columns_that_are_no_key(target, kind, said):
    kinds = {"type": "array", "elementType": "integer", "containsNull": True} if kind.startswith("array") else kind
    with pytest.raises(Usage, match=said):
        target(schema=spark_schema(id=kinds, name="string")).sink()


# --- values, in the task


ADMISSION = RowValidator(sink="s", table="t", required=frozenset({"id", "place"}), key=("id", "place"), lone="id")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"id": None, "place": "x"}, "NULL in column 'id'"),
        ({"id": "1", "place": None}, "NULL in column 'place'"),
        ({"id": "", "place": "x"}, "an empty value in column 'id', the partition key"),
        ({"id": "1", "place": "x" * 66_000}, "a key of up to 66001 bytes"),
        ({"id": "1", "place": "x", "at": moment(1_767_225_600_000_001)}, "parts of a millisecond in column 'at'"),
        ({"id": "1", "place": "x", "at": moment(-31_535_999_999_001)}, "parts of a millisecond in column 'at'"),
    ],
)
def test_rows_that_no_table_takes(row, said):
    schema = pa.schema([("id", pa.string()), ("place", pa.string()), ("at", pa.timestamp("us"))])
    with pytest.raises(StageFailed, match=said):
        ADMISSION(pa.RecordBatch.from_pylist([row], schema))


def test_rows_that_a_table_takes():
    schema = pa.schema([("id", pa.string()), ("place", pa.string()), ("at", pa.timestamp("us"))])
    rows = [{"id": "1", "place": "", "at": moment(-31_535_999_001_000)}, {"id": "1", "place": "x", "at": None}]
    ADMISSION(pa.RecordBatch.from_pylist(rows, schema))


# --- types


TYPES = {
    "tiny": "byte",
    "small": "short",
    "whole": "integer",
    "big": "long",
    "real": "float",
    "double": "double",
    "yes": "boolean",
    "price": "decimal(12,2)",
    "text": "string",
    "raw": "binary",
    "day": "date",
    "at": "timestamp",
    "plain": "timestamp_ntz",
    "took": "interval day to second",
    "many": {"type": "array", "elementType": "integer", "containsNull": True},
    "none": "void",
}
AT = moment(1_795_336_200_123_000)
VALUES = (
    *(-128, -32768, 2**31 - 1, -(2**63), 0.1, float("inf"), True, Decimal("-0.10"), "nul\0byte", b"\0\xff", dt.date(1, 1, 1)),
    *(
        AT.replace(tzinfo=dt.timezone.utc),
        moment(253_402_300_799_999_000),
        dt.timedelta(microseconds=-1),
        [1, None],
    ),
    None,
)


def test_every_type_comes_back_as_it_was_and_in_wider_columns_too(target):
    """What `verify` reads has the digest of what was decided; nulls are shown as such."""
    schema = spark_schema(id="long", **TYPES)
    wider = {"tiny": "int", "small": "bigint", "whole": "varint", "big": "varint", "real": "double"}
    plain = {"double": "double", "yes": "boolean", "price": "decimal", "text": "text", "raw": "blob", "day": "date"}
    others = {"at": "timestamp", "plain": "timestamp", "took": "bigint", "many": "text", "none": "set<int>"}
    columns = ", ".join(f"{name} {kind}" for name, kind in {**wider, **plain, **others}.items())
    for created in (None, f"(id bigint PRIMARY KEY, {columns})"):
        table = target(schema=schema, created=created)
        sink = table.sink()
        for batch_id in (0, 1):  # the second replaces what the first wrote
            table.put(sink, [(1, *VALUES), (2, *(None for _ in VALUES))], batch_id=batch_id)
        assert table.verify(sink).ok
        [row] = table.sql("SELECT price, text, day, many, plain FROM {} WHERE id = 1")
        assert (str(row[0]), row[1], str(row[2]), row[3]) == ("-0.10", "nul\0byte", "0001-01-01", "[1,null]")


# --- who may do what, and where


def test_rights_are_looked_for_before_the_start(target):
    table = target(created="(id bigint PRIMARY KEY, name text)")
    table.sink()
    with table.rig.running.admin(KEYSPACE) as session:
        session.execute(f"CREATE ROLE guest_{table.rig.table} WITH PASSWORD = 'g' AND LOGIN = true")
        url = table.rig.running.url(KEYSPACE, user=f"guest_{table.rig.table}", password="g")
        guest = table.rig.make(url=url)
        session.execute(f"GRANT SELECT ON penstock_marker TO guest_{table.rig.table}")
        for right, on in (("SELECT", table.rig.table), ("MODIFY", table.rig.table)):
            with pytest.raises(Refused, match=f"The user lacks {right} on {on}"):
                guest.require_schema_accepted(pipeline=PIPELINE, schema=table.rig.schema)
            session.execute(f"GRANT {right} ON {on} TO guest_{table.rig.table}")
        guest.require_schema_accepted(pipeline=PIPELINE, schema=table.rig.schema)


def test_what_does_not_let_us_in_is_told(target):
    running = target().rig.running
    for url, error, said in (
        (running.url("absent"), Failed, "no such keyspace"),
        (running.url(KEYSPACE, password="wrong"), Failed, "The login at .* fails"),
        (running.url(KEYSPACE, port=1), Retryable, "does not answer"),
    ):
        sink = target().rig.make(url=url)
        with pytest.raises(error, match=said) as told:
            sink.prepare(pipeline=PIPELINE, schema=None)
        assert "s3cret" not in str(told.value)
        assert [finding.ok for finding in sink.check()] == [False]


def test_a_certificate_of_an_unknown_authority_is_told_as_one(tmp_path):
    with tls.unknown(tmp_path) as port:
        there = Database(f"cassandra://127.0.0.1:{port}/shop?ssl_mode=verify_ca", application="test")
        with pytest.raises(PublishFailed, match=r"The login at .* fails: .*CERTIFICATE_VERIFY_FAILED") as told:
            there.writable()
    assert "?ssl_ca=" in told.value.remedy


def test_a_table_without_create_must_be_there(target):
    with pytest.raises(Refused, match="There is no table"):
        target(create=False).sink()


def test_the_user_needs_no_right_to_create_where_the_tables_are(target):
    """An administrator may make them; the CQL is in the how-to page."""
    table = target(created="(id bigint PRIMARY KEY, name text)")
    table.sink()
    with connected(table.rig.running.port, "cassandra", "cassandra", KEYSPACE) as session:
        role = f"writer_{table.rig.table}"
        session.execute(f"CREATE ROLE {role} WITH PASSWORD = 'w' AND LOGIN = true")
        for name in (table.rig.table, "penstock_marker", "penstock_batch"):
            session.execute(f"GRANT SELECT ON {name} TO {role}")
            session.execute(f"GRANT MODIFY ON {name} TO {role}")
    table.rig.options["url"] = table.rig.running.url(KEYSPACE, user=role, password="w")
    table.put(table.sink(), [(1, "a")], batch_id=0)
    assert [tuple(row) for row in table.rig.read_back()] == [(1, "a")]


# --- the URL


def test_the_parts_of_a_url():
    address = address_of("cassandra://me:p%40ss@one:9142,two/shop?consistency=quorum&local_dc=here")
    assert (address.nodes, address.keyspace) == ((("one", 9142), ("two", 9042)), "shop")
    assert (address.user, address.password, address.local_dc) == ("me", "p@ss", "here")
    assert address.place == "one:9142,two:9042/shop"
    assert "p@ss" not in repr(address)


@pytest.mark.parametrize(
    "url",
    [
        *("cassandra://host", "cassandra:///shop", "cassandra://host:x/shop", "mysql://host/shop", "cassandra://host/a/b"),
        *("cassandra://host/shop?consistency=one", "cassandra://host/shop?what=1", "cassandra://host/shop?ssl_ca=/absent"),
    ],
)
def test_a_wrong_url(url):
    with pytest.raises(Usage):
        address_of(url)
