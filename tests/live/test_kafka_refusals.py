"""What a topic cannot take exactly is refused before anything is decided, each with the remedy; and what is told of Kafka."""

import pickle
from contextlib import closing, nullcontext
from types import SimpleNamespace

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType
from tests.servers import kafka
from tests.unit.kafka_target import HEADERS, TopicTarget, topics, values
from tests.unit.table_target import spark_schema

from penstock.errors import Failed, OutcomeUnknown, PublishFailed, Refused, Retryable, StageFailed, Usage
from penstock.sink.kafka.clients import Clients
from penstock.sink.kafka.errors import Overtaken, translate_errors
from penstock.sink.kafka.preparation import require_rights
from penstock.sink.kafka.records import TopicRowValidator, records_of
from penstock.sink.kafka.topics import Topic, every_place
from penstock.source.kafka.broker import Broker
from penstock.spec.kafka import Kafka
from penstock.testing.conformance import PIPELINE

topic = pytest.fixture(topics)


# --- settings


@pytest.mark.parametrize("option", ["transactional.id", "acks", "enable.idempotence", "isolation.level", "bootstrap.servers"])
def test_options_that_the_guarantee_rests_on_are_not_taken(option):
    with pytest.raises(Usage, match=f"{option}.* is not an option of yours"):
        Kafka(bootstrap="a:9092", topic="t", options={option: "x"})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"bootstrap": "a"}, "should name brokers"),
        ({"topic": "a/b"}, "should be the name of a topic"),
        ({"topics": ["a b"]}, "should be the name of a topic"),
        ({"marker_topic": "t"}, "is also a topic of the rows"),
        ({"transaction_timeout": "10ms"}, "should be at least 1s"),
        ({"lanes": 0}, "lanes"),
    ],
)
def test_settings_that_cannot_be_are_told(changed, said):
    with pytest.raises(Usage, match=said):
        Kafka(**{"bootstrap": "a:9092", "topic": "t", **changed})


def test_secrets_are_not_shown():
    shown = repr(Kafka(bootstrap="a:9092", topic="t", options={"sasl.password": "geheim", "sasl.username": "ann"}))
    assert "geheim" not in shown
    assert "ann" in shown


# --- rows


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"id": "long"}, "have a column 'id', expected value"),
        ({"key": "string"}, "have no column 'value'"),
        ({"value": "long"}, "Column 'value' is int64, expected string or binary"),
        ({"value": "string", "partition": "long"}, "Column 'partition' is int64, expected int"),
        ({"value": "string", "topic": "binary"}, "Column 'topic' is binary, expected string"),
        (
            {"value": "string", "headers": "string"},
            "Column 'headers' is string, expected array<struct<key: string, value: binary>>",
        ),
    ],
)
def test_rows_that_are_no_records_are_refused_by_check_and_start(topic, columns, said):
    place = topic(schema=spark_schema(**columns))
    with pytest.raises(Usage, match=said):
        place.rig.make().require_schema_accepted(pipeline=PIPELINE, schema=place.rig.schema)
    with pytest.raises(Usage, match=said):
        place.sink()


HEADER = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"value": ["a"], "partition": pa.array([2], pa.int32())}, "partition 2, where topic 't' has 2"),
        ({"value": ["a"], "partition": pa.array([-1], pa.int32())}, "partition -1, where topic 't' has 2"),
        ({"value": ["a"], "partition": pa.array([3], pa.int32()), "topic": ["other"]}, "partition 3, where topic 'other' has 3"),
        ({"value": ["a"], "partition": pa.array([None], pa.int32())}, "NULL in column 'partition'"),
        ({"value": ["a"], "topic": ["third"]}, "'third' in column 'topic', expected one of t, other"),
        ({"value": ["a"], "topic": pa.array([None], pa.string())}, "NULL in column 'topic'"),
        ({"value": ["a"], "headers": pa.array([[{"key": None, "value": b""}]], HEADER)}, "NULL as a header or as its key"),
        ({"value": ["a"], "headers": pa.array([[None]], HEADER)}, "NULL as a header or as its key"),
        ({"value": ["a"], "headers": pa.array([[{"key": "a\0", "value": b""}]], HEADER)}, "whose key holds a NUL"),
        ({"value": ["a"], "key": pa.array([None], pa.string()), "topic": ["other"]}, "NULL in column 'key', where topic 'other'"),
        (
            {"value": pa.array(["a", None], pa.string()), "key": pa.array([None, None], pa.string())},
            "NULL in column 'key' of a row that deletes",
        ),
        ({"value": ["a" * 2000]}, "a record of about 2200 bytes, where 2000 are taken"),
        ({"value": ["a"], "headers": pa.array([[{"key": "a", "value": b"x" * 2000}]], HEADER)}, "where 2000 are taken"),
    ],
)
def test_tasks_refuse_what_a_broker_would_refuse_later(columns, said):
    admission = TopicRowValidator(
        sink="s",
        topic="t",
        partitions={"t": 2, "other": 3},
        max_record_bytes=2000,
        compacted=frozenset({"other"}),
        deletes=True,
    )
    with pytest.raises(StageFailed, match=said):
        pickle.loads(pickle.dumps(admission))(pa.RecordBatch.from_pydict(columns))


