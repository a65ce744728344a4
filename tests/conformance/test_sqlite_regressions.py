"""Bugs that other systems shipped (docs/GUARANTEES.md), in the form they would take in the sqlite sink."""

import signal
import sqlite3
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.conformance.test_sqlite_conformance import RidingRig, SpooledRig
from tests.unit.sqlite_target import Target

from penstock.core import faults
from penstock.errors import GuaranteeTooWeak, OutcomeUnknown, PublishFailed
from penstock.sink.sqlite.database import require_durable
from penstock.testing.conformance import require_equal
from penstock.testing.conformance.story import end, live, rows_of, start

ROWS = [(1, "a"), (2, "b")]


@pytest.fixture
def target(tmp_path):
    made = Target(tmp_path, busy_timeout_s=10)
    yield made
    faults.arm("")
    made.close()


def shown(target):
    return Counter(target.sql("SELECT id, name FROM t"))


def test_9_one_position_is_never_accepted_twice(target):
    """delta-rs took the same application and version twice: the check and the write must be one."""
    first, second = target.sink(), target.sink()
    publication = target.decided_but_not_published(first, ROWS, batch_id=0)
    faults.arm("sqlite.move=stall:0.3")
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda sink: sink.publish(publication), [first, second]))
    assert Counter(answer.already for answer in answers) == Counter([False, True])
    assert shown(target) == Counter(ROWS)
    assert target.verify(first).ok


@pytest.mark.parametrize("point", ["sqlite.move", "sqlite.mark", "sqlite.commit"])
def test_14_a_killed_driver_leaves_no_lock_and_no_half_transaction(tmp_path, point):
    """Prepared transactions of PostgreSQL and MySQL stayed behind and held their locks for ever: there is none to stay."""
    rig = SpooledRig(tmp_path)
    live(rig, [0])
    assert end(start(live, rig, [1], faults=f"{point}=kill")) == -signal.SIGKILL
    require_equal(rig.read_back(), rows_of(0))
    connection = sqlite3.connect(rig.database, isolation_level=None, timeout=0)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("ROLLBACK")
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    live(rig, [1])
    require_equal(rig.read_back(), [*rows_of(0), *rows_of(1)])


def test_15_a_commit_without_an_answer_is_read_back(target):
    """COMMIT was sent, the connection broke, and a blind second try wrote everything twice."""
    sink = target.sink()
    publication = target.decided_but_not_published(sink, ROWS, batch_id=0)
    faults.arm("sqlite.commit=lost")
    with pytest.raises(OutcomeUnknown, match=r"gave no answer.*the marker in the database says"):
        sink.publish(publication)
    assert sink.publish(publication).already
    assert shown(target) == Counter(ROWS)


def test_16_a_late_driver_does_not_rewind_the_offsets(target):
    """Kafka Connect's Iceberg sink let a stale coordinator overwrite newer offsets: positions only grow."""
    late, sink = target.sink(), target.sink()
    old = target.put(sink, ROWS, batch_id=0)
    target.put(sink, [(3, "c")], batch_id=1)
    before = target.sql("SELECT * FROM penstock_marker")
    assert late.publish(old.publication).already
    assert target.sql("SELECT * FROM penstock_marker") == before
    assert shown(target) == Counter([*ROWS, (3, "c")])


def test_21_rows_and_marker_are_really_one_transaction(target):
    """MyISAM and autocommit make a "transaction" nothing: a failure half-way leaves neither rows nor marker."""
    sink = target.sink()
    publication = target.decided_but_not_published(sink, ROWS, batch_id=0)
    before = target.sql("SELECT * FROM penstock_marker")
    faults.arm("sqlite.mark=lost")
    with pytest.raises(PublishFailed):
        sink.publish(publication)
    assert shown(target) == Counter()
    assert target.sql("SELECT * FROM penstock_marker") == before
    connection = sink._database.writable()
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (3,)
    assert not connection.in_transaction


def test_21_a_database_without_a_journal_is_refused():
    connection = sqlite3.connect(":memory:")
    with pytest.raises(GuaranteeTooWeak, match="journal in mode 'memory'"):
        require_durable(connection, "here")
    connection.close()


@pytest.mark.parametrize(("kind", "code", "shown"), [("kill", -signal.SIGKILL, 0), ("error", 0, 1), ("lost", 0, 1)])
def test_decision_marker_and_rows_are_one_transaction_in_one_file(tmp_path, kind, code, shown):
    """The second commit of a driver is its first decision: after the fence."""
    rig = RidingRig(tmp_path)
    live(rig, [0])
    assert end(start(live, rig, [1], faults=f"ledger.sqlite_commit={kind}@2")) == code
    require_equal(rig.read_back(), [row for number in range(shown + 1) for row in rows_of(number)])
    ledger = rig.ledger()
    assert ledger.tail().summary.next_batch_id == shown + 1
    ledger.close()
    live(rig, [1])
    require_equal(rig.read_back(), [*rows_of(0), *rows_of(1)])
