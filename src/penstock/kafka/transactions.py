"""Lists the open transactions on the partitions of some topics, with their owners and ages, and ends a single one by hand.

A `read_committed` consumer, Spark's source included, stops before the first record of the oldest open transaction. Kafka ends a
transaction by itself when its producer's `transaction.timeout.ms` has passed, and at once when a producer starts under the same
transactional id. A transaction that no coordinator knows any more ("hanging", KIP-664) stays until somebody ends it.
"""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from importlib.util import find_spec
from typing import Any, Final, TypeAlias

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

from penstock.core.topics import OpenTransaction
from penstock.errors import Failed, Usage
from penstock.kafka.transaction_ends import COMMITTED, open_of, write_end

_ENDED: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})
_ANSWER_MS: Final = 20_000
_SAME_NAMES: Final = {
    "bootstrap.servers": "bootstrap_servers",
    "client.id": "client_id",
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "ssl.crl.location": "ssl_crlfile",
}
"""librdkafka's connection properties, by kafka-python's names for them: that is the client that can list transactions."""
_ELSEWHERE: Final = (
    *("sasl.oauthbearer.", "ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem", "ssl.keystore."),
    "enable.ssl.certificate.verification",
)
"""Prefixes of connection properties that kafka-python does not have."""


_Place: TypeAlias = tuple[TopicPartition, int, int]


def open_transactions(options: Mapping[str, str], topics: Collection[str]) -> Sequence[OpenTransaction]:
    """Return the open transactions on the partitions of those of `topics` that exist, the oldest first. Changes nothing.

    `options` are librdkafka's. Transactions whose ids the user may not describe look like hanging ones, which is why Penstock
    never ends one by itself. Raises Usage for a connection that kafka-python cannot make, Failed where no broker answers.
    """
    asked = _partitions(options, topics)
    with _admin(options) as admin:
        before, known = _producers(admin, asked), _known(admin)
        after = _producers(admin, asked)
    # A transaction that began or ended while the coordinators were asked may be unknown to them without hanging.
    found = [_found(place, after[place], known) for place in before.keys() & after.keys()]
    return sorted(found, key=lambda one: (-one.open_ms, one.topic, one.partition))


def end_transaction(options: Mapping[str, str], one: OpenTransaction) -> None:
    """Abort `one`: `read_committed` consumers skip its records, and its producer, if it still runs, is fenced.

    The owner's next start would do the same. Raises Usage; Failed, also where it is not open any more, or where its
    coordinator takes it for committed.
    """
    with _admin(options) as admin:
        try:
            found = _open(admin, one)
            if one.transactional_id is None:
                _require_uncommitted(admin, one)
                write_end(admin, TopicPartition(one.topic, one.partition), found, committed=False)
                return
        except KafkaError as error:
            raise _not_ended(one, str(error), "Look whether the user may do that") from error
    producer = Producer({**options, "transactional.id": one.transactional_id, "log_level": 0})
    try:
        producer.init_transactions(_ANSWER_MS / 1000)
    except KafkaException as error:
        raise _not_ended(
            one, error.args[0].str(), f"Try again; Kafka ends it by itself {one.timeout_ms} ms after its begin"
        ) from error


def _open(admin: KafkaAdminClient, one: OpenTransaction) -> Any:
    at = TopicPartition(one.topic, one.partition)
    found = open_of(admin, one.producer_id, [at]).get(at)
    if found is None or found.current_transaction_start_offset != one.offset:
        raise _not_ended(one, "it is not open there", "Look at what `penstock doctor` lists")
    return found


def _require_uncommitted(admin: KafkaAdminClient, one: OpenTransaction) -> None:
    listed = admin.list_transactions(producer_id_filters=[one.producer_id])
    names = [found.transactional_id for of_broker in listed.values() for found in of_broker]
    for name, owner in admin.describe_transactions(names).items():
        if owner.state == COMMITTED and owner.producer_epoch == one.producer_epoch:
            raise _not_ended(
                one,
                f"it was committed as {name!r}, and would be aborted",
                "Start its producer again: a sink of Penstock commits it there, as docs/howto/kafka.md says",
            )


def _not_ended(one: OpenTransaction, reason: str, remedy: str) -> Failed:
    return Failed(f"Nothing says that transaction {one.name!r} was ended: {reason}.", remedy=f"{remedy}.")


