"""Topics as the cluster describes them, and the first and last offsets of their partitions."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType
from tenacity import Retrying, retry_if_exception, retry_if_exception_type, retry_if_result, stop_after_delay, wait_fixed

from penstock.sink.kafka.errors import code_of, is_forbidden, is_gone, not_allowed

ANSWER_S = 20.0
SETTLED_S = 10.0
"""How long a look waits for transactions that are just being committed. Those open for longer are not counted."""
_SEEN_S = 15.0
_LOOK_S = 0.05
_SEGMENT_BYTES = 1_048_576
"""Small: the segment that is being written is never compacted, so a reader goes through all of it."""
_OUTDATED: Final = {
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError._NOENT,
}
"""Errors of an admin client whose metadata are older than the newest change of leaders: it does not ask for newer ones itself."""

WRITE, READ, DESCRIBE_CONFIGS = "Write", "Read", "DescribeConfigs"
_AS_BROKERS_SAY: Final = {WRITE: "WRITE", READ: "READ", DESCRIBE_CONFIGS: "DESCRIBE_CONFIGS"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic. `settings` as the broker has them, defaults included; empty where the user may not read them.

    `allowed`: the user's operations by Kafka's names; empty where brokers do not report them.
    """

    name: str
    identity: str
    partitions: int
    replicas: int
    settings: Mapping[str, str]
    allowed: frozenset[str] = frozenset()

    def number(self, name: str, otherwise: int) -> int:
        """Return a setting as an integer, `otherwise` if it is not known."""
        found = self.settings.get(name)
        return otherwise if found is None else int(found)

    def lacks(self, right: str) -> bool:
        """Return whether the user is known to lack `right`; False where brokers do not report rights."""
        return bool(self.allowed) and _AS_BROKERS_SAY[right] not in self.allowed

    @property
    def keeps_everything(self) -> bool:
        """Whether brokers never remove a record."""
        unlimited = self.settings.get("retention.ms") == "-1" and self.settings.get("retention.bytes") == "-1"
        return self.settings.get("cleanup.policy") == "delete" and unlimited

    @property
    def is_compacted(self) -> bool:
        """Whether brokers may remove a record for a later one with the same key."""
        return "compact" in self.settings.get("cleanup.policy", "")


def described(admin: AdminClient, names: Sequence[str], *, answer_s: float = ANSWER_S) -> Mapping[str, Topic | None]:
    """Return each topic, None if it does not exist. Raises KafkaException, also if no broker answers within `answer_s`."""
    wanted = TopicCollection(list(names))
    asked = admin.describe_topics(wanted, request_timeout=answer_s, include_authorized_operations=True)
    return {name: _topic(admin, name, future) for name, future in asked.items()}


def broker_setting(admin: AdminClient, name: str) -> str | None:
    """Return a setting of one of the brokers, None where the user may not read it. Raises KafkaException."""
    broker = next(iter(admin.list_topics(timeout=ANSWER_S).brokers))
    return _settings(admin, ConfigResource(ResourceType.BROKER, str(broker))).get(name)


def create_markers(admin: AdminClient, name: str, *, lanes: int, replicas: int, insync: int) -> Topic:
    """Create the topic of markers unless another run does, and wait until brokers know it. Raises KafkaException, Failed.

    `insync`: how many replicas must acknowledge; 1 leaves it to the brokers.
    """
    settings = {"cleanup.policy": "compact", "segment.bytes": str(_SEGMENT_BYTES)}
    if insync > 1:
        settings["min.insync.replicas"] = str(insync)
    [future] = admin.create_topics([NewTopic(name, lanes, replicas, config=settings)], request_timeout=ANSWER_S).values()
    _require_done(future, right="Create", name=name, fine=[KafkaError.TOPIC_ALREADY_EXISTS])
    return _seen(admin, name, lanes)


def require_creatable(admin: AdminClient, name: str) -> None:
    """Raise Failed where the user may not create the topic. Creates nothing. Raises KafkaException."""
    [future] = admin.create_topics([NewTopic(name, 1, 1)], request_timeout=ANSWER_S, validate_only=True).values()
    _require_done(future, right="Create", name=name, fine=[KafkaError.TOPIC_ALREADY_EXISTS])


def add_lanes(admin: AdminClient, name: str, *, lanes: int) -> Topic:
    """Give the topic of markers `lanes` partitions. Raises KafkaException, Failed."""
    [future] = admin.create_partitions([NewPartitions(name, lanes)], request_timeout=ANSWER_S).values()
    _require_done(future, right="Alter", name=name)
    return _seen(admin, name, lanes)


def first(admin: AdminClient, topic: str, partitions: Sequence[int]) -> list[int]:
    """Return the oldest offset that each partition still has. Raises KafkaException."""
    return _offsets(admin, places_of(topic, partitions), OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)


def settled(admin: AdminClient, topic: str, partitions: Sequence[int]) -> list[int]:
    """Return the last stable offset of each partition, behind which transactions may be open. Raises KafkaException."""
    return _offsets(admin, places_of(topic, partitions), OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)


def places_of(topic: str, partitions: Sequence[int]) -> list[TopicPartition]:
    """Return the partitions with these numbers."""
    return [TopicPartition(topic, partition) for partition in partitions]


