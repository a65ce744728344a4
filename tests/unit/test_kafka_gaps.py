"""What is missing between where reading goes on and what the broker has: kind by kind, with exact numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from penstock.core.kafka_offset import topic_offsets_in
from penstock.core.model import OffsetRange, SourceName
from penstock.core.topics import GapAccepted, GapKind, PartitionRead, TopicRead
from penstock.errors import Retryable
from penstock.source.kafka.gaps import RetainedOffsets, TopicNow, describe_gaps, gap_descriptions, gaps_of, lost, within
from penstock.source.kafka.watch import Watch
from penstock.spec.source import Source

S = SourceName("s")
SOURCE = Source(format="kafka", options={"subscribe": "orders", "kafka.bootstrap.servers": "host:9092"})
NEEDED = {"orders": {0: 20, 1: 7}}
READ = TopicRead(
    source=S,
    topic="orders",
    topic_id="old",
    partitions={0: PartitionRead(start=10, end=20, low=0, high=32), 1: PartitionRead(start=7, end=7, low=0, high=7)},
)


def topic(*kept: tuple[int, int], topic_id: str = "old") -> Mapping[str, TopicNow]:
    return {
        "orders": TopicNow(topic_id=topic_id, partitions={number: RetainedOffsets(*each) for number, each in enumerate(kept)})
    }


def gap(kind: GapKind, partition: int, first: int, end: int, topic_id: str = "old") -> GapAccepted:
    return GapAccepted(kind=kind, source=S, topic="orders", topic_id=topic_id, partition=partition, first=first, end=end)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (topic((20, 50), (7, 7)), ()),
        (topic((0, 20), (0, 9)), ()),
        (topic((21, 50), (7, 7)), (gap(GapKind.EXPIRED, 0, 20, 21),)),
        (topic((50, 50), (9, 9)), (gap(GapKind.EXPIRED, 0, 20, 50), gap(GapKind.EXPIRED, 1, 7, 9))),
        (topic((0, 19), (0, 7)), (gap(GapKind.TRUNCATED, 0, 19, 20),)),
        (topic((0, 100), (0, 100), topic_id="new"), (gap(GapKind.RECREATED, 0, 20, 32), gap(GapKind.RECREATED, 1, 7, 7))),
        (topic((0, 3), topic_id="new"), (gap(GapKind.RECREATED, 0, 20, 32), gap(GapKind.RECREATED, 1, 7, 7))),
        ({}, (gap(GapKind.DELETED, 0, 20, 32), gap(GapKind.DELETED, 1, 7, 7))),
    ],
)
def test_every_kind_is_found_with_its_offsets(now: Mapping[str, TopicNow], expected: tuple[GapAccepted, ...]) -> None:
    assert gaps_of(S, NEEDED, known={"orders": READ}, now=now) == expected


def test_a_topic_that_was_never_read_is_judged_by_its_watermarks() -> None:
    assert gaps_of(S, NEEDED, known={}, now=topic((0, 100), (0, 100), topic_id="any")) == ()
    assert gaps_of(S, NEEDED, known={}, now=topic((30, 100), (0, 100), topic_id="any")) == (
        gap(GapKind.EXPIRED, 0, 20, 30, "any"),
    )
    assert gaps_of(S, NEEDED, known={}, now=topic((0, 100), topic_id="any")) == (gap(GapKind.RECREATED, 1, 7, 7, "any"),)


def test_a_broker_that_does_not_know_a_new_partition_yet_is_no_gap() -> None:
    """Kafka removes no partition: the topic is the same, so the broker's word is an old one."""
    with pytest.raises(Retryable, match="source 's' that answered does not know partition 1 of topic 'orders' yet"):
        gaps_of(S, NEEDED, known={"orders": READ}, now=topic((0, 50)))


def test_a_gap_by_retention_is_shared_out_among_batches() -> None:
    whole = gap(GapKind.EXPIRED, 0, 20, 50)
    assert list(within(whole, {"orders": {0: 30}})) == [gap(GapKind.EXPIRED, 0, 20, 30)]
    assert list(within(whole, {"orders": {0: 70}})) == [whole]
    assert list(within(whole, {"orders": {0: 20}})) == list(within(whole, {})) == []


@pytest.mark.parametrize(
    ("gaps", "now", "said"),
    [
        (
            (gap(GapKind.EXPIRED, 0, 20, 50), gap(GapKind.EXPIRED, 1, 7, 8)),
            {},
            "no longer has 31 records of topic 'orders' that were not delivered: partition 0 offsets 20 to 49, partition 1 ",
        ),
        (
            (gap(GapKind.RECREATED, 0, 20, 32), gap(GapKind.RECREATED, 1, 7, 7)),
            topic(topic_id="new"),
            "its id was old, now it is new); of the old one 12 records were not delivered: partition 0 offsets 20 to 31.",
        ),
        ((gap(GapKind.RECREATED, 1, 7, 7),), topic(topic_id="new"), "all of the old one was delivered."),
        ((gap(GapKind.DELETED, 0, 20, 21),), {}, "does not exist any more; 1 record of it"),
        ((gap(GapKind.TRUNCATED, 0, 19, 20),), {}, "ends before what was read of it, by 1 record: partition 0 offsets 19 to 19"),
    ],
)
def test_it_is_said_in_numbers(gaps: tuple[GapAccepted, ...], now: Mapping[str, TopicNow], said: str) -> None:
    assert said in describe_gaps(gaps, now={(S, name): of for name, of in now.items()})
    assert lost(gaps) == sum(each.end - each.first for each in gaps)
    assert gaps[0].kind.value in gap_descriptions(gaps)


