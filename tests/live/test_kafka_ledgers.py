"""Markers in Kafka and whose they are: of one ledger, by one driver at a time, also where no transaction fences."""

from contextlib import contextmanager
from dataclasses import replace

import pytest
from kafka.admin import KafkaAdminClient
from tests.servers.kafka import send
from tests.unit.kafka_target import begun, topics, values

from penstock.core import faults
from penstock.core.model import Generation, LedgerId
from penstock.errors import Failed, LedgerMismatch, Refused, Retryable
from penstock.kafka.transactions import open_transactions
from penstock.sink.kafka import marker_store
from penstock.sink.kafka.errors import Overtaken
from penstock.testing.conformance import PIPELINE
from penstock.testing.conformance.bench import publish
from penstock.testing.conformance.rig import LEDGER_ID

topic = pytest.fixture(topics)

OTHER = LedgerId("b" * 32)


def pieces(place, sink, *attempts):
    """What tasks staged of each."""
    rows = [place.rows(ids) for ids in attempts]
    return [(each, place.stage(sink, each, batch_id=0, partition=at)) for at, each in enumerate(rows)]


def newest(place, sink, partition=0):
    [*_, message] = [one for one in place.markers() if one.partition() == partition]
    return marker_store.decode_lane_marker(message.value(), pipeline=PIPELINE, sink=sink.name)


def test_a_marker_carries_the_ledger_from_the_first_publication_on(topic):
    place = topic()
    sink = place.sink()
    assert newest(place, sink).marker.ledger_id is None
    place.put(sink, range(10), batch_id=0)
    assert newest(place, sink).marker.ledger_id == LEDGER_ID
    mark = place.rig.make().high_water_mark("", pipeline=PIPELINE)
    assert (mark.ledger_id, mark.position) == (LEDGER_ID, 2)


def test_a_part_of_a_batch_carries_it_too(topic):
    """The rest follows by whoever recovers, and by nobody else."""
    place = topic(transaction_bytes=500)
    sink = place.sink()
    publication = place.decided_but_not_published(sink, range(60), batch_id=0)
    faults.arm("kafka.mark=error@2")
    with pytest.raises(Retryable):
        sink.publish(publication)
    assert newest(place, sink).part is not None
    with pytest.raises(LedgerMismatch, match="another table"):
        place.sink().publish(replace(publication, ledger_id=OTHER, position=publication.position + 1))
    assert not place.sink().publish(publication).already
    assert place.content() == values(range(60))


def test_who_has_published_one_lane_has_all_of_them(topic):
    """Else a second ledger would fill the lanes that are left, and neither could go on."""
    place = topic(partitions=2, lanes=2)
    sink = place.sink()
    publication = place.decided_but_not_published(sink, range(10), range(10, 30), batch_id=0)
    faults.arm("kafka.rows=error")
    with pytest.raises(Retryable):
        sink.publish(publication)
    faults.arm("")
    shown, other = place.content(), place.sink()
    assert shown in (values(range(10)), values(range(10, 30)))
    assert place.rig.make().high_water_mark("", pipeline=PIPELINE).ledger_id == LEDGER_ID
    with pytest.raises(LedgerMismatch):
        other.publish(replace(publication, ledger_id=OTHER))
    assert place.content() == shown
    place.sink().publish(publication)
    assert place.content() == values(range(30))


def test_a_ledger_of_fewer_lanes_finds_whose_the_topic_is(topic, monkeypatch):
    """It never asks the lane that the other one filled before it was cut off; the first lane says whose all of them are."""
    place = topic(partitions=2)
    foreign = place.undecided(*pieces(place, place.sink(), range(50, 60)), batch_id=0, position=2, ledger_id=OTHER)
    place.rig.lanes = 2
    sink = place.sink()
    publication = place.decided_but_not_published(sink, range(10), range(10, 30), batch_id=0)

    def cut_off(*_):
        raise Retryable("the broker is away", remedy="Try again.")

    with monkeypatch.context() as patched:
        patched.setattr(sink._lane(0), "publish", cut_off)
        with pytest.raises(Retryable):
            sink.publish(publication)
    assert place.content() == values(range(10, 30))
    place.rig.lanes = 1
    with pytest.raises(LedgerMismatch):
        place.sink().publish(foreign.publication)
    assert place.content() == values(range(10, 30))


