"""What goes wrong at publish, on a real server: told in one sentence, nothing half-shown, and the next try goes on."""

import os
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from psycopg import Connection
from tests.unit.postgres_target import targets
from tests.unit.table_target import content, require_batches_taken_back

from penstock.core import faults
from penstock.errors import (
    ContentConflict,
    PublishFailed,
    Refused,
    Retryable,
)
from penstock.sql.postgres.statements import where_known

target = pytest.fixture(targets)
WAITS = {"lock_timeout": "200ms", "idle_in_transaction_session_timeout": "1min"}

KILLS = int(os.environ.get("PENSTOCK_SOAK_KILLS", "6"))


def position(target):
    return target.sql("SELECT position, generation, batch_id FROM penstock_marker")


def test_rows_and_offsets_are_in_the_database_for_people_to_read(target):
    table = target()
    table.put(table.sink(), [(1, "a")], [(2, "b")], batch_id=7)
    [(offsets, rows)] = table.sql("SELECT offsets::jsonb -> 0 ->> 'end', rows_after FROM penstock_marker")
    assert (offsets, rows) == ("8", 2)
    assert table.sql("SELECT batch_id, rows FROM penstock_batch") == [(7, 2)]


def test_no_staging_is_left_and_nobody_saw_it(target):
    table = target(inline_limit_bytes=0)
    table.put(table.sink(), [(1, "a")], batch_id=0)
    tables = table.sql("SELECT relname FROM pg_class WHERE relkind = 'r' AND relname !~ '^(pg_|sql_)' ORDER BY 1")
    assert tables == [("penstock_batch",), ("penstock_marker",), ("t",)]
    assert [path.suffix for path in table.rig.directory.glob("spool/*/*/*")] == [".id"]