def test_topics_of_one_name_on_two_clusters_are_told_apart() -> None:
    other = replace(gap(GapKind.RECREATED, 0, 5, 5, "old of the other"), source=SourceName("other"))
    now = {(S, "orders"): topic(topic_id="new")["orders"], (SourceName("other"), "orders"): topic(topic_id="newer")["orders"]}
    said = describe_gaps((gap(GapKind.RECREATED, 0, 5, 5), other), now=now)
    assert said.index("its id was old, now it is new)") < said.index("its id was old of the other, now it is newer)")


def test_many_partitions_are_not_all_listed() -> None:
    said = describe_gaps(tuple(gap(GapKind.EXPIRED, number, 0, 1) for number in range(1000)), now={})
    assert "1,000 records" in said
    assert said.endswith(", 992 more partitions.")


def test_offsets_are_read_as_spark_writes_them() -> None:
    assert topic_offsets_in('{"a":{"0":3,"10":0},"b":{"2":9}}') == {"a": {0: 3, 10: 0}, "b": {2: 9}}
    assert topic_offsets_in(None) == {}


class Brokers:
    def __init__(self, now: Mapping[str, TopicNow]) -> None:
        self._now = now

    def topics(self, names: object) -> Mapping[str, TopicNow]:
        return self._now


def look(now: Mapping[str, TopicNow], start: str | None, end: str | None):
    watch = Watch({S: SOURCE}, connect=lambda name, source: Brokers(now))
    return watch.look(
        [OffsetRange(source=S, start=start, end=end), OffsetRange(source=SourceName("files"), start=None, end="7")], known=()
    )


def test_a_look_tells_what_a_batch_is_of_each_partition() -> None:
    seen = look(topic((1, 50), (0, 9)), '{"orders":{"0":20,"1":7}}', '{"orders":{"0":30,"1":7}}')
    [read] = seen.topics
    assert read.topic_id == "old"
    assert read.partitions == {
        0: PartitionRead(start=20, end=30, low=1, high=50),
        1: PartitionRead(start=7, end=7, low=0, high=9),
    }
    assert seen.gaps == ()


def test_a_partition_that_was_added_begins_with_its_first_record() -> None:
    end = '{"orders":{"0":30,"1":9}}'
    [read] = look(topic((1, 50), (0, 9)), '{"orders":{"0":20}}', end).topics
    assert read.partitions[1] == PartitionRead(start=0, end=9, low=0, high=9)
    assert look(topic((1, 50), (4, 9)), '{"orders":{"0":20}}', end).gaps == (gap(GapKind.EXPIRED, 1, 0, 4),)


def test_without_an_end_it_looks_where_reading_goes_on() -> None:
    seen = look(topic((25, 50)), '{"orders":{"0":20}}', None)
    assert seen.gaps == (gap(GapKind.EXPIRED, 0, 20, 25),)
    assert seen.topics[0].partitions[0].end == 20


def test_a_planned_batch_whose_end_the_broker_lost_is_a_gap() -> None:
    start, end = '{"orders":{"0":20,"1":7}}', '{"orders":{"0":30,"1":9}}'
    assert look(topic((0, 30), (0, 9)), start, end).gaps == ()
    assert look(topic((0, 26), (0, 7)), start, end).gaps == (
        gap(GapKind.TRUNCATED, 0, 26, 30),
        gap(GapKind.TRUNCATED, 1, 7, 9),
    )
    assert look(topic((25, 26), (0, 9)), start, end).gaps == (
        gap(GapKind.EXPIRED, 0, 20, 25),
        gap(GapKind.TRUNCATED, 0, 26, 30),
    )
    assert look(topic((0, 15), (0, 9)), start, end).gaps == (gap(GapKind.TRUNCATED, 0, 15, 20),)


def test_a_client_that_failed_is_not_asked_again() -> None:
    """One that met a partition's new leader would go on asking in the name of the old one, for ever."""

    class Once:
        def __init__(self) -> None:
            made.append(self)

        def topics(self, names: Sequence[str]) -> Mapping[str, TopicNow]:
            if made[0] is self:
                raise Retryable("The leader is another one.", remedy="Ask again.")
            return topic((0, 50), (0, 50))

    made: list[Once] = []
    watch = Watch({S: SOURCE}, connect=lambda name, source: Once())
    ranges = [OffsetRange(source=S, start='{"orders": {"0": 20, "1": 7}}', end='{"orders": {"0": 30, "1": 9}}')]
    with pytest.raises(Retryable):
        watch.look(ranges, known=[READ])
    assert watch.look(ranges, known=[READ]).gaps == ()
    assert len(made) == 2
