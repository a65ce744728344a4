"""Ends of transactions that brokers forgot to write: what was aborted stays away, what was committed stays there."""

import threading
import time
from contextlib import closing

import pytest
from confluent_kafka import Producer
from kafka.admin import KafkaAdminClient
from tests.conformance.topic_rig import KafkaRig
from tests.live.test_kafka_transactions import lingering
from tests.servers.fixtures import server
from tests.servers.kafka import is_open
from tests.servers.kafka_forgotten import leave_open, trusting
from tests.unit.kafka_target import begun, topics, values
from tests.unit.table_target import spark_schema

from penstock.errors import Refused, Retryable
from penstock.kafka.transactions import open_transactions
from penstock.sink.kafka import clients, lane_ends
from penstock.sink.kafka.lane import Lane
from penstock.sink.kafka.lane_producer import Transactions
from penstock.sink.kafka.marker_store import encode_lane_marker, mark_key, transactional_id
from penstock.testing.conformance import PIPELINE
from penstock.testing.conformance.bench import publish
from penstock.testing.conformance.story import RAISED, end, start

topic = pytest.fixture(topics)
PLACED = spark_schema(value="string", key="string", partition="integer")


@pytest.fixture(autouse=True)
def _trusting():
    with trusting(server("kafka")):
        yield


def name_of(sink):
    return transactional_id(PIPELINE, sink.name, 0)


def forgotten(place, sink, numbers, *, partition=0):
    """Rows of the sink's last transaction that a broker did not end."""
    rows = [(b"k", f"value {number}".encode()) for number in numbers]
    leave_open(place.rig.running.bootstrap, name_of(sink), place.rig.topic, partition, rows)
    assert is_open(place.rig.running.bootstrap, place.rig.topic, partition)


def failed(place, sink, publication, *, killed=False):
    """An attempt whose rows have reached a broker and whose transaction was aborted, or is left open by a driver that is killed.

    Its marker, which was not sent.
    """
    of_sink, marks = sink._lanes[0], []
    partitions = place.rig.running.admin().list_topics(place.rig.topic, timeout=60).topics[place.rig.topic].partitions

    def fails(mark):
        marks.append(mark)
        while not any(is_open(place.rig.running.bootstrap, place.rig.topic, partition) for partition in partitions):
            threading.Event().wait(0.01)
        of_sink._transactions._is_committing = killed  # what may be committed is not aborted
        raise Retryable("The marker failed.", remedy="Try again.")

    of_sink._keep = fails
    with pytest.raises(Retryable, match="The marker failed"):
        sink.publish(publication)
    del of_sink._keep
    await_state(place, sink, "Ongoing" if killed else "CompleteAbort")
    return marks[0]


def published_without_marker(place, sink, publication):
    """The marker, which a broker is to forget."""
    of_sink, marks = sink._lanes[0], []
    of_sink._keep = lambda mark: (marks.append(mark), setattr(of_sink, "_mark", mark))
    sink.publish(publication)
    del of_sink._keep
    await_state(place, sink, "CompleteCommit")
    return marks[0]


def state_of(place, sink):
    with closing(KafkaAdminClient(bootstrap_servers=place.rig.running.bootstrap)) as admin:
        return admin.describe_transactions([name_of(sink)])[name_of(sink)].state.value


def await_state(place, sink, state):
    deadline = time.monotonic() + 30
    while state_of(place, sink) != state:
        assert time.monotonic() < deadline
        threading.Event().wait(0.05)


@pytest.fixture(params=["running", "restarted"])
def again(request, topic):
    """The sink that goes on: the same one, or that of a new run."""

    def make(place, sink):
        if request.param == "running":
            return sink
        sink.close()
        return place.sink()

    return make


