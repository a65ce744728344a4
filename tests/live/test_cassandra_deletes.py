"""Rows that delete in Cassandra: a deletion has the time stamp of its batch, which hides older rows and no newer ones."""

import random
import time
from collections import Counter
from datetime import datetime, timezone

import pytest
from tests.seed import SEED
from tests.unit.cassandra_target import targets, write_late
from tests.unit.table_target import DELETING, GONE, content, spark_schema, written

from penstock.core import faults
from penstock.errors import StageFailed

target = pytest.fixture(targets)

ALL = "SELECT id, name FROM {}"


@pytest.mark.parametrize("key", [["id"], ["place", "id"]], ids=["partitions", "rows of partitions"])
def test_random_changes_equal_a_replay_in_memory(target, key):
    """Changes of few keys, several of one in a batch: repeated, late, by drivers that die, and beside the writes of a zombie."""
    print("seed", SEED)
    chance = random.Random(f"{SEED} {key}")
    table = target(schema=spark_schema(id="long", name="string", place="string"), key=key, **DELETING)
    sink, there, late = table.sink(), {}, []
    for number in range(12):
        names = [chance.choice([GONE, GONE, f"{number}-{at}", None]) for at in range(chance.choice([1, 30, 150]))]
        rows = [(chance.randrange(40), name, "here") for name in names]
        publication = table.decided_but_not_published(sink, rows[:20], rows[20:], batch_id=number)
        faults.arm(
            chance.choice(["", "cassandra.read=error", "cassandra.write=error", "cassandra.write=lost,cassandra.mark=lost"])
        )
        sink.publish(publication)
        faults.arm("")
        written(there, [row[:2] for row in rows], table.rig.options)
        for changes, at_us in late:
            write_late(table, sink, changes, at_us=at_us)
        late = [*late[-1:], (changes_of(table, rows), table.rig.marker("stamp")[0])]
        if chance.random() < 0.3:
            sink.close()
            sink = table.sink()
        assert sink.publish(publication).already
        assert dict(table.sql(ALL)) == there, number
        report = table.verify(sink)
        assert report.ok, report


def changes_of(table, rows):
    """The last row of each key, as a driver holds them that has begun to write."""
    last = list({row[0]: dict(zip(table.columns, row, strict=True)) for row in rows}.values())
    return table.rig.batch(last)[0]


def test_a_late_row_does_not_bring_back_what_a_later_batch_deleted(target):
    table = target(**DELETING)
    sink = table.sink()
    table.put(sink, [(1, "a"), (2, "b")], batch_id=0)
    before = table.rig.marker("stamp")[0]
    table.put(sink, [(1, GONE), (3, GONE)], batch_id=1)
    write_late(table, sink, changes_of(table, [(1, "a"), (3, "c")]), at_us=before)
    assert content(table, ALL) == Counter([(2, "b")])
    table.put(sink, [(1, "again"), (2, GONE)], batch_id=2)
    assert content(table, ALL) == Counter([(1, "again")])
    assert table.rig.marker("rows_decided, rows_after") == (6, 1)
    assert table.verify(sink).ok


def test_of_a_row_that_deletes_only_the_key_has_to_fit(target):
    table = target(schema=spark_schema(id="string", name="string", at="timestamp"), **DELETING)
    sink = table.sink()
    fraction = datetime(2026, 1, 1, microsecond=1, tzinfo=timezone.utc)
    table.put(sink, [("a", "x", None), ("b", "y", None)], batch_id=0)
    table.put(sink, [("a", GONE, fraction), ("c", GONE, fraction)], batch_id=1)
    assert content(table, ALL) == Counter([("b", "y")])
    for key, says in ((None, "NULL in column 'id'"), ("", "an empty value in column 'id'")):
        with pytest.raises(StageFailed, match=says):
            table.put(sink, [(key, GONE, None)], batch_id=2)


def test_a_row_that_others_wrote_by_a_clock_that_is_ahead_is_deleted(target):
    """Whichever of its columns has that time, the rows' own or others."""
    table = target(created="(id bigint PRIMARY KEY, name text, theirs int, more frozen<list<int>>)", **DELETING)
    ahead = int((time.time() + 3600) * 1_000_000)
    table.sql(
        f"INSERT INTO {{}} (id, name, theirs) VALUES (1, 'theirs', 1) USING TIMESTAMP {ahead}",
        f"UPDATE {{}} USING TIMESTAMP {ahead + 7} SET more = [1] WHERE id = 1",
    )
    sink = table.sink()
    table.put(sink, [(1, GONE)], batch_id=0)
    assert content(table, ALL) == Counter()
    assert table.rig.marker("stamp") == (ahead + 9,)
    assert table.verify(sink).ok


def test_a_batch_is_written_as_it_was_decided_whether_rows_delete_or_not(target):
    table = target(write="upsert")
    sink = table.sink()
    table.put(sink, [(1, "a"), (2, "b")], batch_id=0)
    plain = table.decided_but_not_published(sink, [(1, GONE)], batch_id=1)
    table.rig.options |= DELETING
    sink = table.sink()
    sink.publish(plain)
    assert content(table, ALL) == Counter([(1, GONE), (2, "b")])
    deleting = table.decided_but_not_published(sink, [(1, GONE)], batch_id=2)
    table.rig.options["deletes"] = False
    sink = table.sink()
    sink.publish(deleting)
    assert content(table, ALL) == Counter([(2, "b")])
    assert table.verify(sink).ok
