"""What `checkpoint inspect` and `explain` say, on good checkpoints and on damaged ones."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.checkpoint.entries import Severity
from penstock.checkpoint.explanation import Explanation, explain
from penstock.checkpoint.hadoop_checksum import matches
from penstock.checkpoint.inspection import Inspection, Next, NextStart, inspect_checkpoint, next_start
from penstock.checkpoint.source_log import kind_of
from penstock.core.model import BatchId

GOLDEN = Path(__file__).parent / "checkpoints"
ALL = sorted(path.name for path in GOLDEN.iterdir() if (path / "checkpoint").is_dir())
Damage = Callable[[Path], object]


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / "files/checkpoint", tmp_path / "c"))


@pytest.fixture
def stateful(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / "aggregation/checkpoint", tmp_path / "c"))


def remove(*names: str) -> Damage:
    def act(checkpoint: Path) -> None:
        for name in names:
            for file in (checkpoint / name, checkpoint / Path(name).parent / f".{Path(name).name}.crc"):
                file.unlink(missing_ok=True)

    return act


def write(name: str, text: str, *, checked: bool = False) -> Damage:
    def act(checkpoint: Path) -> None:
        file = checkpoint / name
        if not checked:
            (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    return act


def both(*damages: Damage) -> Damage:
    return lambda checkpoint: [damage(checkpoint) for damage in damages]


def commits(first: int, last: int) -> Damage:
    return remove(*(f"commits/{batch_id}" for batch_id in range(first, last + 1)))


@pytest.mark.parametrize("case", ALL)
def test_golden_checkpoints_have_nothing_odd(case: str) -> None:
    found = inspect_checkpoint(str(GOLDEN / case / "checkpoint"))

    assert found.anomalies == ()
    assert found.ok
    assert found.outlook.next is Next.NEW
    assert found.offsets == found.commits == (0, found.outlook.batch_id - 1)
    assert found.query_id is not None
    assert found.confs["spark.sql.shuffle.partitions"] == "2"


def test_everything_that_is_seen() -> None:
    found = inspect_checkpoint(str(GOLDEN / "files/checkpoint"))

    (source,) = found.sources
    assert (source.key, source.kind, source.start, source.end) == ("0", "files", '{"logOffset":11}', '{"logOffset":12}')
    assert [file.path for file in source.files or ()] == ["file:///tmp/penstock-golden/in/a/012.csv"]
    assert (found.offsets_version, found.commits_version, found.watermark_ms) == (1, 1, 0)
    assert found.planned_at_ms is not None
    assert found.operators == ()


@pytest.mark.parametrize(
    ("case", "kinds", "versions"),
    [
        ("union", ["files", "files"], (1, 1)),
        ("named", ["files", "files"], (2, 1)),
        ("itself", ["files"], (2, 1)),
        ("rate", ["count"], (1, 1)),
        ("rate_micro_batch", ["rate-micro-batch"], (1, 1)),
        ("rocksdb", ["files"], (1, 2)),
    ],
)
def test_sources_and_versions(case: str, kinds: list[str], versions: tuple[int, int]) -> None:
    found = inspect_checkpoint(str(GOLDEN / case / "checkpoint"))

    assert [source.kind for source in found.sources] == kinds
    assert (found.offsets_version, found.commits_version) == versions


@pytest.mark.parametrize(
    ("case", "name", "provider", "stores"),
    [
        ("aggregation", "stateStoreSave", "HDFS", ["default"]),
        ("rocksdb", "transformWithStateInPandasExec", "RocksDB", ["default"]),
        (
            "join",
            "symmetricHashJoin",
            "HDFS",
            ["left-keyToNumValues", "left-keyWithIndexToValue", "right-keyToNumValues", "right-keyWithIndexToValue"],
        ),
    ],
)
def test_state(case: str, name: str, provider: str, stores: list[str]) -> None:
    found = inspect_checkpoint(str(GOLDEN / case / "checkpoint"))

    (operator,) = found.operators
    assert (operator.operator_id, operator.name, operator.partitions, operator.provider) == (0, name, 2, provider)
    assert [store.name for store in operator.stores] == stores
    for store in operator.stores:
        assert store.partitions == 2
        assert store.complete_version == store.newest_version == found.outlook.batch_id
        assert store.size_bytes > 0


def test_an_empty_directory(tmp_path: Path) -> None:
    found = inspect_checkpoint(str(tmp_path))

    assert found.outlook == NextStart(next=Next.FRESH, batch_id=BatchId(0))
    assert (found.offsets, found.commits, found.sources, found.anomalies) == (None, None, (), ())


STOPS, LOSES, HARMLESS = Severity.STOPS, Severity.LOSES, Severity.HARMLESS


@pytest.mark.parametrize(
    ("damage", "next_", "batch_id", "anomalies"),
    [
        (commits(12, 12), Next.REPLAY, 12, []),
        (commits(0, 9), Next.NEW, 13, []),
        (commits(5, 7), Next.NEW, 13, [("commits/5", HARMLESS)]),
        (commits(10, 12), Next.SKIP, 12, [("commits/10", LOSES)]),
        (commits(0, 12), Next.SKIP, 12, [("commits/0", LOSES)]),
        (remove("offsets/12"), Next.REPEAT, 11, [("commits/12", LOSES)]),
        (remove(*(f"offsets/{n}" for n in range(13))), Next.REPEAT, 0, [("commits/12", LOSES)]),
        (both(remove("offsets/12"), commits(12, 12)), Next.NEW, 12, []),
        (remove("offsets/11"), Next.FAIL, None, [("offsets/11", STOPS)]),
        (remove("offsets/10", "offsets/9"), Next.NEW, 13, [("offsets/9", HARMLESS)]),
        (remove("offsets/0", "offsets/1", "commits/0"), Next.NEW, 13, []),
        (remove("metadata"), Next.FAIL, None, [("metadata", STOPS)]),
        (write("metadata", '{"id":'), Next.FAIL, None, [("metadata", STOPS)]),
        (write("offsets/12", "v1\n{"), Next.FAIL, None, [("offsets/12", STOPS)]),
        (write("offsets/11", "v1\n{}\n{"), Next.FAIL, None, [("offsets/11", STOPS)]),
        (write("offsets/3", ""), Next.NEW, 13, [("offsets/3", HARMLESS)]),
        (write("offsets/12", 'v1\n{}\n{"logOffset":12}', checked=True), Next.NEW, 13, [("offsets/12", LOSES)]),
        (write("offsets/2", 'v1\n{}\n{"logOffset":2}', checked=True), Next.NEW, 13, [("offsets/2", HARMLESS)]),
        (write("commits/12", "v1\n{"), Next.FAIL, None, [("commits/12", STOPS)]),
        (write("commits/2", "v1\n{"), Next.NEW, 13, [("commits/2", HARMLESS)]),
        (remove("sources/0/12"), Next.FAIL, None, [("sources/0", STOPS)]),
        (write("offsets/.13.5b.tmp", "v1"), Next.NEW, 13, [("offsets", HARMLESS)]),
        (write("commits/notes.txt", "do not touch"), Next.NEW, 13, [("commits/notes.txt", HARMLESS)]),
        (write("offsets/013", "v1"), Next.NEW, 13, [("offsets/013", HARMLESS)]),
    ],
)
def test_damage(copied: Path, damage: Damage, next_: Next, batch_id: int | None, anomalies: list[tuple[str, Severity]]) -> None:
    damage(copied)

    found = inspect_checkpoint(str(copied))

    assert (found.outlook.next, found.outlook.batch_id) == (next_, batch_id)
    assert [(anomaly.place, anomaly.severity) for anomaly in found.anomalies] == anomalies
    assert found.ok is all(severity is HARMLESS for _, severity in anomalies)
    assert_readable(found)


def assert_readable(found: Inspection) -> Explanation:
    told = explain(found)
    problems = [anomaly for anomaly in found.anomalies if anomaly.severity is not HARMLESS]
    assert len(told.problems) == len(problems)
    for sentence in (told.headline, *told.why, *told.input, *told.notes, *told.problems):
        assert sentence.endswith(".")
        assert "None" not in sentence.replace(found.location, "")
    return told


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (remove("state/0/1/4.delta"), "some partition ends at version 3"),
        (
            remove("state/0/1/1.delta", "state/0/1/2.delta", "state/0/1/3.delta", "state/0/1/4.delta"),
            "1 of 2 partitions are missing",
        ),
        (write("state/0/_metadata/metadata", 'v1\n{"op'), "cut off"),
    ],
)
def test_state_that_the_next_start_lacks(stateful: Path, damage: Damage, message: str) -> None:
    damage(stateful)

    found = inspect_checkpoint(str(stateful))

    assert found.outlook.next is Next.FAIL
    (anomaly,) = found.anomalies
    assert anomaly.severity is STOPS
    assert message in anomaly.message


def test_a_replay_needs_only_the_state_before_it(stateful: Path) -> None:
    both(commits(3, 3), remove("state/0/0/4.delta", "state/0/1/4.delta"))(stateful)

    found = inspect_checkpoint(str(stateful))

    assert (found.outlook.next, found.outlook.batch_id) == (Next.REPLAY, 3)
    assert found.anomalies == ()
    assert any("computed to its end" in note for note in explain(found).notes)


def test_state_without_operator_metadata(stateful: Path) -> None:
    shutil.rmtree(stateful / "state/0/_metadata")

    (operator,) = inspect_checkpoint(str(stateful)).operators

    assert (operator.name, operator.partitions, operator.stores[0].partitions) == (None, None, 2)


def test_explaining_a_new_batch() -> None:
    told = assert_readable(inspect_checkpoint(str(GOLDEN / "files/checkpoint")))

    assert told.headline == "The next start goes on with batch 13. Nothing is repeated."
    assert told.input == ('Source 0: what comes after {"logOffset":12}.',)
    assert told.problems == ()


def test_explaining_a_replay(copied: Path) -> None:
    commits(12, 12)(copied)

    told = assert_readable(inspect_checkpoint(str(copied)))

    assert told.headline == "The next start runs batch 12 AGAIN: same number, same input."
    assert told.why[0].startswith("offsets/12 was written before the batch ran; commits/12, ")
    assert told.input == ("Source 0: 1 file: file:///tmp/penstock-golden/in/a/012.csv.",)


def test_explaining_batches_that_are_passed_over(copied: Path) -> None:
    commits(10, 12)(copied)

    told = assert_readable(inspect_checkpoint(str(copied)))

    assert told.headline == "The next start runs batch 12 again and passes over batches 10 to 11 in silence."
    assert told.problems[0].startswith("Spark goes on with batch 12, but commits/10, commits/11 are missing: ")


def test_explaining_a_commit_log_that_is_ahead(copied: Path) -> None:
    remove("offsets/12")(copied)

    told = assert_readable(inspect_checkpoint(str(copied)))

    assert told.headline == "The next start delivers batch 11 once more, though it is committed, and then fails."
    assert told.problems[0].startswith("commits/12 is there, but the newest offsets entry is 11: ")


def test_explaining_an_aggregation_says_watermark_and_state() -> None:
    told = assert_readable(inspect_checkpoint(str(GOLDEN / "aggregation/checkpoint")))

    assert "The watermark of that batch is 2026-01-01T00:30:00+00:00: stateful operators drop older rows as late." in told.notes
    assert "Operator 0 (stateStoreSave) keeps state, bound to 2 partitions." in told.notes


@pytest.mark.parametrize(
    ("planned", "committed", "expected"),
    [
        ([], [], NextStart(next=Next.FRESH, batch_id=BatchId(0))),
        ([0], [], NextStart(next=Next.REPLAY, batch_id=BatchId(0))),
        ([0], [0], NextStart(next=Next.NEW, batch_id=BatchId(1))),
        ([0, 1], [], NextStart(next=Next.SKIP, batch_id=BatchId(1), skipped=(BatchId(0),))),
        ([0, 1], [0], NextStart(next=Next.REPLAY, batch_id=BatchId(1))),
        ([1], [0], NextStart(next=Next.FAIL, batch_id=None)),
        ([], [3], NextStart(next=Next.REPEAT, batch_id=BatchId(0))),
    ],
)
def test_outlook(planned: list[int], committed: list[int], expected: NextStart) -> None:
    ids = (frozenset(map(BatchId, planned)), frozenset(map(BatchId, committed)))

    assert next_start(planned=ids[0], committed=ids[1]) == expected
    assert next_start(planned=ids[0], committed=ids[1], starts=False).next is Next.FAIL


@pytest.mark.parametrize(
    ("offset", "kind"),
    [
        (None, "none"),
        ("17", "count"),
        ('{"logOffset":3}', "files"),
        ('{"offset":6,"timestamp":3000}', "rate-micro-batch"),
        ('{"flights":{"0":12,"1":7}}', "kafka"),
        ('{"sourceVersion":1,"reservoirVersion":4}', "other"),
        ("{}", "other"),
        ("[1]", "other"),
        ("opaque", "other"),
    ],
)
def test_kinds_of_offsets(offset: str | None, kind: str) -> None:
    assert kind_of(offset) == kind


def test_checksums() -> None:
    golden = GOLDEN / "files/checkpoint"
    for name in ("metadata", "offsets/12", "commits/0", "sources/0/9.compact"):
        data, checksum = (golden / name).read_bytes(), (golden / Path(name).parent / f".{Path(name).name}.crc").read_bytes()
        assert matches(data, checksum)
        assert not matches(data + b" ", checksum)
        assert not matches(data[:-1], checksum)
        assert not matches(data, checksum[:-1])
        assert not matches(data, b"")
        assert not matches(data, b"x" + checksum[1:])


def test_a_file_named_by_a_number_that_spark_cannot_count_to_is_no_entry(copied: Path) -> None:
    """It ended `explain` and `inspect` as a mistake in Penstock."""
    newest = inspect_checkpoint(str(copied)).offsets
    (copied / "offsets" / f"{10**22}").write_text("v1")
    found = inspect_checkpoint(str(copied))
    assert found.offsets == newest
    assert [anomaly.message for anomaly in found.anomalies] == [f"offsets/{10**22} is no entry of Spark's log."]


@pytest.mark.parametrize("name", ["metadata", "offsets", "commits", "sources"])
def test_json_that_is_nested_too_deep_is_told_as_damage(copied: Path, name: str) -> None:
    newest = max(int(path.name) for path in (copied / "commits").iterdir() if path.name.isdecimal())
    place = {"metadata": "metadata", "sources": f"sources/0/{newest + 1}"}.get(name, f"{name}/{newest}")
    deep = f'{{"a":{"[" * 100_000}'
    write(place, deep if name == "metadata" else f"v1\n{deep}")(copied)
    found = inspect_checkpoint(str(copied))
    assert [anomaly.place for anomaly in found.anomalies if anomaly.severity is Severity.STOPS] == [place]
    assert explain(found).problems
