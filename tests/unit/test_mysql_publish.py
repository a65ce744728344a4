"""What goes wrong at publish, on a real server: told in one sentence, nothing half-shown, and the next try goes on."""

import os
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from tests.servers import cutting
from tests.servers.fixtures import server
from tests.unit.mysql_target import targets

from penstock import faults
from penstock.errors import LedgerMismatch, OutcomeUnknown, PublishFailed, Refused, Retryable
from penstock.model import Generation
from penstock.sink.mysql import move

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
    assert table.sql("SELECT JSON_VALUE(offsets, '$[0].end'), rows_after FROM penstock_marker") == [("8", 2)]
    assert table.sql("SELECT batch_id, `rows` FROM penstock_batch") == [(7, 2)]


def test_no_staging_is_left_and_nobody_saw_it(target):
    table = target(inline_limit_bytes=0)
    table.put(table.sink(), [(1, "a")], batch_id=0)
    assert table.sql("SHOW TABLES") == [("penstock_batch",), ("penstock_marker",), ("t",)]
    assert [path.suffix for path in table.rig.directory.glob("spool/*/*/*")] == [".id"]


def test_rows_that_the_table_refuses_stop_the_batch_until_it_is_mended(target):
    """A trigger cannot leave a row out silently, but it can refuse it, as a constraint can."""
    table = target()
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a"), (20, "secret value")], batch_id=0)
    table.sql("ALTER TABLE t ADD CONSTRAINT small CHECK (id < 10)")
    with pytest.raises(PublishFailed, match=r"CONSTRAINT `small` failed .*\. Drop the constraint") as told:
        sink.publish(publication)
    assert "secret value" not in str(told.value)
    assert content(table) == Counter()
    table.sql("ALTER TABLE t DROP CONSTRAINT small")
    table.sql("ALTER TABLE t ADD UNIQUE theirs (name(3))", "INSERT INTO t VALUES (7, 'secret')")
    with pytest.raises(PublishFailed, match="Duplicate entry for key 'theirs'") as told:
        sink.publish(publication)
    assert "secret" not in str(told.value)
    table.sql("DROP INDEX theirs ON t", "DELETE FROM t")
    assert not sink.publish(publication).already
    assert content(table) == Counter([(1, "a"), (20, "secret value")])


@pytest.mark.parametrize("write", ["upsert", "insert_if_absent"])
def test_another_index_that_takes_two_rows_for_one_stops_the_batch(target, write):
    """ON DUPLICATE KEY would have changed a row of another key, and INSERT IGNORE would have left the row out."""
    table = target(write=write, key=["id"])
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    table.sql("ALTER TABLE t ADD UNIQUE theirs (name(9))")
    publication = table.decided_but_not_published(sink, [(2, "a")], batch_id=1)
    with pytest.raises(PublishFailed, match="Duplicate entry for key 'theirs'"):
        sink.publish(publication)
    assert sink.conflicts == 0
    assert content(table) == Counter([(1, "a")])


def test_a_column_that_was_altered_since_would_change_values_and_is_refused(target):
    table = target()
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a"), (2, "b")], batch_id=0)
    table.sql("ALTER TABLE t MODIFY id double")
    with pytest.raises(Refused, match="Column 'id' of table 't' is double"):
        sink.publish(publication)
    table.sql("ALTER TABLE t MODIFY id decimal(30,2)", "ALTER TABLE t ENGINE = Aria")
    with pytest.raises(Refused, match="Table 't' is of the engine Aria, expected InnoDB"):
        sink.publish(publication)
    table.sql("ALTER TABLE t ENGINE = InnoDB")
    sink.publish(publication)
    assert table.verify(table.sink()).ok


def test_a_table_that_was_dropped_is_told(target):
    table = target()
    sink = table.sink()
    shown = table.put(sink, [(1, "a")], batch_id=0)
    table.sql("DROP TABLE t")
    assert sink.publish(shown.publication).already
    with pytest.raises(PublishFailed, match=r"has no such table: Table 'unit\d+\.t' doesn't exist"):
        sink.publish(table.decided_but_not_published(sink, [(2, "b")], batch_id=1))
    assert "it is gone" in table.verify(sink).problems[0].message
    with pytest.raises(Refused, match="Table 't' is gone, and 1 rows with it"):
        table.sink()


def test_a_marker_that_was_removed_is_told_and_not_made_anew_beside_its_batches(target):
    table = target()
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    table.sql("DELETE FROM penstock_marker")
    with pytest.raises(PublishFailed, match="has no marker"):
        sink.publish(table.decided_but_not_published(sink, [(1, "a")], batch_id=1))
    with pytest.raises(Refused, match="is gone from penstock_marker, but its batches up to position 2"):
        table.sink()
    assert content(table) == Counter([(1, "a")])


def test_a_transaction_that_something_ended_is_not_taken_for_committed(target, monkeypatch):
    """MySQL commits at any statement that defines a table: nothing of ours may be one."""
    table = target()
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    monkeypatch.setattr("penstock.sink.mysql.statements.FORGET_BATCHES", "CREATE TABLE theirs (id int) -- %(position)s")
    with pytest.raises(PublishFailed, match="ended before its COMMIT"):
        sink.publish(publication)
    monkeypatch.undo()
    assert sink.publish(publication).already


# --- who may publish


