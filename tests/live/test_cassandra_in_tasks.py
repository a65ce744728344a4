"""Parts of a batch that tasks write, without a Spark: run again, at once, late or not at all, the table is what was decided."""

import random
from dataclasses import replace

import pytest
from tests.seed import SEED
from tests.unit.cassandra_target import targets
from tests.unit.in_tasks import Tasks
from tests.unit.table_target import DELETING, GONE, written

from penstock.core import faults
from penstock.errors import ContentConflict, OutcomeUnknown, PublishFailed
from penstock.sink.cassandra import in_tasks
from penstock.sink.cassandra.in_tasks import ReadTask, WriteTask

target = pytest.fixture(targets)

ALL = "SELECT id, name FROM {}"
OLD = [(number, "old") for number in range(20)]
NEW = ([(number, "a") for number in range(10)], [(number, "b") for number in range(5, 30)], [(7, "c"), (30, "c")])
"""Three pieces, of which later ones supersede rows of earlier ones."""
SHOWN = dict(OLD) | dict(NEW[0]) | dict(NEW[1]) | dict(NEW[2])


def in_tasks_of(target, tasks, **options):
    table = target(inline_limit_bytes=0, **options)
    sink = table.sink()
    sink.publish_by(tasks)
    return table, sink


def rows_in(table):
    return dict(table.sql(ALL))


def test_tasks_read_what_a_batch_replaces_and_then_write_it(target):
    tasks = Tasks()
    table, sink = in_tasks_of(target, tasks)
    table.put(sink, OLD, batch_id=0)
    table.put(sink, *NEW, batch_id=1)
    assert rows_in(table) == SHOWN
    assert {at_us for (at_us,) in table.sql("SELECT writetime(name) FROM {}")} == {table.rig.marker("stamp")[0]}
    assert [(type(job[0]), len(job)) for job in tasks.seen] == [(ReadTask, 1), (WriteTask, 1), (ReadTask, 3), (WriteTask, 3)]
    assert table.verify(sink).ok


def test_an_append_reads_nothing(target):
    tasks = Tasks()
    table, sink = in_tasks_of(target, tasks, write="append")
    table.put(sink, OLD, [(20, "more")], batch_id=0)
    assert [type(job[0]) for job in tasks.seen] == [WriteTask]
    assert rows_in(table) == dict(OLD) | {20: "more"}
    assert table.verify(sink).ok


def test_an_append_whose_key_comes_again_in_another_piece_writes_nothing(target):
    tasks = Tasks()
    table, sink = in_tasks_of(target, tasks, write="append")
    publication = table.decided_but_not_published(sink, [(1, "a")], [(1, "b")], batch_id=0)
    with pytest.raises(ContentConflict, match="1 rows whose key"):
        sink.publish(publication)
    assert not tasks.seen
    assert rows_in(table) == {}


def test_more_pieces_than_tasks_are_shared_out(target, monkeypatch):
    monkeypatch.setattr(in_tasks, "TASKS", 3)
    tasks = Tasks()
    table, sink = in_tasks_of(target, tasks)
    pieces = [[(number, f"{piece}") for number in range(piece, piece + 4)] for piece in range(8)]
    table.put(sink, *pieces, batch_id=0)
    assert [len(task.part.share.staged) for task in tasks.seen[-1]] == [2, 3, 3]
    assert rows_in(table) == {number: name for piece in pieces for number, name in piece}
    assert table.verify(sink).ok


def test_a_batch_that_travels_in_the_decision_is_written_by_the_driver(target):
    tasks = Tasks()
    table, sink = in_tasks_of(target, tasks)
    sink._spool.inline_limit_bytes = 100_000
    table.put(sink, *NEW, batch_id=0)
    assert not tasks.seen
    assert table.verify(sink).ok


def test_tasks_that_are_run_again_and_at_once_write_the_same(target):
    def thrice(task):
        Tasks()([task, task])
        return task.run()

    table, sink = in_tasks_of(target, Tasks(thrice))
    table.put(sink, OLD, batch_id=0)
    table.put(sink, *NEW, batch_id=1)
    assert rows_in(table) == SHOWN
    assert table.verify(sink).ok


