"""What Penstock's own reader plans: how far a batch goes, in which pieces, where a query begins, what it refuses."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.kafka_offset import KafkaOffset, read_offset
from penstock.errors import Failed, Refused, Retryable, Usage
from penstock.source.kafka.gaps import RetainedOffsets, TopicNow
from penstock.source.kafka.reader.opening import data_source_options
from penstock.source.kafka.reader.plan import Piece, batch_end, pieces
from penstock.source.kafka.reader.settings import ReaderSettings, settings_in
from penstock.source.kafka.reader.stream import OffsetStream
from penstock.spec.source import Source

SETTINGS = ReaderSettings(name="s", client={}, subscribe=("t",), starting="earliest")


def topic(*kept: tuple[int, int], topic_id: str = "id") -> TopicNow:
    return TopicNow(topic_id=topic_id, partitions={number: RetainedOffsets(*each) for number, each in enumerate(kept)})


class Brokers:
    """Of which a test says what they have."""

    def __init__(self, **topics: TopicNow) -> None:
        self.have = topics
        self.have_settled: Mapping[str, TopicNow] = {}
        """Of topics with an open transaction."""

    def names(self) -> Sequence[str]:
        return list(self.have)

    def topics(self, names: Sequence[str], *, settled: bool = False) -> Mapping[str, TopicNow]:
        have = {**self.have, **self.have_settled} if settled else self.have
        return {name: have[name] for name in names if name in have}

    def since(self, wanted: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], int | None]:
        return {(name, number): at // 10 if at < 1000 else None for (name, number), at in wanted.items()}


def stream(brokers: Brokers, **settings: Any) -> OffsetStream:
    return OffsetStream(replace(SETTINGS, **settings), lambda: brokers)


@pytest.mark.parametrize(
    ("limit", "start", "kept", "ends"),
    [
        (None, {0: 0, 1: 0}, [(0, 10), (0, 90)], {0: 10, 1: 90}),
        (20, {0: 0, 1: 0}, [(0, 10), (0, 90)], {0: 2, 1: 18}),
        (5, {0: 0, 1: 0, 2: 7}, [(0, 1), (0, 99), (0, 7)], {0: 1, 1: 4, 2: 7}),
        (1000, {0: 4, 1: 0}, [(0, 10), (0, 90)], {0: 10, 1: 90}),
        (10, {0: 4}, [(0, 4), (50, 90)], {0: 4, 1: 60}),
        (10, {0: 0}, [(50, 100)], {0: 10}),
    ],
)
def test_each_partition_gets_its_share(
    limit: int | None, start: dict[int, int], kept: list[tuple[int, int]], ends: dict[int, int]
) -> None:
    assert batch_end({"t": start}, {"t": topic(*kept)}, limit=limit) == {"t": ends}


_SIZES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 400)), min_size=1, max_size=5)


@given(_SIZES, st.none() | st.integers(1, 20), st.none() | st.integers(1, 90))
def test_pieces_are_the_batch_and_nothing_else(sizes: list[tuple[int, int]], at_least: int | None, at_most: int | None) -> None:
    start = KafkaOffset(topics={"t": {number: first for number, (first, _) in enumerate(sizes)}})
    end = KafkaOffset(topics={"t": {number: first + size for number, (first, size) in enumerate(sizes)}}, topic_ids={"t": "id"})
    found = list(pieces(start, end, at_least=at_least, at_most=at_most))
    offsets = [(piece.partition, offset) for piece in found for offset in range(piece.first, piece.end)]
    assert offsets == [(number, offset) for number, (first, size) in enumerate(sizes) for offset in range(first, first + size)]
    assert all(piece.end > piece.first and piece.topic_id == "id" for piece in found)
    assert at_most is None or all(piece.end - piece.first <= at_most for piece in found)


def test_more_pieces_than_partitions_are_cut_from_the_largest() -> None:
    start, end = KafkaOffset(topics={"t": {0: 0, 1: 0}}), KafkaOffset(topics={"t": {0: 90, 1: 10}})
    cut = [(piece.partition, piece.first, piece.end) for piece in pieces(start, end, at_least=4, at_most=None)]
    assert cut == [(0, 0, 22), (0, 22, 44), (0, 44, 67), (0, 67, 90), (1, 0, 10)]
    assert len(list(pieces(start, end, at_least=2, at_most=None))) == 2


def test_a_partition_that_was_added_is_read_from_its_first_record() -> None:
    start, end = KafkaOffset(topics={"t": {0: 5}}), KafkaOffset(topics={"t": {0: 5, 1: 3}})
    assert list(pieces(start, end, at_least=None, at_most=None)) == [Piece(topic="t", topic_id=None, partition=1, first=0, end=3)]


def test_a_batch_goes_on_where_the_one_before_ended() -> None:
    brokers = Brokers(t=topic((0, 10), (2, 30)))
    mine = stream(brokers)
    first = mine.begin()
    assert read_offset(first) == KafkaOffset(topics={"t": {0: 0, 1: 2}}, topic_ids={"t": "id"}, is_first=True)
    end = mine.advance(first, 19)
    assert read_offset(end).topics == {"t": {0: 5, 1: 16}}
    later = mine.advance(end, None)
    assert read_offset(later) == KafkaOffset(topics={"t": {0: 10, 1: 30}}, topic_ids={"t": "id"})
    assert mine.advance(later, None) is not later
    assert json.dumps(mine.advance(later, None)) == json.dumps(later)
    plain = {"t": {"0": 10, "1": 30}}
    assert mine.advance(plain, None) == plain
    assert mine.newest() == plain


def test_a_first_batch_that_is_read_again_begins_where_it_did() -> None:
    """The checkpoint has no entry before it, and `latest` is elsewhere by now."""
    brokers = Brokers(t=topic((0, 10)))
    first_run = stream(brokers, starting="latest")
    began = first_run.begin()
    brokers.have["t"] = topic((0, 15))
    end = first_run.advance(began, None)
    brokers.have["t"] = topic((0, 99))
    again = stream(brokers, starting="latest")
    start = again.begin()
    assert read_offset(start).topics == {"t": {0: 99}}
    assert [(piece.first, piece.end) for piece in again.planned(start, end)] == [(10, 15)]


def test_an_empty_batch_behind_the_first_reads_nothing_again() -> None:
    """Spark plans one where the text of an offset changed, as when the checkpoint was moved; its end is that of the first."""
    mine = stream(Brokers(t=topic((0, 10))))
    end = mine.advance(mine.begin(), None)
    assert read_offset(end).began == {"t": {0: 0}}
    assert mine.planned(end, end) == []
    assert mine.planned(end, {**end, "t": {"0": 12}}) == [Piece(topic="t", topic_id="id", partition=0, first=10, end=12)]


def test_a_query_may_begin_behind_the_first_record_of_an_open_transaction() -> None:
    """By a time stamp, or by an offset: nothing is lost, and the batches wait until it ends."""
    brokers = Brokers(t=topic((0, 20)))
    brokers.have_settled = {"t": topic((0, 10))}
    mine = stream(brokers, starting={"t": {0: 15}})
    first = mine.begin()
    end = mine.advance(first, None)
    assert read_offset(end) == KafkaOffset(topics={"t": {0: 15}}, topic_ids={"t": "id"}, began={"t": {0: 15}})
    assert mine.planned(first, end) == []
    assert read_offset(mine.advance(end, 5)).topics == {"t": {0: 15}}
    brokers.have, brokers.have_settled = {"t": topic((0, 21))}, {}
    assert [(piece.first, piece.end) for piece in mine.planned(end, mine.advance(end, None))] == [(15, 21)]
    brokers.have = {"t": topic((0, 14))}
    with pytest.raises(Retryable, match="ends at 14, before what was read of it: 15"):
        mine.advance(end, None)


def test_a_first_batch_of_sparks_connector_is_left_to_it() -> None:
    mine = stream(Brokers(t=topic((0, 10))))
    with pytest.raises(Refused, match=r"planned by Spark's connector.*`reader: spark`"):
        mine.planned(mine.begin(), {"t": {"0": 10}})
    assert len(mine.planned({"t": {"0": 3}}, {"t": {"0": 10}})) == 1


def test_nothing_that_comes_later_is_read_once_it_is_to_stop() -> None:
    brokers = Brokers(t=topic((0, 10)), u=topic((0, 5)))
    mine = stream(brokers, pattern="[tuv]", subscribe=None)
    start = mine.begin()
    mine.stop_at_now()
    brokers.have = {"t": topic((0, 50), (0, 7)), "u": topic((0, 5)), "v": topic((0, 3))}
    end = mine.advance(start, None)
    assert read_offset(end) == KafkaOffset(
        topics={"t": {0: 10}, "u": {0: 5}}, topic_ids={"t": "id", "u": "id"}, began={"t": {0: 0}, "u": {0: 0}}
    )
    assert mine.advance(end, None) == end
    beyond = {"t": {"0": 20}, "u": {"0": 5}}
    assert mine.advance(beyond, None) == beyond


@pytest.mark.parametrize(
    ("now", "told"),
    [
        ({"t": topic((0, 10), topic_id="other")}, "was deleted and created again: its id was id, now it is other"),
        ({}, "is not there any more"),
        ({"t": topic((0, 3))}, "ends at 3, before what was read of it: 10"),
        (
            {"t": TopicNow(topic_id="id", partitions={1: RetainedOffsets(0, 9)})},
            "Partition 0 of topic 't' was read, and is not there any more",
        ),
    ],
)
def test_a_topic_that_does_not_continue_is_not_gone_on_with(now: Mapping[str, TopicNow], told: str) -> None:
    start = KafkaOffset(topics={"t": {0: 10}}, topic_ids={"t": "id"}).written()
    with pytest.raises(Retryable, match=told):
        stream(Brokers(**now)).advance(start, None)


@pytest.mark.parametrize("named", [{}, {"subscribe": None, "pattern": "."}], ids=["subscribe", "pattern"])
def test_a_topic_that_is_not_there_is_never_left_out(named: dict[str, Any]) -> None:
    """The next offsets would know nothing of it, and it would be read from its first record when it comes back."""
    start = KafkaOffset(topics={"t": {0: 10}, "u": {0: 5}}, topic_ids={"t": "id", "u": "id"}).written()
    with pytest.raises(Retryable, match="Topic 't' was read, and is not there any more"):
        stream(Brokers(u=topic((0, 9))), fails_on_loss=False, **named).advance(start, None)


def test_a_topic_that_never_was_is_told() -> None:
    with pytest.raises(Failed, match="Topic 't' of source 's' does not exist"):
        stream(Brokers()).begin()


def test_a_pattern_is_looked_for_in_names_and_assigned_partitions_are_all() -> None:
    brokers = Brokers(t1=topic((0, 1)), t10=topic((0, 1)), xt1=topic((0, 1)), u=topic((0, 1), (0, 2)))
    assert read_offset(stream(brokers, pattern="^t.$", subscribe=None).begin()).topics == {"t1": {0: 0}}
    assert read_offset(stream(brokers, pattern="t1$", subscribe=None).begin()).topics == {"t1": {0: 0}, "xt1": {0: 0}}
    assert read_offset(stream(brokers, assign={"u": (1,)}, subscribe=None).begin()).topics == {"u": {1: 0}}
    with pytest.raises(Failed, match="has no partition 2"):
        stream(brokers, assign={"u": (2,)}, subscribe=None).begin()
    with pytest.raises(Failed, match="is no regular expression"):
        stream(brokers, pattern="(", subscribe=None).begin()


@pytest.mark.parametrize(
    ("settings", "positions"),
    [
        ({"starting": "latest"}, {0: 10, 1: 30}),
        ({"starting": {"t": {0: -1, 1: -2}}}, {0: 10, 1: 2}),
        ({"starting": {"t": {0: 4, 1: 7}}}, {0: 4, 1: 7}),
        ({"starting_ms": 50}, {0: 5, 1: 5}),
        ({"starting_ms": {"t": {0: 50, 1: 70}}}, {0: 5, 1: 7}),
        ({"starting_ms": 5000, "is_late_start_latest": True}, {0: 10, 1: 30}),
    ],
)
def test_a_query_begins_where_it_is_told(settings: dict[str, Any], positions: dict[int, int]) -> None:
    assert read_offset(stream(Brokers(t=topic((0, 10), (2, 30))), **settings).begin()).topics == {"t": positions}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"starting": {"t": {0: 4}}}, "does not name partition 1 of topic 't'"),
        ({"starting": {"t": {0: 4, 1: 4, 2: 4}}}, "names one that is not there or not read: partition 2"),
        ({"starting_ms": {"t": {0: 4}}}, "startingOffsetsByTimestamp must name every partition"),
        ({"starting_ms": 5000}, "has no record yet from time stamp 5000 on"),
    ],
)
def test_a_beginning_that_is_not_said_is_told(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(Failed, match=told):
        stream(Brokers(t=topic((0, 10), (2, 30))), **settings).begin()


NEEDED = {"kafka.bootstrap.servers": "host:9092", "subscribe": "a, b"}


def arrived(**options: object) -> ReaderSettings:
    """As options come out of Spark: their keys in small letters."""
    told = data_source_options("s", Source(format="kafka", options={**NEEDED, **options}))
    return settings_in({key.lower(): value for key, value in told.items()})


def test_settings_travel_as_text() -> None:
    plain = arrived()
    assert plain == ReaderSettings(name="s", client={"bootstrap.servers": "host:9092"}, subscribe=("a", "b"))
    assert plain.is_committed
    given = arrived(
        startingOffsets='{"a": {"0": -2}}',
        maxOffsetsPerTrigger=5,
        minPartitions=3,
        maxRecordsPerPartition=9,
        includeHeaders=True,
        failOnDataLoss=False,
        **{"kafkaConsumer.pollTimeoutMs": 3000, "kafka.isolation.level": "read_uncommitted", "kafka.fetch.max.wait.ms": 7},
    )
    assert given.starting == {"a": {0: -2}}
    assert (given.max_offsets, given.min_partitions, given.max_records, given.patience_s) == (5, 3, 9, 3.0)
    assert (given.has_headers, given.fails_on_loss, given.is_committed) == (True, False, False)
    assert given.client["fetch.wait.max.ms"] == "7"
    assert arrived(startingTimestamp=12).starting_ms == 12
    assert arrived(groupIdPrefix="ours").client["group.id"] == "ours"
    by_time = arrived(startingOffsetsByTimestamp='{"a": {"0": 5}}', startingOffsetsByTimestampStrategy="latest")
    assert (by_time.starting_ms, by_time.is_late_start_latest) == ({"a": {0: 5}}, True)


def test_a_gap_that_is_accepted_does_not_stop_a_task() -> None:
    source = Source(format="kafka", options=NEEDED, on_gap="accept")
    assert not settings_in(data_source_options("s", source)).fails_on_loss


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"minOffsetsPerTrigger": 5}, "minOffsetsPerTrigger is not done by Penstock's own reader"),
        ({"kafka.my.plugin": "x"}, "kafka.my.plugin has no equivalent in librdkafka"),
        ({"kafka.ssl.cipher.suites": "x"}, "kafka.ssl.cipher.suites has no equivalent"),
    ],
)
def test_what_the_reader_does_not_do_is_told(options: dict[str, object], told: str) -> None:
    with pytest.raises(Usage, match=told):
        arrived(**options)


def test_it_is_told_with_the_file_where_that_names_the_reader() -> None:
    with pytest.raises(Usage, match="is not done by Penstock's own reader"):
        Source(format="kafka", reader="python", options={**NEEDED, "maxTriggerDelay": "5m"})
    with pytest.raises(Usage, match="reader is for format: kafka only"):
        Source(format="rate", reader="python")


def test_what_matters_to_groups_only_is_passed_over() -> None:
    assert "max.poll.records" not in arrived(**{"kafka.max.poll.records": 5, "kafka.session.timeout.ms": 5}).client
