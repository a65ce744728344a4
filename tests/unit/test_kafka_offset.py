"""Offsets of both readers: what each can make of the other's, and what the ledger and people get to see."""

import json
from pathlib import Path

import pytest

from penstock.checkpoint.repair import move_offsets, read_newest_entries
from penstock.checkpoint.source_log import kind_of
from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.core.kafka_offset import KafkaOffset, beginning_in, read_offset, topic_offsets_in, without_notes
from penstock.core.model import BatchId, SourceName
from penstock.errors import Failed

S = SourceName("s")
END = KafkaOffset(topics={"b.x": {0: 7}, "a": {10: 0, 2: 5}}, topic_ids={"a": "x/+=", "b.x": "y"})
FIRST = KafkaOffset(topics=END.topics, topic_ids=END.topic_ids, began={"a": {2: 1, 10: 0}, "b.x": {0: 7}})
PLAIN = '{"a":{"2":5,"10":0},"b.x":{"0":7}}'


@pytest.mark.parametrize(
    "offset",
    [
        END,
        FIRST,
        KafkaOffset(topics={}, is_first=True),
        KafkaOffset(topics={"a": {0: 1}}, began={}),
        KafkaOffset(topics={"a": {0: 1}}, topic_ids={"a": "i"}, is_first=True),
    ],
)
def test_what_is_written_is_read(offset: KafkaOffset) -> None:
    assert read_offset(json.loads(json.dumps(offset.written()))) == offset


def test_sparks_connector_finds_offsets_and_no_partition_else() -> None:
    """It takes every key for a topic, and each entry below for a partition of it."""
    for offset in (END, FIRST):
        taken = {(topic, part): at for topic, parts in offset.written().items() for part, at in parts.items()}
        assert taken == {("a", "2"): 5, ("a", "10"): 0, ("b.x", "0"): 7}


def test_notes_are_shown_to_nobody() -> None:
    for offset in (END, FIRST):
        text = json.dumps(offset.written())
        assert without_notes(text) == PLAIN
        assert topic_offsets_in(text) == topic_offsets_in(PLAIN) == END.topics
        assert kind_of(text) == kind_of(PLAIN) == "kafka"


@pytest.mark.parametrize(
    "other", [PLAIN, None, "5", '{"sourceVersion": 1, "isStart": " id "}', '{"x id y": {"a": 1}}', "{(first)", '{"a": {}}']
)
def test_offsets_of_others_stay_as_they_are(other: str | None) -> None:
    assert without_notes(other) == other
    assert beginning_in(other) is None


def test_a_first_batch_says_where_it_began() -> None:
    assert beginning_in(json.dumps(FIRST.written())) == '{"a":{"2":1,"10":0},"b.x":{"0":7}}'
    assert beginning_in(json.dumps(END.written())) is None


def checkpoint(root: Path, *ends: KafkaOffset) -> SparkCheckpoint:
    (root / "offsets").mkdir()
    (root / "metadata").write_text('{"id":"q"}')
    for number, end in enumerate(ends):
        (root / "offsets" / str(number)).write_text(f"v1\n{{}}\n{json.dumps(end.written())}")
    return SparkCheckpoint(root)


def test_the_ledger_gets_offsets_and_the_beginning_from_either(tmp_path: Path) -> None:
    found = checkpoint(tmp_path, FIRST, KafkaOffset(topics={"a": {2: 9, 10: 1}, "b.x": {0: 8}}, topic_ids=END.topic_ids))
    [offsets] = found.batch(BatchId(1), [S]).offsets
    assert (offsets.start, offsets.end) == (PLAIN, '{"a":{"2":9,"10":1},"b.x":{"0":8}}')
    assert found.beginnings(BatchId(0), [S]) == {S: '{"a":{"2":1,"10":0},"b.x":{"0":7}}'}
    assert found.beginnings(BatchId(1), [S]) == {}
    (tmp_path / "sources" / "0").mkdir(parents=True)
    (tmp_path / "sources" / "0" / "0").write_bytes(b'\0v1\n{"a":{"2":3}}')
    assert found.beginnings(BatchId(1), [S]) == {S: '{"a":{"2":3}}'}


def test_a_topic_that_is_moved_loses_its_notes(tmp_path: Path) -> None:
    found = checkpoint(tmp_path, FIRST)
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").write_text("v1\n{}")
    move_offsets(found, read_newest_entries(found, BatchId(0), [S]), {S: {"a": {0: 0}}})
    entry = found.offsets(BatchId(0))
    assert entry is not None
    left = read_offset(json.loads(entry.offsets["0"] or ""))
    assert left == KafkaOffset(topics={"a": {0: 0}, "b.x": {0: 7}}, topic_ids={"b.x": "y"})


def test_a_checkpoint_that_cannot_be_written_is_told_with_what_it_was_for(tmp_path: Path) -> None:
    found = checkpoint(tmp_path, FIRST)
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").write_text("v1\n{}")
    (tmp_path / "offsets" / ".moved-0").mkdir()
    with pytest.raises(Failed, match="cannot be moved behind the gap: a directory is where a file is expected"):
        move_offsets(found, read_newest_entries(found, BatchId(0), [S]), {S: {"a": {0: 0}}})
    assert found.batch(BatchId(0), [S]).offsets[0].end == PLAIN