def test_tasks_take_many_rows_that_are_small_each():
    admission = TopicRowValidator(sink="s", topic="t", partitions={"t": 1}, max_record_bytes=2000)
    admission(pa.RecordBatch.from_pydict({"value": ["a" * 1700] * 10, "key": pa.array([None] * 10, pa.string())}))
    admission(pa.RecordBatch.from_pydict({"value": pa.array([], pa.string()), "partition": pa.array([], pa.int32())}))


def test_a_row_becomes_a_record():
    headers = pa.array([[{"key": "a", "value": b"b"}], None], HEADER)
    rows = pa.RecordBatch.from_pydict({"headers": headers, "value": ["x", None], "topic": ["u", "t"]})
    assert list(records_of(rows, topic="t")) == [("u", b"x", None, -1, [("a", b"b")]), ("t", None, None, -1, None)]


# --- topics


def test_a_topic_that_is_not_there_is_not_made(topic):
    place = topic(topic="never")
    with pytest.raises(Refused, match="There is no topic 'never'"):
        place.sink()
    [finding] = place.rig.make().check()
    assert (finding.ok, "kafka-topics --create --topic never" in finding.message) == (False, True)
    assert "never" not in place.rig.running.admin().list_topics(timeout=60).topics


def test_a_topic_that_is_looked_at_is_not_made(tmp_path):
    """Brokers that make topics by themselves would do it for a client that only asks for one by its name."""
    with kafka.running(tmp_path, auto_create_topics_enable="true") as running:
        assert every_place(Clients(running.bootstrap, {}).admin, ["gone"]) == []
        while "made" not in (found := running.admin().list_topics(timeout=60).topics):
            running.admin().list_topics("made", timeout=60)
        assert "gone" not in found


def test_check_tells_of_the_topics_and_warns_of_a_single_copy(topic):
    place = topic()
    findings = place.rig.make().check()
    assert [(finding.ok, finding.warns) for finding in findings] == [(True, False), (True, False), (True, True)]
    assert "has one copy" in findings[-1].message
    assert f"{place.rig.topic}.markers" not in place.rig.running.admin().list_topics(timeout=60).topics


def test_markers_that_brokers_would_remove_are_refused(topic):
    place = topic()
    place.rig.running.topic(f"{place.rig.topic}.markers", cleanup_policy="compact,delete")
    with pytest.raises(Refused, match=r"cleanup\.policy=compact,delete"):
        place.sink()
    assert not place.rig.make().check()[0].ok


def test_the_markers_are_compacted_and_have_a_partition_for_each_lane(topic):
    place = topic(lanes=2)
    place.sink()
    place.rig.make(lanes=3).prepare(pipeline=PIPELINE, schema=place.rig.schema)
    admin, name = place.rig.running.admin(), f"{place.rig.topic}.markers"
    [described] = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]).values()
    assert described.result(60)["cleanup.policy"].value == "compact"
    assert len(admin.list_topics(name, timeout=60).topics[name].partitions) == 3


def test_a_topic_may_take_larger_records_than_the_client(topic):
    place = topic(settings={"max_message_bytes": "2147483647"})
    place.put(place.sink(), range(10), batch_id=0)
    assert place.content() == values(range(10))


def test_a_transaction_longer_than_brokers_allow_is_refused(topic):
    place = topic(timeout_ms=10**7)
    with pytest.raises(Refused, match="allows 900000 ms"):
        place.sink()


def test_rows_without_a_key_are_refused_for_a_compacted_topic(topic):
    place = topic(schema=spark_schema(value="string"), settings={"cleanup_policy": "compact"})
    with pytest.raises(Refused, match="is compacted"):
        place.sink()


def test_tasks_refuse_a_row_without_a_key_for_a_compacted_topic(topic):
    """Its brokers refuse the whole batch, which would be decided by then."""
    place = topic(settings={"cleanup_policy": "compact"})
    sink, keyed = place.sink(), place.rig.row
    place.rig.row = lambda number: {**keyed(number), **({"key": None} if number == 1 else {})}
    with pytest.raises(StageFailed, match=f"NULL in column 'key', where topic '{place.rig.topic}' is compacted"):
        place.put(sink, range(3), batch_id=0)
    place.put(sink, range(2, 4), batch_id=0)
    assert place.content() == values([2, 3])


