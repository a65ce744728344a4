"""The reader against what Spark itself said about every batch of the golden checkpoints."""

import json
import random
import shutil
from pathlib import Path

import pytest
from tests.seed import SEED

from penstock.checkpoint.entries import parse_offsets
from penstock.checkpoint.source_log import SourceLog, fingerprint, lines_backwards
from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.core.model import Batch, BatchId, SourceName
from penstock.core.topics import InputFile
from penstock.errors import CheckpointDamaged, SourcesChanged, Usage

GOLDEN = Path(__file__).parent / "checkpoints"
SOURCES = {
    "files": ["a"],
    "union": ["right", "left"],
    "named": ["incoming", "archive"],
    "itself": ["a", "a"],
    "rate": ["r"],
    "rate_micro_batch": ["r"],
    "aggregation": ["a"],
    "join": ["left", "right"],
    "rocksdb": ["a"],
}


def names(case: str) -> tuple[SourceName, ...]:
    return tuple(SourceName(name) for name in SOURCES[case])


def expected(case: str) -> dict[str, object]:
    return json.loads((GOLDEN / case / "expected.json").read_text())


def batches(checkpoint: SparkCheckpoint, case: str) -> list[Batch]:
    return [checkpoint.batch(BatchId(batch["batch_id"]), names(case)) for batch in expected(case)["batches"]]


