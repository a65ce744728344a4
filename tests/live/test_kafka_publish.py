"""Publishing to a real broker: whatever is cut off, killed, fenced or frozen, the marker decides and every row is there once."""

import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest
from confluent_kafka import OFFSET_END, TopicPartition
from tenacity import Retrying, retry_if_exception_type, retry_if_result, stop_after_delay, wait_fixed
from tests.seed import SEED
from tests.servers import cutting
from tests.servers.fixtures import server
from tests.servers.kafka import ends_transaction
from tests.unit.kafka_target import begun, topics, values
from tests.unit.table_target import spark_schema

from penstock.core import faults
from penstock.errors import OutcomeUnknown, PublishFailed, Refused, Retryable
from penstock.kafka.transaction_ends import COMMITTED, coordinated
from penstock.kafka.transactions import connect
from penstock.sink.kafka import marker_store, verification
from penstock.sink.kafka.errors import Overtaken
from penstock.sink.kafka.marker_store import transactional_id
from penstock.sink.kafka.records import RecordColumns
from penstock.sink.kafka.topics import written
from penstock.testing.conformance import PIPELINE
from penstock.testing.conformance.bench import DecidedBatches, publish

topic = pytest.fixture(topics)

_LED_AGAIN = Retrying(retry=retry_if_exception_type(Retryable), stop=stop_after_delay(120), wait=wait_fixed(0.2), reraise=True)
"""A broker that was killed, or frozen for long, registers anew, and its partitions are led again some seconds later."""

_COMPLETED = Retrying(retry=retry_if_result(lambda state: state != COMMITTED), stop=stop_after_delay(60), wait=wait_fixed(0.02))

KILLS = int(os.environ.get("PENSTOCK_SOAK_KILLS", "3"))


def lane_of(sink, number=0):
    return sink._lanes[number]


def await_completed(sink):
    """Until the coordinator has noted that the lane's commit is complete: killed before that, it writes the ends once more."""
    with closing(connect(sink._clients.given)) as admin:
        name = transactional_id(sink._wanted.pipeline, sink._wanted.sink, 0)
        _COMPLETED(lambda: coordinated(admin, name).state)


# --- one transaction


def test_rows_become_visible_with_their_marker(topic):
    place = topic()
    sink = place.sink()
    publication = place.decided_but_not_published(sink, range(10), batch_id=0)
    faults.arm("kafka.mark=error")
    with pytest.raises(Retryable):
        sink.publish(publication)
    assert place.content() == values()
    assert not sink.publish(publication).already
    assert place.content() == values(range(10))
    newest = marker_store.decode_lane_marker(place.markers()[-1].value(), pipeline=PIPELINE, sink=sink.name)
    assert (newest.marker.position, newest.marker.decided.rows, newest.part) == (publication.position, 10, None)


def test_what_failed_before_the_commit_holds_no_reader_up(topic):
    """Not even for `transaction_timeout`, though its rows have reached the broker."""
    place = topic(timeout_ms=600_000)
    sink = place.sink()
    publication = place.decided_but_not_published(sink, range(10), batch_id=0)

    def fails(_):
        place.await_open(is_so=True)
        raise Retryable("The marker failed.", remedy="Try again.")

    lane_of(sink)._keep = fails
    with pytest.raises(Retryable):
        sink.publish(publication)
    place.await_open(is_so=False)


def test_after_a_lost_answer_the_producer_is_dropped_and_the_marker_decides(topic):
    place = topic()
    sink = place.sink()
    publication = place.decided_but_not_published(sink, range(10), batch_id=0)
    faults.arm("kafka.commit=lost")
    with pytest.raises(OutcomeUnknown):
        sink.publish(publication)
    assert lane_of(sink)._transactions is None
    assert sink.publish(publication).already
    assert place.content() == values(range(10))
    assert place.verify(sink).ok


def test_a_producer_is_held_from_batch_to_batch(topic):
    place = topic()
    sink = place.sink()
    held = lane_of(sink)._transactions
    for batch_id in range(3):
        place.put(sink, range(batch_id * 10, batch_id * 10 + 10), batch_id=batch_id)
    assert lane_of(sink)._transactions is held
    assert place.content() == values(range(30))