def test_a_driver_that_prepared_before_a_newer_one_delivered_reads_whose_the_lanes_are(topic):
    """The marker that it read while it prepared names no ledger, and its producer is fenced when it claims the first lane."""
    place = topic(partitions=2, lanes=2)
    stopped, of_other, sink = place.sink(), place.sink(), place.sink()
    foreign = place.undecided(*pieces(place, of_other, range(50, 60), range(60, 70)), batch_id=0, position=2, ledger_id=OTHER)
    delivered = place.put(sink, range(10), batch_id=0)
    with pytest.raises(LedgerMismatch):
        of_other.publish(foreign.publication)
    assert stopped.publish(delivered.publication).already
    assert newest(place, sink).marker.ledger_id == LEDGER_ID
    assert place.content() == values(range(10))


def test_a_marker_of_an_older_penstock_is_taken_over(topic):
    """It carries no identity; a start has compared it with the entry at its position."""
    place = topic()
    sink = place.sink()
    shown = place.put(sink, range(10), batch_id=0)
    written = newest(place, sink)
    old = replace(written, mark=replace(written.mark, marker=replace(written.marker, ledger_id=None)))
    sink.close()
    key = marker_store.mark_key(PIPELINE, sink.name)
    send(place.rig.bootstrap, f"{place.rig.topic}.markers", value=marker_store.encode_lane_marker(old), key=key, partition=0)
    going_on = place.sink()
    assert place.rig.make().high_water_mark("", pipeline=PIPELINE).ledger_id is None
    assert going_on.publish(shown.publication).already
    place.put(going_on, range(10, 20), batch_id=1)
    assert newest(place, going_on).marker.ledger_id == LEDGER_ID
    assert place.content() == values(range(20))


@pytest.mark.parametrize("partition", [0, 1], ids=["in its lane", "in no lane"])
def test_a_record_of_somebody_else_among_the_markers_does_not_stop_the_sink_whose_they_are(topic, partition):
    place = topic()
    markers = place.rig.running.topic(f"{place.rig.topic}.markers", 2, cleanup_policy="compact")
    sink = place.sink()
    shown = place.put(sink, range(10), batch_id=0)
    sink.close()
    send(place.rig.bootstrap, markers, value=b"x", key=b"nobody", partition=partition)
    assert place.rig.make().high_water_mark("", pipeline=PIPELINE).position == 2
    assert place.sink().publish(shown.publication).already


def decided_by_a_copy(place, sink, *attempts, position=3):
    """What a copy of the ledger decides after the same first batch; both have one identity."""
    shown = place.undecided(*pieces(place, sink, *attempts), batch_id=1, position=position)
    return replace(shown.publication, previous=2)


@pytest.mark.parametrize("position", [3, 5], ids=["the same position", "a later one"])
def test_of_two_copies_of_a_ledger_one_delivers_though_the_other_uses_more_lanes(topic, position):
    place = topic(partitions=2, lanes=2)
    sink = place.sink()
    place.put(sink, range(10), range(10, 20), batch_id=0)
    publish(sink, replace(place.decided_but_not_published(sink, range(20, 40), batch_id=1), previous=2))
    with pytest.raises(LedgerMismatch):
        sink.publish(decided_by_a_copy(place, sink, range(20, 30), range(30, 40), position=position))
    other = place.sink()
    with pytest.raises(LedgerMismatch):
        other.publish(decided_by_a_copy(place, other, range(20, 30), range(30, 40), position=position))
    assert place.content() == values(range(40))


