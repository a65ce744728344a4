"""Validates the options of a Kafka source.

Source: Spark 4.x, "Structured Streaming + Kafka Integration Guide", and Kafka's consumer configuration. Spark ignores options
that it does not know, so a misspelt `startingOffsets` would silently read from the wrong place.
"""

import difflib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from penstock.errors import Usage
from penstock.kafka.event_hubs import EventHubs, event_hubs_of
from penstock.spec.complaint import Complaint, complaint_error, described
from penstock.spec.settings import nearest, unknown_key

CONSUMER = "kafka."
"""Prefix of the options that Spark passes to Kafka's own consumer."""
ISOLATION = "kafka.isolation.level"
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"

TOPICS = ("subscribe", "subscribePattern", "assign")
_COUNTS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "minPartitions", "maxRecordsPerPartition")
_FLAGS = ("includeHeaders", "failOnDataLoss")
_OTHERS = (
    "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy",
    "maxTriggerDelay", "groupIdPrefix", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
)  # fmt: skip
_SERVERS, _GROUP = "kafka.bootstrap.servers", "kafka.group.id"
OPTIONS = (*TOPICS, _SERVERS, *_OTHERS, *_COUNTS, *_FLAGS, ISOLATION, _GROUP)

_OF_BATCH_QUERIES = re.compile(r"(?i)ending(offsets|timestamp|offsetsbytimestamp)")
_SPARKS_OWN = {
    "kafka.auto.offset.reset": "Say where to begin by startingOffsets.",
    "kafka.key.deserializer": "Keys are always bytes: CAST them in the transform.",
    "kafka.value.deserializer": "Values are always bytes: CAST them in the transform.",
    "kafka.enable.auto.commit": "Spark commits no offsets; mirror_offsets_to: GROUP shows them to lag tools.",
    "kafka.interceptor.classes": "Spark takes none.",
}
_CONSUMERS = tuple(CONSUMER + name for name in (
    "allow.auto.create.topics", "auto.commit.interval.ms", "bootstrap.servers", "check.crcs", "client.dns.lookup",
    "client.id", "client.rack", "connections.max.idle.ms", "default.api.timeout.ms", "exclude.internal.topics",
    "fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes", "group.id", "heartbeat.interval.ms", "isolation.level",
    "max.partition.fetch.bytes", "max.poll.interval.ms", "max.poll.records", "metadata.max.age.ms", "metric.reporters",
    "receive.buffer.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms", "request.timeout.ms",
    "retry.backoff.ms", "sasl.client.callback.handler.class", "sasl.jaas.config", "sasl.kerberos.service.name",
    "sasl.login.callback.handler.class", "sasl.login.class", "sasl.mechanism", "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.token.endpoint.url", "security.protocol", "send.buffer.bytes", "session.timeout.ms",
    "ssl.cipher.suites", "ssl.enabled.protocols", "ssl.endpoint.identification.algorithm", "ssl.key.password",
    "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.location", "ssl.keystore.password",
    "ssl.keystore.type", "ssl.protocol", "ssl.provider", "ssl.truststore.certificates", "ssl.truststore.location",
    "ssl.truststore.password", "ssl.truststore.type",
))  # fmt: skip
_OF_THE_CONNECTOR = {
    "minOffsetsPerTrigger": "Let the trigger be rarer.",
    "maxTriggerDelay": "Let the trigger be rarer.",
}
"""Options of Spark's connector that Penstock's own reader does not have, each with the alternative."""
_ALIKE = 0.9
"""Similarity above which a consumer's property counts as a misspelt known one. Plugins have properties of their own."""
_JAAS_SECRET = re.compile(r'(?i)\b(?:password|clientSecret)\s*=\s*"((?:[^"\\]|\\.)*)"')


def secrets_in(options: Mapping[str, str]) -> Iterator[str]:
    """Yield the secrets inside options whose name does not show that they hold one."""
    for name, value in options.items():
        if name.lower().endswith("sasl.jaas.config"):
            for secret in _JAAS_SECRET.findall(value):
                yield from (secret, re.sub(r"\\(.)", r"\1", secret))


def single_topic(options: Mapping[str, str]) -> str | None:
    """Return the one topic that a Kafka source reads, None if there can be several."""
    given = {name.lower(): value for name, value in options.items()}
    assigned = _json(given.get("assign", "null"))
    names = list(assigned) if isinstance(assigned, dict) else [name.strip() for name in given.get("subscribe", "").split(",")]
    return names[0] if len(names) == 1 and names[0] else None


def kafka_complaints(options: Mapping[str, str]) -> Iterator[Complaint]:
    """Yield everything that is wrong with the options of a Kafka source."""
    given = {name.lower(): name for name in options}
    for name, value in options.items():
        yield from _of_one(name, value)
    topics = [name for name in TOPICS if name.lower() in given]
    if len(topics) != 1:
        yield Complaint(
            message=f"name topics by one of {', '.join(TOPICS)}, found {' and '.join(topics) or 'none of them'}",
            remedy="Keep one: subscribe takes names with commas in between.",
        )
    if _SERVERS not in given:
        yield Complaint(message=f"has no {_SERVERS}", remedy=f"Add {_SERVERS}: host:9092.")