def test_a_topic_that_was_made_anew_is_refused(topic):
    place = topic()
    place.put(place.sink(), range(10), batch_id=0)
    place.rig.running.remove(place.rig.topic)
    place.rig.running.topic(place.rig.topic)
    with pytest.raises(Refused, match="was deleted and made anew, and 10 rows"):
        place.sink()


def test_a_topic_that_was_deleted_under_a_decided_batch_is_told_as_that(topic):
    """To a producer its records just find no broker. The remedy is carried out."""
    place = topic(timeout_ms=4000)
    sink = place.sink()
    publication = place.decided_but_not_published(sink, range(10), batch_id=0)
    place.rig.running.remove(place.rig.topic)
    sink.close()
    with closing(place.rig.make()) as recovering:
        recovering.prepare(pipeline=PIPELINE, schema=None)
        with pytest.raises(PublishFailed, match=f"There is no topic '{place.rig.topic}' in .* any more") as refused:
            recovering.publish(publication)
        assert refused.value.remedy.startswith(f"Create it: kafka-topics --create --topic {place.rig.topic} ")
        place.rig.running.topic(place.rig.topic)
    with closing(place.rig.make()) as recovering:
        recovering.prepare(pipeline=PIPELINE, schema=None)
        assert not recovering.publish(publication).already
    assert place.content() == values(range(10))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"value": "string"}, "was filled with a column 'key'"),
        ({"value": "string", "key": "string", "partition": "integer"}, "was filled without a column 'partition'"),
        ({"key": "string", "value": "string"}, "came in the order value, key"),
    ],
)
def test_rows_whose_digest_would_not_continue_are_refused(topic, columns, said):
    place = topic()
    place.put(place.sink(), range(10), batch_id=0)
    place.rig.schema = spark_schema(**columns)
    with pytest.raises(Refused, match=said):
        place.sink()


def test_a_column_may_be_added(topic):
    place = topic()
    place.put(place.sink(), range(10), batch_id=0)
    place.rig.schema = spark_schema(value="string", headers=HEADERS, key="string")
    place.rig.row = lambda number: {"value": f"value {number}", "key": "k", "headers": [{"key": "h", "value": b"v"}]}
    sink = place.sink()
    place.put(sink, range(10, 20), batch_id=1)
    assert place.verify(sink).ok


def test_a_column_names_one_of_several_topics(topic):
    place = topic(schema=spark_schema(value="string", topic="string"))
    second = place.rig.running.topic(f"{place.rig.topic}.second", 2, retention_ms="-1", retention_bytes="-1")
    names = [place.rig.topic, second]
    place.rig.row = lambda number: {"value": f"value {number}", "topic": names[number % 2]}
    target = TopicTarget(topic=place.rig.topic, topics=(second,), markers=f"{place.rig.topic}.markers")
    place.rig.options = {"target": target}
    sink = place.sink()
    place.put(sink, range(10), batch_id=0)
    assert sum(place.content().values()) == 5
    assert place.verify(sink).ok


def test_a_record_that_the_broker_takes_no_more_ends_the_batch_and_the_next_start_publishes_it(topic):
    place = topic()
    place.rig.row = lambda number: {"value": f"value {number}" + "x" * 5000, "key": None}
    sink = place.sink()
    publication = place.decided_but_not_published(sink, range(3), batch_id=0)
    place.rig.running.set_topic(place.rig.topic, max_message_bytes="1000")
    with pytest.raises(PublishFailed, match="found a record too large"):
        sink.publish(publication)
    place.rig.running.set_topic(place.rig.topic, max_message_bytes="1000000")
    assert not sink.publish(publication).already
    assert sum(place.content().values()) == 3


# --- verify


def test_what_retention_may_have_removed_is_not_said_to_be_lost(topic):
    place = topic(settings={"retention_ms": "604800000"})
    sink = place.sink()
    place.put(sink, range(10), batch_id=0)
    read = place.verify(sink)
    assert (read.ok, read.unread) == (True, False)
    place.rig.damage("lost")
    unread = place.verify(sink)
    assert (unread.ok, unread.unread) == (True, True)
    place.decided_but_not_published(sink, range(5), batch_id=1)
    assert not place.verify(sink).ok


def test_a_topic_that_others_fill_too_is_not_read(topic):
    place = topic()
    place.rig.options = {"target": TopicTarget(topic=place.rig.topic, markers=f"{place.rig.topic}.markers", shared=True)}
    sink = place.sink()
    place.put(sink, range(10), batch_id=0)
    place.rig.damage("foreign")
    report = place.verify(sink)
    assert (report.ok, report.unread) == (True, True)


def test_what_was_there_before_is_not_counted(topic):
    place = topic()
    place.put(place.sink(), range(10), batch_id=0)
    second = topic(topic=place.rig.topic)
    second.rig.options = {
        "name": "second",
        "target": TopicTarget(topic=place.rig.topic, markers=f"{place.rig.topic}.second"),
    }
    sink = second.sink()
    second.put(sink, range(20, 25), batch_id=0)
    assert second.verify(sink).ok
    assert second.content() == values(range(10), range(20, 25))