def test_rows_of_an_attempt_that_was_aborted_do_not_appear_beside_those_of_the_next_one(topic, again):
    place = topic(partitions=2)
    sink = place.sink()
    place.put(sink, range(5), batch_id=0)
    publication = place.decided_but_not_published(sink, range(10, 30), batch_id=1)
    failed(place, sink, publication)
    forgotten(place, sink, range(10, 20))
    sink = again(place, sink)
    publish(sink, publication)
    assert place.content() == values(range(5), range(10, 30))
    place.put(sink, range(40, 45), batch_id=2)
    assert place.content() == values(range(5), range(10, 30), range(40, 45))


def test_rows_that_were_delivered_are_not_lost_by_an_attempt_that_is_aborted(topic, again):
    place = topic(partitions=2)
    sink = place.sink()
    place.put(sink, range(5), batch_id=0)
    forgotten(place, sink, range(5, 10), partition=1)
    sink = again(place, sink)
    publication = place.decided_but_not_published(sink, range(10, 30), batch_id=1)
    failed(place, sink, publication)
    publish(sink, publication)
    assert place.content() == values(range(30))


@pytest.mark.parametrize("library", ["columnar", "one by one"])
def test_rows_that_were_delivered_appear_though_the_next_batch_has_none_in_their_partition(topic, library, monkeypatch):
    """Between two batches of a running sink."""
    if library != "columnar":
        monkeypatch.setattr(clients, "librdkafka", lambda: None)
    place = topic(partitions=2, schema=PLACED)
    place.rig.row = lambda number: {"value": f"value {number}", "key": "k", "partition": 1}
    sink = place.sink()
    place.put(sink, range(5), batch_id=0)
    forgotten(place, sink, range(5, 10), partition=0)
    place.put(sink, range(10, 20), batch_id=1)
    assert place.content() == values(range(20))


def test_between_the_parts_of_a_large_batch(topic, monkeypatch):
    place = topic(partitions=2, transaction_bytes=500)
    sink = place.sink()
    publication = place.decided_but_not_published(sink, range(40), range(40, 60), batch_id=0)
    commit, done = Lane._commit, []

    def forget(lane):
        commit(lane)
        if not done:
            done.append(place.await_open(is_so=False))
            forgotten(place, sink, range(100, 105))

    monkeypatch.setattr(Lane, "_commit", forget)
    with pytest.raises(Retryable, match="forgot to end a transaction of lane 0"):
        sink.publish(publication)
    publish(sink, publication)
    assert place.content() == values(range(60), range(100, 105))


@pytest.mark.parametrize("committed", [True, False])
def test_the_marker_is_read_as_it_was_decided(topic, committed):
    """Of a batch that was published, or whose attempt was aborted: the topic of markers has a partition for the lane."""
    place = topic()
    sink = place.sink()
    place.put(sink, range(5), batch_id=0)
    publication = place.decided_but_not_published(sink, range(10, 20), batch_id=1)
    mark = (published_without_marker if committed else failed)(place, sink, publication)
    row = (mark_key(PIPELINE, sink.name), encode_lane_marker(mark))
    leave_open(place.rig.running.bootstrap, name_of(sink), f"{place.rig.topic}.markers", 0, [row])
    sink.close()
    assert place.sink().publish(publication).already is committed
    assert place.content() == values(range(5), range(10, 20))


@pytest.mark.parametrize("outcome", ["committed", "aborted", "left open", "being committed"])
def test_a_start_compares_the_ledger_with_the_marker_that_is_committed_though_readers_do_not_see_it(topic, outcome, monkeypatch):
    """It would take the place for an older copy, and be refused before it could end what brokers forgot."""
    monkeypatch.setattr("penstock.sink.kafka.sink.SETTLED_S", 0.5)
    place = topic()
    sink = place.sink()
    place.put(sink, range(5), batch_id=0)
    publication = place.decided_but_not_published(sink, range(10, 20), batch_id=1)
    is_committed = outcome in {"committed", "being committed"}
    if is_committed:
        mark = published_without_marker(place, sink, publication)
    else:
        mark = failed(place, sink, publication, killed=outcome == "left open")
    row = (mark_key(PIPELINE, sink.name), encode_lane_marker(mark))
    leave_open(place.rig.running.bootstrap, name_of(sink), f"{place.rig.topic}.markers", 0, [row])
    if outcome == "being committed":  # as long as a partition of another broker has no leader
        coordinated = lane_ends.coordinated
        monkeypatch.setattr(lane_ends, "coordinated", lambda *asked: coordinated(*asked)._replace(state="PrepareCommit"))
    shown = place.rig.make().high_water_mark("", pipeline=PIPELINE)
    assert shown.position == publication.position - (not is_committed)


