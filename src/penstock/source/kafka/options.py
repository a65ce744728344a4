"""Options of a Kafka source for Spark's connector, and for librdkafka, by which Penstock queries the brokers and reads."""

import re
from collections.abc import Iterator, Mapping, Sequence

from penstock.core.kafka_offset import TopicOffsets
from penstock.core.model import SourceName
from penstock.errors import SourcesChanged, Usage
from penstock.source.kafka.reader.settings import assigned_in, names_in
from penstock.spec.kafka_options import COMMITTED, CONSUMER, ISOLATION
from penstock.spec.source import Source

_LOSS = "failOnDataLoss"
_SAME = frozenset({
    "bootstrap.servers", "security.protocol", "sasl.mechanism", "sasl.kerberos.service.name", "client.rack",
    "ssl.endpoint.identification.algorithm", "sasl.oauthbearer.token.endpoint.url", "client.dns.lookup",
})  # fmt: skip
"""Properties with one name and meaning in Java's client and in librdkafka."""
_TUNED_ALIKE = (
    "check.crcs", "client.id", "connections.max.idle.ms", "fetch.max.bytes", "fetch.min.bytes", "group.id", "isolation.level",
    "max.partition.fetch.bytes", "metadata.max.age.ms", "reconnect.backoff.max.ms", "reconnect.backoff.ms", "retry.backoff.ms",
)  # fmt: skip
_TUNING: Mapping[str, str] = {
    **{name: name for name in _TUNED_ALIKE},
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "request.timeout.ms": "socket.timeout.ms",
}
"""Settings of Java's consumer about fetching, by librdkafka's names for them."""
_OF_GROUPS = frozenset({
    "allow.auto.create.topics", "auto.commit.interval.ms", "default.api.timeout.ms", "exclude.internal.topics",
    "heartbeat.interval.ms", "max.poll.interval.ms", "max.poll.records", "session.timeout.ms",
})  # fmt: skip
"""Properties without a meaning for a reader that is in no group, creates nothing and asks for bounded pieces."""
_LOGIN = re.compile(r'(?i)\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')
_STORED = frozenset({
    "ssl.truststore.location", "ssl.truststore.type", "ssl.truststore.password", "ssl.truststore.certificates",
    "ssl.keystore.location", "ssl.keystore.type", "ssl.keystore.password", "ssl.keystore.certificate.chain", "ssl.keystore.key",
    "ssl.key.password",
})  # fmt: skip
"""Properties of certificates and keys, which `_stores` translates."""
_STORES = {
    ("truststore", "PEM"): (
        ("ssl.truststore.location", "ssl.ca.location"),
        ("ssl.truststore.certificates", "ssl.ca.pem"),
    ),
    ("keystore", "PKCS12"): (
        ("ssl.keystore.location", "ssl.keystore.location"),
        ("ssl.keystore.password", "ssl.keystore.password"),
    ),
    ("keystore", "PEM"): (
        ("ssl.keystore.certificate.chain", "ssl.certificate.pem"),
        ("ssl.keystore.key", "ssl.key.pem"),
        ("ssl.key.password", "ssl.key.password"),
        ("ssl.keystore.location", "ssl.certificate.location"),
        ("ssl.keystore.location", "ssl.key.location"),
    ),
}
"""By store and its type: Java's properties, and librdkafka's names for them."""
_LOGGED_IN = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"})


def is_kafka(source: Source) -> bool:
    """Return whether the source reads Kafka."""
    return (source.format or "").lower() == "kafka"


def reader_options(source: Source) -> Mapping[str, str]:
    """Return the options with Penstock's defaults: committed records only, and failOnDataLoss=false for `on_gap: accept`."""
    if not is_kafka(source):
        return source.options
    added = {ISOLATION: COMMITTED} | ({_LOSS: "false"} if source.on_gap == "accept" else {})
    given = {name.lower() for name in source.options}
    return {**source.options, **{name: value for name, value in added.items() if name.lower() not in given}}


def client_options(name: str, source: Source) -> Mapping[str, str]:
    """Return librdkafka's properties for the same brokers. Raises Usage for options that it has no equivalent of."""
    java = {key[len(CONSUMER) :].lower(): value for key, value in source.options.items() if key.lower().startswith(CONSUMER)}
    same = {key: value for key, value in java.items() if key in _SAME}
    return {**same, **_stores(name, java, source.client), **_login(name, java, source.client), **source.client}


