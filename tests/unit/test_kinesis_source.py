"""The offsets of a source `format: kinesis`: where it begins, what a batch reads, in which order, and what it refuses.

Against a stream in memory that behaves as AWS documents it; tests/live/test_kinesis.py has the emulator.
"""

import json
from collections import Counter
from random import Random

import pytest
from tests.seed import SEED
from tests.unit.kinesis_model import START_MS, ModelStream, Reading

from penstock.core.kinesis_offset import KinesisOffset, ShardOffset, offset_in, read_offset
from penstock.core.model import OffsetRange, SourceName
from penstock.errors import Failed, FormatTooNew, InputLost, Refused
from penstock.source.kinesis.lag import describe_lag, lag_of, missing_of_stream

SHARD = "shardId-000000000000"
WEB = SourceName("orders")


def numbers(first: int, end: int) -> list[str]:
    return [str(number) for number in range(first, end)]


def test_a_batch_has_what_waits_and_the_next_one_what_came_since() -> None:
    stream = ModelStream()
    reading = Reading(stream)
    stream.put(*range(3))
    assert list(reading.batches()) == [numbers(0, 3)]
    stream.put(*range(3, 5))
    assert list(reading.batches()) == [numbers(3, 5)]


def test_a_batch_that_is_read_again_has_the_same_records_whatever_came_since() -> None:
    stream = ModelStream(shards=2)
    reading = Reading(stream)
    stream.put(*range(3))
    rows = reading.batch()
    start = reading.before
    stream.put(*range(3, 9))
    stream.put("other", shard=1)
    reading.restart()
    assert reading.rows(start, reading.start) == rows
    assert reading.rows(reading.query.begin(), reading.start) == rows  # Spark asks anew where a query's first batch begins
    assert Counter(reading.values()) == Counter([*numbers(3, 9), "other"])


def test_the_limits_are_shared_by_the_shards() -> None:
    stream = ModelStream(shards=2)
    stream.put(*range(10))
    stream.put(*range(10, 20), shard=1)
    reading = Reading(stream, max_records=4)
    assert [len(batch) for batch in reading.batches()] == [4] * 5
    by_size = Reading(stream, max_bytes=2 * 2 * 3)  # key and value have two or three bytes
    sizes = [len(batch) for batch in by_size.batches()]
    assert sum(sizes) == 20
    assert max(sizes) <= 2 * 3


def test_pages_may_be_short_or_empty() -> None:
    stream = ModelStream(page_records=3, empty_pages=2)
    stream.put(*range(20))
    reading = Reading(stream)
    assert reading.values() == numbers(0, 20)
    stream.put(*range(20, 31))
    reading.restart()
    assert reading.values() == numbers(20, 31)


def test_latest_begins_with_what_comes_and_stays_so_after_a_restart() -> None:
    stream = ModelStream()
    stream.put("before")
    stream.now_ms += 1
    reading = Reading(stream, begins="LATEST")
    assert reading.values() == []
    reading.restart()
    stream.put("behind")
    assert reading.values() == ["behind"]


def test_a_time_begins_in_every_shard_that_is_there_or_came_since() -> None:
    stream = ModelStream()
    stream.put("old")
    stream.split()
    stream.put("too old")
    stream.now_ms += 1000
    begins = f"AT_TIMESTAMP {stream.now_ms}"
    stream.put("new")
    assert Reading(stream, begins=begins).values() == ["new"]


def test_a_position_for_each_shard() -> None:
    stream = ModelStream(shards=2)
    stream.put(*range(3))
    stream.put("x", shard=1)
    _, other = stream.open()
    first = Reading(stream).batch()
    assert first is not None
    at = next(row["sequence_number"] for row in first if row["data"] == b"1")
    begins = {SHARD: f"AT_SEQUENCE_NUMBER {at}", other: "LATEST"}
    assert Reading(stream, begins=begins).values() == ["1", "2"]
    assert Reading(stream, begins={**begins, SHARD: f"AFTER_SEQUENCE_NUMBER {at}"}).values() == ["2"]
    with pytest.raises(Failed, match=rf"must name each open shard, or one that it came of; it does not name {other}"):
        Reading(stream, begins={SHARD: "TRIM_HORIZON"}).batch()
    with pytest.raises(Failed, match="names shardId-9, which the stream does not have"):
        Reading(stream, begins={**begins, "shardId-9": "LATEST"}).batch()