@pytest.mark.parametrize("kind", ["bigint", "numeric"])
def test_a_trigger_that_drops_rows_is_noticed_and_nothing_is_shown(target, kind):
    """Whether rows are copied into the table, or from a temporary one whose columns have their types."""
    table = target()
    table.sql(f"CREATE TABLE t (id {kind}, name text)")
    sink = table.sink()
    table.sql("CREATE FUNCTION drops() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    table.sql("CREATE TRIGGER drops BEFORE INSERT ON t FOR EACH ROW WHEN (NEW.id = 2) EXECUTE FUNCTION drops()")
    publication = table.decided_but_not_published(sink, [(1, "a"), (2, "b")], batch_id=0)
    with pytest.raises(ContentConflict, match="has 2 rows, but table 't' took 1"):
        sink.publish(publication)
    assert content(table) == Counter()
    table.sql("DROP TRIGGER drops ON t")
    assert not sink.publish(publication).already
    assert content(table) == Counter([(1, "a"), (2, "b")])


def test_a_rule_holds_as_for_any_insert(target):
    """COPY would pass it by."""
    table = target()
    table.sql("CREATE TABLE t (id bigint, name text)", "CREATE TABLE seen (id bigint)")
    table.sql("CREATE RULE notes AS ON INSERT TO t DO ALSO INSERT INTO seen VALUES (NEW.id)")
    table.put(table.sink(), [(1, "a"), (2, "b")], batch_id=0)
    assert content(table) == Counter([(1, "a"), (2, "b")])
    assert table.sql("SELECT id FROM seen ORDER BY id") == [(1,), (2,)]


def test_a_rule_for_statements_that_are_not_run_is_left_alone(target):
    table = target()
    table.sql("CREATE TABLE t (id bigint, name text)", "CREATE RULE kept AS ON DELETE TO t DO INSTEAD NOTHING")
    table.sql("CREATE RULE fixed AS ON UPDATE TO t DO INSTEAD NOTHING")
    table.put(table.sink(), [(1, "a")], batch_id=0)
    assert content(table) == Counter([(1, "a")])


def test_a_constraint_stops_the_batch_until_it_is_mended(target):
    table = target()
    table.sql("CREATE TABLE t (id bigint CONSTRAINT small CHECK (id < 10), name text)")
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a"), (20, "secret value")], batch_id=0)
    with pytest.raises(PublishFailed, match=r'violates check constraint "small"\. Drop the constraint') as told:
        sink.publish(publication)
    assert "secret value" not in str(told.value)
    assert content(table) == Counter()
    table.sql("ALTER TABLE t DROP CONSTRAINT small")
    assert not sink.publish(publication).already


@pytest.mark.parametrize(
    ("more", "lacking"),
    [
        ("", '"public"."t"'),
        ('CREATE TABLE "High" PARTITION OF t FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (id)', '"public"."High"'),
    ],
    ids=["of the table", "of a partition"],
)
def test_a_row_without_a_partition_stops_the_batch_until_there_is_one(target, more, lacking):
    table = target()
    table.sql("CREATE TABLE t (id bigint, name text) PARTITION BY RANGE (id)", *filter(None, [more]))
    table.sql("CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (10)")
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a"), (11, "b")], batch_id=0)
    with pytest.raises(PublishFailed, match=r"no partition of relation \"(t|High)\" found for row\.") as refused:
        sink.publish(publication)
    assert content(table) == Counter()
    told = re.match(
        r"Create the partition that a row lacks, by CREATE TABLE … (PARTITION OF .+ FOR VALUES) …", refused.value.remedy
    )
    assert told is not None
    assert lacking in told[1]
    table.sql(f"CREATE TABLE lacked {told[1]} FROM (10) TO (20)")
    assert not sink.publish(publication).already
    assert content(table) == Counter([(1, "a"), (11, "b")])


def test_a_deferred_constraint_that_fails_at_commit_is_told_as_what_it_is(target):
    table = target()
    table.sql("CREATE TABLE t (id bigint UNIQUE DEFERRABLE INITIALLY DEFERRED, name text)")
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a"), (1, "b")], batch_id=0)
    with pytest.raises(PublishFailed, match="violates unique constraint"):
        sink.publish(publication)
    assert content(table) == Counter()


def test_a_column_that_was_altered_since_would_change_values_and_is_refused(target):
    table = target()
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a"), (2, "b")], batch_id=0)
    table.sql("ALTER TABLE t ALTER COLUMN id TYPE double precision")
    with pytest.raises(Refused, match="Column 'id' of table 't' is double precision"):
        sink.publish(publication)
    table.sql("ALTER TABLE t ALTER COLUMN id TYPE numeric(30,2)")
    sink.publish(publication)
    assert table.verify(table.sink()).ok


def test_a_column_that_is_altered_while_the_table_is_waited_for_is_seen_as_it_is_then(target):
    table = target(lock_timeout_s=60)
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    with table.rig.session() as other, ThreadPoolExecutor(1) as pool:
        other.execute("BEGIN")
        other.execute("ALTER TABLE t ALTER COLUMN id TYPE double precision")
        publishing = pool.submit(sink.publish, publication)
        table.rig.await_lock()
        other.execute("COMMIT")
        with pytest.raises(Refused, match="Column 'id' of table 't' is double precision"):
            publishing.result()
    assert content(table) == Counter()


def test_a_publication_is_few_turns_to_the_server(target, monkeypatch):
    """Over a network they are most of what a small batch costs. Besides, its rows are copied."""
    table, asked, execute = target(), [], Connection.execute
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    monkeypatch.setattr(Connection, "execute", lambda *args, **more: asked.append(args[1]) or execute(*args, **more))
    table.put(sink, [(2, "b")], batch_id=1)
    texts = [each if isinstance(each, str) else each.as_string() for each in asked]
    firsts = [text.split()[0].rstrip(";") for text in texts]
    assert firsts == ["BEGIN", "SELECT", "LOCK", "WITH", "COMMIT"]


def test_a_marker_that_was_removed_is_told(target):
    table = target()
    sink = table.sink()
    table.sql("DELETE FROM penstock_marker")
    with pytest.raises(PublishFailed, match="has no marker"):
        sink.publish(table.decided_but_not_published(sink, [(1, "a")], batch_id=0))
    assert content(table) == Counter()


def test_a_marker_that_was_removed_is_not_made_anew_beside_its_batches(target):
    table = target()
    table.put(table.sink(), [(1, "a")], batch_id=0)
    table.sql("DELETE FROM penstock_marker")
    with pytest.raises(Refused, match="is gone from penstock_marker, but its batches up to position 2"):
        table.sink()
    assert content(table) == Counter([(1, "a")])


# --- who may publish


@pytest.mark.parametrize(("setting", "found"), [("work_mem", "1MB"), ("statement_timeout_of_tomorrow", None)])
def test_a_setting_is_made_only_where_the_server_knows_it(target, setting, found):
    with target().rig.session() as session:
        session.execute("BEGIN")
        session.execute(f"SELECT {where_known(setting, '1MB')}")
        assert session.execute("SELECT current_setting(%s, true)", (setting,)).fetchone() == (found,)


def test_what_a_role_says_of_waits_does_not_end_a_publication(target):
    """The limit for a whole transaction is PostgreSQL 17's."""
    table = target()
    database = table.sink()._database
    with table.rig.running.admin(table.rig.name) as admin:
        limits = {"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"}
        limits |= {"transaction_timeout"} if admin.info.server_version >= 170_000 else set()
        for limit in limits:
            admin.execute(f"ALTER DATABASE {table.rig.name} SET {limit} = '7s'")
    database.drop()
    connection = database.writable()
    database.begin(connection)
    pinned = {limit: connection.execute("SELECT current_setting(%s)", (limit,)).fetchone()[0] for limit in limits}
    assert pinned == {limit: WAITS.get(limit, "0") for limit in limits}


def test_a_driver_that_stands_still_in_its_transaction_loses_it(target, monkeypatch):
    monkeypatch.setattr("penstock.sql.postgres.database.IDLE_TIMEOUT_S", 0.2)
    table = target()
    zombie, sink = table.sink(), table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    faults.arm("postgres.mark=stall:1")
    with pytest.raises(Retryable, match="idle-in-transaction timeout"):
        zombie.publish(publication)
    assert not sink.publish(publication).already
    assert zombie.publish(publication).already


# --- answers that are lost


def test_a_connection_that_was_lost_between_two_batches_is_opened_again(target):
    table = target()
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    table.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'penstock:warehouse'")
    publication = table.decided_but_not_published(sink, [(2, "b")], batch_id=1)
    with pytest.raises(Retryable):
        sink.publish(publication)
    assert not sink.publish(publication).already
    assert content(table) == Counter([(1, "a"), (2, "b")])


def test_a_fault_while_preparing_leaves_nothing_half_made(target):
    table = target()
    for fault in ("postgres.prepare=error", "postgres.prepare=lost"):
        faults.arm(fault)
        with pytest.raises(Retryable):
            table.sink()
    table.put(table.sink(), [(1, "a")], batch_id=0)
    assert content(table) == Counter([(1, "a")])


# --- others that write


def test_a_deadlock_is_run_again_and_counted(target):
    """Another session holds a row that the upsert wants, and then wants the marker: PostgreSQL ends one of the two."""
    table = target(write="upsert", key=["id"], lock_timeout_s=60)
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    publication = table.decided_but_not_published(sink, [(1, "b")], batch_id=1)
    running, name = table.rig.running, table.rig.name
    sink.close()
    with running.admin(name) as other, ThreadPoolExecutor(1) as pool:
        other.execute(f"ALTER DATABASE {name} SET deadlock_timeout = '3s'")
        other.execute("SET deadlock_timeout = '600s'")  # so that it is not the one that looks
        other.execute("BEGIN")
        other.execute("UPDATE t SET name = 'c' WHERE id = 1")
        publishing = pool.submit(sink.publish, publication)
        table.rig.await_lock()
        other.execute("SELECT 1 FROM penstock_marker FOR UPDATE")
        other.execute("ROLLBACK")
        assert not publishing.result().already
    assert sink.conflicts == 1
    assert content(table) == Counter([(1, "b")])


@pytest.mark.parametrize(("write", "shown"), [("upsert", "b"), ("insert_if_absent", "theirs")])
def test_a_key_that_another_session_inserts_meanwhile_is_counted_anew(target, write, shown):
    table = target(write=write, key=["id"], lock_timeout_s=60)
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(5, "b"), (6, "c")], batch_id=0)
    with table.rig.session() as other, ThreadPoolExecutor(1) as pool:
        other.execute("BEGIN")
        other.execute("INSERT INTO t VALUES (5, 'theirs')")
        publishing = pool.submit(sink.publish, publication)
        table.rig.await_lock()
        other.execute("COMMIT")
        assert not publishing.result().already
    assert sink.conflicts == 1
    assert content(table) == Counter([(5, shown), (6, "c")])


def test_batches_are_taken_back(target):
    require_batches_taken_back(target)