@pytest.mark.parametrize("kind", cutting.KINDS)
def test_a_network_that_is_cut_around_the_commit(topic, kind):
    """The client asks again by itself, or the marker is read; either way it is there once."""
    running = server("kafka")
    with cutting.at_requests(running.behind, ends_transaction, at=running.proxied) as cutter:
        place = topic(bootstrap=running.bootstrap_proxied)
        sink = place.sink()
        place.put(sink, range(5), batch_id=0)
        for batch_id in (1, 2):
            publication = place.decided_but_not_published(sink, range(batch_id * 10, batch_id * 10 + 10), batch_id=batch_id)
            cutter.arm(kind)
            publish(sink, publication)
        assert cutter.cuts == 2
        assert place.content() == values(range(5), range(10, 30))
        assert place.verify(sink).ok
        sink.close()


def test_records_that_are_made_of_other_rows_go_on_after_a_restart(topic):
    """Staged, counted and marked are the records; the ledger has the columns of the pipeline's rows."""
    place = topic(schema=spark_schema(key="string", value="string"), record_columns=RecordColumns(json=(), key="id"))
    rows = spark_schema(id="long", name="string")
    for batch_id in (0, 1):
        sink = place.rig.make()
        place._made.append(sink)
        sink.prepare(pipeline=PIPELINE, schema=rows)
        publication = place.decided_but_not_published(sink, range(batch_id * 10, batch_id * 10 + 10), batch_id=batch_id)
        assert not sink.publish(replace(publication, schema=rows)).already
        assert place.verify(sink).ok
        sink.close()
    assert place.content() == values(range(20))


# --- more than one driver


def test_a_zombie_between_its_rows_and_its_commit_is_fenced(topic):
    place = topic()
    zombie = place.sink()
    publication = place.decided_but_not_published(zombie, range(10), batch_id=0)
    other, stop = [], threading.Event()

    def overtake(lane, mark):
        del mark
        if not other:
            other.append(place.sink())
            assert not other[0].publish(publication).already
        stop.set()

    keep = lane_of(zombie)._keep
    lane_of(zombie)._keep = lambda mark: (overtake(0, mark), keep(mark))
    assert zombie.publish(publication).already
    assert stop.is_set()
    assert place.content() == values(range(10))
    place.put(other[0], range(10, 20), batch_id=1)
    assert place.content() == values(range(20))


def test_a_driver_that_was_overtaken_and_is_the_newest_goes_on(topic):
    """Whom the ledger lets decide is no matter of producers."""
    place = topic()
    sink = place.sink()
    place.put(sink, range(10), batch_id=0)
    place.sink().close()
    publication = place.decided_but_not_published(sink, range(10, 20), batch_id=1)
    with pytest.raises(Overtaken):
        sink.publish(publication)
    assert not sink.publish(publication).already
    assert place.content() == values(range(20))


def test_a_transaction_that_took_too_long_is_told_apart_and_done_anew(topic):
    place = topic(timeout_ms=1000)
    sink = place.sink()
    publication = place.decided_but_not_published(sink, range(10), batch_id=0)
    faults.arm("kafka.mark=stall:4")
    with pytest.raises(Retryable, match="took longer than `transaction_timeout`") as told:
        sink.publish(publication)
    assert not isinstance(told.value, Overtaken)
    assert not sink.publish(publication).already
    assert place.content() == values(range(10))


def test_an_expired_producer_is_replaced(topic):
    """Brokers forget a transactional.id that was idle for a week; here it is deleted with the state of its transactions."""
    place = topic()
    sink = place.sink()
    place.put(sink, range(10), batch_id=0)
    publication = place.decided_but_not_published(sink, range(10, 20), batch_id=1)
    name = marker_store.transactional_id(PIPELINE, sink.name, 0)
    place.rig.running.tool("TransactionsCommand", "forceTerminateTransaction", "--transactionalId", name)
    publish(sink, publication)
    assert place.content() == values(range(20))


# --- brokers


@pytest.mark.timeout(300)  # a broker that starts may write the markers of what it committed half a minute later
def test_a_broker_that_is_killed_at_any_moment(topic):
    """It may also forget them: its coordinator takes for done what no partition knows, until the producer's next commit."""
    chance, running = random.Random(SEED), server("kafka")
    place, expected = topic(), [range(5)]
    sink = place.sink()
    place.put(sink, *expected, batch_id=0)
    for batch_id in range(1, KILLS + 1):
        expected.append(ids := range(batch_id * 1000, batch_id * 1000 + 500))
        publication = place.decided_but_not_published(sink, ids, batch_id=batch_id)
        with ThreadPoolExecutor(1) as pool:
            publishing = pool.submit(_LED_AGAIN, sink.publish, publication)
            threading.Event().wait(chance.uniform(0, 0.05))
            running.kill()
            running.start()
            publishing.result()
        assert not place.await_ended() or place.content() == values(*expected)
    place.put(sink, range(10, 20), batch_id=KILLS + 1)
    place.await_open(is_so=False)
    assert place.content() == values(*expected, range(10, 20))
    assert place.verify(sink).ok