@pytest.mark.parametrize("attempts", [(range(20, 40),), (range(20, 25), range(25, 40))], ids=["one lane", "two lanes"])
@pytest.mark.parametrize("position", [3, 5], ids=["the same position", "a later one"])
def test_a_copy_does_not_go_on_beside_a_lane_that_has_published_its_share(topic, position, attempts):
    """The ledger's driver died before the other lane had, and delivers the rest when it starts again."""
    place = topic(partitions=2, lanes=2)
    sink = place.sink()
    place.put(sink, range(10), range(10, 20), batch_id=0)
    mine = replace(place.decided_but_not_published(sink, range(20, 30), range(30, 40), batch_id=1), previous=2)
    sink._lane(1).publish(replace(mine, staged=mine.staged[1::2]), sink._spool.rows_of)
    other = place.sink()
    with pytest.raises(LedgerMismatch):
        other.publish(decided_by_a_copy(place, other, *attempts, position=position))
    assert place.content() == values(range(20), range(30, 40))
    assert not place.sink().publish(mine).already
    assert place.content() == values(range(40))


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("position", [3, 5], ids=["the same position", "a later one"])
def test_a_copy_does_not_go_on_behind_a_part_of_a_batch(topic, position, lanes):
    """Whose rows would stay there beside its own."""
    place = topic(partitions=2, lanes=lanes, transaction_bytes=500)
    sink = place.sink()
    place.put(sink, *[range(at, at + 5) for at in (0, 5)], batch_id=0)
    attempts = [range(20, 25), range(30, 90)][-lanes:]
    mine = replace(place.decided_but_not_published(sink, *attempts, batch_id=1), previous=2)
    newest = sink._lane(lanes - 1)
    faults.arm("kafka.mark=error@2")
    with pytest.raises(Retryable):
        newest.publish(replace(mine, staged=mine.staged[lanes - 1 :]), sink._spool.rows_of)
    faults.arm("")
    shown, other = place.content(), place.sink()
    assert len(shown) > 10
    with pytest.raises(LedgerMismatch):
        other.publish(decided_by_a_copy(place, other, range(20, 25), range(30, 50), range(50, 90), position=position))
    assert place.content() == shown
    assert not place.sink().publish(mine).already
    assert place.content() == values(range(10), *attempts)


# --- mode: keyed


def while_it_reads(sink, act):
    """Have `act` done once, when `sink` has read the marker and is about to send its rows: a driver that was stopped there."""
    read, done = sink._spool.rows_of, []

    @contextmanager
    def rows(share):
        if not done:
            done.append(act())
        with read(share) as batches:
            yield batches

    sink._spool.rows_of = rows


def test_a_keyed_driver_that_was_stopped_puts_no_older_marker_over_a_newer_one(topic):
    place = topic(keyed=True)
    stopped, sink = place.sink(), place.sink()
    first = place.decided_but_not_published(stopped, range(10), batch_id=0)
    second = place.decided_but_not_published(sink, range(10, 20), batch_id=1)
    while_it_reads(stopped, lambda: [sink.publish(first), sink.publish(second)])
    assert stopped.publish(first).already
    assert newest(place, sink).marker.position == second.position
    assert place.content().keys() == values(range(20)).keys()
    assert place.rig.make().high_water_mark("", pipeline=PIPELINE).position == second.position


def test_a_keyed_driver_that_was_stopped_while_it_claimed_puts_no_older_marker_there(topic):
    place = topic(keyed=True)
    stopped, sink = place.sink(), place.sink()
    first = place.decided_but_not_published(stopped, range(10), batch_id=0)
    second = place.decided_but_not_published(sink, range(10, 20), batch_id=1)
    lane = stopped._lanes[0]
    keep = lane.keep

    def late(*given, **named):
        del lane.keep
        sink.publish(first)
        sink.publish(second)
        keep(*given, **named)

    lane.keep = late
    assert stopped.publish(first).already
    assert newest(place, sink).marker.position == second.position
    assert place.content() == values(range(20))


def test_a_keyed_driver_reads_the_marker_before_each_batch(topic):
    """Nothing tells it that another one went on, though its lane has the ledger's name already: it sends no row again."""
    place = topic(keyed=True)
    stopped, sink = place.sink(), place.sink()
    for batch_id, driver in enumerate((stopped, sink)):
        place.put(driver, range(batch_id * 10, batch_id * 10 + 10), batch_id=batch_id)
    for shown in place.decided:
        assert stopped.publish(shown.publication).already
    assert place.content() == values(range(20))
    assert newest(place, sink).marker.position == 3


def test_a_keyed_driver_of_an_older_generation_is_refused(topic):
    """It decided a position that the newer one has not reached: its ledger is another one's, or its fence was overlooked."""
    place = topic(keyed=True)
    stopped, sink = place.sink(), place.sink()
    newer = place.decided_but_not_published(sink, range(10), batch_id=0)
    older = place.decided_but_not_published(stopped, range(10, 20), batch_id=1)
    while_it_reads(stopped, lambda: sink.publish(replace(newer, generation=Generation(7))))
    with pytest.raises(Overtaken, match="moved the marker"):
        stopped.publish(older)
    with pytest.raises(LedgerMismatch, match="Generation 1 publishes position 3"):
        stopped.publish(older)
    assert newest(place, sink).marker.generation == 7


