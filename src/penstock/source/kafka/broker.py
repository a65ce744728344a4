"""Queries to the brokers of one source: topics with their ids, offsets, retention, and times of records.

A query takes about a millisecond, and none changes anything.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType
from tenacity import Retrying, retry_if_exception, retry_if_exception_type, stop_after_delay, wait_fixed

from penstock.errors import Failed, PenstockError, Retryable
from penstock.kafka.login_errors import DISCONNECTED, ClientErrors, require_login
from penstock.source.kafka.gaps import RetainedOffsets, TopicNow

_ANSWER_S = 15
_LED_S = 60
"""How long a partition may be without a leader: as long as Kafka's own clients wait (default.api.timeout.ms).

A broker that was killed is missed after nine seconds (broker.session.timeout.ms); only then another one becomes leader.
"""
_AGAIN_S = 30
"""How long brokers that answered before are asked again: a broker that was killed may have been the controller, too."""
_LOOK_S = 0.2
_NO_RECORD_YET = -1
"""The client's answer for a time stamp after all records."""
_SILENT: Mapping[str, Any] = {"log_level": 0}
"""Errors are raised, and not written to the terminal."""
ACCESS_ERRORS: Final = frozenset(
    {
        *(KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL),
        *(KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED),
    }
)
"""Errors that do not pass by waiting: the credentials or the rights are wrong."""
_OF_KAFKA_ITSELF = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
_T = TypeVar("_T")