def _partitions(options: Mapping[str, str], topics: Collection[str]) -> Sequence[TopicPartition]:
    """Return the existing partitions, asked by librdkafka: kafka-python would leave sockets open where nobody listens."""
    try:
        there = AdminClient({**options, "log_level": 0}).list_topics(timeout=_ANSWER_MS / 1000).topics
    except KafkaException as error:
        raise _silent(options, error.args[0].str()) from error
    return [TopicPartition(topic, number) for topic in sorted({*topics} & {*there}) for number in there[topic].partitions]


def _silent(options: Mapping[str, str], reason: str) -> Failed:
    return Failed(
        f"{_place(options)} did not say which transactions are open: {reason}.",
        remedy="Let the brokers be reachable, and the user may Describe the cluster, the topics and the transactional ids.",
    )


def _place(options: Mapping[str, str]) -> str:
    return f"Kafka at {options.get('bootstrap.servers')}"


def _producers(admin: KafkaAdminClient, asked: Sequence[TopicPartition]) -> Mapping[_Place, Any]:
    """Return the producers with an open transaction, by partition, producer id, and the first offset of the transaction."""
    described = admin.describe_producers(asked)
    every = [(at, one) for at, state in described.items() for one in state.active_producers]
    return {(at, one.producer_id, begins): one for at, one in every if (begins := one.current_transaction_start_offset) >= 0}


def _found(place: _Place, one: Any, known: Mapping[int, tuple[str, Any]]) -> OpenTransaction:
    at, producer_id, offset = place
    transactional_id, described = known.get(producer_id, (None, None))
    since_ms = one.last_timestamp if described is None else described.transaction_start_time_ms
    return OpenTransaction(
        topic=at.topic,
        partition=at.partition,
        offset=offset,
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=one.producer_epoch,
        open_ms=max(0, time.time_ns() // 1_000_000 - since_ms),
        timeout_ms=None if described is None else described.transaction_timeout_ms,
    )


def _known(admin: KafkaAdminClient) -> Mapping[int, tuple[str, Any]]:
    """Return the ids and descriptions of the transactions that their coordinators report as open, by producer id."""
    listed = [one for ones in admin.list_transactions().values() for one in ones if one.state.value not in _ENDED]
    described = admin.describe_transactions([one.transactional_id for one in listed])
    return {description.producer_id: (name, description) for name, description in described.items()}


def connect(options: Mapping[str, str]) -> KafkaAdminClient:
    """Connect by kafka-python. Raises its KafkaError where no broker answers, Usage for a connection that it cannot make."""
    return _Connected(**_settings(options), bootstrap_timeout_ms=_ANSWER_MS)


class _Connected(KafkaAdminClient):  # type: ignore[misc]  # it has no types
    """A client that leaves nothing behind where it cannot connect: the thread of its base class would run for ever."""

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except BaseException:
            if hasattr(self, "_net"):
                self._closed = False  # else its base takes it for closed
                self.close()
            raise


@contextmanager
def _admin(options: Mapping[str, str]) -> Iterator[KafkaAdminClient]:
    try:
        with closing(connect(options)) as admin:
            yield admin
    except KafkaError as error:
        raise _silent(options, str(error) or type(error).__name__) from error


def _settings(options: Mapping[str, str]) -> dict[str, Any]:
    elsewhere = sorted(name for name in options if name.startswith(_ELSEWHERE))
    if options.get("sasl.mechanism", options.get("sasl.mechanisms")) == "GSSAPI" and find_spec("gssapi") is None:
        elsewhere.append("sasl.mechanism GSSAPI (which needs the Python package gssapi)")
    if elsewhere:
        raise Usage(
            f"Transactions of {_place(options)} cannot be listed over a connection with {', '.join(elsewhere)}.",
            remedy="Use files for certificates and keys, and a user with a password; or ask Kafka's own kafka-transactions.sh.",
        )
    settings: dict[str, Any] = {ours: options[theirs] for theirs, ours in _SAME_NAMES.items() if theirs in options}
    if options.get("ssl.endpoint.identification.algorithm", "https") in {"", "none"}:
        settings["ssl_check_hostname"] = False
    return settings | {"security_protocol": settings.get("security_protocol", "PLAINTEXT").upper()}