def test_a_named_shard_covers_those_that_came_of_it() -> None:
    stream = ModelStream()
    stream.put("parent")
    stream.split()
    stream.put("child")
    stream.merge()
    stream.put("grandchild")
    assert Reading(stream, begins={SHARD: "TRIM_HORIZON"}).values() == ["parent", "child", "grandchild"]
    child, other, grandchild = list(stream.shards())[1:]
    assert Reading(stream, begins={child: "TRIM_HORIZON", other: "LATEST"}).values() == ["child", "grandchild"]
    assert Reading(stream, begins={grandchild: "TRIM_HORIZON"}).values() == ["grandchild"]


def test_a_child_is_read_in_a_later_batch_than_the_end_of_its_parents() -> None:
    stream = ModelStream(shards=2)
    stream.put(*range(5))
    stream.put("other", shard=1)
    stream.merge()
    stream.put("merged")
    stream.split()
    stream.put("left")
    stream.put("right", shard=1)
    reading = Reading(stream, max_records=2)
    found = list(reading.batches())
    ends = {value: number for number, batch in enumerate(found) for value in batch}
    assert ends["4"] < ends["merged"] < min(ends["left"], ends["right"])
    assert ends["other"] < ends["merged"]
    assert sum(map(len, found)) == 9


def test_random_reshards_and_restarts_lose_and_repeat_nothing_and_keep_the_order() -> None:
    chosen = Random(f"{SEED} kinesis")
    stream = ModelStream(shards=2, page_records=7)
    reading = Reading(stream, max_records=20)
    sent, found = 0, list[str]()
    for _ in range(120):
        act = chosen.choice(["put", "put", "put", "split", "merge", "read", "read", "restart", "again"])
        if act == "put":
            count = chosen.randint(1, 12)
            stream.put(*range(sent, sent + count), shard=chosen.randrange(len(stream.open())))
            sent += count
        elif act == "split" and len(stream.open()) < 6:
            stream.split(chosen.randrange(len(stream.open())))
        elif act == "merge" and len(stream.open()) > 1:
            stream.merge()
        elif act == "read" and (rows := reading.batch()) is not None:
            found += [row["data"].decode() for row in rows]
            if chosen.random() < 0.5:  # the answer was lost: Spark reads it again
                assert reading.rows(reading.before, reading.start) == rows, SEED
        elif act == "restart":
            reading.restart()
        stream.now_ms += chosen.randint(0, 400_000)
    found += reading.values()
    assert Counter(found) == Counter(numbers(0, sent)), SEED


def test_a_closed_shard_stays_in_the_offset_as_long_as_it_is_listed() -> None:
    stream = ModelStream()
    stream.put("a")
    stream.split()
    reading = Reading(stream)
    assert reading.values() == ["a"]
    assert read_offset(reading.start).shards[SHARD].is_finished
    stream.pass_hours(10)
    stream.put("b")
    assert reading.values() == ["b"]
    stream.pass_hours(15)
    stream.put("c")
    assert reading.values() == ["c"]
    assert SHARD not in read_offset(reading.start).shards


def test_records_that_expired_are_refused_with_numbers() -> None:
    stream = ModelStream()
    stream.put("a")
    reading = Reading(stream)
    assert reading.values() == ["a"]
    stream.pass_hours(1)
    stream.put("lost")
    stream.pass_hours(24)
    stream.put("b")
    reading.restart()
    last = read_offset(reading.start).shards[SHARD].last
    with pytest.raises(InputLost) as refused:
        reading.batch()
    assert f"was read up to sequence number {last}" in refused.value.message
    assert "25.0 hours ago" in refused.value.message
    assert "which arrived at" in refused.value.message
    lag = lag_of(WEB, reading.settings, json.dumps(reading.start), connect=lambda _: stream)
    assert lag.gap == refused.value.message
    allowed = Reading(stream, fails_on_loss=False)
    allowed.start = reading.start
    assert allowed.values() == ["b"]


