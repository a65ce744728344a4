"""Publishing into a real node: time stamps, keys that come again, answers that are lost, and a node that is down."""

import os
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import date

import pyarrow as pa
import pytest
from tests.seed import SEED
from tests.servers import cutting
from tests.unit.cassandra_target import KEYSPACE, targets, write_late
from tests.unit.table_target import content, spark_schema

from penstock.core import faults
from penstock.core.model import Generation
from penstock.errors import ContentConflict, LedgerMismatch, NotPublishedYet, PublishFailed, Refused
from penstock.sink.cassandra import database, load
from penstock.sink.cassandra import sink as module
from penstock.sink.cassandra.duplicate_keys import repeated_in, without
from penstock.sink.cassandra.marker_store import CassandraMarkerStore
from penstock.sink.cassandra.table_schema import target_of
from penstock.spark.schema import arrow_schema

target = pytest.fixture(targets)

KILLS = int(os.environ.get("PENSTOCK_SOAK_KILLS", "2"))
ALL = "SELECT id, name FROM {}"


# --- time stamps


def test_a_batch_has_one_time_stamp_and_the_next_one_a_later(target):
    table = target()
    sink = table.sink()
    table.put(sink, [(1, "a"), (2, "b")], batch_id=0)
    table.put(sink, [(3, "c")], batch_id=1)
    stamps = dict(table.sql("SELECT id, writetime(name) FROM {}"))
    assert stamps[1] == stamps[2] < stamps[3]
    assert table.rig.marker("stamp, stamped_position, position") == (stamps[3], 3, 3)


def test_a_clock_that_is_behind_delays_no_batch_behind_an_older_one(target):
    """Whatever the nodes' clocks say, a later batch wins."""
    table = target()
    sink, ahead = table.sink(), (2**62,)
    table.put(sink, [(1, "old")], batch_id=0)
    table.sql(f"UPDATE penstock_marker SET stamp = {ahead[0]} WHERE pipeline = 'conformance' AND sink = '{sink.name}' IF EXISTS")
    for batch_id, name in enumerate(("newer", "newest"), 1):
        table.put(sink, [(1, name)], batch_id=batch_id)
    assert content(table, ALL) == Counter([(1, "newest")])
    assert table.rig.marker("stamp") == (ahead[0] + 4,)


def test_batches_that_are_long_past_are_forgotten_whatever_their_positions(target):
    """A sink that gets no rows of some batches has gaps between its positions."""
    table = target()
    sink = table.sink()
    old = table.put(sink, [(1, "a")], batch_id=0).publication
    newer = table.decided_but_not_published(sink, [(2, "b")], batch_id=1)
    sink.publish(replace(newer, position=old.position + 1500))
    kept = table.sql(f"SELECT position FROM penstock_batch WHERE pipeline = 'conformance' AND sink = '{sink.name}'")
    assert [tuple(row) for row in kept] == [(old.position + 1500,)]


def test_what_others_wrote_by_a_clock_that_is_ahead_is_replaced(target):
    """Most clients send the time of their own machine. Whichever column has it."""
    table = target(
        schema=spark_schema(id="long", name="string", note="string"), created="(id bigint PRIMARY KEY, name text, note text)"
    )
    ahead = int((time.time() + 3600) * 1_000_000)
    table.sql(f"INSERT INTO {{}} (id, name, note) VALUES (1, 'theirs', 'theirs') USING TIMESTAMP {ahead}")
    table.sql(f"UPDATE {{}} USING TIMESTAMP {ahead + 7} SET note = 'later' WHERE id = 1")
    sink = table.sink()
    table.put(sink, [(1, "mine", None), (2, "mine", "too")], batch_id=0)
    assert Counter(table.sql("SELECT id, name, note FROM {}")) == Counter([(1, "mine", None), (2, "mine", "too")])
    assert table.rig.marker("stamp") == (ahead + 9,)
    assert table.verify(sink).ok


def test_what_others_wrote_before_is_replaced(target):
    """They write with the time of day: a batch that counted from 1 would be hidden by theirs."""
    table = target(created="(id bigint PRIMARY KEY, name text)")
    table.sql("INSERT INTO {} (id, name) VALUES (1, 'theirs')")
    sink = table.sink()
    table.put(sink, [(1, None)], batch_id=0)
    assert content(table, ALL) == Counter([(1, None)])
    assert table.verify(sink).ok