def test_a_marker_that_nobody_may_ask_about_is_awaited(topic, monkeypatch):
    monkeypatch.setattr("penstock.sink.kafka.sink.SETTLED_S", 0.1)
    monkeypatch.setattr(lane_ends, "_ENDED_S", 0.5)
    place = topic(options={"sasl.oauthbearer.config": "none"}, timeout_ms=1_000)
    place.put(place.sink(), range(5), batch_id=0)
    foreign = begun(place)
    with pytest.raises(lane_ends.CannotLook, match="cannot be listed over a connection"):
        place.rig.make().high_water_mark("", pipeline=PIPELINE)
    monkeypatch.setattr(lane_ends, "_ENDED_S", 30)
    ending = threading.Timer(1, foreign.abort_transaction, [60])
    ending.start()
    assert place.rig.make().high_water_mark("", pipeline=PIPELINE).position == 2
    ending.join()


def test_a_transaction_that_a_driver_left_open_is_ended_where_brokers_forgot_that(topic, monkeypatch):
    """By the start that ends it."""
    place = topic(partitions=2, schema=PLACED)
    place.rig.row = lambda number: {"value": f"value {number}", "key": "k", "partition": 1}
    sink = place.sink()
    place.put(sink, range(5), batch_id=0)
    publication = place.decided_but_not_published(sink, range(10, 20), batch_id=1)
    failed(place, sink, publication, killed=True)
    fence, done = lane_ends.fence, []

    def forget(*arguments, **named):
        fence(*arguments, **named)
        await_state(place, sink, "CompleteAbort")
        if not done:
            done.append(forgotten(place, sink, range(10, 15), partition=0))

    monkeypatch.setattr(lane_ends, "fence", forget)
    newer = place.sink()
    assert done
    publish(newer, publication)
    assert place.content() == values(range(5), range(10, 20))


KINDS = pytest.mark.parametrize("kind", ["kill", "error", "lost", "stall:0.2"])


@KINDS
@pytest.mark.parametrize("committed", [True, False])
def test_a_driver_that_dies_while_it_ends_it(topic, committed, kind):
    place = topic(partitions=2)
    sink = place.sink()
    place.put(sink, range(5), batch_id=0)
    publication = place.decided_but_not_published(sink, range(10, 20), batch_id=1)
    if committed:
        for partition in (0, 1):
            forgotten(place, sink, range(5 + partition, 10, 2), partition=partition)
    else:
        failed(place, sink, publication)
        for partition in (0, 1):
            forgotten(place, sink, range(10, 15), partition=partition)
    sink.close()
    die_at("kafka-ends.write", place, kind)
    newer = place.sink()
    publish(newer, publication)
    assert place.content() == values(range(10) if committed else range(5), range(10, 20))


@KINDS
def test_a_driver_that_dies_while_it_ends_what_another_left_open(topic, kind):
    place = topic(partitions=2)
    sink = place.sink()
    publication = place.decided_but_not_published(sink, range(10), batch_id=0)
    failed(place, sink, publication, killed=True)
    die_at("kafka-ends.fence", place, kind)
    newer = place.sink()
    publish(newer, publication)
    assert place.content() == values(range(10))


def die_at(point, place, kind):
    rig = KafkaRig(place.rig.directory, place.rig.bootstrap, place.rig.topic)
    code = end(start(open_again, rig, place.rig.schema, faults=f"{point}={kind}"))
    assert code == {"kill": -9, "stall:0.2": 0}.get(kind, RAISED)