def test_a_shard_that_expired_unread_is_refused() -> None:
    stream = ModelStream()
    stream.put(*range(4))
    reading = Reading(stream, max_records=2)
    assert reading.batch() is not None
    stream.split()
    stream.pass_hours(25)
    with pytest.raises(InputLost, match=f"Shard {SHARD} .* not to its end; Kinesis does not list it any more"):
        reading.batch()
    stream.put("child")
    allowed = Reading(stream, max_records=2, fails_on_loss=False)
    allowed.start = reading.start
    assert allowed.rows(reading.before, reading.start) == []
    assert allowed.values() == ["child"]


def test_a_child_whose_first_records_expired_is_refused() -> None:
    stream = ModelStream()
    stream.put("a")
    reading = Reading(stream)
    assert reading.values() == ["a"]
    stream.split()
    stream.put("lost")
    assert reading.batch() == []  # the end of the parent
    stream.pass_hours(23)
    reading.restart()
    stream.put("b")
    stream.pass_hours(2)
    with pytest.raises(InputLost, match=r"was read up to where it begins"):
        reading.values()


def test_a_child_that_waited_for_a_late_reader_of_its_parent_is_not_taken_for_seen() -> None:
    stream = ModelStream()
    stream.put("a")
    reading = Reading(stream)
    assert reading.values() == ["a"]
    stream.split()
    stream.put("lost")
    stream.pass_hours(23)
    reading.restart()
    assert reading.batch() == []  # the end of the parent, which nobody looked for all the time
    reading.restart()
    stream.pass_hours(2)
    stream.put("b")
    with pytest.raises(InputLost, match=r"was read up to where it begins"):
        reading.values()


def test_a_quiet_stream_is_no_loss_while_somebody_looks() -> None:
    stream = ModelStream()
    stream.put("a")
    reading = Reading(stream)
    assert reading.values() == ["a"]
    empty = 0
    for _ in range(60):
        stream.pass_hours(1)
        empty += reading.batch() == []
        reading.restart()
    stream.put("b")
    assert reading.values() == ["b"]
    assert 5 <= empty <= 12  # four a day


def test_a_quiet_shard_is_noted_as_seen_with_the_batches_of_others() -> None:
    stream = ModelStream(shards=2)
    stream.put("a", shard=1)
    reading = Reading(stream)
    assert reading.values() == ["a"]
    for hour in range(40):
        stream.pass_hours(1)
        stream.put(hour)
        assert reading.values() == [str(hour)]
    stream.put("b", shard=1)
    reading.restart()
    assert reading.values() == ["b"]


def test_a_batch_whose_records_expired_is_refused_though_later_ones_are_there() -> None:
    stream = ModelStream()
    stream.put(*range(3))
    stream.pass_hours(1)
    stream.put(3)
    reading = Reading(stream)
    assert reading.batch() is not None
    stream.pass_hours(23.5)
    with pytest.raises(InputLost, match="are gone: the first that is there is"):
        reading.rows(reading.before, reading.start)
    again = Reading(stream, fails_on_loss=False)
    assert [row["data"] for row in again.rows(reading.before, reading.start)] == [b"3"]
    offsets = OffsetRange(source=WEB, start=None, end=json.dumps(reading.start))
    assert "have expired" in (missing_of_stream(reading.settings, offsets, connect=lambda _: stream) or "")


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_stream_made_anew_is_refused(*, is_restarted: bool) -> None:
    stream = ModelStream()
    stream.put("a")
    reading = Reading(stream)
    assert reading.values() == ["a"]
    old = reading.start
    stream.now_ms += 1000
    stream.recreate()
    stream.put("new")
    if is_restarted:
        reading.restart()
    with pytest.raises(InputLost, match=r"was deleted and created again: it was created at 2027-01-15T08:00:00\.000Z"):
        reading.batch()
    with pytest.raises(InputLost):
        Reading(stream).rows(reading.before, old)
    assert lag_of(WEB, reading.settings, json.dumps(old), connect=lambda _: stream).gap is not None


