"""Lanes that tasks publish, without a Spark: run again, at once, late or not at all, every row is there once by the marker."""

from dataclasses import replace
from threading import Event, Thread, current_thread

import pytest
from tests.unit.in_tasks import Tasks
from tests.unit.kafka_target import topics, values

from penstock.core import faults
from penstock.core.model import LedgerId
from penstock.errors import LedgerMismatch, OutcomeUnknown, PublishFailed, Retryable
from penstock.sink.kafka import lane

topic = pytest.fixture(topics)

IDS = (range(10), range(10, 30), range(30, 35))


def lanes_of(topic, tasks, **options):
    place = topic(partitions=2, lanes=2, inline_limit_bytes=0, **options)
    sink = place.sink()
    sink.publish_by(tasks)
    return place, sink


def test_each_task_publishes_a_lane_and_the_next_batch_goes_on(topic):
    tasks = Tasks()
    place, sink = lanes_of(topic, tasks)
    for batch_id in range(2):
        place.put(sink, *(range(ids.start + 100 * batch_id, ids.stop + 100 * batch_id) for ids in IDS), batch_id=batch_id)
    assert [[share.number for share in shares] for shares in tasks.seen] == [[0, 1], [0, 1]]
    assert place.content() == values(*IDS, *(range(ids.start + 100, ids.stop + 100) for ids in IDS))
    assert place.verify(sink).ok


def test_a_batch_that_travels_in_the_decision_is_published_by_the_driver_between_others(topic):
    tasks = Tasks()
    place, sink = lanes_of(topic, tasks)
    place.put(sink, *IDS, batch_id=0)
    sink._spool.inline_limit_bytes = 100_000
    place.put(sink, range(100, 110), range(110, 120), batch_id=1)
    sink._spool.inline_limit_bytes = 0
    place.put(sink, range(200, 210), range(210, 220), batch_id=2)
    assert len(tasks.seen) == 2
    assert place.content() == values(*IDS, range(100, 120), range(200, 220))
    assert place.verify(sink).ok


def test_a_task_that_is_run_again_sends_nothing(topic):
    """Its first attempt was killed after the commit, before Spark was told."""
    place, sink = lanes_of(topic, Tasks(lambda share: (share.run(), share.run())[1]))
    publication = place.decided_but_not_published(sink, *IDS, batch_id=0)
    assert sink.publish(publication).already
    assert place.content() == values(*IDS)
    assert place.verify(sink).ok


def test_of_two_attempts_at_once_the_older_is_fenced_and_learns_that_the_other_has_published(topic, monkeypatch):
    """As Spark speculates: the first one is inside its transaction, with all rows sent, when the second one begins."""
    in_transaction, fenced, keep = Event(), Event(), lane.Lane._keep

    def kept(self, mark):
        if current_thread().name == "older":
            in_transaction.set()
            assert fenced.wait(60)
        keep(self, mark)

    def twice(share):
        if share.number:
            return share.run()
        older = Thread(target=lambda: answers.append(share.run()), name="older")
        older.start()
        assert in_transaction.wait(60)
        place.await_open(is_so=True)
        answers.append(share.run())
        fenced.set()
        older.join(60)
        return answers[0]

    answers = []
    place, sink = lanes_of(topic, Tasks(twice))
    publication = place.decided_but_not_published(sink, *IDS, batch_id=0)
    monkeypatch.setattr(lane.Lane, "_keep", kept)
    sink.publish(publication)
    assert answers == [(False,), (True,)]
    assert place.content() == values(*IDS)
    assert place.verify(sink).ok


def test_a_task_of_an_older_batch_that_comes_late_sends_nothing(topic):
    tasks = Tasks()
    place, sink = lanes_of(topic, tasks)
    place.put(sink, *IDS, batch_id=0)
    place.put(sink, range(100, 110), range(110, 120), batch_id=1)
    assert [zombie.run() for zombie in tasks.seen[0]] == [(True,), (True,)]
    place.put(sink, range(200, 210), range(210, 220), batch_id=2)
    assert place.content() == values(*IDS, range(100, 120), range(200, 220))


def test_a_task_whose_driver_is_gone_and_the_next_driver_publish_the_batch_once(topic):
    """The driver died when one lane was there; its other task began before the next driver did, and goes on behind it."""
    tasks = Tasks(lambda share: share.run() if share.number == 0 else [False])
    place, sink = lanes_of(topic, tasks)
    publication = place.decided_but_not_published(sink, *IDS, batch_id=0)
    with pytest.raises(OutcomeUnknown, match="the marker of its lane does not show it"):
        sink.publish(publication)
    assert place.content() == values(IDS[0], IDS[2])
    assert not place.sink().publish(publication).already
    assert [zombie.run() for zombie in tasks.seen[0]] == [(True,), (True,)]
    assert place.content() == values(*IDS)


def test_what_a_task_reports_counts_only_if_its_marker_shows_it(topic):
    place, sink = lanes_of(topic, Tasks(lambda share: [True]))
    publication = place.decided_but_not_published(sink, *IDS, batch_id=0)
    with pytest.raises(OutcomeUnknown, match=r"reported batch 0 .* stands at position 0"):
        sink.publish(publication)
    sink.publish_by(Tasks())
    assert not sink.publish(publication).already
    assert place.content() == values(*IDS)


def test_a_lane_in_several_transactions_goes_on_where_its_task_was_lost(topic):
    tasks = Tasks()
    place, sink = lanes_of(topic, tasks, transaction_bytes=300)
    publication = place.decided_but_not_published(sink, *IDS, batch_id=0)
    faults.arm("kafka.mark=error@4")
    with pytest.raises(Retryable):
        sink.publish(publication)
    faults.arm("")
    assert 0 < place.content().total() < 35
    assert not sink.publish(publication).already
    assert place.content() == values(*IDS)


def test_no_task_begins_where_another_ledger_has_a_lane(topic):
    tasks = Tasks()
    place, sink = lanes_of(topic, tasks)
    place.put(sink, *IDS, batch_id=0)
    publication = place.decided_but_not_published(sink, range(100, 110), range(110, 120), batch_id=1)
    with pytest.raises(LedgerMismatch, match="another table"):
        sink.publish(replace(publication, ledger_id=LedgerId("b" * 32)))
    assert len(tasks.seen) == 1
    assert place.content() == values(*IDS)


def test_a_task_that_sees_another_directory_says_so(topic):
    tasks = Tasks(lambda share: replace(share, claimed=replace(share.claimed, identity="elsewhere.id")).run())
    place, sink = lanes_of(topic, tasks)
    publication = place.decided_but_not_published(sink, *IDS, batch_id=0)
    with pytest.raises(PublishFailed, match="is not the one the driver uses"):
        sink.publish(publication)
    assert not place.content()


def test_records_with_names_instead_of_transactions_stay_with_the_driver(topic):
    tasks = Tasks()
    place, sink = lanes_of(topic, tasks, keyed=True)
    assert sink.tasks_per_batch == 0
    place.put(sink, *IDS, batch_id=0)
    assert not tasks.seen
    assert place.content() == values(*IDS)
