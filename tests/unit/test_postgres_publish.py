"""What goes wrong at publish, on a real server: told in one sentence, nothing half-shown, and the next try goes on."""

import os
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from tests.servers import cutting
from tests.servers.fixtures import server
from tests.unit.postgres_target import targets

from penstock import faults
from penstock.errors import (
    ContentConflict,
    LedgerMismatch,
    OutcomeUnknown,
    PublishFailed,
    Refused,
    Retryable,
)
from penstock.model import Generation

target = pytest.fixture(targets)

NAMES = "SELECT id, name FROM t"
KILLS = int(os.environ.get("PENSTOCK_SOAK_KILLS", "6"))
SEED = int(os.environ.get("PENSTOCK_SEED", str(random.SystemRandom().randrange(10**6))))


def content(target, query=NAMES):
    return Counter(target.sql(query))


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


def test_a_trigger_that_drops_rows_is_noticed_and_nothing_is_shown(target):
    table = target()
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


def test_a_table_that_was_dropped_is_told(target):
    table = target()
    sink = table.sink()
    shown = table.put(sink, [(1, "a")], batch_id=0)
    table.sql("DROP TABLE t")
    assert sink.publish(shown.publication).already
    with pytest.raises(PublishFailed, match=r'relation "public\.t" does not exist'):
        sink.publish(table.decided_but_not_published(sink, [(2, "b")], batch_id=1))
    assert "it is gone" in table.verify(sink).problems[0].message
    with pytest.raises(Refused, match="Table 't' is gone, and 1 rows with it"):
        table.sink()


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


def test_a_publisher_waits_for_the_one_that_holds_the_marker(target):
    table = target()
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    with table.rig.connection() as other:
        other.execute("BEGIN")
        other.execute("SELECT 1 FROM penstock_marker FOR UPDATE")
        with pytest.raises(Retryable, match="Another session holds a lock"):
            sink.publish(publication)
        other.execute("ROLLBACK")
    assert not sink.publish(publication).already


def test_a_generation_that_was_overtaken_cannot_commit(target):
    """A zombie with a decision of its own, which no ledger can have given it: its rows are not added."""
    table = target()
    zombie, sink = table.sink(), table.sink()
    newer = replace(table.decided_but_not_published(sink, [(1, "a")], batch_id=0), generation=Generation(2))
    sink.publish(newer)
    late = table.decided_but_not_published(zombie, [(2, "b")], batch_id=1)
    with pytest.raises(LedgerMismatch, match="Generation 1 publishes position 3, but table 't' was last filled by generation 2"):
        zombie.publish(late)
    assert content(table) == Counter([(1, "a")])
    assert position(table) == [(2, 2, 0)]


def test_a_zombie_that_holds_the_marker_open_loses_to_the_first_that_commits(target):
    """Both publish the same batch at once; the second waits for the first, reads its marker, and adds nothing."""
    table = target(lock_timeout_s=30)
    first, second = table.sink(), table.sink()
    publication = table.decided_but_not_published(first, [(number, "a") for number in range(1000)], batch_id=0)
    start = threading.Barrier(2)

    def publish(sink):
        start.wait()
        return sink.publish(publication).already

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(publish, (first, second))) == [False, True]
    assert table.sql("SELECT count(*) FROM t") == [(1000,)]


def test_a_driver_that_stands_still_in_its_transaction_loses_it(target, monkeypatch):
    monkeypatch.setattr("penstock.postgres.database.IDLE_TIMEOUT_S", 0.2)
    table = target()
    zombie, sink = table.sink(), table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    faults.arm("postgres.mark=stall:1")
    with pytest.raises(Retryable, match="idle-in-transaction timeout"):
        zombie.publish(publication)
    assert not sink.publish(publication).already
    assert zombie.publish(publication).already


# --- answers that are lost


@pytest.mark.parametrize("kind", cutting.KINDS)
@pytest.mark.parametrize("write", ["append", "upsert"])
def test_after_a_commit_without_an_answer_the_marker_decides(target, kind, write):
    table = target(write=write, key=["id"] if write == "upsert" else [])
    table.put(table.sink(), [(0, "before")], batch_id=0)
    with cutting.before(table.rig.running.port) as cutter:
        table.rig.port = cutter.port
        sink = table.sink()
        publication = table.decided_but_not_published(sink, [(1, "a"), (2, "b")], batch_id=1)
        cutter.arm(kind)
        with pytest.raises(OutcomeUnknown, match="gave no answer"):
            sink.publish(publication)
        assert cutter.cuts == 1
        assert sink.publish(publication).already is (kind == "after")
    assert content(table) == Counter([(0, "before"), (1, "a"), (2, "b")])
    assert table.verify(sink).ok


@pytest.mark.timeout(600)
def test_a_server_that_is_killed_while_it_commits(target):
    """Again and again, at any moment: what the marker says after the restart is what the table holds."""
    running, table = server("postgres"), target(lock_timeout_s=10)
    print("seed", SEED)
    chance, sink, sent, outcomes = random.Random(SEED), table.sink(), [], Counter()
    for number in range(KILLS):
        rows = [(number * 1000 + at, "x" * 50) for at in range(500)]
        publication = table.decided_but_not_published(sink, rows, batch_id=number)
        killer = threading.Timer(chance.uniform(0, 0.04), running.kill)
        killer.start()
        outcomes[_published(sink, publication)] += 1
        killer.join()
        running.start()
        for _ in range(2):  # the first on a connection that may have died with the server
            _published(sink, publication)
        assert sink.publish(publication).already
        sent += rows
        assert table.sql("SELECT rows_after, position FROM penstock_marker") == [(len(sent), publication.position)]
    print(dict(outcomes))
    assert content(table) == Counter(sent)
    assert table.verify(table.sink()).ok


def _published(sink, publication):
    """What publishing ended with."""
    try:
        return "already" if sink.publish(publication).already else "published"
    except OutcomeUnknown:
        return "unknown"
    except Retryable:
        return "told before the commit"


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


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (f"postgres.{step}={kind}", OutcomeUnknown if step == "commit" else Retryable)
        for step in ("begin", "fence", "copy", "move", "mark", "commit")
        for kind in ("error", "lost")
    ],
)
def test_after_any_fault_the_next_try_shows_the_batch_once(target, fault, error):
    table = target(inline_limit_bytes=0)
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a"), (2, "b")], batch_id=0)
    faults.arm(fault)
    with pytest.raises(error):
        sink.publish(publication)
    committed = fault == "postgres.commit=lost"
    assert content(table) == (Counter([(1, "a"), (2, "b")]) if committed else Counter())
    assert sink.publish(publication).already is committed
    assert content(table) == Counter([(1, "a"), (2, "b")])
    assert [path.suffix for path in table.rig.directory.glob("spool/*/*/*")] == [".id"]


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
        _await_lock(table)
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
    with table.rig.connection() as other, ThreadPoolExecutor(1) as pool:
        other.execute("BEGIN")
        other.execute("INSERT INTO t VALUES (5, 'theirs')")
        publishing = pool.submit(sink.publish, publication)
        _await_lock(table)
        other.execute("COMMIT")
        assert not publishing.result().already
    assert sink.conflicts == 1
    assert content(table) == Counter([(5, shown), (6, "c")])


def _await_lock(table):
    waiting = threading.Event()
    while not table.sql("SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"):
        waiting.wait(0.01)