def test_a_publisher_waits_for_the_one_that_holds_the_marker(target):
    table = target()
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    with table.rig.session() as other:
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
    monkeypatch.setattr("penstock.sink.mysql.database.IDLE_TIMEOUT_S", 1)
    table = target()
    zombie, sink = table.sink(), table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    faults.arm("mysql.mark=stall:2")
    with pytest.raises(Retryable, match="does not answer"):
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
    running, table = server("mysql"), target(lock_timeout_s=10)
    print("seed", SEED)
    chance, sink, outcomes = random.Random(SEED), table.sink(), Counter()
    began, first = time.monotonic(), [(-at, "x" * 50) for at in range(500)]
    table.put(sink, first, batch_id=0)
    sent, about_as_long_s = [*first], 1.5 * (time.monotonic() - began)
    for number in range(1, KILLS + 1):
        rows = [(number * 1000 + at, "x" * 50) for at in range(500)]
        publication = table.decided_but_not_published(sink, rows, batch_id=number)
        killer = threading.Timer(chance.uniform(0, about_as_long_s), running.kill)
        killer.start()
        outcomes[_published(sink, publication)] += 1
        killer.join()
        running.start()
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
    with table.rig.session() as admin:
        admin.execute("KILL USER penstock")
    table.put(sink, [(2, "b")], batch_id=1)
    assert content(table) == Counter([(1, "a"), (2, "b")])


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (f"mysql.{step}={kind}", OutcomeUnknown if step == "commit" else Retryable)
        for step in ("begin", "fence", "load", "move", "mark", "commit")
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
    committed = fault == "mysql.commit=lost"
    assert content(table) == (Counter([(1, "a"), (2, "b")]) if committed else Counter())
    assert sink.publish(publication).already is committed
    assert content(table) == Counter([(1, "a"), (2, "b")])
    assert [path.suffix for path in table.rig.directory.glob("spool/*/*/*")] == [".id"]


def test_a_fault_while_preparing_leaves_what_the_next_start_goes_on_with(target):
    table = target()
    for fault in ("mysql.prepare=error", "mysql.prepare=lost"):
        faults.arm(fault)
        with pytest.raises(Retryable):
            table.sink()
    table.sql("DELETE FROM penstock_marker")  # as if it had ended between the table and its marker
    table.put(table.sink(), [(1, "a")], batch_id=0)
    assert content(table) == Counter([(1, "a")])


# --- others that write


def test_a_deadlock_is_run_again_and_counted(target):
    """Another session holds a row that the upsert wants, and then wants the marker: MySQL ends one of the two."""
    table = target(write="upsert", key=["id"], lock_timeout_s=60)
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    publication = table.decided_but_not_published(sink, [(1, "b")], batch_id=1)
    with table.rig.session() as other, ThreadPoolExecutor(1) as pool:
        other.execute("CREATE TABLE more (id int)")
        other.execute("SET GLOBAL innodb_lock_wait_timeout = 50")
        other.execute("BEGIN")
        other.execute(f"INSERT INTO more VALUES {', '.join(['(1)'] * 1000)}")  # who wrote less is ended
        other.execute("UPDATE t SET name = 'c' WHERE id = 1")
        publishing = pool.submit(sink.publish, publication)
        _await_lock(table)
        other.execute("SELECT 1 FROM penstock_marker FOR UPDATE")
        other.execute("ROLLBACK")
        assert not publishing.result().already
    assert sink.conflicts == 1
    assert content(table) == Counter([(1, "b")])


@pytest.mark.parametrize(("write", "shown", "conflicts"), [("upsert", "b", 0), ("insert_if_absent", "theirs", 1)])
def test_a_key_that_another_session_inserts_meanwhile_is_waited_for(target, write, shown, conflicts):
    table = target(write=write, key=["id"], lock_timeout_s=60)
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(5, "b"), (6, "c")], batch_id=0)
    with table.rig.session() as other, ThreadPoolExecutor(1) as pool:
        other.execute("BEGIN")
        other.execute("INSERT INTO t VALUES (5, 'theirs')")
        publishing = pool.submit(sink.publish, publication)
        _await_lock(table)
        other.execute("COMMIT")
        assert not publishing.result().already
    assert sink.conflicts == conflicts
    assert content(table) == Counter([(5, shown), (6, "c")])


def test_a_key_that_comes_in_after_the_look_is_counted_anew(target, monkeypatch):
    table, upsert = target(write="upsert", key=["id"]), move._upsert
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(5, "b"), (6, "c")], batch_id=0)

    def and_then_another(*arguments):
        found = upsert(*arguments)
        if not sink.conflicts:
            table.sql("INSERT INTO t VALUES (5, 'theirs')")
        return found

    monkeypatch.setattr(move, "_upsert", and_then_another)
    assert not sink.publish(publication).already
    assert sink.conflicts == 1
    assert content(table) == Counter([(5, "b"), (6, "c")])
    assert table.sql("SELECT rows_decided, rows_after FROM penstock_marker") == [(2, 1)]


def _await_lock(table):
    """MySQL looks anew only after nobody has asked for a tenth of a second, so it may still tell of another test's sessions."""
    waiting = threading.Event()
    ours = "trx_mysql_thread_id IN (SELECT id FROM information_schema.PROCESSLIST WHERE db = DATABASE())"
    while not table.sql(f"SELECT 1 FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT' AND {ours}"):
        waiting.wait(0.12)