# --- what is told

SILENT = SimpleNamespace(place="Kafka at a:1", heard=lambda: None)


@pytest.mark.parametrize(
    ("code", "settings", "kind", "said"),
    [
        (KafkaError._FENCED, {}, Overtaken, "Another run publishes"),
        (KafkaError.INVALID_PRODUCER_EPOCH, {}, Overtaken, "Another run publishes"),
        (KafkaError._FATAL, {}, Overtaken, "Another run publishes"),
        (KafkaError._FENCED, {"timed_out": lambda: True}, Retryable, "took longer than `transaction_timeout`"),
        (KafkaError._TIMED_OUT, {}, Retryable, "does not answer"),
        (KafkaError._TIMED_OUT, {"in_doubt": True}, OutcomeUnknown, "did not confirm what was sent"),
        (KafkaError.INVALID_PRODUCER_ID_MAPPING, {}, Retryable, "does not answer as it should"),
        (KafkaError.MSG_SIZE_TOO_LARGE, {"in_doubt": True}, PublishFailed, "found a record too large"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, {}, PublishFailed, "lacks a topic"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, {"kind": Failed}, Failed, "does not let the user write or read"),
        (KafkaError.SASL_AUTHENTICATION_FAILED, {}, PublishFailed, "refuses the login"),
        (KafkaError._INVALID_ARG, {}, Usage, "refuses its settings"),
    ],
)
def test_every_error_of_the_client_is_told_by_what_it_means(code, settings, kind, said):
    with pytest.raises(kind, match=said) as raised, translate_errors(SILENT, **settings):
        raise KafkaException(KafkaError(code))
    assert type(raised.value) is kind


@pytest.mark.parametrize(
    ("heard", "kind", "said"),
    [
        (KafkaError._AUTHENTICATION, PublishFailed, "refuses the login"),
        (KafkaError._SSL, PublishFailed, "cannot be reached by TLS"),
        (KafkaError._TRANSPORT, Retryable, "does not answer as it should"),
    ],
)
def test_why_nobody_answers_is_told_by_what_was_heard_beside(heard, kind, said):
    cluster = SimpleNamespace(place="Kafka at a:1", heard=lambda: KafkaError(heard))
    with pytest.raises(kind, match=said), translate_errors(cluster):
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
    with pytest.raises(PublishFailed, match="lacks a topic"), translate_errors(cluster):
        raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    with pytest.raises(OutcomeUnknown, match="did not confirm what was sent"), translate_errors(cluster, in_doubt=True):
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def test_a_broker_that_stops_in_a_handshake_is_one_that_does_not_answer():
    said = KafkaError(KafkaError._SSL, "SSL handshake failed: Disconnected: connecting to a PLAINTEXT broker listener?")
    cluster = SimpleNamespace(place="Kafka at a:1", heard=lambda: said)
    with pytest.raises(Retryable, match="does not answer as it should"), translate_errors(cluster):
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


@pytest.mark.parametrize(
    ("rows", "markers", "said"),
    [
        ({"DESCRIBE", "READ"}, {"WRITE", "READ"}, r"Write on topic 't'\. kafka-acls .* --operation Write --topic t"),
        ({"WRITE"}, {"WRITE", "DESCRIBE"}, "Read on topic 'm'"),
        ({"WRITE"}, {"READ"}, "Write on topic 'm'"),
        ({"WRITE"}, {"READ", "WRITE"}, None),
        ((), (), None),
    ],
)
def test_a_right_that_is_missing_is_named(rows, markers, said):
    """Brokers that do not tell what a user may do are believed."""
    topics = [Topic(name="t", identity="", partitions=1, replicas=1, settings={}, allowed=frozenset(rows))]
    found = Topic(name="m", identity="", partitions=1, replicas=1, settings={}, allowed=frozenset(markers))
    with nullcontext() if said is None else pytest.raises(Failed, match=said):
        require_rights(topics, found)


def test_an_option_that_does_not_exist_is_told(topic):
    place = topic(options={"no.such.option": "1"})
    with pytest.raises(Usage, match="refuses its settings"):
        place.sink()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"no.such": "x"}, 'No such configuration property: "no.such"'),
        ({"security.protocol": "ssl", "ssl.ca.location": "/nowhere/ca.pem"}, r"ssl\.ca\.location failed"),
    ],
)
def test_what_the_client_does_not_take_is_told_in_its_words(options, told):
    with pytest.raises(Failed, match=f"for the brokers of source 'orders' could not be made: .*{told}"):
        Broker("orders", {"bootstrap.servers": "127.0.0.1:1", **options})
