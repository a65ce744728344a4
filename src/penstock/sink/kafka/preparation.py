"""Prepares a Kafka sink, and tells `penstock check` beforehand whether that will succeed.

The topics of its rows are checked, the topic of markers is created or checked, and each lane gets a marker.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from confluent_kafka import KafkaException

from penstock.core.faults import FaultPoint
from penstock.core.model import Finding
from penstock.errors import Failed, PenstockError, PublishFailed, Refused
from penstock.kafka.event_hubs import is_event_hubs
from penstock.kafka.reachable import require_reachable
from penstock.sink.concurrent import map_concurrently
from penstock.sink.kafka.clients import Clients
from penstock.sink.kafka.errors import command, connection_lost, not_allowed, translate_errors
from penstock.sink.kafka.lane import Lane
from penstock.sink.kafka.lane_producer import try_transactions
from penstock.sink.kafka.marker_store import Beginning, LaneMarker, trial_id
from penstock.sink.kafka.records import TopicRowValidator
from penstock.sink.kafka.target import KEY, KafkaSettings, require_columns, require_continued
from penstock.sink.kafka.topics import (
    DESCRIBE_CONFIGS,
    READ,
    WRITE,
    Topic,
    add_lanes,
    broker_setting,
    create_markers,
    described,
    require_creatable,
    written,
)
from penstock.sink.table.document_marker import Mark
from penstock.sink.table.marker import TableMarker
from penstock.sink.table.preparation import settings_of
from penstock.sink.table.publication import other_table
from penstock.spark.schema import arrow_schema

PREPARE = FaultPoint("kafka.prepare", "Topics are looked at, and the topic of the markers is made.")

_MAX_RECORD_BYTES = 1_000_000
"""Limit of a topic whose settings the user may not read."""
_CLIENT_RECORD_BYTES = 1_000_000_000
"""The largest `message.max.bytes` that librdkafka takes; a topic may take up to 2,147,483,647."""
_LONGEST_MS = 900_000
"""The brokers' default for transaction.max.timeout.ms."""
_SOON_S = 2.0
_CREATE = "Create it: kafka-topics --create --topic {} --partitions N --replication-factor R"
_COMPACT = "kafka-configs --alter --entity-type topics --entity-name {} --add-config cleanup.policy=compact"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The topics as they are: those of the rows, and that of the markers."""

    topics: Mapping[str, Topic]
    markers: Topic


def prepare_place(clients: Clients, wanted: KafkaSettings) -> Place:
    """Check the topics, and create the topic of markers or add the lanes that it lacks. Raises Refused, KafkaException."""
    with PREPARE.around(error=connection_lost, lost=connection_lost):
        topics = require_topics(clients, wanted)
        markers = described(clients.admin, [wanted.target.markers])[wanted.target.markers]
        if markers is None:
            require_rights(topics.values(), None)
            replicas = min(topic.replicas for topic in topics.values())
            insync = min(topic.number("min.insync.replicas", 1) for topic in topics.values())
            markers = create_markers(clients.admin, wanted.target.markers, lanes=wanted.lanes, replicas=replicas, insync=insync)
        require_compacted(markers)
        require_rights(topics.values(), markers)
        if markers.partitions < wanted.lanes:
            markers = add_lanes(clients.admin, markers.name, lanes=wanted.lanes)
    return Place(topics=topics, markers=markers)


def prepare_lanes(clients: Clients, wanted: KafkaSettings, lanes: Sequence[Lane], place: Place, schema: str) -> None:
    """Write a marker in each lane that has none, check that others continue. Raises Refused, Retryable, KafkaException."""
    begun = {
        name: Beginning(identity=topic.identity, offsets=tuple(written(clients.admin, name, range(topic.partitions))))
        for name, topic in place.topics.items()
    }
    map_concurrently(lambda lane: _prepare_lane(lane, wanted, begun, schema), lanes)


def require_schema_accepted(clients: Clients, wanted: KafkaSettings, schema: str) -> None:
    """Raise what preparation would raise for such rows and topics. Changes nothing."""
    rows = arrow_schema(schema)
    with settings_of(wanted.sink):
        require_columns(rows, deletes=wanted.deletes)
    require_fit(require_topics(clients, wanted).values(), rows)
    markers = described(clients.admin, [wanted.target.markers])[wanted.target.markers]
    if markers is not None:
        require_compacted(markers)


def require_topics(clients: Clients, wanted: KafkaSettings) -> Mapping[str, Topic]:
    """Return the topics of the rows. Raises Refused where one is missing, or where brokers end transactions too early."""
    found = described(clients.admin, wanted.target.every)
    missing = [name for name, topic in found.items() if topic is None]
    if missing:
        raise Refused(
            f"There is no topic {missing[0]!r} in {clients.place}.",
            remedy=f"{_CREATE.format(missing[0])}.",
        )
    longest_ms = int(broker_setting(clients.admin, "transaction.max.timeout.ms") or _LONGEST_MS)
    if wanted.timeout_ms > longest_ms:
        raise Refused(
            f"`transaction_timeout` is {wanted.timeout_ms} ms, and {clients.place} allows {longest_ms} ms.",
            remedy="Lower it, or raise transaction.max.timeout.ms of the brokers.",
        )
    return {name: topic for name, topic in found.items() if topic is not None}


def require_rights(topics: Iterable[Topic], markers: Topic | None) -> None:
    """Raise Failed if the user is known to lack the right to write to `topics`, or to write and read `markers`."""
    needed = [(topic, WRITE) for topic in topics] + [(markers, right) for right in (WRITE, READ) if markers is not None]
    for topic, right in needed:
        if topic.lacks(right):
            raise not_allowed(right, f"topic {topic.name!r}", f"--topic {topic.name}")


def require_topics_exist(clients: Clients, wanted: KafkaSettings) -> None:
    """Raise PublishFailed where a topic is gone: its producer only reports that it finds no broker.

    Return where brokers do not answer soon: the caller has an error of its own to raise.
    """
    try:
        found = described(clients.admin, wanted.target.every, answer_s=_SOON_S)
    except KafkaException:
        return
    missing = [name for name, topic in found.items() if topic is None]
    if missing:
        raise PublishFailed(
            f"There is no topic {missing[0]!r} in {clients.place} any more, nor the rows that were published there.",
            remedy=f"{_CREATE.format(missing[0])}. Then run `penstock recover`, which publishes the batch that is decided.",
        )


def require_fit(topics: Iterable[Topic], rows: "pa.Schema") -> None:
    """Raise Refused if rows have no key and a topic is compacted, where each record needs one."""
    for topic in topics:
        if topic.is_compacted and KEY not in rows.names:
            raise Refused(
                f"Topic {topic.name!r} is compacted, and the rows have no column 'key'.",
                remedy="Add one in the transform, or set cleanup.policy=delete.",
            )


def require_compacted(markers: Topic) -> None:
    """Raise Refused if brokers may remove the newest marker of a lane from the topic of markers."""
    policy = markers.settings.get("cleanup.policy", "compact")
    if policy != "compact":
        raise Refused(
            f"Topic {markers.name!r} has cleanup.policy={policy}, so that markers get lost; expected compact.",
            remedy=f"Run {_COMPACT.format(markers.name)}.",
        )


def row_validator_of(wanted: KafkaSettings, place: Place) -> TopicRowValidator:
    """Return the check of the rows in the tasks."""
    return TopicRowValidator(
        sink=wanted.sink,
        topic=wanted.target.topic,
        partitions={name: topic.partitions for name, topic in place.topics.items()},
        max_record_bytes=max_record_bytes(place.topics.values()),
        compacted=frozenset(name for name, topic in place.topics.items() if topic.is_compacted),
        deletes=wanted.deletes,
    )


def max_record_bytes(topics: Iterable[Topic | None]) -> int:
    """Return the largest record size that the client and all existing `topics` accept."""
    sizes = (topic.number("max.message.bytes", _MAX_RECORD_BYTES) for topic in topics if topic is not None)
    largest = min(sizes, default=_MAX_RECORD_BYTES)
    return min(largest, _CLIENT_RECORD_BYTES)


def _prepare_lane(lane: Lane, wanted: KafkaSettings, begun: Mapping[str, Beginning], schema: str) -> None:
    mark = lane.open()
    if mark is None:
        marker = TableMarker(
            pipeline=wanted.pipeline, sink=wanted.sink, table_name=wanted.target.topic, write="append", schema=schema
        )
        lane.keep(LaneMarker(lane=lane.number, mark=Mark(marker=marker, batches={}), topics=begun), replaces=None)
        return
    if mark.marker.table_name != wanted.target.topic:
        raise other_table(mark.marker, wanted.target.topic)
    if mark.marker.schema is not None:
        require_continued(arrow_schema(mark.marker.schema), arrow_schema(schema), wanted.target.topic)
    topics = {**mark.topics, **dict(_changed(mark, begun))}
    if topics != dict(mark.topics):
        lane.keep(replace(mark, topics=topics), replaces=mark)


def _changed(mark: LaneMarker, begun: Mapping[str, Beginning]) -> Iterator[tuple[str, Beginning]]:
    """Yield topics that the lane has not seen before. Raises Refused for one that was recreated after it got rows."""
    has_rows = bool(mark.marker.decided.rows or mark.part)
    for name, beginning in begun.items():
        before = mark.topics.get(name)
        if before is not None and before.identity != beginning.identity and has_rows:
            raise Refused(
                f"Topic {name!r} was deleted and made anew, and {mark.marker.decided.rows} rows that were published are gone.",
                remedy="Give the sink another name: it fills the new topic from here on.",
            )
        if before is None or before.identity != beginning.identity:
            yield name, beginning


def findings_of(clients: Clients, wanted: KafkaSettings) -> Sequence[Finding]:
    """Check whether the topics exist, what the user may do, and how safely the brokers keep what they acknowledge."""
    subject = f"sink {wanted.sink}"
    try:
        require_reachable(clients.given["bootstrap.servers"], where=clients.place)
        with translate_errors(clients, Failed):
            topics = require_topics(clients, wanted)
            markers = described(clients.admin, [wanted.target.markers])[wanted.target.markers]
            require_rights(topics.values(), markers)
            if markers is not None:
                require_compacted(markers)
            else:
                require_creatable(clients.admin, wanted.target.markers)
            if not wanted.keyed:
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