def test_late_writes_of_a_zombie_change_nothing(target):
    """A driver that stood still goes on writing an older batch after a newer one was published, deletions of columns included."""
    table = target()
    sink = table.sink()
    shown = [table.put(sink, [(1, "old"), (2, None), (3, "stays")], batch_id=0)]
    [(at_us,)] = table.sql("SELECT writetime(name) FROM {} WHERE id = 1")
    shown.append(table.put(sink, [(1, None), (2, "new")], batch_id=1))
    late = pa.RecordBatch.from_pylist([dict(row) for row in shown[0].rows], arrow_schema(table.rig.schema))
    write_late(table, sink, late, at_us=at_us)
    assert content(table, ALL) == Counter([(1, None), (2, "new"), (3, "stays")])
    assert table.verify(sink).ok


def test_a_repetition_takes_the_stamp_that_the_batch_has(target):
    table = target()
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    faults.arm("cassandra.write=error,cassandra.mark=lost")
    assert sink.publish(publication).already
    [(at_us,)] = table.sql("SELECT writetime(name) FROM {}")
    assert table.rig.marker("stamp, stamped_position, rows_after") == (at_us, publication.position, 1)


def test_another_driver_goes_on_with_the_stamp_that_a_dead_one_took(target, monkeypatch):
    """And with its count of what the rows replaced, which nobody could read any more."""
    table = target()
    sink = table.sink()
    table.put(sink, [(1, "old"), (2, "stays")], batch_id=0)
    publication = table.decided_but_not_published(sink, [(1, "new"), (3, "more")], batch_id=1)
    with monkeypatch.context() as dead:
        dead.setattr(CassandraMarkerStore, "advance", dies)
        with pytest.raises(KeyboardInterrupt):
            sink.publish(publication)
    [(at_us,)] = table.sql("SELECT writetime(name) FROM {} WHERE id = 3")
    assert not table.sink().publish(publication).already
    assert table.sql("SELECT writetime(name) FROM {} WHERE id = 3") == [(at_us,)]
    assert content(table, ALL) == Counter([(1, "new"), (2, "stays"), (3, "more")])
    assert table.verify(sink).ok


def test_a_column_that_was_dropped_and_added_again_hides_no_value_of_a_decided_batch(target, monkeypatch):
    """Cassandra hides values that have a time stamp of before the drop, and a driver that died had taken one."""
    table = target()
    sink = table.sink()
    table.put(sink, [(1, "old")], batch_id=0)
    publication = table.decided_but_not_published(sink, [(1, "new"), (2, "b")], batch_id=1)
    with monkeypatch.context() as dead:
        dead.setattr(CassandraMarkerStore, "advance", dies)
        with pytest.raises(KeyboardInterrupt):
            sink.publish(publication)
    table.sql("ALTER TABLE {} DROP name", "ALTER TABLE {} ADD name text")
    assert content(table, ALL) == Counter([(1, None), (2, None)])
    assert not table.sink().publish(publication).already
    assert content(table, ALL) == Counter([(1, "new"), (2, "b")])
    assert table.verify(sink).ok


def dies(*_):
    raise KeyboardInterrupt


# --- keys


def test_of_several_rows_of_a_batch_with_one_key_the_last_one_counts(target):
    table = target()
    sink = table.sink()
    table.put(sink, [(1, "zzz"), (2, "b"), (1, "mmm")], [(1, "aaa"), (3, "c")], batch_id=0)
    assert content(table, ALL) == Counter([(1, "aaa"), (2, "b"), (3, "c")])
    table.put(sink, [(1, "x"), (1, None)], batch_id=1)
    assert content(table, ALL) == Counter([(1, None), (2, "b"), (3, "c")])
    assert table.rig.marker("rows_decided, rows_after") == (7, 3)
    assert table.verify(sink).ok


def test_a_key_of_several_columns_in_a_partition_of_several(target):
    schema = spark_schema(place="string", day="date", at="integer", name="string")
    table = target(schema=schema, key=["place", "day", "at"], partition_by=["place", "day"])
    sink, days = table.sink(), [date(2026, 1, day) for day in range(1, 6)]
    rows = [("here" if at % 2 else "there", days[at % 5], at, "old") for at in range(300)]
    table.put(sink, rows, batch_id=0)
    table.put(sink, [(*row[:3], "new") for row in rows[:100]], batch_id=1)
    assert content(table, "SELECT at, name FROM {}") == Counter((at, "new" if at < 100 else "old") for at in range(300))
    assert table.verify(sink).ok


def test_a_key_that_comes_again_in_an_appended_batch_is_refused(target):
    table = target(write="append")
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a"), (1, "b")], batch_id=0)
    with pytest.raises(ContentConflict, match=r"1 rows whose key \(id\) comes again"):
        sink.publish(publication)
    assert content(table, ALL) == Counter()
    with closing(table.rig.make(write="upsert")) as upserting:
        assert not upserting.publish(publication).already
    assert content(table, ALL) == Counter([(1, "b")])


