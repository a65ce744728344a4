"""The user's own table in SQL Server: created visibly, or respected; what is refused; what python-tds would send."""

import re
from collections import Counter

import OpenSSL.SSL
import pyarrow as pa
import pytds
import pytest
from pytds import tds_base, tds_types, tds_writer
from pytds.utils import exponential_backoff
from tests.unit.sqlserver_target import targets
from tests.unit.table_target import IN_SEQUENCE, content, require_newest_stay, spark_schema
from tests.unit.test_sqlite_storage import COLUMNS as SHARED

from penstock.core.model import RowDigest
from penstock.core.row_hash import row_hashes
from penstock.errors import Conflict, Failed, GuaranteeTooWeak, Refused, Retryable, StageFailed, Usage
from penstock.sink.sqlserver.database import Database, address_of, bulk_type
from penstock.sink.sqlserver.errors import translate_error
from penstock.sink.sqlserver.statements import split_name
from penstock.sink.sqlserver.storage import KEY_TYPES, STORAGES, storage_of, values_of
from penstock.testing.conformance import PIPELINE

target = pytest.fixture(targets)


def finite(column):
    if not pa.types.is_floating(column.type):
        return column
    least = 2.3e-308 if column.type.bit_width == 64 else 1.2e-38
    values = [value if value is not None and least < abs(value) < float("inf") else None for value in column.to_pylist()]
    return pa.array(values, column.type)


