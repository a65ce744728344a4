"""The offsets of one query: where it begins, and how far the next batch goes. Asks the brokers, reads no record, knows no Spark.

Whether missing records may be passed over is not decided here: the look at Kafka before a batch's rows are read does that.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.core.kafka_offset import KafkaOffset, TopicOffsets, read_offset
from penstock.errors import Failed, Refused, Retryable
from penstock.source.kafka.gaps import TopicNow
from penstock.source.kafka.reader.plan import Piece, batch_end, beginning, pieces
from penstock.source.kafka.reader.settings import ReaderSettings

if TYPE_CHECKING:
    from penstock.source.kafka.broker import Broker

_START_AGAIN = "Start again: the start says what is missing, and what can be done."


class OffsetStream:
    """The offsets of one query, in one process on the driver. Takes and returns them as JSON objects, as Spark logs them."""

    def __init__(self, settings: ReaderSettings, connect: "Callable[[], Broker]") -> None:
        self._settings, self._connect = settings, connect
        self._brokers: Broker | None = None
        self._until: TopicOffsets | None = None
        self._seen: Mapping[str, TopicNow] = {}

    def begin(self) -> dict[str, Any]:
        """Return where a new query begins. Spark asks again with the first batch, whose end then notes where the query began."""
        now = self._look()
        self._require_there(now)
        topics = beginning(self._settings, now, self._asked())
        return KafkaOffset(topics=topics, topic_ids=_ids(now), is_first=True).written()

    def stop_at_now(self) -> None:
        """Stop at the topics' present ends: read nothing that is written later."""
        self._until = _highs(self._look())

    def advance(self, start: Mapping[str, Any], limit: int | None) -> dict[str, Any]:
        """Return where the batch ends that begins at `start`; `start` itself if there is nothing new.

        Raises Retryable where a topic does not continue `start`, Failed where the options do not.
        """
        known = read_offset(start)
        now = self._look()
        wrong = next(self._breaks(known, now), None)
        if wrong is not None:
            raise Retryable(wrong, remedy=_START_AGAIN)
        self._require_there(now)
        up_to = {topic: self._up_to(topic, of, known.topics.get(topic, {})) for topic, of in now.items()}
        readable = {topic: of for topic, of in up_to.items() if of.partitions}
        ends = batch_end(known.topics, readable, limit=limit)
        if not known.is_first and ends == known.topics:
            return dict(start)
        began = known.topics if known.is_first else None
        return KafkaOffset(topics=ends, topic_ids=_ids(readable), began=began).written()

    def planned(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Piece]:
        """Return what the tasks of the batch read: the same for the same offsets, without asking brokers. Raises Refused."""
        first, last = read_offset(start), read_offset(end)
        if first.is_first and last.began is None and last.topics:
            raise Refused(
                f"The first batch of source {self._settings.name!r} was planned by Spark's connector and is not delivered yet; "
                "where it begins only the connector knows.",
                remedy="Let it be delivered with `reader: spark`; from then on either reader goes on.",
            )
        given = self._settings
        return list(pieces(first, last, at_least=given.min_partitions, at_most=given.max_records))

    def newest(self) -> dict[str, Any] | None:
        """Return how far the topics went at the last look; None before there was any."""
        return KafkaOffset(topics=_highs(self._seen)).written() if self._seen else None

    def _look(self) -> Mapping[str, TopicNow]:
        found = self._asked().topics(self._names(), settled=self._settings.is_committed)
        self._seen = {topic: self._assigned(topic, of) for topic, of in found.items()}
        return self._seen

    def _names(self) -> Sequence[str]:
        given = self._settings
        if given.pattern is not None:
            pattern = self._pattern(given.pattern)
            return [name for name in self._asked().names() if pattern.search(name)]  # anywhere in it, as Spark's connector does
        return given.subscribe if given.subscribe is not None else list(given.assign or {})

    def _pattern(self, text: str) -> "re.Pattern[str]":
        try:
            return re.compile(text)
        except re.error as wrong:
            raise Failed(
                f"sources.{self._settings.name}.options.subscribePattern is no regular expression: {wrong}.", remedy="Correct it."
            ) from wrong

    def _assigned(self, topic: str, of: TopicNow) -> TopicNow:
        """Return the topic with those partitions that are read."""
        wanted = (self._settings.assign or {}).get(topic)
        if wanted is None:
            return of
        missing = [number for number in wanted if number not in of.partitions]
        if missing:
            raise Failed(f"Topic {topic!r} has no partition {missing[0]}.", remedy="Correct `assign`.")
        return replace(of, partitions={number: of.partitions[number] for number in wanted})

    def _up_to(self, topic: str, of: TopicNow, start: Mapping[int, int]) -> TopicNow:
        """Return the topic with ends not before `start`, and not beyond where reading is to stop.

        `start` may be behind an open transaction's first record. A partition that was added after the stop does not exist yet.
        """
        if self._until is None:
            ends = {
                number: replace(retained, high=max(retained.high, start.get(number, 0)))
                for number, retained in of.partitions.items()
            }
            return replace(of, partitions=ends)
        until = self._until.get(topic, {})
        retained = {
            number: replace(retained, high=max(min(retained.high, until.get(number, 0)), start.get(number, 0)))
            for number, retained in of.partitions.items()
            if number in until or number in start
        }
        return replace(of, partitions=retained)

    def _require_there(self, now: Mapping[str, TopicNow]) -> None:
        named = self._settings.subscribe or tuple(self._settings.assign or ())
        missing = [name for name in named if name not in now]
        if missing:
            raise Failed(
                f"Topic {missing[0]!r} of source {self._settings.name!r} does not exist.",
                remedy="Create it, or correct the name.",
            )

    def _breaks(self, known: KafkaOffset, now: Mapping[str, TopicNow]) -> Iterator[str]:
        for topic, parts in known.topics.items():
            if topic not in now:  # left out of the offsets, it would be read from its first record when it comes back
                yield f"Topic {topic!r} was read, and is not there any more, or the options do not name it any more."
                continue
            old, new = known.topic_ids.get(topic, now[topic].topic_id), now[topic].topic_id
            if old != new:
                yield f"Topic {topic!r} was deleted and created again: its id was {old}, now it is {new}."
            for number, at in parts.items():
                retained = now[topic].partitions.get(number)
                if retained is None:
                    yield f"Partition {number} of topic {topic!r} was read, and is not there any more, or not read any more."
                elif retained.high < at and (end := self._written(topic, number)) < at:
                    yield f"Partition {number} of topic {topic!r} ends at {end}, before what was read of it: {at}."

    def _written(self, topic: str, number: int) -> int:
        """Return where a partition ends with the records of open transactions: a query may begin behind the first of those."""
        found = self._asked().topics([topic]).get(topic)
        retained = None if found is None else found.partitions.get(number)
        return 0 if retained is None else retained.high

    def _asked(self) -> "Broker":
        if self._brokers is None:
            self._brokers = self._connect()
        return self._brokers


def _ids(now: Mapping[str, TopicNow]) -> Mapping[str, str]:
    return {topic: of.topic_id for topic, of in now.items()}


def _highs(now: Mapping[str, TopicNow]) -> TopicOffsets:
    return {topic: {number: retained.high for number, retained in of.partitions.items()} for topic, of in now.items()}