def test_a_broker_that_is_frozen_leaves_the_outcome_to_the_marker(topic):
    running = server("kafka")
    place = topic(timeout_ms=2000)
    sink = place.sink()
    publication = place.decided_but_not_published(sink, range(10), batch_id=0)
    keep = lane_of(sink)._keep
    lane_of(sink)._keep = lambda mark: (running.freeze(), keep(mark))
    try:
        with pytest.raises(OutcomeUnknown, match="did not confirm what was sent"):
            sink.publish(publication)
    finally:
        del lane_of(sink)._keep
        running.thaw()
    for attempt in _LED_AGAIN:
        with attempt:
            sink.publish(publication)
    assert place.content() == values(range(10))
    assert place.verify(sink).ok


def test_a_client_that_knows_the_leaders_from_before_a_kill_asks_who_leads_now(topic):
    """It would be told that its epoch is an older one for as long as it lives."""
    running, place = server("kafka"), topic()
    sink = place.sink()
    place.put(sink, range(10), batch_id=0)
    await_completed(sink)
    admin, name = sink._clients.admin, place.rig.topic
    before = written(admin, name, [0])
    running.kill()
    running.start()
    running.await_led(name, 1)
    assert written(admin, name, [0]) == before


# --- lanes and parts


def test_a_lane_that_is_there_is_left_alone_when_the_other_is_published(topic):
    place = topic(partitions=2, lanes=2)
    sink = place.sink()
    publication = place.decided_but_not_published(sink, range(10), range(10, 30), batch_id=0)
    faults.arm("kafka.commit=error@2")
    with pytest.raises(Retryable):
        sink.publish(publication)
    seen = place.content()  # in each partition up to what the other lane left open
    assert seen <= values(range(10)) or seen <= values(range(10, 30))
    assert not place.sink().publish(publication).already
    assert place.content() == values(range(30))
    assert place.verify(place.sink()).ok


@pytest.mark.parametrize("lanes", [1, 2, 5])
def test_a_batch_keeps_the_lanes_that_it_was_staged_for(topic, lanes):
    """Three lanes, of which one is there when it is published by a driver that was told to have another number."""
    place = topic(partitions=2, lanes=3)
    sink = place.sink()
    attempts = [range(at * 10, at * 10 + 10) for at in range(6)]
    publication = place.decided_but_not_published(sink, *attempts, batch_id=0)
    faults.arm("kafka.commit=error@2")
    with pytest.raises(Retryable):
        sink.publish(publication)
    faults.arm("")
    sink.close()
    changed = place.rig.make(lanes=lanes)
    changed.prepare(pipeline=PIPELINE, schema=place.rig.schema)
    publish(changed, publication)
    changed.close()
    assert place.content() == values(*attempts)
    assert place.verify(place.sink()).ok


@pytest.mark.parametrize("size", [300, 1000, 1_000_000])
def test_a_batch_in_parts_goes_on_after_the_last_one_that_is_there(topic, size):
    """By a driver whose parts have another size."""
    place = topic(transaction_bytes=500)
    sink = place.sink()
    place.put(sink, range(1000, 1010), batch_id=0)
    publication = place.decided_but_not_published(sink, range(60), range(60, 100), batch_id=1)
    faults.arm("kafka.commit=error@3")
    with pytest.raises(Retryable):
        sink.publish(publication)
    there = sum(place.content().values())
    assert 10 < there < 110
    sink.close()
    other = place.rig.make(transaction_bytes=size)
    other.prepare(pipeline=PIPELINE, schema=place.rig.schema)
    assert not other.publish(publication).already
    other.close()
    assert place.content() == values(range(1000, 1010), range(100))
    assert place.verify(place.sink()).ok


