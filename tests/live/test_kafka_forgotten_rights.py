"""Ends that brokers forgot, as a user who may do little."""

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType
from tests.live.test_kafka_forgotten import failed, forgotten
from tests.servers import kafka_secured
from tests.servers.fixtures import unique
from tests.servers.kafka_forgotten import trusting
from tests.unit.kafka_target import TopicTarget, topics, values

from penstock.errors import Refused
from penstock.sink.kafka import lane_ends
from penstock.sink.kafka.clients import Clients
from penstock.sink.kafka.topics import every_place
from penstock.testing.conformance.bench import publish

topic = pytest.fixture(topics)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    with kafka_secured.running(tmp_path_factory.mktemp("guarded")) as running, trusting(running):
        yield running


@pytest.fixture
def place(topic, guarded):
    """A topic, and a user with the rights that `docs/howto/kafka.md` names for a sink, but for Read on the rows."""
    user = unique("user")
    options = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": kafka_secured.MECHANISM,
        "sasl.username": user,
        "sasl.password": guarded.user(user),
        "ssl.ca.location": str(guarded.ca),
    }
    made = topic(partitions=2, running=guarded, bootstrap=guarded.bootstrap_proxied, options=options)
    markers = f"{made.rig.topic}.markers"
    made.allow = lambda kind, name, *rights: guarded.allow(*(_allowed(user, kind, name, right) for right in rights))
    made.allow(ResourceType.TOPIC, made.rig.topic, "WRITE", "DESCRIBE_CONFIGS")
    made.allow(ResourceType.TOPIC, markers, "CREATE", "WRITE", "READ", "DESCRIBE_CONFIGS")
    made.allow(ResourceType.TRANSACTIONAL_ID, f"penstock.conformance=into_{made.rig.topic}=", "WRITE")
    return made


def _allowed(user, kind, name, right):
    pattern = ResourcePatternType.PREFIXED if kind is ResourceType.TRANSACTIONAL_ID else ResourcePatternType.LITERAL
    return AclBinding(kind, name, pattern, f"User:{user}", "*", AclOperation[right], AclPermissionType.ALLOW)


def test_what_was_aborted_is_aborted_by_the_rights_of_the_sink(place):
    place.allow(ResourceType.TOPIC, place.rig.topic, "READ")
    sink = place.sink()
    publication = place.decided_but_not_published(sink, range(10), batch_id=0)
    failed(place, sink, publication)
    forgotten(place, sink, range(5))
    publish(sink, publication)
    assert place.content() == values(range(10))


def test_what_was_committed_waits_for_the_right_that_is_named(place):
    place.allow(ResourceType.TOPIC, place.rig.topic, "READ")
    sink = place.sink()
    place.put(sink, range(5), batch_id=0)
    forgotten(place, sink, range(5, 10))
    sink.close()
    for _ in range(2):
        with pytest.raises(Refused, match="lacks the right to do it") as refused:
            place.sink()
    assert refused.value.remedy.startswith("kafka-acls --add --allow-principal User:NAME --operation Alter --cluster ")
    place.allow(ResourceType.BROKER, "kafka-cluster", "ALTER")
    place.put(place.sink(), range(10, 20), batch_id=1)
    assert place.content() == values(range(20))


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_former_topic_that_the_user_may_not_see_any_more_is_let_alone(place, is_deleted):
    """The sink can write nothing there either, so that none of its transactions ends another one there."""
    former = place.rig.running.topic(unique("former"), 1)
    writes = _allowed(place.rig.options["options"]["sasl.username"], ResourceType.TOPIC, former, "WRITE")
    place.rig.running.allow(writes)
    place.rig.options["target"] = TopicTarget(topic=place.rig.topic, markers=f"{place.rig.topic}.markers", topics=(former,))
    place.sink().close()
    del place.rig.options["target"]
    place.rig.running.deny(writes)
    if is_deleted:
        place.rig.running.admin().delete_topics([former])[former].result(60)
    sink = place.sink()
    publication = place.decided_but_not_published(sink, range(10), batch_id=0)
    place.allow(ResourceType.TOPIC, place.rig.topic, "READ")
    failed(place, sink, publication)
    forgotten(place, sink, range(5))
    publish(sink, publication)
    assert place.content() == values(range(10))


def test_who_may_not_see_whose_a_transaction_is_waits_for_the_right_that_is_named(place, monkeypatch):
    monkeypatch.setattr(lane_ends, "_ENDED_S", 0.5)
    sink = place.sink()
    publication = place.decided_but_not_published(sink, range(10), batch_id=0)
    failed(place, sink, publication, killed=True)
    sink = place.sink()  # which ends what its coordinator knows
    failed(place, sink, publication)
    forgotten(place, sink, range(5))
    place.rig.options["timeout_ms"] = 1_000
    for _ in range(2):
        with pytest.raises(lane_ends.CannotLook, match="may not see whose it is") as told:
            place.sink()
    assert told.value.remedy.startswith(
        f"kafka-acls --add --allow-principal User:NAME --operation Read --topic {place.rig.topic},"
    )
    place.allow(ResourceType.TOPIC, place.rig.topic, "READ")
    publish(place.sink(), publication)
    assert place.content() == values(range(10))


def test_who_may_not_see_it_leaves_what_is_being_ended_to_its_coordinator(place, monkeypatch):
    """A start meanwhile would hide how it ended, if that is forgotten somewhere."""
    sink = place.sink()
    place.put(sink, range(5), batch_id=0)
    sink.close()
    coordinated, seen = lane_ends.coordinated, []

    def ending(admin, name):
        owner = coordinated(admin, name)
        seen.append(owner)
        return owner._replace(state="PrepareCommit") if len(seen) < 4 else owner

    monkeypatch.setattr(lane_ends, "coordinated", ending)
    place.put(place.sink(), range(5, 10), batch_id=1)
    assert [owner.producer_epoch for owner in seen] == [0] * 4
    assert place.content() == values(range(10))


def test_a_topic_that_the_user_may_not_see_is_not_one_without_partitions(place):
    """Else everything would have ended there."""
    clients = Clients(place.rig.bootstrap, place.rig.options["options"])
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        every_place(clients.admin, [f"{place.rig.topic}.unseen", place.rig.running.topic("unseen", 1)])