def test_a_key_that_comes_again_in_a_later_appended_batch_is_found_by_verify(target):
    table = target(write="append")
    sink = table.sink()
    for batch_id in (0, 1):
        table.put(sink, [(1, "a"), (batch_id + 2, "b")], batch_id=batch_id)
    assert not table.verify(sink).ok


def test_superseded_rows_are_found_in_any_order_and_amount():
    chance = random.Random(SEED)
    print("seed", SEED)
    rows = [(chance.randrange(400), number) for number in range(1000)]
    schema = pa.schema([("id", pa.int64()), ("number", pa.int64())])
    batches = [
        pa.RecordBatch.from_arrays([pa.array(column) for column in zip(*rows[at : at + 90], strict=True)], schema=schema)
        for at in range(0, 1000, 90)
    ]
    found = repeated_in(lambda: iter(batches), target_of(table="t", write="upsert", key=("id",), partition_by=()))
    kept = {row["id"]: row["number"] for batch in without(iter(batches), found.numbers) for row in batch.to_pylist()}
    assert kept == dict(rows)
    assert (found.rows, found.totals.rows) == (1000, 1000 - len(kept))


def test_rows_of_one_partition_go_together_and_others_in_small_requests(target):
    rows = [(1, at, "x") for at in range(250)] + [(2 + at, 0, "y") for at in range(25)]
    chunks = load.chunked(rows, (0,), row_bytes=100)
    assert sorted(row for chunk in chunks for row in chunk) == sorted(rows)
    assert [len(chunk) for chunk in chunks] == [100, 100, 50, 10, 10, 5]
    assert max(len(chunk) for chunk in load.chunked(rows, (0,), row_bytes=1 << 20)) == 1


def test_a_request_that_is_too_large_for_the_server_is_sent_row_by_row(target):
    """Sizes are estimated; fifty kilobytes for several partitions are the server's limit."""
    table = target()
    sink = table.sink()
    rows = [(number, "x" * (60_000 if number < 3 else 1)) for number in range(3000)]
    table.put(sink, rows, batch_id=0)
    assert content(table, ALL) == Counter(rows)


# --- who may publish


def test_a_generation_that_was_overtaken_writes_nothing(target):
    table = target()
    zombie, sink = table.sink(), table.sink()
    newer = replace(table.decided_but_not_published(sink, [(1, "a")], batch_id=0), generation=Generation(2))
    sink.publish(newer)
    late = table.decided_but_not_published(zombie, [(2, "b")], batch_id=1)
    with pytest.raises(LedgerMismatch, match="Generation 1 publishes position 3"):
        zombie.publish(late)
    assert content(table, ALL) == Counter([(1, "a")])


def test_a_table_that_was_altered_or_dropped_since_the_start_is_told(target):
    table = target()
    sink = table.sink()
    shown = table.put(sink, [(1, "a")], batch_id=0)
    late = table.decided_but_not_published(sink, [(2, "b")], batch_id=1)
    table.sql("ALTER TABLE {} WITH default_time_to_live = 60")
    with pytest.raises(Refused, match="default_time_to_live"):
        sink.publish(late)
    table.sql("DROP TABLE {}")
    with pytest.raises(PublishFailed, match="is gone"):
        sink.publish(late)
    assert sink.publish(shown.publication).already
    with pytest.raises(Refused, match="is gone, and 1 rows with it"):
        table.sink()


def test_a_sink_that_another_one_fills_is_refused(target):
    table = target()
    table.sink()
    with pytest.raises(Refused, match="is filled by sink"):
        table.rig.make(name="other").prepare(pipeline="conformance", schema=table.rig.schema)


# --- answers that are lost, and nodes that are down


@pytest.mark.parametrize("kind", cutting.KINDS)
@pytest.mark.parametrize(("step", "sent"), [("rows", b"cut here"), ("stamp", None), ("marker", b'"type": "struct"')])
def test_after_a_lost_answer_it_is_written_again_and_the_marker_decides(target, kind, step, sent):
    table = target()
    table.put(table.sink(), [(0, "before"), (1, "before")], batch_id=0)
    named = table.named([(1, "cut here"), (2, None)])
    publication = table.decide((named, table.stage(table.sink(), named, batch_id=1)), batch_id=1).publication
    commits = [sent or f"{publication.totals.digest:016x}".encode()]
    with cutting.before(table.rig.running.port, commits) as cutter:
        table.rig.port = cutter.port
        sink = table.rig.make()
        cutter.arm(kind)
        published = sink.publish(publication)
        sink.close()
        assert cutter.cuts == 1
    assert published.already is (step == "marker" and kind == "after")
    assert content(table, ALL) == Counter([(0, "before"), (1, "cut here"), (2, None)])
    table.rig.port = None
    assert table.verify(table.rig.make()).ok