def test_a_transaction_that_gets_old_is_committed_and_another_one_begun(topic):
    place = topic(timeout_ms=2000)
    sink = place.sink()
    publication = place.decided_but_not_published(sink, range(100), range(100, 200), batch_id=0)
    faults.arm("kafka.rows=stall:1.2")
    assert not sink.publish(publication).already
    assert place.content() == values(range(200))
    positions = [marker_store.decode_lane_marker(one.value(), pipeline=PIPELINE, sink=sink.name).part for one in place.markers()]
    assert any(part is not None for part in positions)


# --- markers


def test_the_newest_marker_is_found_below_what_was_aborted(topic, monkeypatch):
    monkeypatch.setattr(marker_store, "_TAIL", 2)
    place = topic()
    sink = place.sink()
    place.put(sink, range(10), batch_id=0)
    publication = place.decided_but_not_published(sink, range(10, 20), batch_id=1)
    aborted(place, times=5)
    assert place.sink().publish(place.decided[0].publication).already
    publish(sink, publication)
    assert place.content() == values(range(20))


def aborted(place, *, times):
    """Transactions on the markers that come to nothing."""
    for _ in range(times):
        begun(place).abort_transaction(60)


def test_a_marker_that_a_transaction_of_others_may_hide_is_not_read(topic, monkeypatch):
    """Readers stop before it, and what this sink has committed since is behind it."""
    monkeypatch.setattr(marker_store, "_CLOSED_S", 0.5)
    place = topic()
    sink = place.sink()
    publication = place.decided_but_not_published(sink, range(10), batch_id=0)
    foreign = begun(place)
    faults.arm("kafka.commit=lost")
    with pytest.raises(OutcomeUnknown):
        sink.publish(publication)
    with pytest.raises(Retryable, match=f"Transaction '{place.rig.topic}' of somebody else is open .* end it 60 seconds after"):
        sink.publish(publication)
    foreign.abort_transaction(60)
    assert sink.publish(publication).already
    assert place.content() == values(range(10))


def test_a_topic_of_markers_that_is_gone_is_never_taken_for_an_empty_one(topic):
    place = topic()
    sink = place.sink()
    shown = place.put(sink, range(10), batch_id=0)
    sink.close()
    place.rig.running.remove(f"{place.rig.topic}.markers")
    assert place.rig.make().high_water_mark("", pipeline=PIPELINE) is None
    recovering = place.rig.make()
    recovering.prepare(pipeline=PIPELINE, schema=None)
    with pytest.raises(Refused, match="was deleted after batch 0 was staged"):
        recovering.publish(shown.publication)
    with pytest.raises(Refused, match="was recreated after batch 0 was staged"):
        place.sink().publish(shown.publication)
    assert place.content() == values(range(10))


def test_a_lane_without_its_marker_is_refused(topic):
    place = topic()
    sink = place.sink()
    shown = place.put(sink, range(10), batch_id=0)
    sink.close()
    name = f"{place.rig.topic}.markers"
    place.rig.running.set_topic(name, cleanup_policy="delete")
    place.rig.running.admin().delete_records([TopicPartition(name, 0, OFFSET_END)])
    while place.markers():
        threading.Event().wait(0.02)
    place.rig.running.set_topic(name, cleanup_policy="compact")
    recovering = place.rig.make()
    recovering.prepare(pipeline=PIPELINE, schema=None)
    with pytest.raises(PublishFailed, match="has no marker of lane 0"):
        recovering.publish(shown.publication)
    assert place.content() == values(range(10))


def test_two_sinks_cannot_share_their_markers(topic):
    place = topic()
    place.sink()
    other = topic(topic=place.rig.topic)
    with pytest.raises(Refused, match="holds markers of"):
        other.rig.make(name="another").prepare(pipeline=PIPELINE, schema=other.rig.schema)


def test_a_batch_that_is_published_while_verify_looks_at_the_topics_is_no_difference(topic, monkeypatch):
    """It looks at the markers first, and takes rows that came since for foreign unless it looks again."""
    place = topic()
    sink = place.sink()
    place.put(sink, range(10), batch_id=0)
    late = place.decided_but_not_published(sink, range(10, 15), batch_id=1)
    published, written = [], verification.written

    def look(admin, name, partitions):
        if name == place.rig.topic and not published:
            published.append(sink.publish(late))
        return written(admin, name, partitions)

    monkeypatch.setattr(verification, "written", look)
    decisions = DecidedBatches([shown.publication for shown in place.decided])
    decisions.published_at = place.decided[0].publication.position
    report = place.rig.make().verify(decisions)
    assert published
    assert report.ok, report
    assert report.as_of == late.position