def test_two_ledgers_of_one_name_do_not_both_deliver_by_a_keyed_sink(topic):
    place = topic(keyed=True)
    mine, other = place.sink(), place.sink()
    publication = place.decided_but_not_published(mine, range(10), batch_id=0)
    faults.arm("kafka.rows=error")
    with pytest.raises(Retryable):
        mine.publish(publication)
    with pytest.raises(LedgerMismatch):
        other.publish(replace(publication, ledger_id=OTHER))
    assert place.content() == values()
    assert not mine.publish(publication).already
    assert place.content() == values(range(10))


# --- a transaction that was forgotten


def test_a_start_names_the_transaction_that_no_broker_ends_and_the_command_that_does(topic, monkeypatch):
    """It would wait for ever, and its supervisor start it again and again."""
    monkeypatch.setattr(marker_store, "_CLOSED_S", 0.5)
    place = topic()
    sink = place.sink()
    shown = place.put(sink, range(10), batch_id=0)
    sink.close()
    producer = begun(place)
    [known] = open_transactions(options(place), [f"{place.rig.topic}.markers"])
    with monkeypatch.context() as patched:
        patched.setattr(KafkaAdminClient, "list_transactions", lambda *_, **__: {})
        name = f"{place.rig.topic}.markers/0/{known.producer_id}"
        with pytest.raises(Refused, match=f"Transaction '{name}' is open") as raised:
            place.sink()
        assert f"penstock doctor FILE --end {name}`" in raised.value.remedy
        [forgotten] = place.rig.make().open_transactions()
        assert forgotten.name == name
        place.rig.make().end_transaction(forgotten)
    assert place.sink().publish(shown.publication).already
    assert place.content() == values(range(10))
    producer.abort_transaction(60)


def test_who_may_not_list_transactions_is_told_that_one_is_open(topic, monkeypatch):
    monkeypatch.setattr(marker_store, "_CLOSED_S", 0.5)

    def silent(*_):
        raise Failed("No answer.", remedy="Look.")

    monkeypatch.setattr(marker_store, "open_transactions", silent)
    place = topic()
    place.sink().close()
    foreign = begun(place)
    with pytest.raises(Retryable, match="A transaction of somebody else is open in partition 0"):
        place.sink()
    foreign.abort_transaction(60)


@pytest.mark.parametrize("hangs", [False, True])
def test_a_marker_behind_a_transaction_of_somebody_else_is_not_taken_for_an_older_copy(topic, monkeypatch, hangs):
    """A start compares it with the ledger before it prepares a sink; `verify` does, too."""
    monkeypatch.setattr("penstock.sink.kafka.sink.SETTLED_S", 0.5)
    monkeypatch.setattr(marker_store, "_CLOSED_S", 0.5)
    place = topic()
    sink = place.sink()
    place.put(sink, range(10), batch_id=0)
    foreign = begun(place)
    for batch_id in (1, 2):
        publish(sink, place.decided_but_not_published(sink, range(batch_id * 10, batch_id * 10 + 10), batch_id=batch_id))
    sink.close()
    kind = Refused if hangs else Retryable
    with monkeypatch.context() as patched:
        if hangs:
            patched.setattr(KafkaAdminClient, "list_transactions", lambda *_, **__: {})
        with pytest.raises(kind, match="is open in") as raised:
            place.rig.make().high_water_mark("", pipeline=PIPELINE)
        assert ("penstock doctor FILE --end" in raised.value.remedy) is hangs
        with pytest.raises(kind, match="is open in"):
            place.verify(place.rig.make())
    foreign.abort_transaction(60)
    assert place.rig.make().high_water_mark("", pipeline=PIPELINE).position == 4


def test_a_keyed_run_waits_for_a_transaction_of_somebody_else_among_its_markers(topic, monkeypatch):
    """Which hides its own: the batch after the next would be refused, as if an older copy were in the topic's place."""
    monkeypatch.setattr(marker_store, "_CLOSED_S", 0.5)
    place = topic(keyed=True)
    sink = place.sink()
    place.put(sink, range(10), batch_id=0)
    foreign = begun(place)
    publication = place.decided_but_not_published(sink, range(10, 20), batch_id=1)
    with pytest.raises(Retryable, match="of somebody else is open"):
        sink.publish(publication)
    foreign.abort_transaction(60)
    assert not sink.publish(publication).already
    place.put(sink, range(20, 30), batch_id=2)
    assert place.content() == values(range(30))


def options(place):
    return {"bootstrap.servers": place.rig.bootstrap}