def reading(case: str) -> SparkCheckpoint:
    return SparkCheckpoint(GOLDEN / case / "checkpoint")


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The checkpoint of the file source, to be damaged."""
    return Path(shutil.copytree(GOLDEN / "files/checkpoint", tmp_path / "c"))


@pytest.mark.parametrize("case", SOURCES)
def test_offsets_are_what_spark_reported(case: str) -> None:
    for batch, said in zip(batches(reading(case), case), expected(case)["batches"], strict=True):
        assert batch.query_id == expected(case)["query_id"]
        assert [one.source for one in batch.offsets] == list(dict.fromkeys(SOURCES[case]))
        for one, source in zip(batch.offsets, said["sources"], strict=True):
            assert json.loads(one.start or "null") == json.loads(source["start"] or "null")
            assert json.loads(one.end or "null") == json.loads(source["end"] or "null")


@pytest.mark.parametrize("case", ["files", "union", "named", "itself"])
def test_input_files_are_what_spark_read(case: str) -> None:
    for said in expected(case)["batches"]:
        listed = reading(case).input_files(BatchId(said["batch_id"]), names(case))
        assert sorted(file.path for files in listed.values() for file in files) == said["files"]


@pytest.mark.parametrize("case", SOURCES)
def test_every_batch_is_another(case: str) -> None:
    found = batches(reading(case), case)

    assert all(one != other for i, one in enumerate(found) for other in found[:i])


def test_the_position_of_the_logs() -> None:
    checkpoint = reading("files")

    assert checkpoint.exists()
    assert checkpoint.latest_offsets_id() == 12
    assert checkpoint.latest_commit_id() == 12


@pytest.mark.parametrize(("case", "stateful"), [("files", False), ("aggregation", True), ("join", True), ("rocksdb", True)])
def test_state(case: str, *, stateful: bool) -> None:
    assert reading(case).has_state() is stateful


def test_nothing_is_there(tmp_path: Path) -> None:
    checkpoint = SparkCheckpoint(tmp_path / "c")

    assert not checkpoint.exists()
    assert checkpoint.query_id() is None
    assert checkpoint.latest_offsets_id() is None
    assert checkpoint.latest_commit_id() is None
    assert not checkpoint.has_state()


def test_metadata_alone_is_a_checkpoint(copied: Path) -> None:
    for folder in ("offsets", "commits", "sources"):
        shutil.rmtree(copied / folder)

    assert SparkCheckpoint(copied).exists()


def test_file_urls_are_taken_literally(copied: Path) -> None:
    odd = copied.rename(copied.parent / "a%20b c")

    assert SparkCheckpoint(f"file://{odd}").exists()
    assert SparkCheckpoint(f"file:{odd}").exists()
    with pytest.raises(Usage, match="dbfs://"):
        SparkCheckpoint("dbfs://bucket/checkpoint")


def test_compaction_does_not_change_the_content(copied: Path) -> None:
    """An entry is a file of its own at first; once Spark has deleted old files, it is only in a compacted one."""
    before = batches(SparkCheckpoint(copied), "files")
    for log_id in range(9):
        (copied / f"sources/0/{log_id}").unlink()

    assert batches(SparkCheckpoint(copied), "files") == before

    rest = "".join((copied / f"sources/0/{log_id}").read_text().removeprefix("v1") for log_id in range(10, 13))
    (copied / "sources/0/19.compact").write_text((copied / "sources/0/9.compact").read_text() + rest)
    for name in ("9.compact", "10", "11", "12"):
        (copied / f"sources/0/{name}").unlink()

    assert batches(SparkCheckpoint(copied), "files") == before


def test_commits_and_temporary_files_do_not_change_a_batch(copied: Path) -> None:
    before = batches(SparkCheckpoint(copied), "files")
    shutil.rmtree(copied / "commits")
    (copied / "offsets/.13.8b1f.tmp").write_text("v1")
    (copied / "sources/0/.13.8b1f.tmp").write_text("v1")

    assert batches(SparkCheckpoint(copied), "files") == before
    assert SparkCheckpoint(copied).latest_offsets_id() == 12


@pytest.mark.parametrize(
    ("old", "new"),
    [("/005.csv", "/006.csv"), ('"timestamp":1700000005000', '"timestamp":1700000005001')],
    ids=["another file", "the file changed in place"],
)
def test_other_input_is_another_batch(copied: Path, old: str, new: str) -> None:
    before = SparkCheckpoint(copied).batch(BatchId(5), names("files"))
    entry = copied / "sources/0/5"
    assert old in entry.read_text()
    entry.write_text(entry.read_text().replace(old, new))

    after = SparkCheckpoint(copied).batch(BatchId(5), names("files"))

    assert after != before
    assert (after.offsets[0].start, after.offsets[0].end) == (before.offsets[0].start, before.offsets[0].end)


def test_the_origin_of_a_counting_source_is_part_of_the_batch(tmp_path: Path) -> None:
    copied = Path(shutil.copytree(GOLDEN / "rate/checkpoint", tmp_path / "c"))
    before = batches(SparkCheckpoint(copied), "rate")
    (copied / "sources/0/0").write_text("v1\n1")

    assert all(one != other for one, other in zip(batches(SparkCheckpoint(copied), "rate"), before, strict=True))


def test_a_fingerprint_has_no_order_and_counts_copies() -> None:
    one, two = InputFile("file:///a", 1), InputFile("file:///b", 1)

    assert fingerprint((one, two)) == fingerprint((two, one))
    assert len({fingerprint(files) for files in ((), (one,), (one, one), (one, two))}) == 4
    assert fingerprint((InputFile("a", 12),)) != fingerprint((InputFile("a1", 2),))


def damaged(path: Path, batch_id: int = 12) -> str:
    with pytest.raises(CheckpointDamaged) as raised:
        SparkCheckpoint(path).batch(BatchId(batch_id), names("files"))
    assert str(path) in raised.value.message
    return raised.value.message


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("metadata", None, "metadata is missing"),
        ("metadata", "", "metadata is not JSON (cut off?)"),
        ("metadata", "{}", 'metadata has no "id"'),
        ("offsets/12", None, "offsets/12 is missing"),
        ("offsets/11", None, "offsets/11 is missing"),
        ("offsets/12", "", "offsets/12 is empty"),
        ("offsets/12", "v1", "offsets/12 ends before the offset of the first source"),
        ("offsets/12", "v1\n{}", "offsets/12 ends before the offset of the first source"),
        ("offsets/12", 'v1\n{"batch', "offsets/12 line 2 is not JSON (cut off?)"),
        ("offsets/12", 'v1\n{}\n{"logOff', "offsets/12 line 3 is cut off"),
        ("offsets/12", 'v9\n{}\n{"logOffset":1}', "offsets/12 has version v9, known are v1, v2"),
        ("offsets/12", '{"logOffset":1}', "offsets/12 starts with '{\"logOffset\":1}', expected a version such as v1"),
        ("sources/0/12", None, "has no entry 12, neither by itself nor compacted"),
        ("sources/0/12", 'v1\n{"path":"file:/', "has a line that is cut off or no file entry"),
        ("sources/0/12", 'v1\n{"path":"x","timestamp":1}', "has a line that is cut off or no file entry"),
    ],
)
def test_damage_is_told(copied: Path, file: str, text: str | None, message: str) -> None:
    if text is None:
        (copied / file).unlink()
    else:
        (copied / file).write_text(text)

    assert message in damaged(copied)


def test_bytes_that_are_no_text(copied: Path) -> None:
    (copied / "offsets/12").write_bytes(b"v1\n\xff\xfe")

    assert "offsets/12 is not UTF-8 text" in damaged(copied)


@pytest.mark.parametrize(
    ("case", "wrong"),
    [("union", ["right"]), ("union", ["right", "left", "more"]), ("named", ["incoming", "other"]), ("itself", ["a", "b", "c"])],
)
def test_other_sources_than_the_checkpoint_has(case: str, wrong: list[str]) -> None:
    with pytest.raises(SourcesChanged, match="has other sources in offsets/0 than the pipeline"):
        reading(case).batch(BatchId(0), [SourceName(name) for name in wrong])


def test_a_source_used_twice_must_be_named_twice(tmp_path: Path) -> None:
    """One relation in two places has two offsets but one log."""
    copied = Path(shutil.copytree(GOLDEN / "union/checkpoint", tmp_path / "c"))
    shutil.rmtree(copied / "sources/1")
    checkpoint = SparkCheckpoint(copied)

    with pytest.raises(SourcesChanged, match="has no log of files sources/1"):
        checkpoint.batch(BatchId(0), [SourceName("one"), SourceName("two")])
    assert len(checkpoint.batch(BatchId(0), [SourceName("one"), SourceName("one")]).offsets) == 1


def test_the_log_of_a_source_has_the_number_of_its_first_use(tmp_path: Path) -> None:
    """A plan of right, right, left logs three offsets and keeps two logs of files."""
    copied = Path(shutil.copytree(GOLDEN / "union/checkpoint", tmp_path / "c"))
    before = batches(SparkCheckpoint(copied), "union")
    for entry in (copied / "offsets").iterdir():
        version, metadata, right, left = entry.read_text().splitlines()
        entry.write_text("\n".join([version, metadata, right, right, left]))
    right, left = names("union")

    assert [SparkCheckpoint(copied).batch(batch.batch_id, [right, right, left]) for batch in before] == before


def test_a_source_that_had_nothing_yet(tmp_path: Path) -> None:
    copied = Path(shutil.copytree(GOLDEN / "union/checkpoint", tmp_path / "c"))
    first = copied / "offsets/0"
    first.write_text("\n".join([*first.read_text().splitlines()[:3], "-"]))

    none = SparkCheckpoint(copied).batch(BatchId(0), names("union")).offsets[1]
    both = SparkCheckpoint(copied).batch(BatchId(1), names("union")).offsets[1]

    assert (none.start, none.end, none.content) == (None, None, None)
    assert (both.start, both.end) == (None, '{"logOffset":1}')
    assert len(SparkCheckpoint(copied).input_files(BatchId(1), names("union"))[SourceName("left")]) == 2


def test_entries_by_position_are_put_in_order() -> None:
    entry = parse_offsets(b'v2\n{}\n10:{"logOffset":3}\n2:-\n0:17')

    assert list(entry.by_key().items()) == [("0", "17"), ("2", None), ("10", '{"logOffset":3}')]
    assert not entry.named


def test_files_of_one_entry_keep_their_order() -> None:
    lines = [
        f'{{"path":"{name}","timestamp":1,"batchId":{batch_id}}}' for batch_id, name in ((0, "z"), (1, "c"), (1, "a"), (1, "b"))
    ]
    files = CountedFiles({"sources/0/1.compact": "\n".join(["v1", *lines]).encode()})

    assert [file.path for file in SourceLog(files, "sources/0").between('{"logOffset":0}', '{"logOffset":1}')] == ["c", "a", "b"]


class CountedFiles:
    """Files in memory that count the bytes read of them."""

    location = "memory"

    def __init__(self, content: dict[str, bytes]) -> None:
        self.content, self.bytes_read = content, 0

    def names(self, folder: str) -> tuple[str, ...]:
        return tuple(name.removeprefix(f"{folder}/") for name in self.content if name.startswith(f"{folder}/"))

    def size_bytes(self, name: str) -> int | None:
        return len(self.content[name]) if name in self.content else None

    def read(self, name: str, *, start: int = 0, size_bytes: int | None = None) -> bytes | None:
        end = None if size_bytes is None else start + size_bytes
        data = self.content.get(name, b"")[start:end]
        self.bytes_read += len(data)
        return data


def test_a_large_compacted_log_is_read_from_its_end_only() -> None:
    lines = (f'{{"path":"file:///in/{n}","timestamp":{n},"batchId":{n}}}'.encode() for n in range(100_000))
    files = CountedFiles({"sources/0/99999.compact": b"\n".join([b"v1", *lines])})

    found = SourceLog(files, "sources/0").between('{"logOffset":99997}', '{"logOffset":99999}')

    assert [file.path for file in found] == ["file:///in/99998", "file:///in/99999"]
    assert files.bytes_read < 300_000


def test_lines_backwards_at_every_size_of_part() -> None:
    print(f"PENSTOCK_SEED={SEED}")
    chance = random.Random(SEED)
    for _ in range(200):
        lines = [b"x" * chance.randrange(6) for _ in range(chance.randrange(1, 8))]
        text = b"\n".join(lines)
        found = list(lines_backwards(CountedFiles({"f": text}), "f", part_bytes=chance.randrange(1, 9)))
        assert found[::-1] == (text.split(b"\n") if text else [])