def fetch_options(name: str, source: Source) -> Mapping[str, str]:
    """Return the properties of librdkafka's consumer for reading the source. Raises Usage for an option without an equivalent."""
    java = {key[len(CONSUMER) :].lower(): value for key, value in source.options.items() if key.lower().startswith(CONSUMER)}
    prefixes = {"ssl", "sasl"} & {key.partition(".")[0] for key in source.client}
    connection = {
        key for key in java if key in _SAME or key.partition(".")[0] in prefixes or key in _STORED or key.startswith("sasl.")
    }
    unknown = sorted(java.keys() - _TUNING.keys() - _OF_GROUPS - connection)
    if unknown:
        raise Usage(
            f"sources.{name}.options.{CONSUMER}{unknown[0]} has no equivalent in librdkafka, which Penstock's own reader uses.",
            remedy="Take it out and set librdkafka's property below `client:`, or use Spark's connector (`reader: spark`).",
        )
    return {ours: java[theirs] for theirs, ours in _TUNING.items() if theirs in java} | dict(client_options(name, source))


def _stores(name: str, java: Mapping[str, str], client: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for store in ("truststore", "keystore"):
        kind = java.get(f"ssl.{store}.type", "JKS").upper()
        if kind == "JKS" and f"ssl.{store}.location" in java and not any(key.startswith("ssl.") for key in client):
            raise Usage(
                f"sources.{name}.options has a JKS {store}, which only Java can read; Penstock's own client needs it, too.",
                remedy=f"Use kafka.ssl.{store}.type: PEM, or set it below `client:` (ssl.ca.location, ssl.keystore.location).",
            )
        found |= {ours: java[theirs] for theirs, ours in _STORES.get((store, kind), ()) if theirs in java}
    return found


def _login(name: str, java: Mapping[str, str], client: Mapping[str, str]) -> dict[str, str]:
    if not java.get("security.protocol", "").upper().startswith("SASL") or any(key.startswith("sasl.") for key in client):
        return {}
    if java.get("sasl.mechanism", "GSSAPI").upper() not in _LOGGED_IN:
        return {}
    login = {key.lower(): re.sub(r"\\(.)", r"\1", value) for key, value in _LOGIN.findall(java.get("sasl.jaas.config", ""))}
    if login.keys() != {"username", "password"}:
        raise Usage(
            f"sources.{name}.options.kafka.sasl.jaas.config has no username and password that Penstock finds.",
            remedy='Write username="…" and password="…" in it, or say them by `client:` (sasl.username, sasl.password).',
        )
    return {"sasl.username": login["username"], "sasl.password": login["password"]}


def require_named(name: SourceName, source: Source, read: TopicOffsets) -> None:
    """Raise SourcesChanged unless the options name every partition of `read`.

    Spark goes on without a topic that they leave out, and reads it from its first record when they name it again.
    """
    left = next(_left_out(source, read), None)
    if left is not None:
        raise SourcesChanged(
            f"Source {name!r} has read {left}, which its options do not name any more.",
            remedy="Name it again. To go on without it, put the checkpoint aside and begin a new one (`penstock adopt`), with "
            "`startingOffsets` where the other topics stand.",
        )


def _left_out(source: Source, read: TopicOffsets) -> Iterator[str]:
    lowered = {option.lower(): str(value) for option, value in source.options.items()}
    assigned = assigned_in(lowered.get("assign"))
    subscribed = names_in(lowered.get("subscribe")) if assigned is None else tuple(assigned)
    named = _matched(lowered.get("subscribepattern", ".*"), read) if subscribed is None else subscribed
    yield from (f"topic {topic!r}" for topic in read if topic not in named)
    if assigned is not None:
        there = {(topic, number) for topic, partitions in assigned.items() for number in partitions}
        wanted = ((topic, number) for topic, partitions in read.items() for number in partitions)
        yield from (f"partition {number} of topic {topic!r}" for topic, number in wanted if (topic, number) not in there)


def _matched(pattern: str, read: TopicOffsets) -> Sequence[str]:
    """Return the topics in which the pattern is found anywhere, as both readers search; all for a pattern of Java's alone."""
    try:
        named = re.compile(pattern)
    except re.error:
        return tuple(read)
    return [topic for topic in read if named.search(topic)]