def test_another_stream_is_refused() -> None:
    stream = ModelStream()
    reading = Reading(stream)
    reading.batch()
    other = KinesisOffset(stream="payments", created_ms=START_MS).written()
    with pytest.raises(Refused, match="has read stream 'payments', and its option streamName says 'orders'"):
        reading.query.advance(other)


def test_offsets_that_do_not_follow_each_other_are_refused() -> None:
    stream = ModelStream()
    stream.put("a")
    reading = Reading(stream)
    begin = reading.query.begin()
    reading.values()
    stream.put("b")
    reading.values()
    with pytest.raises(Refused, match="do not belong together"):
        reading.rows(begin, reading.start)


def test_available_now_ends_with_what_was_there() -> None:
    stream = ModelStream()
    stream.put(*range(3))
    reading = Reading(stream, max_records=2)
    reading.query.stop_at_now()
    assert [row["data"] for row in reading.batch() or []] == [b"0", b"1"]
    stream.now_ms += 5_000
    stream.put("later")
    assert reading.values() == ["2"]
    reading.restart()
    assert reading.values() == ["later"]


def test_available_now_reads_through_a_split() -> None:
    stream = ModelStream()
    stream.put("a")
    stream.split()
    stream.put("b")
    reading = Reading(stream)
    reading.query.stop_at_now()
    assert reading.values() == ["a", "b"]


def test_the_lag_says_how_old_the_oldest_is_and_when_it_expires() -> None:
    stream = ModelStream(shards=3)
    reading = Reading(stream)
    stream.put("a", shard=1)
    reading.values()
    assert describe_lag(lag_of(WEB, reading.settings, json.dumps(reading.start), connect=lambda _: stream)) == (
        "stream orders: everything is delivered"
    )
    assert describe_lag(lag_of(WEB, reading.settings, None, connect=lambda _: stream)) == "stream orders: nothing was read yet"
    stream.put("b", "c", shard=1)
    stream.pass_hours(20)
    stream.put("d", shard=2)
    lag = lag_of(WEB, reading.settings, json.dumps(reading.start), connect=lambda _: stream)
    assert (lag.waiting, lag.behind_ms, lag.loss_in_ms, lag.is_near_loss) == (2, 20 * 3_600_000, 4 * 3_600_000, True)
    assert "records wait in 2 shards, the oldest arrived 20 h ago; Kinesis removes it in 4 h" in describe_lag(lag)


def test_an_offset_survives_being_written() -> None:
    shards = {
        "a": ShardOffset(begins="", seen_ms=1, previous="7", first="8", last="9", is_finished=True),
        "b": ShardOffset(begins="TRIM_HORIZON", seen_ms=2),
    }
    offset = KinesisOffset(stream="orders", created_ms=3, shards=shards, is_first=True)
    assert offset_in(json.dumps(offset.written())) == offset
    assert offset_in(None) is None
    with pytest.raises(FormatTooNew, match="has version 2, but this Penstock reads versions up to 1"):
        read_offset({**offset.written(), "version": 2})


def test_an_offset_is_written_as_it_ever_was() -> None:
    shards = {
        "a": ShardOffset(begins="LATEST 5", seen_ms=1, previous="7", first="8", last="9", is_finished=True),
        "b": ShardOffset(begins="AT_TIMESTAMP 5", seen_ms=2),
    }
    assert json.dumps(KinesisOffset(stream="orders", created_ms=3, shards=shards, is_first=True).written()) == (
        '{"stream": "orders", "created_ms": 3, "shards": {"a": {"previous": "7", "first": "8", "last": "9", "seen_ms": 1, '
        '"finished": true}, "b": {"begins": "AT_TIMESTAMP 5", "seen_ms": 2}}, "first": true, "version": 1}'
    )