def every_place(admin: AdminClient, topics: Sequence[str], *, former: Collection[str] = ()) -> list[TopicPartition]:
    """Return the partitions of those `topics` that exist. Those in `former` that the user may not see are left out, too.

    Raises KafkaException.
    """
    found = [admin.list_topics(topic, ANSWER_S).topics[topic] for topic in topics]
    for topic in found:
        if topic.error is not None:
            error = KafkaException(topic.error)
            if not is_gone(error) and not (topic.topic in former and is_forbidden(error)):
                raise error
    return [place for topic in found for place in places_of(topic.topic, sorted(topic.partitions))]


def await_settled(admin: AdminClient, places: Sequence[TopicPartition], *, wait_s: float) -> bool:
    """Wait until every transaction has ended that is open now; return False if one has not. Raises KafkaException.

    Brokers acknowledge a commit before readers see it.
    """
    now = _offsets(admin, places, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)

    def is_open() -> bool:
        stable = _offsets(admin, places, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
        return any(end < wanted for end, wanted in zip(stable, now, strict=True))

    waiting = Retrying(
        retry=retry_if_result(bool), stop=stop_after_delay(wait_s), wait=wait_fixed(_LOOK_S), retry_error_callback=lambda _: True
    )
    return not waiting(is_open)


def written(admin: AdminClient, topic: str, partitions: Sequence[int]) -> list[int]:
    """Return the end of each partition, with the records of open transactions. Raises KafkaException."""
    return _offsets(admin, places_of(topic, partitions), OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)


def _require_done(future: Any, *, right: str, name: str, fine: Sequence[int] = ()) -> None:
    """Raise Failed where the user lacks `right` on the topic, KafkaException for any other error whose code is not `fine`."""
    try:
        future.result()
    except KafkaException as cause:
        if is_forbidden(cause):
            raise not_allowed(right, f"topic {name!r}", f"--topic {name}") from cause
        if code_of(cause) not in fine:
            raise


def _offsets(admin: AdminClient, places: Sequence[TopicPartition], what: OffsetSpec, level: IsolationLevel) -> list[int]:
    asking = Retrying(
        retry=retry_if_exception(lambda cause: code_of(cause) in _OUTDATED),
        before_sleep=lambda _: admin.list_topics(timeout=ANSWER_S),
        stop=stop_after_delay(_SEEN_S),
        wait=wait_fixed(_LOOK_S),
        reraise=True,
    )
    found: list[int] = asking(_offsets_by_metadata, admin, places, what, level)
    return found


def _offsets_by_metadata(
    admin: AdminClient, places: Sequence[TopicPartition], what: OffsetSpec, level: IsolationLevel
) -> list[int]:
    found = admin.list_offsets(dict.fromkeys(places, what), isolation_level=level, request_timeout=ANSWER_S)
    return [_known(found[place].result().offset) for place in places]


def _known(offset: int) -> int:
    """Raise KafkaException for a partition without a leader: the client reports a negative offset then, and no error."""
    if offset < 0:
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, "a partition has no leader", retriable=True))
    return offset


def _topic(admin: AdminClient, name: str, future: Any) -> Topic | None:
    try:
        found = future.result()
    except KafkaException as cause:
        if is_gone(cause):
            return None
        if is_forbidden(cause):
            raise not_allowed("Describe", f"topic {name!r}", f"--topic {name}") from cause
        raise
    return Topic(
        name=found.name,
        identity=str(found.topic_id),
        partitions=len(found.partitions),
        replicas=min(len(part.replicas) for part in found.partitions),
        settings=_settings_of(admin, found.name),
        allowed=frozenset(operation.name for operation in found.authorized_operations or ()),
    )


def _settings_of(admin: AdminClient, name: str) -> Mapping[str, str]:
    """Return the settings of a topic that exists. The broker asked may learn of it later than the one that described it."""
    asking = Retrying(retry=retry_if_exception(is_gone), stop=stop_after_delay(_SEEN_S), wait=wait_fixed(_LOOK_S), reraise=True)
    found: Mapping[str, str] = asking(_settings, admin, ConfigResource(ResourceType.TOPIC, name))
    return found


def _settings(admin: AdminClient, resource: ConfigResource) -> Mapping[str, str]:
    [future] = admin.describe_configs([resource], request_timeout=ANSWER_S).values()
    try:
        return {name: entry.value for name, entry in future.result().items() if entry.value is not None}
    except KafkaException as cause:
        if not is_forbidden(cause):
            raise
        return {}


def _seen(admin: AdminClient, name: str, partitions: int) -> Topic:
    """Wait until brokers know the topic and lead its partitions: they learn of a change one after the other."""
    waiting = Retrying(
        retry=retry_if_result(lambda topic: topic is None or topic.partitions < partitions),
        stop=stop_after_delay(_SEEN_S),
        wait=wait_fixed(_LOOK_S),
        retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
    )
    topic: Topic | None = waiting(lambda: described(admin, [name])[name])
    assert topic is not None, f"{name} was created and is not known"
    leading = Retrying(
        retry=retry_if_exception_type(KafkaException), stop=stop_after_delay(_SEEN_S), wait=wait_fixed(_LOOK_S), reraise=True
    )
    leading(written, admin, name, range(partitions))
    return topic
