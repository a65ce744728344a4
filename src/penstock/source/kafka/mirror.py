"""Shows delivered offsets as those of a consumer group, for tools that look at lag. Penstock itself never reads them."""

from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, KafkaException, TopicPartition

from penstock.core.topics import TopicRead

_MARK = "written by penstock; changing it changes nothing"


class Mirror:
    """Commits offsets for one consumer group, which it never joins. `options` are librdkafka's."""

    def __init__(self, group: str, options: Mapping[str, str]) -> None:
        self._group = group
        self._consumer = Consumer({"log_level": 0, **options, "group.id": group, "enable.auto.commit": False})

    def show(self, reads: Sequence[TopicRead]) -> str | None:
        """Commit the next offset of each partition. Return an error as text instead of raising it: it must not stop a batch."""
        offsets = [
            TopicPartition(read.topic, number, of.end, metadata=_MARK) for read in reads for number, of in read.partitions.items()
        ]
        try:
            done = self._consumer.commit(offsets=offsets, asynchronous=False) if offsets else []
        except KafkaException as error:
            return self._not_committed(error.args[0].str())
        wrong = [each.error for each in done or [] if each.error is not None]
        return self._not_committed(wrong[0].str()) if wrong else None

    def close(self) -> None:
        self._consumer.close()

    def _not_committed(self, why: str) -> str:
        return f"The offsets could not be shown as those of group {self._group!r}: {why}."