COLUMNS = {name: finite(column) for name, column in SHARED.items() if name not in {"time", "no rows"}} | {
    "time": pa.array([0, 1_000, 86_399_999_999_000, None], pa.int64()).cast(pa.time64("ns")),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_values_come_back_as_they_went(name):
    column = COLUMNS[name]
    back = STORAGES.restored(values_of(column), column.type)
    sent, found = (pa.RecordBatch.from_arrays([one], names=["c"]) for one in (column, back))
    assert row_hashes(found, RowDigest.XXHASH64_NULLS).tolist() == row_hashes(sent, RowDigest.XXHASH64_NULLS).tolist()


@pytest.mark.parametrize("name", COLUMNS)
def test_the_driver_takes_every_value_for_bulk_load(name):
    """By python-tds's own serializers, which is as far as one gets without a server."""
    column = COLUMNS[name]
    kind = bulk_type(storage_of(column.type).declared(column.type))
    factory = tds_types.SerializerFactory(tds_base.TDS74)
    serializer = factory.serializer_by_type(kind)
    sent = _Sent()
    for value in values_of(column):
        serializer.write(sent, value)
    assert sent.data


class _Sent(tds_writer._TdsWriter):
    """The driver's own writer, into memory."""

    def __init__(self):
        self.data = b""
        super().__init__(transport=None, bufsize=1 << 20, tds_session=None)

    def write(self, data):
        self.data += data


def test_types_are_declared_to_the_driver_as_in_the_table():
    for kind in (pa.int16(), pa.int64(), pa.float32(), pa.float64(), pa.bool_(), pa.decimal128(12, 2), pa.string(), pa.binary()):
        declared = storage_of(kind).declared(kind)
        assert bulk_type(declared).get_declaration().lower().replace(" ", "") == declared
        in_key = KEY_TYPES.get(declared, declared)
        assert bulk_type(in_key).get_declaration().lower().replace(" ", "") == in_key
    assert len(STORAGES) == 16


@pytest.mark.parametrize(
    ("table", "parts"),
    [("t", ("dbo", "t")), ("s.T", ("s", "T")), ('"s.x"."t""]y"', ("s.x", 't"]y')), ("t" * 128, ("dbo", "t" * 128))],
)
def test_names(table, parts):
    assert split_name(table) == parts


@pytest.mark.parametrize("table", ["", ".", "a.b.c", '"a', 'a"b', "a\0", "t" * 129, "Penstock_Marker"])
def test_names_that_are_none(target, table):
    named = target(table=table)
    with pytest.raises(Usage):
        named.sink()


KEYED = {"write": "upsert", "key": ["name"]}


@pytest.mark.parametrize(
    ("ddl", "options", "error", "said"),
    [
        ("CREATE TABLE [dbo].[t] ([id] bigint NULL)", {}, Refused, "missing in the table: name"),
        ("CREATE TABLE [dbo].[t] ([id] int NULL, [name] nvarchar(9) NULL)", {}, Refused, "Column 'id' of table 't' is int,"),
        ("CREATE TABLE [dbo].[t] ([id] bigint NULL, [name] varchar(9) NULL)", {}, Refused, r"is varchar\(9\)"),
        ("CREATE TABLE [dbo].[t] ([id] bigint NULL, [name] nvarchar(9) NULL, [more] int NOT NULL)", {}, Refused, "default: more"),
        (
            "CREATE TABLE [dbo].[t] ([id] bigint NULL, [name] nvarchar(9) NOT NULL)",
            KEYED,
            Refused,
            "has the collation SQL_Latin1",
        ),
        (
            "CREATE TABLE [dbo].[t] ([id] bigint NULL, [name] nvarchar(9) COLLATE Latin1_General_BIN2 NOT NULL)",
            KEYED,
            Refused,
            "no unique index on exactly",
        ),
        (None, {"create": False}, Refused, "There is no table 't' in the database"),
        (None, {"table": "nowhere.t"}, Refused, "There is no schema 'nowhere'"),
        (None, {"schema": spark_schema(id="long", ID="long")}, Usage, "does not tell upper from lower case"),
        (None, {"schema": spark_schema(x="double"), "write": "upsert", "key": ["x"]}, Usage, "key's column 'x' is a double"),
    ],
)
def test_what_will_not_do_is_refused_before_the_start(target, ddl, options, error, said):
    table = target(**options)
    table.rig.define(*([ddl] if ddl else []))
    with pytest.raises(error, match=said):
        table.rig.make().require_schema_accepted(pipeline=PIPELINE, schema=table.rig.schema)
    with pytest.raises(error, match=said):
        table.sink()


def test_an_identity_column_is_not_filled(target):
    table = target()
    table.rig.define("CREATE TABLE [dbo].[t] ([id] bigint NOT NULL, [name] nvarchar(9) NULL)")
    table.sql("UPDATE \"double.column\" SET identity = 1 WHERE place = 'dbo.t' AND name = 'id'")
    with pytest.raises(Refused, match="generated by the database"):
        table.sink()


@pytest.mark.parametrize(
    ("schema", "rows", "said"),
    [
        (spark_schema(id="long", name="string"), [(1, "a ")], "a blank at its end in the key's column 'name'"),
        (spark_schema(id="long", name="binary"), [(1, b"a\0")], "bytes with a zero at their end"),
        (
            spark_schema(id="long", name="string"),
            [(1, "\U0001f600" * 128)],
            "256 units of UTF-16 in column 'name', which takes 255",
        ),
        (spark_schema(id="double", name="string"), [(float("nan"), "a")], "NaN or an infinity"),
        (spark_schema(id="double", name="string"), [(5e-324, "a")], "a number nearer to zero"),
        (spark_schema(id="long", name="string"), [(1, None)], "NULL in column 'name'"),
    ],
)
def test_values_that_sql_server_would_change_are_refused_in_the_task(target, schema, rows, said):
    table = target(schema=schema, **KEYED)
    with pytest.raises(StageFailed, match=said):
        table.stage(table.sink(), table.named(rows), batch_id=0)


def test_an_upsert_by_text_goes_by_the_tables_own_key(target):
    table = target(**KEYED)
    name = "[name] nvarchar(9) COLLATE Latin1_General_BIN2 NOT NULL"
    table.rig.define(f"CREATE TABLE [dbo].[t] ([id] bigint NULL, {name}, PRIMARY KEY NONCLUSTERED ([name]))")
    sink = table.sink()
    table.put(sink, [(1, "a"), (2, "A")], batch_id=0)
    table.put(sink, [(3, "a"), (4, "b"), (5, "b")], batch_id=1)
    assert content(table) == Counter([(3, "a"), (2, "A"), (5, "b")])
    assert table.verify(sink).ok


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (("READ_ONLY", "DISABLED", 1), Refused, "as replicas are"),
        (("READ_WRITE", "FORCED", 1), GuaranteeTooWeak, "DELAYED_DURABILITY"),
    ],
)
def test_a_database_that_would_lose_rows_is_refused(target, monkeypatch, answer, error, said):
    table = target()
    catalog = table.rig.make()._database._connect.func.__globals__["Session"]._catalog

    def other(session, text, values):
        return ([answer], 1) if "sys.databases" in text else catalog(session, text, values)

    monkeypatch.setattr("tests.servers.tsql.Session._catalog", other)
    with pytest.raises(error, match=said):
        table.sink()