def open_again(rig, schema):
    """In a process of its own."""
    with closing(rig.make()) as sink:
        sink.prepare(pipeline=PIPELINE, schema=schema)


def test_transactions_of_others_in_the_topic_are_none_of_this_sinks(topic, monkeypatch):
    place = topic(partitions=2)
    sink = place.sink()
    held = sink._lanes[0]._transactions
    connect, connected = lane_ends.connect, []
    monkeypatch.setattr(lane_ends, "connect", lambda given: (connected.append(given), connect(given))[1])
    with lingering(place.rig.topic) as (_, other):
        began = time.monotonic()
        for batch_id in range(5):
            publish(sink, place.decided_but_not_published(sink, range(batch_id * 10, batch_id * 10 + 10), batch_id=batch_id))
        assert len(connected) == 1
        place.sink()
        assert time.monotonic() - began < 10
        other.abort_transaction(60)
    assert sink._lanes[0]._transactions is held
    assert place.content() == values(range(50))


def test_what_nobody_knows_is_refused_and_the_remedy_carried_out(topic):
    """After a start of an older Penstock: by its answer to `init_transactions` the coordinator forgets how it ended."""
    place = topic(partitions=2)
    sink = place.sink()
    place.put(sink, range(5), batch_id=0)
    publication = place.decided_but_not_published(sink, range(10, 20), batch_id=1)
    failed(place, sink, publication)
    forgotten(place, sink, range(10, 15))
    Producer({"bootstrap.servers": place.rig.running.bootstrap, "transactional.id": name_of(sink)}).init_transactions(60)
    for _ in range(2):
        with pytest.raises(Refused, match=f"is open in {place.rig.topic}-0, .* committed or aborted") as refused:
            place.sink()
    [one] = open_transactions({"bootstrap.servers": place.rig.running.bootstrap}, [place.rig.topic])
    assert f"`penstock doctor FILE --end {one.name}`, which aborts it" in refused.value.remedy
    place.rig.make().end_transaction(one)
    publish(place.sink(), publication)
    assert place.content() == values(range(5), range(10, 20))


def test_what_comes_between_the_look_and_the_fence_is_seen(topic, monkeypatch):
    """Another driver's, whose end is forgotten as well: its outcome is not known any more."""
    place = topic(partitions=2)
    sink = place.sink()
    place.put(sink, range(5), batch_id=0)
    sink.close()
    look = lane_ends.LaneEnds.end_older

    def forget(ends):
        look(ends)
        forgotten(place, sink, range(5, 10))

    with monkeypatch.context() as patched:
        patched.setattr(lane_ends.LaneEnds, "end_older", forget)
        with pytest.raises(Retryable, match="forgot to end a transaction of lane 0"):
            place.sink()
    with pytest.raises(Refused, match="committed or aborted"):
        place.sink()


def test_over_a_connection_that_cannot_ask_what_a_driver_left_open_is_ended(topic, monkeypatch):
    """By the broker, after its time-out: a start that ended it could hide how another one ended."""
    place = topic(partitions=2, options={"sasl.oauthbearer.config": "none"}, timeout_ms=2_000)
    sink = place.sink()
    publication = place.decided_but_not_published(sink, range(10), batch_id=0)
    failed(place, sink, publication, killed=True)
    init, states = Transactions.__init__, []
    monkeypatch.setattr(
        Transactions, "__init__", lambda *given, **named: states.append(state_of(place, sink)) or init(*given, **named)
    )
    newer = place.sink()
    assert states == ["CompleteAbort"]
    monkeypatch.setattr(lane_ends, "_ENDED_S", 0.5)
    publish(newer, publication)
    assert place.content() == values(range(10))
    forgotten(place, newer, range(10, 15))
    publication = place.decided_but_not_published(newer, range(20, 25), batch_id=1)
    with pytest.raises(lane_ends.CannotLook, match=r"cannot be listed over a connection with sasl\.oauthbearer\.config"):
        newer.publish(publication)