def test_a_task_of_an_older_batch_that_comes_late_changes_nothing(target):
    tasks = Tasks()
    table, sink = in_tasks_of(target, tasks, **DELETING)
    shown = [table.put(sink, OLD, [(3, GONE)], batch_id=0)]
    zombies, kept = tasks.seen[-1], {}
    sink._spool.discard = lambda *_, **__: None
    shown.append(table.put(sink, [(number, "new") for number in range(6)], [(7, GONE)], batch_id=1))
    for zombie in zombies:
        with pytest.raises(Exception, match=r"spool|gone|missing"):
            zombie.run()
    for zombie in tasks.seen[-1]:
        zombie.run()
    for rows in (OLD, [(3, GONE)], [(number, "new") for number in range(6)], [(7, GONE)]):
        written(kept, rows, table.rig.options)
    assert rows_in(table) == kept
    assert table.verify(sink).ok


def test_a_driver_that_is_gone_and_the_next_one_count_what_was_replaced_once(target):
    """One part was written when the driver died, the next driver finds the rows themselves in the place of those replaced."""
    tasks = Tasks()
    table, sink = in_tasks_of(target, tasks)
    table.put(sink, OLD, batch_id=0)
    publication = table.decided_but_not_published(sink, *NEW, batch_id=1)
    tasks.run = first_part_only
    with pytest.raises(OutcomeUnknown):
        sink.publish(publication)
    late = tasks.seen[-1]
    assert not table.sink().publish(publication).already
    assert rows_in(table) == SHOWN
    assert table.verify(table.sink()).ok
    assert {type(task) for task in late} == {WriteTask}


def first_part_only(task):
    if isinstance(task, WriteTask) and task.part.share.staged[0].totals.rows != len(NEW[0]):
        raise OutcomeUnknown("Spark gave up tasks.", remedy="Try again.")
    return task.run()


def test_a_task_that_sees_another_directory_says_so(target):
    def elsewhere(task):
        return replace(task, part=replace(task.part, claimed=replace(task.part.claimed, identity="elsewhere.id"))).run()

    table, sink = in_tasks_of(target, Tasks(elsewhere))
    publication = table.decided_but_not_published(sink, *NEW, batch_id=0)
    with pytest.raises(PublishFailed, match="is not the one the driver uses"):
        sink.publish(publication)
    assert rows_in(table) == {}


def test_what_a_task_is_told_does_not_show_the_password(target):
    tasks = Tasks()
    table, sink = in_tasks_of(target, tasks)
    table.put(sink, *NEW, batch_id=0)
    assert table.rig.url not in repr(tasks.seen)


def test_random_changes_equal_a_replay_in_memory(target):
    """Tasks that fail, are run twice, or go on late; drivers that die between; several changes of a key in a batch."""
    print("seed", SEED)
    chance, tasks = random.Random(f"{SEED} tasks"), Tasks()
    table, _ = in_tasks_of(target, tasks, **DELETING)
    there = {}
    for number in range(8):
        sink = table.sink()
        sink.publish_by(tasks)
        names = [chance.choice([GONE, f"{number}-{at}", None]) for at in range(chance.choice([3, 40, 200]))]
        rows = [(chance.randrange(60), name) for name in names]
        cut = chance.randrange(len(rows))
        publication = table.decided_but_not_published(sink, rows[:cut], rows[cut:], batch_id=number)
        tasks.run = chance.choice([lambda task: task.run(), lambda task: (task.run(), task.run())[1], fails_late(chance)])
        faults.arm(chance.choice(["", "cassandra.read=error", "cassandra.write=error", "cassandra.write=lost"]))
        for _ in range(3):
            try:
                sink.publish(publication)
            except OutcomeUnknown:
                continue
            break
        faults.arm("")
        written(there, rows, table.rig.options)
        tasks.run = lambda task: task.run()
        table.sink().publish(publication)
        assert rows_in(table) == there, number
    assert table.verify(table.sink()).ok


def fails_late(chance):
    def run(task):
        answer = task.run()
        if chance.random() < 0.5:
            raise OutcomeUnknown("Spark gave up tasks.", remedy="Try again.")
        return answer

    return run