NOT_KEPT = [
    ("is_memory_optimized", ("USER_TABLE", 1, 0, ""), "is a memory-optimized table, expected"),
    ("is_memory_optimized", ("USER_TABLE", 0, 1, ""), "is an external table, expected"),
    ("is_memory_optimized", ("USER_TABLE", 0, 0, "HISTORY_TABLE"), "is a history table, expected"),
    ("is_memory_optimized", ("VIEW", 0, 0, ""), "is a view, expected"),
    ("sys.security_policies", ("dbo.only_mine",), "Security policy 'dbo.only_mine' is in force on"),
]


@pytest.mark.parametrize("found", NOT_KEPT)
@pytest.mark.parametrize("when", ["start", "publication"])
def test_a_table_that_does_not_keep_what_it_takes_is_refused(target, monkeypatch, found, when):
    """At the start, and where the table became so between decision and publication; the marker's table is as it was."""
    (asked, answer, said), table = found, target()
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    session = table.rig.make()._database._connect.func.__globals__["Session"]
    catalog = session._catalog

    def other(self, text, values):
        return ([answer], 1) if asked in text and values["table"] == "t" else catalog(self, text, values)

    monkeypatch.setattr("tests.servers.tsql.Session._catalog", other)
    with pytest.raises(Refused, match=said):
        table.sink() if when == "start" else sink.publish(publication)
    monkeypatch.undo()
    sink.publish(publication)
    assert content(table) == Counter([(1, "a")])


@pytest.mark.parametrize("found", NOT_KEPT)
@pytest.mark.parametrize("own", ["penstock_marker", "penstock_batch"])
def test_tables_of_our_own_keep_what_they_take(target, monkeypatch, found, own):
    """Without its marker, the newest batch would be published once more."""
    (asked, answer, said), table = found, target()
    table.put(table.sink(), [(1, "a")], batch_id=0)
    catalog = table.rig.make()._database._connect.func.__globals__["Session"]._catalog

    def other(self, text, values):
        return ([answer], 1) if asked in text and values["table"] == own else catalog(self, text, values)

    monkeypatch.setattr("tests.servers.tsql.Session._catalog", other)
    with pytest.raises(Refused, match=said):
        table.rig.make().require_schema_accepted(pipeline=PIPELINE, schema=table.rig.schema)
    with pytest.raises(Refused, match=said):
        table.sink()
    monkeypatch.undo()
    table.put(table.sink(), [(2, "b")], batch_id=1)
    assert content(table) == Counter([(1, "a"), (2, "b")])


@pytest.mark.parametrize(
    ("number", "kind"),
    [(1205, Conflict), (3960, Conflict), (1222, Retryable), (40613, Retryable), (3906, Retryable), (0, Retryable), (547, Failed)],
)
def test_what_the_server_says_is_told_as_what_to_do(number, kind):
    cause = pytds.OperationalError("Something.")
    cause.msg_no = number
    told = translate_error(cause, "db.example.com:1433/shop", Failed)
    assert isinstance(told, kind)
    assert isinstance(told, Retryable) or kind is not Retryable


