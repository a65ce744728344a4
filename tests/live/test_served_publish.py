"""Who may publish, and what lost answers, faults and dead servers leave: the same on every server."""

import os
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from tests.seed import SEED
from tests.servers import cutting
from tests.unit.served_target import every_target
from tests.unit.table_target import content

from penstock.core import faults
from penstock.core.model import Generation
from penstock.errors import LedgerMismatch, OutcomeUnknown, PublishFailed, Refused, Retryable

target = pytest.fixture(every_target, params=["mysql", "postgres", "redshift"])

KILLS = int(os.environ.get("PENSTOCK_SOAK_KILLS", "6"))


def test_a_table_that_was_dropped_is_told(target):
    table = target()
    sink = table.sink()
    shown = table.put(sink, [(1, "a")], batch_id=0)
    table.sql("DROP TABLE t")
    assert sink.publish(shown.publication).already
    with pytest.raises(PublishFailed, match=table.rig.gone):
        sink.publish(table.decided_but_not_published(sink, [(2, "b")], batch_id=1))
    assert "it is gone" in table.verify(sink).problems[0].message
    with pytest.raises(Refused, match="Table 't' is gone, and 1 rows with it"):
        table.sink()


# --- who may publish


def test_a_publisher_waits_for_the_one_that_holds_the_marker(target):
    table = target()
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    with table.rig.session() as other:
        other.execute("BEGIN")
        other.execute(table.rig.holding)
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
    assert table.sql("SELECT position, generation, batch_id FROM penstock_marker") == [(2, 2, 0)]


def test_a_zombie_that_holds_the_marker_open_loses_to_the_first_that_commits(target):
    """Both publish the same batch at once; the second waits for the first, reads its marker, and adds nothing."""
    table = target(lock_timeout_s=30)
    first, second = table.sink(), table.sink()
    publication = table.decided_but_not_published(first, [(number, "a") for number in range(1000)], batch_id=0)
    start = threading.Barrier(2)
    faults.arm(f"{table.rig.kind}.mark=stall:0.5@1")  # long enough for one that does not wait to overtake

    def publish(sink):
        start.wait()
        return sink.publish(publication).already

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(publish, (first, second))) == [False, True]
    assert table.sql("SELECT count(*) FROM t") == [(1000,)]


# --- answers that are lost


@pytest.mark.parametrize("kind", cutting.KINDS)
@pytest.mark.parametrize("write", ["append", "upsert"])
def test_after_a_commit_without_an_answer_the_marker_decides(target, kind, write):
    table = target(write=write, key=["id"] if write == "upsert" else [])
    table.put(table.sink(), [(0, "before")], batch_id=0)
    with table.rig.cutting() as cutter:
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
    table = target(lock_timeout_s=10)
    running = table.rig.running
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
        for _ in range(table.rig.tries_after_a_kill):
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


@pytest.mark.parametrize("kind", ["error", "lost"])
@pytest.mark.parametrize("step", ["begin", "fence", "loading", "move", "mark", "commit"])
def test_after_any_fault_the_next_try_shows_the_batch_once(target, step, kind):
    table = target(inline_limit_bytes=0)
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a"), (2, "b")], batch_id=0)
    faults.arm(f"{table.rig.kind}.{table.rig.loading if step == 'loading' else step}={kind}")
    with pytest.raises(OutcomeUnknown if step == "commit" else Retryable):
        sink.publish(publication)
    committed = (step, kind) == ("commit", "lost")
    assert content(table) == (Counter([(1, "a"), (2, "b")]) if committed else Counter())
    assert sink.publish(publication).already is committed
    assert content(table) == Counter([(1, "a"), (2, "b")])
    assert [path.suffix for path in table.rig.directory.glob("spool/*/*/*")] == [".id"]