class Broker:
    """Asks a source's brokers. `options` are librdkafka's. Raises Retryable if none answers, Failed if they refuse access."""

    def __init__(self, source: str, options: Mapping[str, str]) -> None:
        self._source = source
        self._options: dict[str, Any] = {**_SILENT, **options}
        self._heard = ClientErrors()
        self._let_in = self._has_answered = False
        try:
            self._admin = AdminClient({**self._options, "error_cb": self._heard})
        except KafkaException as error:
            raise Failed(
                f"The client for the brokers of source {source!r} could not be made: {error.args[0].str()}.",
                remedy="Correct the options `kafka.…` and `client:`; files that they name must be on this machine.",
            ) from error

    def names(self) -> Sequence[str]:
        """Return the names of all topics, without those of Kafka itself."""
        found = self._again(lambda: self._ask(lambda: self._admin.list_topics(timeout=_ANSWER_S))).topics
        return sorted(name for name in found if name not in _OF_KAFKA_ITSELF)

    def topics(self, names: Iterable[str], *, settled: bool = False) -> Mapping[str, TopicNow]:
        """Return the topics of `names` that exist; if `settled`, with offsets up to the first record of an open transaction."""
        there = self._described(names)
        numbers = [TopicPartition(name, part.id) for name, topic in there.items() for part in topic.partitions]
        low = self._offsets(numbers, OffsetSpec.earliest())
        high = self._offsets(numbers, OffsetSpec.latest(), settled=settled)
        return {
            name: TopicNow(
                topic_id=str(topic.topic_id),
                partitions={part.id: RetainedOffsets(low[name, part.id], high[name, part.id]) for part in topic.partitions},
            )
            for name, topic in there.items()
        }

    def place(self, name: str, number: int) -> tuple[str, RetainedOffsets] | None:
        """Return the topic's id and the partition's offsets, None if there is no such topic or no such partition."""
        topic = self._described([name]).get(name)
        if topic is None or number not in {part.id for part in topic.partitions}:
            return None
        at = TopicPartition(name, number)
        low, high = (self._offsets([at], which)[name, number] for which in (OffsetSpec.earliest(), OffsetSpec.latest()))
        return str(topic.topic_id), RetainedOffsets(low, high)

    def topic_id(self, name: str) -> str | None:
        """Return the topic's id, None if there is no such topic."""
        topic = self._described([name]).get(name)
        return None if topic is None else str(topic.topic_id)

    def since(self, wanted: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], int | None]:
        """Return each partition's first offset from a time stamp on (milliseconds), None where there is no such record yet."""
        asked = {TopicPartition(*at): OffsetSpec.for_timestamp(time_ms) for at, time_ms in wanted.items()}
        found = self._led(asked, IsolationLevel.READ_UNCOMMITTED, least=_NO_RECORD_YET)
        return {at: None if offset == _NO_RECORD_YET else offset for at, offset in found.items()}

    def retention_ms(self, name: str) -> int | None:
        """Return how long the topic keeps records, None if for ever or if it is compacted only."""
        settings = self._again(lambda: self._settings(name))
        retained = int(settings["retention.ms"].value)
        return retained if retained >= 0 and "delete" in settings["cleanup.policy"].value else None

    def written_at_ms(self, wanted: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], int]:
        """Return the time stamp of the first record from an offset on, for partitions that have one."""
        found: dict[tuple[str, int], int] = {}
        consumer = Consumer(
            {**self._options, "group.id": "penstock-looks", "enable.auto.commit": False, "fetch.wait.max.ms": 100}
        )
        try:
            consumer.assign([TopicPartition(topic, number, offset) for (topic, number), offset in wanted.items()])
            deadline = time.monotonic() + _ANSWER_S
            while len(found) < len(wanted) and time.monotonic() < deadline:
                message = consumer.poll(0.5)
                if message is not None and message.error() is None:
                    found.setdefault((str(message.topic()), int(message.partition() or 0)), message.timestamp()[1])
                    consumer.pause([TopicPartition(str(message.topic()), int(message.partition() or 0))])
        except KafkaException as error:
            raise self._error_for(error) from error
        finally:
            consumer.close()
        return found

    def _settings(self, name: str) -> Any:
        resource = ConfigResource(ResourceType.TOPIC, name)
        answers = self._ask(lambda: self._admin.describe_configs([resource], request_timeout=_ANSWER_S))
        return self._allowed("DescribeConfigs", name, answers[resource])

    def _described(self, names: Iterable[str]) -> Mapping[str, Any]:
        wanted = sorted(names)
        return self._again(lambda: self._described_now(wanted)) if wanted else {}

    def _described_now(self, wanted: Sequence[str]) -> Mapping[str, Any]:
        asked = self._ask(
            lambda: self._admin.describe_topics(
                TopicCollection(list(wanted)), request_timeout=_ANSWER_S, include_authorized_operations=True
            )
        )
        found = {name: self._unless_unknown(name, answer) for name, answer in asked.items()}
        return {name: topic for name, topic in found.items() if topic is not None}

    def _offsets(
        self, partitions: list[TopicPartition], which: OffsetSpec, *, settled: bool = False
    ) -> Mapping[tuple[str, int], int]:
        """Return each partition's first or end offset; if `settled`, the end is where the first open transaction begins."""
        level = IsolationLevel.READ_COMMITTED if settled else IsolationLevel.READ_UNCOMMITTED
        return self._led(dict.fromkeys(partitions, which), level, least=0)

    def _led(
        self, wanted: Mapping[TopicPartition, OffsetSpec], level: IsolationLevel, *, least: int
    ) -> Mapping[tuple[str, int], int]:
        """Return the offsets, none below `least`. Asks again while a partition has no leader."""
        if not wanted:
            return {}
        asking = Retrying(
            retry=retry_if_exception_type(Retryable), stop=stop_after_delay(_LED_S), wait=wait_fixed(_LOOK_S), reraise=True
        )
        found: Mapping[tuple[str, int], int] = asking(self._anew, lambda: self._led_now(wanted, level, least=least))
        return found

    def _led_now(
        self, wanted: Mapping[TopicPartition, OffsetSpec], level: IsolationLevel, *, least: int
    ) -> Mapping[tuple[str, int], int]:
        asked = dict(wanted)
        answers = self._ask(lambda: self._admin.list_offsets(asked, isolation_level=level, request_timeout=_ANSWER_S))
        found = {(of.topic, of.partition): int(self._ask(answer.result).offset) for of, answer in answers.items()}
        self._require_led(found, least=least)
        return found

    def _again(self, question: Callable[[], _T]) -> _T:
        """Return the answer. Asks again for a while if brokers do not answer that answered before."""
        asking = Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, Retryable) and self._has_answered),
            stop=stop_after_delay(_AGAIN_S),
            wait=wait_fixed(_LOOK_S),
            reraise=True,
        )
        answer: _T = asking(self._anew, question)
        self._has_answered = True
        return answer

    def _anew(self, question: Callable[[], _T]) -> _T:
        try:
            return question()
        except Retryable:  # this client would go on asking the previous leader
            self._admin = AdminClient({**self._options, "error_cb": self._heard})
            raise

    def _require_led(self, found: Mapping[tuple[str, int], int], *, least: int) -> None:
        """Raise Retryable for a partition without a leader: the client reports an offset below `least` then, and no error."""
        for (topic, number), offset in found.items():
            if offset < least:
                raise Retryable(
                    f"Partition {number} of topic {topic!r} of source {self._source!r} has no leader.",
                    remedy="See whether its brokers are up, then try again.",
                )

    def _unless_unknown(self, name: str, answer: Any) -> Any:
        """Return the topic, None if there is none. Raises Failed for one that the user may not read, if brokers report that."""
        try:
            found = answer.result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            return self._allowed("Read", name, answer)
        allowed = {operation.name for operation in found.authorized_operations or ()}
        if allowed and "READ" not in allowed:
            raise self._lacks("Read", name)
        return found

    def _allowed(self, right: str, topic: str, answer: Any) -> Any:
        try:
            return answer.result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise self._lacks(right, topic) from error
            raise self._error_for(error) from error

    def _lacks(self, right: str, topic: str) -> Failed:
        return Failed(
            f"Kafka does not let the user of source {self._source!r} do that: the right {right} on topic {topic!r} is missing.",
            remedy=f"kafka-acls --add --allow-principal User:NAME --operation {right} --topic {topic}.",
        )

    def _ask(self, question: Callable[[], _T]) -> _T:
        try:
            if not self._let_in:
                require_login(self._admin, self._heard.newest)
                self._let_in = True
            return question()
        except KafkaException as error:
            raise self._error_for(error) from error

    def _error_for(self, raised: KafkaException) -> PenstockError:
        self._admin.poll(0)
        cause: KafkaError = raised.args[0]
        heard = self._heard.newest()
        why = heard if heard is not None and heard.code() in ACCESS_ERRORS and DISCONNECTED not in heard.str() else cause
        where = f"of source {self._source!r} at {self._options.get('bootstrap.servers')}"
        if why.code() in ACCESS_ERRORS:
            return Failed(f"Kafka {where} refuses access: {why.str()}.", remedy="Correct the credentials or the rights.")
        return Retryable(
            f"Kafka {where} does not answer: {why.str()}.",
            remedy="See whether the brokers are up and within reach, then try again.",
        )
