"""Settings, servers, users and rows that will not do: refused before anything is decided, and no password in the text."""

import socket

import pymysql
import pytest
from tests.servers import tls
from tests.servers.settings import set_globally
from tests.unit.mysql_target import targets
from tests.unit.table_target import spark_schema

from penstock.errors import Failed, GuaranteeTooWeak, Refused, Retryable, StageFailed, Usage
from penstock.sql.mysql.connection import address_of
from penstock.sql.mysql.database import Database
from penstock.sql.mysql.server import Server, require_durable
from penstock.testing.conformance import PIPELINE

target = pytest.fixture(targets)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "mysql://h"}, "no URL of a MySQL or MariaDB database"),
        ({"url": "mysql://h:port/db"}, "no URL of a MySQL"),
        ({"url": "postgresql://h/db"}, "no URL of a MySQL"),
        ({"url": "mysql://h/db/more"}, "no URL of a MySQL"),
        ({"url": "mysql://h/db?nonsense=1"}, "has the parameter 'nonsense'"),
        ({"url": "mysql://h/db?ssl_mode=maybe"}, "`ssl_mode` of `url` is 'maybe'"),
        ({"url": "mysql://h/db?ssl_ca=/nowhere.pem"}, "certificates that `url` names cannot be used"),
        ({"url": "mysql://h/db?connect_timeout=soon"}, "expected 1 to 3600 seconds"),
        ({"write": "squash"}, "`write` is 'squash', expected one of append"),
        ({"write": "upsert"}, "needs a key"),
        ({"table": "a.b"}, "no name of a table"),
    ],
)
def test_settings_that_make_no_sense(target, options, message):
    with pytest.raises(Usage, match=message):
        target().rig.make(**options)


def test_the_parts_of_a_url():
    address = address_of("mariadb://a%40b:p%2Fw%25@db.example/sh%20op?connect_timeout=3&ssl_mode=required")
    assert (address.user, address.password, address.host, address.port) == ("a@b", "p/w%", "db.example", 3306)
    assert (address.database, address.connect_timeout_s, address.place) == ("sh op", 3, "db.example:3306/sh op")
    assert not address.ssl["ssl"].check_hostname
    assert "p/w" not in repr(address)
    assert address_of("mysql://h/db").ssl == {}
    assert address_of("mysql://h/db?ssl_mode=verify_identity").ssl["ssl"].check_hostname
    assert address_of("mysql://h/db?unix_socket=/run/s").place == "/run/s/db"


def test_a_server_that_will_not_let_us_in_is_told_without_the_password(target):
    table = target()
    running = table.rig.running
    for url, error, said in (
        (running.url(table.rig.name, password="geheimes-wort"), Failed, "Access denied for user 'penstock'"),
        (running.url("none"), Failed, "Access denied for user 'penstock'@'%' to database 'none'"),
        (running.url("none", port=1), Retryable, "does not answer"),
        (f"{running.url(table.rig.name).partition('?')[0]}?ssl_mode=required", Failed, "SSL"),
    ):
        sink = table.rig.make(url=url)
        with pytest.raises(error, match=said) as told:
            sink.prepare(pipeline=PIPELINE, schema=table.rig.schema)
        [finding] = sink.check()
        assert not finding.ok
        assert said in finding.message
        assert not [secret for secret in ("geheimes-wort", "s3cret") if secret in str(told.value) + finding.message]


