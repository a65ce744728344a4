"""What goes wrong at publish into SQL Server, as far as it can be played: nothing half-shown, and the next try goes on."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from tests.servers import tsql
from tests.servers.tsql import DEADLOCK, LOCKED, SNAPSHOT, WATCH
from tests.unit.sqlserver_target import targets
from tests.unit.table_target import content

from penstock.core import faults
from penstock.core.model import Generation
from penstock.errors import ContentConflict, LedgerMismatch, OutcomeUnknown, PublishFailed, Refused, Retryable

target = pytest.fixture(targets)


@pytest.fixture(autouse=True)
def nothing_out_of_order(tmp_path):
    yield
    assert [path.read_text() for path in tmp_path.glob("**/*.violations")] == []


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("write", ["append", "upsert"])
def test_after_a_commit_without_an_answer_the_marker_decides(target, write, after):
    table = target(write=write, key=["id"] if write == "upsert" else [])
    sink = table.sink()
    table.put(sink, [(0, "before")], batch_id=0)
    publication = table.decided_but_not_published(sink, [(1, "a"), (2, "b")], batch_id=1)
    WATCH.arm("COMMIT", after=after)
    with pytest.raises(OutcomeUnknown, match="gave no answer: Server closed connection"):
        sink.publish(publication)
    assert content(table) == Counter([(0, "before"), *([(1, "a"), (2, "b")] if after else [])])
    assert sink.publish(publication).already is after
    assert content(table) == Counter([(0, "before"), (1, "a"), (2, "b")])
    assert table.verify(sink).ok


@pytest.mark.parametrize("number", [DEADLOCK, SNAPSHOT])
@pytest.mark.parametrize("sign", ["MERGE", "COMMIT", "UPDATE"])
def test_a_transaction_that_was_rolled_back_for_anothers_sake_is_run_again_and_counted(target, sign, number):
    table = target(write="upsert", key=["id"])
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    publication = table.decided_but_not_published(sink, [(1, "b"), (2, "c")], batch_id=1)
    WATCH.arm(sign, number, times=2)
    assert not sink.publish(publication).already
    assert sink.conflicts == 2
    assert content(table) == Counter([(1, "b"), (2, "c")])


def test_one_that_is_always_the_victim_is_told(target):
    table = target()
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    WATCH.arm("INSERT INTO I.I (I, …) SELECT", DEADLOCK, times=5)
    with pytest.raises(Retryable, match="table 't' conflicted with another session 5 times"):
        sink.publish(publication)
    assert content(table) == Counter()
    assert not sink.publish(publication).already


def test_a_publisher_waits_for_the_one_that_holds_the_marker(target):
    table = target()
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    with table.rig.session() as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Retryable, match="Another session holds a lock"):
            sink.publish(publication)
        other.execute("ROLLBACK")
    assert not sink.publish(publication).already
    assert tsql.LOCKED == LOCKED


def test_two_that_publish_at_once_add_the_rows_once(target):
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


def test_a_generation_that_was_overtaken_cannot_commit(target):
    table = target()
    zombie, sink = table.sink(), table.sink()
    newer = replace(table.decided_but_not_published(sink, [(1, "a")], batch_id=0), generation=Generation(2))
    sink.publish(newer)
    late = table.decided_but_not_published(zombie, [(2, "b")], batch_id=1)
    with pytest.raises(LedgerMismatch, match="Generation 1 publishes position 3"):
        zombie.publish(late)
    assert content(table) == Counter([(1, "a")])


def test_rows_that_a_trigger_drops_are_noticed(target):
    table = target()
    sink = table.sink()
    table.sql('CREATE TRIGGER drops BEFORE INSERT ON "dbo.t" WHEN NEW.id = 2 BEGIN SELECT RAISE(IGNORE); END')
    publication = table.decided_but_not_published(sink, [(1, "a"), (2, "b")], batch_id=0)
    with pytest.raises(ContentConflict, match="has 2 rows, but table 't' took 1"):
        sink.publish(publication)
    assert content(table) == Counter()


def test_a_transaction_that_ended_by_itself_is_not_taken_for_committed(target):
    table = target()
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    connection = sink._database.writable()
    execute = connection.execute

    def trigger_rolls_back(text, values=None):
        if text == "SELECT XACT_STATE()":
            connection._client._sqlite.execute("ROLLBACK")
            connection.execute = execute
        return execute(text, values)

    connection.execute = trigger_rolls_back
    with pytest.raises(PublishFailed, match="ended before its COMMIT"):
        sink.publish(publication)
    assert not sink.publish(publication).already
    assert content(table) == Counter([(1, "a")])


@pytest.mark.parametrize("kind", ["error", "lost"])
@pytest.mark.parametrize("step", ["begin", "fence", "load", "move", "mark", "commit"])
def test_after_any_fault_the_next_try_shows_the_batch_once(target, step, kind):
    table = target(inline_limit_bytes=0)
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a"), (2, "b")], batch_id=0)
    faults.arm(f"sqlserver.{step}={kind}")
    with pytest.raises(OutcomeUnknown if step == "commit" else Retryable):
        sink.publish(publication)
    committed = (step, kind) == ("commit", "lost")
    assert content(table) == (Counter([(1, "a"), (2, "b")]) if committed else Counter())
    assert sink.publish(publication).already is committed
    assert content(table) == Counter([(1, "a"), (2, "b")])


def test_a_table_that_is_gone_is_told(target):
    table = target()
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    table.sql('DROP TABLE "dbo.t"', "DELETE FROM \"double.table\" WHERE place = 'dbo.t'")
    with pytest.raises(PublishFailed, match=r"no such table|Invalid object name"):
        sink.publish(table.decided_but_not_published(sink, [(2, "b")], batch_id=1))
    with pytest.raises(Refused, match="Table 't' is gone, and 1 rows with it"):
        table.sink()