def login_failed(number, said):
    cause = pytds.OperationalError(said)
    cause.msg_no = number
    return cause


@pytest.mark.parametrize(
    ("cause", "said", "remedy"),
    [
        (login_failed(18470, "The account is disabled."), "The login at .* fails: The account is disabled", "Enable the login"),
        (login_failed(40615, "Not allowed."), "The login at .* fails: Not allowed", "firewall admit this machine"),
        (
            OpenSSL.SSL.Error([("SSL routines", "", "certificate verify failed")]),
            "The login at .* fails: certificate verify failed",
            r"\?ssl_ca=",
        ),
        (pytds.Error("Certificate does not match host name 'h'"), "The login at .* fails: Certificate does not", r"\?ssl_ca="),
    ],
)
def test_what_does_not_let_us_in_is_told_however_long_the_driver_tried(cause, said, remedy):
    def fails(_):
        raise cause

    def asks_until_the_time_is_up(*_, **__):
        final = isinstance(cause, OpenSSL.SSL.Error)
        return fails(0) if final else exponential_backoff(fails, lambda _: None, max_time_sec=0, first_attempt_time_sec=0)

    there = Database("sqlserver://u@h/d?ssl_mode=disabled", application="test", connect=asks_until_the_time_is_up)
    with pytest.raises(Failed, match=said) as told:
        there.writable(Failed)
    assert re.search(remedy, told.value.remedy)


def test_a_server_that_does_not_answer_in_time_is_told_as_that():
    def is_late(*_, **__):
        return exponential_backoff(refuses, lambda _: None, max_time_sec=0, first_attempt_time_sec=0)

    def refuses(_):
        raise ConnectionRefusedError(111, "Connection refused")

    there = Database("sqlserver://u@h/d?ssl_mode=disabled", application="test", connect=is_late)
    with pytest.raises(Retryable, match="does not answer"):
        there.writable(Failed)


def test_a_session_that_cannot_be_set_up_is_closed():
    class Session:
        is_closed = False

        def cursor(self):
            raise pytds.InterfaceError("Server closed connection")

        def close(self):
            self.is_closed = True

    made = Session()
    there = Database("sqlserver://u@h/d?ssl_mode=disabled", application="test", connect=lambda *_, **__: made)
    with pytest.raises(Retryable, match="Server closed connection"):
        there.writable(Failed)
    assert made.is_closed


def test_an_older_change_never_wins(target):
    require_newest_stay(target(**IN_SEQUENCE), 0)


def test_values_of_rows_are_not_told():
    cause = pytds.IntegrityError("Cannot insert duplicate key in object 'dbo.t'. The duplicate key value is (secret).")
    cause.msg_no = 2627
    assert "secret" not in str(translate_error(cause, "here", Failed))


@pytest.mark.parametrize(
    "url",
    [
        "sqlserver://h",
        "sqlserver:///db",
        "mysql://h/db",
        "sqlserver://h/db?x=1",
        "sqlserver://h/db?ssl_mode=maybe",
        "sqlserver://h:x/d",
    ],
)
def test_urls_that_are_none(url):
    with pytest.raises(Usage):
        address_of(url)


def test_a_url_asks_for_tls_unless_it_says_otherwise():
    assert address_of("sqlserver://ann:geh%20eim@h/db?ssl_ca=/ca.pem").ca == "/ca.pem"
    assert address_of("sqlserver://ann:geh%20eim@h/db?ssl_ca=/ca.pem").checks_host
    assert address_of("sqlserver://ann:geh%20eim@h/db?ssl_mode=disabled").ca is None
    assert address_of("sqlserver://ann:geh%20eim@h/db?ssl_mode=disabled").password == "geh eim"
