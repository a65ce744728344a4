"""What the state of every Spark version's checkpoints consists of, without Java."""

import json
from pathlib import Path

import pytest
from tests.upgrade.checkpoint_archives import ARCHIVES, MemoryFiles, content_of

from penstock.checkpoint.entries import Unreadable
from penstock.checkpoint.state_layout import OperatorLayout, state_layout
from penstock.checkpoint.state_schema import schema_texts
from penstock.errors import CheckpointDamaged

STATEFUL = [archive for archive in ARCHIVES if "-files" not in archive.name]
WITHOUT_NAMES = "spark-3.5"
"""Spark 3.5 writes no metadata of operators."""
SCHEMA = "state/0/0/_metadata/schema"


def layout_of(archive: Path) -> OperatorLayout:
    (found,) = state_layout(MemoryFiles(content_of(archive)))
    return found


def archives(kind: str) -> list[Path]:
    return [archive for archive in STATEFUL if f"-{kind}." in archive.name]


@pytest.mark.parametrize("archive", STATEFUL, ids=lambda archive: archive.name.partition(".tar")[0])
def test_versions_and_bytes_of_every_partition(archive: Path) -> None:
    """Eight batches; Spark keeps four of them."""
    found = layout_of(archive)
    files = content_of(archive)
    stored = {
        place: data
        for place, data in files.items()
        if place.startswith("state/") and "_metadata" not in place and (not place.endswith(".crc") or "/SSTs/" in place)
    }
    assert found.size_bytes == sum(map(len, stored.values()))
    assert found.newest_version == 9
    assert found.oldest_version is not None
    assert found.oldest_version <= 6
    assert sorted(found.partition_bytes) == [0, 1]
    assert found.partitions == (None if archive.name.startswith(WITHOUT_NAMES) else 2)
    assert found.skew is not None
    assert 1 <= found.skew < 2
    assert found.largest_partition in {0, 1}
    assert found.provider == ("HDFS" if "-aggregation." in archive.name or "-join." in archive.name else "RocksDB")


@pytest.mark.parametrize("archive", archives("aggregation"), ids=lambda archive: archive.name.partition(".tar")[0])
def test_the_watermark_bounds_what_has_it_in_its_key(archive: Path) -> None:
    found = layout_of(archive)
    (store,) = found.stores
    assert store.schema is not None
    assert (store.schema.key, store.schema.value) == ("window STRUCT<start: TIMESTAMP, end: TIMESTAMP>, n INT", "count BIGINT")
    assert found.bounded is True


@pytest.mark.parametrize(
    "archive",
    [*archives("rocksdb"), *archives("changelog"), *archives("unique")],
    ids=lambda archive: archive.name.partition(".tar")[0],
)
def test_a_deduplication_without_the_event_time_keeps_every_key(archive: Path) -> None:
    """The query has a watermark, on a column that its key lacks."""
    found = layout_of(archive)
    (store,) = found.stores
    assert store.schema is not None
    assert store.schema.key == "n INT"
    assert found.bounded is (None if archive.name.startswith(WITHOUT_NAMES) else False)


@pytest.mark.parametrize("archive", archives("join"), ids=lambda archive: archive.name.partition(".tar")[0])
def test_what_bounds_a_join_is_its_condition(archive: Path) -> None:
    found = layout_of(archive)
    assert [store.name for store in found.stores] == [
        "left-keyToNumValues",
        "left-keyWithIndexToValue",
        "right-keyToNumValues",
        "right-keyWithIndexToValue",
    ]
    assert found.stores[1].schema is not None
    assert found.stores[1].schema.value == "n INT, at TIMESTAMP, matched BOOLEAN"
    assert found.bounded is None


def test_a_join_without_a_watermark_on_one_side_keeps_all_rows() -> None:
    content = content_of(archives("join")[-1])
    place = "state/0/0/right-keyWithIndexToValue/_metadata/schema"
    other = b"spark.watermarkDelayXx"
    content[place] = content[place].replace(b"spark.watermarkDelayMs", other)
    (found,) = state_layout(MemoryFiles(content))
    assert found.bounded is False


def test_types_are_named_as_in_sql() -> None:
    inner = {"type": "array", "elementType": "long", "containsNull": True}
    kinds = {"a": "decimal(10,2)", "b": {"type": "map", "keyType": "string", "valueType": inner}, "c": {"type": "udt"}}
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    content = content_of(archives("rocksdb")[-1])
    content[SCHEMA] = schema_file(json.dumps({"type": "struct", "fields": fields}), "{}")
    (found,) = state_layout(MemoryFiles(content))
    assert found.stores[0].schema is not None
    assert found.stores[0].schema.key == "a DECIMAL(10,2), b MAP<STRING, ARRAY<BIGINT>>, c UDT"
    assert found.stores[0].schema.value == ""


def schema_file(key: str, value: str) -> bytes:
    """In version 2, each schema in two parts, as Spark splits long ones."""
    data = b"\x00\x02v2"
    for text in (key, value):
        parts = [text[:1].encode(), text[1:].encode()]
        data += len(parts).to_bytes(4, "big") + b"".join(len(part).to_bytes(2, "big") + part for part in parts)
    return data


def test_a_schema_of_another_version_is_not_read() -> None:
    content = content_of(archives("rocksdb")[-1])
    content[SCHEMA] = b"\x00\x02v9" + content[SCHEMA][4:]
    (found,) = state_layout(MemoryFiles(content))
    assert (found.stores[0].schema, found.bounded) == (None, None)


@pytest.mark.parametrize("place", [SCHEMA, "state/0/_metadata/metadata"])
def test_what_is_cut_off_is_named(place: str) -> None:
    content = content_of(archives("rocksdb")[-1])
    content[place] = content[place][:20]
    with pytest.raises(CheckpointDamaged, match=r"cut off.*`penstock checkpoint verify FILE`"):
        state_layout(MemoryFiles(content))


def test_every_cut_of_a_schema_is_seen() -> None:
    whole = content_of(archives("aggregation")[-1])[SCHEMA]
    assert [json.loads(text)["type"] for text in schema_texts(whole)] == ["struct", "struct"]
    for size in range(len(whole)):
        with pytest.raises(Unreadable):
            schema_texts(whole[:size])
    with pytest.raises(Unreadable):
        schema_texts(whole + b"\x00")


def test_a_checkpoint_without_state_has_no_operators() -> None:
    assert state_layout(MemoryFiles(content_of(next(archive for archive in ARCHIVES if "-files" in archive.name)))) == ()
    assert state_layout(MemoryFiles({})) == ()
