"""What `penstock check` reports about a Kafka cluster and the topics of a sink."""

from collections.abc import Iterator, Sequence

from confluent_kafka import KafkaException

from penstock.core.model import Finding
from penstock.errors import Failed, PenstockError
from penstock.kafka.event_hubs import is_event_hubs
from penstock.sink.kafka.clients import Clients
from penstock.sink.kafka.errors import command, translate_errors
from penstock.sink.kafka.lane_producer import try_transactions
from penstock.sink.kafka.marker_store import trial_id
from penstock.sink.kafka.preparation import require_compacted, require_rights, require_topics
from penstock.sink.kafka.target import Wanted
from penstock.sink.kafka.topics import DESCRIBE_CONFIGS, READ, Topic, described, require_creatable


def findings_of(clients: Clients, wanted: Wanted, *, keyed: bool) -> Sequence[Finding]:
    """Check whether the topics exist, what the user may do, and how safely the brokers keep what they acknowledge."""
    subject = f"sink {wanted.sink}"
    try:
        with translate_errors(clients, Failed):
            topics = require_topics(clients, wanted)
            markers = described(clients.admin, [wanted.target.markers])[wanted.target.markers]
            require_rights(topics.values(), markers)
            if markers is not None:
                require_compacted(markers)
            else:
                require_creatable(clients.admin, wanted.target.markers)
            if not keyed:
                try_transactions(clients, trial_id(wanted.pipeline, wanted.sink), timeout_ms=wanted.timeout_ms)
    except (PenstockError, KafkaException) as error:
        return [Finding(subject=subject, ok=False, message=str(error))]
    found_hubs = [_tiers(subject)] if is_event_hubs(clients.given["bootstrap.servers"]) else []
    there = "is there" if markers is not None else "will be created"
    found = [*found_hubs, Finding(subject=subject, ok=True, message=f"topic {wanted.target.markers} for the markers {there}")]
    for topic in topics.values():
        message = f"topic {topic.name} with {topic.partitions} partitions in {clients.place}"
        found.append(Finding(subject=subject, ok=True, message=message))
    every = [*topics.values(), *([] if markers is None else [markers])]
    warnings = [warning for warnings_of in (_warnings, _missing_rights) for topic in every for warning in warnings_of(topic)]
    return [*found, *(Finding(subject=subject, ok=True, warns=True, message=warning) for warning in warnings)]


def _tiers(subject: str) -> Finding:
    return Finding(
        subject=subject,
        ok=True,
        warns=True,
        message="Event Hubs has transactions and compaction in its Premium and Dedicated tiers; in Standard the start is "
        "refused, Basic has no Kafka endpoint. Not run against a live namespace yet",
    )


def _warnings(topic: Topic) -> Iterator[str]:
    least = topic.number("min.insync.replicas", 1)
    if topic.replicas == 1:
        yield f"topic {topic.name} has one copy: a broker that is lost takes rows with it that it acknowledged"
    elif least == 1:
        yield (
            f"topic {topic.name} has {topic.replicas} copies and min.insync.replicas=1: what one broker alone has acknowledged "
            "is lost with it; set 2"
        )
    if topic.settings.get("unclean.leader.election.enable") == "true":
        yield f"topic {topic.name} has unclean.leader.election.enable=true: acknowledged rows may be dropped"


def _missing_rights(topic: Topic) -> Iterator[str]:
    """Yield a warning for each missing right that delivery does without: Read (for `verify`) and DescribeConfigs."""
    if topic.lacks(READ):
        yield f"the user may not read topic {topic.name}, so that `verify` cannot: {command(READ, f'--topic {topic.name}')}"
    if topic.lacks(DESCRIBE_CONFIGS):
        how = command(DESCRIBE_CONFIGS, f"--topic {topic.name}")
        yield f"the user may not see the settings of topic {topic.name}, so that nobody can tell what it keeps: {how}"