@pytest.mark.timeout(30)
def test_a_server_that_takes_connections_and_says_nothing_is_not_waited_for():
    """As one that was stopped, or a proxy with nothing behind it."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        there = Database(f"mysql://u@127.0.0.1:{silent.getsockname()[1]}/db?connect_timeout=1", application="test")
        with pytest.raises(Retryable, match=r"does not answer: .*timed out"):
            there.connected()


def test_a_certificate_of_an_unknown_authority_is_told_as_one(tmp_path):
    greeting = len(tls.MYSQL_GREETING).to_bytes(3, "little") + b"\0" + tls.MYSQL_GREETING
    with tls.unknown(tmp_path, greeting=greeting, asked_bytes=36) as port:
        there = Database(f"mysql://u@127.0.0.1:{port}/db?ssl_mode=verify_ca", application="test")
        with pytest.raises(Failed, match=r"The login at .* fails: .*CERTIFICATE_VERIFY_FAILED") as told:
            there.connected()
    assert "?ssl_ca=" in told.value.remedy


def test_what_was_let_in_may_take_longer_to_answer(target):
    table = target()
    there = Database(f"{table.rig.url}&connect_timeout=1", application="test")
    assert there.connected().execute("SELECT SLEEP(1.1)").fetchone() == (0,)
    there.drop()


def test_a_server_that_loses_what_it_acknowledged_is_refused(target):
    table = target()
    for value in (0, 2):
        with (
            set_globally(table.rig, "innodb_flush_log_at_trx_commit", value),
            pytest.raises(GuaranteeTooWeak, match=f"runs with innodb_flush_log_at_trx_commit = {value}"),
        ):
            table.sink()
    table.sink()


def test_a_server_is_asked_for_its_redo_log(target, monkeypatch):
    """Only MySQL can switch it off; any server answers the question."""
    monkeypatch.setattr("penstock.sql.mysql.database.sql.REDO_LOG", "SELECT 'Innodb_redo_log_enabled', 'OFF'")
    with pytest.raises(GuaranteeTooWeak, match="redo log switched off"):
        target().sink()


def test_a_server_that_nothing_can_be_written_to_is_refused(target):
    table = target()
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    with set_globally(table.rig, "read_only", 1):
        with pytest.raises(Retryable, match="--read-only"):
            sink.publish(publication)
        with pytest.raises(Refused, match="has read_only = ON, as replicas have"):
            sink.publish(publication)
    assert not sink.publish(publication).already


@pytest.mark.parametrize(
    ("variables", "error"),
    [
        ({"log_bin": "ON", "sync_binlog": "0"}, GuaranteeTooWeak),
        ({"log_bin": "ON", "sync_binlog": "100"}, GuaranteeTooWeak),
        ({"log_bin": "ON", "sync_binlog": "1", "binlog_format": "STATEMENT"}, Refused),
        ({"innodb_read_only": "ON"}, Refused),
        ({"log_bin": "ON", "sync_binlog": "1", "binlog_format": "ROW"}, None),
        ({"log_bin": "OFF", "sync_binlog": "0", "binlog_format": "STATEMENT"}, None),
        ({"innodb_flush_log_at_trx_commit": "3"}, None),
        ({"Innodb_redo_log_enabled": "OFF"}, GuaranteeTooWeak),
        ({"innodb_flush_method": "nosync"}, GuaranteeTooWeak),
        ({"innodb_flush_method": "littlesync"}, GuaranteeTooWeak),
        ({"Innodb_redo_log_enabled": "ON", "innodb_flush_method": "O_DIRECT"}, None),
    ],
)
def test_settings_that_need_a_server_of_their_own(variables, error):
    if error is None:
        require_durable(variables, "here")
        return
    with pytest.raises(error):
        require_durable(variables, "here")


def test_what_a_server_says_of_sessions_changes_nothing(target):
    """Such as a server that is lenient, that ends transactions otherwise, or that shows some rows only."""
    table = target(write="replace")
    settings = {
        "sql_mode": "",
        "completion_type": 1,
        "sql_safe_updates": 1,
        "max_sort_length": 64,
        "sql_select_limit": 1,
        "time_zone": "+05:00",
        "autocommit": 0,
    }
    for name, value in settings.items():
        with set_globally(table.rig, name, value):
            sink = table.sink()
            table.put(sink, [(1, "a"), (2, "b")], batch_id=list(settings).index(name))
            assert table.verify(sink).ok
    assert table.sql("SELECT COUNT(*) FROM t") == [(2,)]


def test_what_a_server_limits_does_not_end_a_reader(target):
    table = target()
    with set_globally(table.rig, "max_statement_time", 20):
        there = Database(table.rig.url, application="test")
        with there.reader() as connection:
            assert connection.execute("SELECT @@SESSION.max_statement_time").fetchone() == (0,)


def test_a_server_without_local_infile_takes_rows_as_statements(target):
    table = target()
    with set_globally(table.rig, "local_infile", 0), set_globally(table.rig, "max_allowed_packet", 32768):
        sink = table.sink()
        assert "rows go there by INSERT" in sink.check()[0].message
        table.put(sink, [(number, "it's \\ so") for number in range(5000)], batch_id=0)
        assert table.verify(sink).ok
        with pytest.raises(StageFailed, match="a row whose INSERT takes"):
            table.stage(sink, table.named([(1, "'" * 16_400)]), batch_id=1)
    assert table.sql("SELECT DISTINCT name FROM t") == [("it's \\ so",)]


FLAGS = {"type": "array", "elementType": "boolean", "containsNull": True}


def test_a_row_that_no_statement_can_carry_is_refused_before_it_is_decided(target):
    """Values of few bytes that are long texts: what counts is the statement, with its quotes and escapes."""
    table = target(schema=spark_schema(id="long", flags=FLAGS))
    fits, too_long = [False] * 5400, [False] * 5460
    with set_globally(table.rig, "local_infile", 0), set_globally(table.rig, "max_allowed_packet", 32768):
        sink = table.sink()
        table.put(sink, [(1, fits), (2, fits)], batch_id=0)
        with pytest.raises(StageFailed, match=r"a row whose INSERT takes \d+ bytes, where max_allowed_packet is 32768"):
            table.stage(sink, table.named([(3, [True]), (4, too_long)]), batch_id=1)
        _require_the_longest_that_is_staged_published(table, sink, fits=len(fits), too_long=len(too_long))
    table.put(table.sink(), [(5, too_long)], batch_id=6000)
    assert table.verify(table.sink()).ok


def _require_the_longest_that_is_staged_published(table, sink, *, fits, too_long):
    """By bisection: hashing so many elements takes long."""
    while too_long - fits > 1:
        count = (fits + too_long) // 2
        try:
            table.stage(sink, table.named([(0, [False] * count)]), batch_id=count)
        except StageFailed:
            too_long = count
            continue
        table.put(sink, [(0, [False] * count)], batch_id=count)
        fits = count


def test_a_server_that_does_not_know_the_collation_of_staging_is_refused_before_the_start(target, monkeypatch):
    """As a server that is too old."""
    monkeypatch.setattr(Server, "exact_collation", "utf8mb4_of_tomorrow")
    table = target()
    _is_refused(table, "Rows cannot be staged .*Unknown collation: 'utf8mb4_of_tomorrow'")
    assert table.sql("SHOW TABLES") == []


@pytest.mark.parametrize("loads", [1, 0])
def test_rows_that_fit_the_table_and_not_its_staging_are_refused_before_the_start(target, loads):
    names = [f"c{number}" for number in range(500)]
    table = target(schema=spark_schema(**dict.fromkeys(names, "string")))
    table.sql(f"CREATE TABLE t ({', '.join(f'{name} varchar(1)' for name in names)}) CHARACTER SET utf8mb4")
    with set_globally(table.rig, "local_infile", loads):
        _is_refused(table, "Rows cannot be staged .*Row size too large")


def test_staging_that_was_tried_leaves_nothing_behind(target):
    for write in ("append", "upsert"):
        table = target(schema=spark_schema(id="long", flags=FLAGS, day="date", name="string"), write=write, key=["id"])
        sink = table.sink()
        table.rig.make().require_schema_accepted(pipeline=PIPELINE, schema=table.rig.schema)
        assert table.sql("SELECT COUNT(*) FROM t") == [(0,)]
        connection = sink._database.writable()
        assert not connection.in_transaction
        for name in ("penstock_stage", "penstock_chosen"):
            with pytest.raises(pymysql.err.ProgrammingError, match="doesn't exist"):
                connection.execute(f"SELECT 1 FROM {name}")


# --- rights


RIGHTS = {"append": "SELECT, INSERT", "upsert": "SELECT, INSERT, UPDATE", "replace": "SELECT, INSERT, DELETE"}


@pytest.mark.parametrize("write", ["append", "upsert", "insert_if_absent", "replace"])
def test_the_rights_that_the_page_names_are_enough_and_each_is_needed(target, write):
    table = target(write=write, key=["id"])
    table.sink()  # makes the tables
    rights, user = RIGHTS.get(write, RIGHTS["append"]), f"poor_{table.rig.name}"
    table.sql(
        f"CREATE USER {user} IDENTIFIED BY 'a-word-of-theirs'",
        f"GRANT CREATE TEMPORARY TABLES ON {table.rig.name}.* TO {user}",
        f"GRANT {rights} ON {table.rig.name}.t TO {user}",
        f"GRANT SELECT, INSERT, UPDATE ON {table.rig.name}.penstock_marker TO {user}",
        f"GRANT SELECT, INSERT, DELETE ON {table.rig.name}.penstock_batch TO {user}",
    )
    table.rig.options["url"] = table.rig.running.url(table.rig.name, user=user, password="a-word-of-theirs")
    sink = table.sink()
    table.put(sink, [(1, "a"), (2, "b")], batch_id=0)
    table.put(sink, [(1, "c")], batch_id=1)
    assert table.verify(sink).ok
    sink.close()
    for right in rights.split(", "):
        table.sql(f"REVOKE {right} ON {table.rig.name}.t FROM {user}")
        _is_refused(table, f"lacks {right} ON t" if right != "SELECT" or rights == right else "lacks|There is no table|missing")
        table.sql(f"GRANT {right} ON {table.rig.name}.t TO {user}")
    table.sql(f"REVOKE CREATE TEMPORARY TABLES ON {table.rig.name}.* FROM {user}")
    _is_refused(table, "lacks CREATE TEMPORARY TABLES on the database")


def _is_refused(table, said):
    sink = table.rig.make()
    with pytest.raises(Refused, match=said):
        sink.require_schema_accepted(pipeline=PIPELINE, schema=table.rig.schema)
    with pytest.raises(Refused, match=said):
        sink.prepare(pipeline=PIPELINE, schema=table.rig.schema)
    sink.close()
