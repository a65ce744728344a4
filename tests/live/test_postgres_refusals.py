"""Settings, servers, roles and rows that will not do: refused before anything is decided, and no password in the text."""

import threading
from contextlib import closing

import pytest
from tests.unit.postgres_target import targets
from tests.unit.table_target import spark_schema

from penstock.errors import Failed, GuaranteeTooWeak, Refused, Retryable, Usage
from penstock.sql.postgres.database import Database
from penstock.testing.conformance import PIPELINE

target = pytest.fixture(targets)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "postgresql://h/db?nonsense=1"}, "no URL of a PostgreSQL database"),
        ({"write": "squash"}, "`write` is 'squash', expected one of append"),
        ({"write": "upsert"}, "needs a key"),
        ({"table": "a.b.c"}, "no name of a table"),
        ({"table": '"a'}, "no name of a table"),
        ({"table": "x" * 64}, "expected 1 to 63 bytes, found 64"),
    ],
)
def test_settings_that_make_no_sense(target, options, message):
    with pytest.raises(Usage, match=message):
        target().rig.make(**options)


def test_a_server_that_will_not_let_us_in_is_told_without_the_password(target):
    table = target()
    running = table.rig.running
    for url, error, said in (
        (running.url(table.rig.name, password="geheimes-wort"), Failed, "password authentication failed"),
        (running.url("none"), Failed, 'database "none" does not exist'),
        (running.url("none", port=1), Retryable, "does not answer"),
    ):
        sink = table.rig.make(url=url)
        with pytest.raises(error, match=said) as told:
            sink.prepare(pipeline=PIPELINE, schema=table.rig.schema)
        with pytest.raises(error, match=said):
            sink.require_login()
        [finding] = sink.check()
        assert not finding.ok
        assert said in finding.message
        assert not [secret for secret in ("geheimes-wort", "s3cret") if secret in str(told.value) + finding.message]


def test_a_server_that_loses_what_it_acknowledged_is_refused(target):
    table = target()
    with table.rig.running.admin() as admin:
        _set_fsync(admin, "off")
        try:
            with pytest.raises(GuaranteeTooWeak, match="runs with fsync = off"):
                table.sink()
        finally:
            _set_fsync(admin, "on")
    table.sink()


def _set_fsync(admin, value):
    admin.execute(f"ALTER SYSTEM SET fsync = {value}")
    admin.execute("SELECT pg_reload_conf()")
    waiting = threading.Event()
    while admin.execute("SHOW fsync").fetchone() != (value,):
        waiting.wait(0.01)


def test_what_a_role_limits_does_not_end_a_reader(target):
    """Which counts and hashes a whole table, however long that takes."""
    table = target()
    table.put(table.sink(), [(1, "a")], batch_id=0)
    with table.rig.running.admin() as admin:
        for limit in ("statement_timeout", "idle_in_transaction_session_timeout"):
            admin.execute(f"ALTER ROLE penstock IN DATABASE {table.rig.name} SET {limit} = '3s'")
    with Database(table.rig.url, application="test").reader() as connection:
        found = connection.execute("SELECT name, setting FROM pg_settings WHERE name LIKE '%timeout'").fetchall()
    limits = {"statement_timeout", "transaction_timeout", "idle_in_transaction_session_timeout"}
    assert {setting for name, setting in found if name in limits} == {"0"}


def test_a_database_that_cannot_hold_every_text_is_refused(target):
    table = target()
    with table.rig.running.admin() as admin:
        admin.execute(f"CREATE DATABASE {table.rig.name}_latin ENCODING 'LATIN1' TEMPLATE template0 OWNER penstock")
    sink = table.rig.make(url=table.rig.running.url(f"{table.rig.name}_latin"))
    with pytest.raises(Refused, match="has the encoding LATIN1"):
        sink.prepare(pipeline=PIPELINE, schema=table.rig.schema)


def test_a_role_that_cannot_stage_is_refused(target):
    table = target()
    table.sql(f"REVOKE TEMPORARY ON DATABASE {table.rig.name} FROM penstock, PUBLIC")
    with pytest.raises(Refused, match="may not create temporary tables"):
        table.sink()


def test_a_role_that_does_not_own_the_table_cannot_add_columns(target):
    table = target()
    with table.rig.running.admin(table.rig.name) as admin:
        admin.execute("CREATE TABLE t (id bigint, name text); GRANT SELECT, INSERT ON t TO penstock")
    wider = spark_schema(id="long", name="string", more="long")
    with (
        closing(table.rig.make(schema_changes="add")) as sink,
        pytest.raises(Refused, match=r"the role cannot alter it: .*owner of table t") as refused,
    ):
        sink.prepare(pipeline=PIPELINE, schema=wider)
    assert 'Have the table\'s owner run `ALTER TABLE "public"."t" ADD "more" bigint`' in refused.value.remedy