@pytest.mark.timeout(600)
def test_a_node_that_is_killed_while_it_is_written_to_is_waited_for(target):
    """Again and again, at any moment: the batch goes on when the node is back, and nothing is lost or twice."""
    table = target(schema=spark_schema(id="long", name="string", number="long"))
    running = table.rig.running
    print("seed", SEED)
    chance, sink, sent = random.Random(SEED), table.sink(), {}
    about_as_long_s = 1.0
    for number in range(KILLS + 1):
        rows = [(at + number * 1000, f"batch {number}", None if at % 3 else number) for at in range(4000)]
        publication = table.decided_but_not_published(sink, rows, batch_id=number)
        began = time.monotonic()
        if number:
            killer = threading.Timer(chance.uniform(0, about_as_long_s), lambda: (running.kill(), running.start()))
            killer.start()
            sink.publish(publication)
            killer.join()
        else:
            sink.publish(publication)
            about_as_long_s = time.monotonic() - began
        sent |= {row[0]: row for row in rows}
        assert sink.publish(publication).already
        assert table.rig.marker("rows_after, position") == (len(sent), publication.position)
        assert table.verify(sink).ok, number
    assert content(table, "SELECT id, name, number FROM {}") == Counter(sent.values())
    assert table.verify(sink).ok


def test_a_node_that_stays_away_fails_the_batch_and_the_next_start_goes_on(target):
    table = target(wait_s=1)
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    table.rig.running.kill()
    try:
        with pytest.raises(NotPublishedYet, match=r"does not answer: .*; publishing was tried for 1 s\.") as told:
            sink.publish(publication)
    finally:
        table.rig.running.start()
    assert "the next start publishes it" in told.value.remedy
    assert not table.sink().publish(publication).already
    assert content(table, ALL) == Counter([(1, "a")])


def test_what_another_publisher_published_and_removed_is_not_lost(target, monkeypatch):
    """Nothing keeps two of them apart: one may still read the spool when the other is done."""
    table = target(inline_limit_bytes=0)
    first, second = table.sink(), table.sink()
    publication = table.decided_but_not_published(first, [(1, "a")], batch_id=0)

    def overtaken(rows, key):
        monkeypatch.undo()
        assert not second.publish(publication).already
        return repeated_in(rows, key)

    monkeypatch.setattr(module, "repeated_in", overtaken)
    assert first.publish(publication).already
    assert content(table, ALL) == Counter([(1, "a")])


def test_a_node_that_does_not_answer_is_asked_again(target, monkeypatch):
    """It stands still: nobody knows what it did of what it was sent, so all of that is sent again."""
    table = target()
    sink = table.sink()
    sink.close()
    gave_up, drop = threading.Event(), database.Database.drop
    monkeypatch.setattr(database, "REQUEST_TIMEOUT_S", 2)
    monkeypatch.setattr(database, "_CONNECT_TIMEOUT_S", 2)
    table.put(sink, [(0, "before")], batch_id=0)
    monkeypatch.setattr(database.Database, "drop", lambda dropped: (gave_up.set(), drop(dropped)))
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=1)
    table.rig.running.freeze()
    with ThreadPoolExecutor(1) as pool:
        published = pool.submit(sink.publish, publication)
        try:
            assert gave_up.wait(60)
        finally:
            table.rig.running.thaw()
        assert not published.result().already
    assert content(table, ALL) == Counter([(0, "before"), (1, "a")])


def test_publishers_at_once_write_the_same(target):
    table = target()
    sinks = [table.sink() for _ in range(3)]
    publication = table.decided_but_not_published(sinks[0], [(number, "a") for number in range(500)], batch_id=0)
    start = threading.Barrier(3)

    def publish(sink):
        start.wait()
        return sink.publish(publication).totals.rows

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(publish, sinks)) == [500, 500, 500]
    assert len(set(table.sql("SELECT writetime(name) FROM {}"))) == 1
    assert table.rig.marker("rows_after, position") == (500, publication.position)


def test_a_connection_knows_which_nodes_hold_a_row_and_reads_no_schema_of_tables(target):
    """A cluster may have thousands of tables, which the driver would read at each start, and again whenever one is altered."""
    table = target()
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    known = sink._database.writable()._cluster.metadata
    assert {name: list(keyspace.tables) for name, keyspace in known.keyspaces.items()} == {KEYSPACE: []}
    assert len(known.get_replicas(KEYSPACE, b"any")) == 1