def python_complaints(options: Mapping[str, str]) -> Iterator[Complaint]:
    """Yield the valid options that Penstock's own reader does not support."""
    lacks = {name.lower(): remedy for name, remedy in _OF_THE_CONNECTOR.items()}
    for name in options:
        if name.lower() in lacks:
            remedy = f"{lacks[name.lower()]} Or take Spark's connector (`reader: spark`)."
            yield Complaint(message="is not done by Penstock's own reader", remedy=remedy, at=(name,))


def _of_one(name: str, value: str) -> Iterator[Complaint]:
    known = {option.lower(): option for option in (*OPTIONS, *_CONSUMERS)}
    lower = name.lower()
    if _OF_BATCH_QUERIES.fullmatch(name):
        yield Complaint(message="is for queries that are no streams", remedy="Leave it out: a stream has no end.", at=(name,))
    elif lower in _SPARKS_OWN:
        yield Complaint(message="is Spark's own to set", remedy=_SPARKS_OWN[lower], at=(name,))
    elif lower not in known:
        yield from _unknown(name)
    else:
        fits, expected = _CHECKS.get(known[lower], (lambda text: bool(text.strip()), "a value"))
        if not fits(value):
            guess = nearest(value, (COMMITTED, UNCOMMITTED)) if known[lower] == ISOLATION else None
            expected += f" (did you mean {guess}?)" if guess else ""
            remedy = f"For example {known[lower]}: {_EXAMPLES.get(known[lower], 'value')}."
            yield Complaint(message=f"should be {expected}, found {described(value)}", remedy=remedy, at=(name,))


def _unknown(name: str) -> Iterator[Complaint]:
    if not name.lower().startswith(CONSUMER):
        yield unknown_key(name, OPTIONS)
        return
    close = difflib.get_close_matches(name.lower(), _CONSUMERS, n=1, cutoff=_ALIKE)
    if close:
        yield Complaint(message="is no property of Kafka's consumer", remedy=f"Did you mean {close[0]}?", at=(name,))


def _is_by_partition(value: str) -> bool:
    found = _json(value)
    return isinstance(found, dict) and all(
        isinstance(parts, dict) and all(part.isdecimal() and type(offset) is int for part, offset in parts.items())
        for parts in found.values()
    )


def _json(value: str) -> object:
    try:
        return json.loads(value)
    except ValueError:
        return None


def _is_assignment(value: str) -> bool:
    found = _json(value)
    return (
        isinstance(found, dict)
        and bool(found)
        and all(isinstance(parts, list) and all(type(part) is int for part in parts) for parts in found.values())
    )


_CHECKS: Mapping[str, tuple[Callable[[str], bool], str]] = {
    **dict.fromkeys(
        (*_COUNTS, "startingTimestamp"), (lambda value: value.isdecimal() and int(value) > 0, "a whole number above 0")
    ),
    **dict.fromkeys(_FLAGS, (lambda value: value.lower() in {"true", "false"}, "true or false")),
    ISOLATION: (lambda value: value in {COMMITTED, UNCOMMITTED}, f"{COMMITTED} or {UNCOMMITTED}"),
    "assign": (_is_assignment, 'JSON such as {"topic": [0, 1]}'),
    "startingOffsets": (
        lambda value: value.lower() in {"earliest", "latest"} or _is_by_partition(value),
        'earliest, latest, or JSON such as {"topic": {"0": 23, "1": -2}}',
    ),
    "startingOffsetsByTimestamp": (_is_by_partition, 'JSON such as {"topic": {"0": 1767225600000}}, in milliseconds'),
    "startingOffsetsByTimestampStrategy": (lambda value: value.lower() in {"error", "latest"}, "error or latest"),
}
"""Whether a value fits an option, and what is expected; other options take any text that is not empty."""
_EXAMPLES: Mapping[str, str] = {
    **dict.fromkeys(_COUNTS, "10000"),
    **dict.fromkeys(_FLAGS, "true"),
    ISOLATION: COMMITTED,
    "subscribe": "orders,payments",
    "subscribePattern": '"orders-.*"',
    "assign": "'{\"orders\": [0, 1]}'",
    "startingOffsets": "earliest",
    "startingTimestamp": "1767225600000",
    "startingOffsetsByTimestamp": '\'{"orders": {"0": 1767225600000}}\'',
    "startingOffsetsByTimestampStrategy": "latest",
    _SERVERS: "host:9092",
}


ConnectionString = Annotated[str, PlainValidator(lambda value: value), WithJsonSchema({"type": "string"})]
"""A string that `hubs_of` accepted. What came from the environment stays a secret."""


def hubs_of(given: Mapping[str, Any], *, instead_of: Collection[str]) -> EventHubs:
    """Return the Event Hubs that `connection_string` names. Raises pydantic's custom error, also if `instead_of` is given too."""
    doubled = next((name for name in instead_of if given.get(name)), None)
    if doubled is not None:
        raise complaint_error(f"is given together with `{doubled}`", remedy="Keep one of them.", at=("connection_string",))
    text = given["connection_string"]
    if not isinstance(text, str):
        message = f"should be a text, found {described(text)}"
        raise complaint_error(message, remedy="Write it like ${EVENT_HUBS}.", at=("connection_string",))
    try:
        return event_hubs_of(text)
    except Usage as refused:
        message = f"is not usable: {refused.message.removesuffix('.')}"
        raise complaint_error(message, remedy=refused.remedy, at=("connection_string",)) from refused
