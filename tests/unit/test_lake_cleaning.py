"""Files of former versions that maintenance removes, in real tables of both libraries, and all those that it leaves alone."""

import json
from collections import Counter
from pathlib import Path
from urllib.parse import urlparse

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.conformance import delta_rig, iceberg_rig
from tests.unit.maintained_lake import HOUR_MS, MaintainedLake, failures, files_at

from penstock.core import faults
from penstock.sink.delta import log as delta_log
from penstock.sink.iceberg import log as iceberg_log
from penstock.testing.conformance import Bench
from penstock.testing.conformance.bench import publish

BY_KEY = {"write": "upsert", "key": ["id"]}
BATCHES = 6


class Died(BaseException):
    """The driver is killed there, as in tests/attack/test_grown_lakes.py."""


@pytest.fixture
def kept(tmp_path, monkeypatch):
    made = []

    def die():
        raise Died

    def kept(kind, **settings):
        made.append(MaintainedLake(tmp_path, kind, cleans=True, **settings))
        return made[-1]

    monkeypatch.setattr(faults, "_kill", die)
    yield kept
    faults.arm("")
    for one in made:
        one.bench.close()


def delivered(table, batches=BATCHES):
    """So many batches, each of which replaces the one row."""
    for number in range(batches):
        table.deliver((1, str(number)))
    return table


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_nothing_is_removed_before_its_time(kept, kind, caplog) -> None:
    table = delivered(kept(kind, **BY_KEY))
    assert len(table.stored()) == BATCHES
    assert failures(caplog) == []


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("way", [{}, BY_KEY], ids=["append", "upsert"])
def test_beside_compactions_few_files_are_there(kept, kind, way, caplog) -> None:
    table = kept(kind, **way)
    table.ahead_ms = 2 * HOUR_MS
    for number in range(5):
        table.deliver((number, "a"))
    assert table.content("id", "name") == Counter((number, "a") for number in range(5))
    assert table.verify().ok
    assert len(table.active()) == 1
    assert len(table.stored() - table.active()) == (1 if kind == "delta" else 0)  # the newest batch's own file
    before = table.version()
    table.start()
    assert table.version() == before
    assert failures(caplog) == []


@pytest.mark.parametrize("rigs", [delta_rig, iceberg_rig], ids=["delta", "iceberg"])
def test_what_a_newer_driver_moved_and_did_not_commit_stays(tmp_path: Path, rigs, monkeypatch) -> None:
    """It died there, long ago by the clock of an older driver that wakes up. The library's own full vacuum takes such files."""
    bench = Bench(rigs.CleanedRig(tmp_path))
    zombie, newer = bench.sink(), bench.sink()
    shown = [bench.deliver(zombie, bench.rows(range(at, at + 20)), batch_id=at) for at in (0, 1)]
    rows = bench.rows(range(1000, 1020))
    last = bench.decide((rows, bench.stage(newer, rows, batch_id=2)), batch_id=2)

    def killed(self, change, publication):
        raise Died

    module = delta_log if rigs is delta_rig else iceberg_log
    with monkeypatch.context() as patched:
        patched.setattr(module.Snapshot, "commit", killed)
        with pytest.raises(Died):
            newer.publish(last.publication)
    for one in shown:
        zombie.maintain_target(one.publication)
    publish(bench.sink(), last.publication)
    bench.require_shown(*bench.decided)
    assert bench.verify(bench.sink()).ok
    bench.close()


class TestVacuum:
    def test_every_version_within_the_retention_can_be_read(self, kept, caplog) -> None:
        """Also with a file that is older than it, and was replaced since. What only older versions had is gone."""
        table = kept("delta", compacts=False, **BY_KEY)
        table.deliver((2, "x"))
        delivered(table)
        dated(table)
        table.now_ms = lambda: 4_000 + HOUR_MS  # the retention begins with version 4
        table.deliver((1, "last"), (2, "y"))
        newest = BATCHES + 2
        for version in range(4, newest + 1):
            found = pa.table(DeltaTable(table.rig.uri, version=version).scan()).to_pylist()
            expected = {1: "last", 2: "y"} if version == newest else {1: str(version - 2), 2: "x"}
            assert {row["id"]: row["name"] for row in found} == expected
        assert len(table.stored()) == newest - 2
        assert not files_at(table, 3) <= table.stored()
        assert table.verify().ok
        assert failures(caplog) == []

    def test_a_log_whose_beginning_is_gone(self, kept, caplog) -> None:
        """The first version that can be read counts."""
        table = delivered(kept("delta", compacts=False, **BY_KEY), batches=12)
        log = table.rig.root / "_delta_log"
        for version in range(10):
            (log / f"{version:020d}.json").unlink()
        table.now_ms = lambda: HOUR_MS  # all that is left is younger
        table.deliver((1, "last"))
        assert failures(caplog) == []
        for version in range(11, 14):
            assert files_at(table, version) <= table.stored()
        assert len(table.stored()) < 13
        assert table.verify().ok

    @pytest.mark.parametrize("fault", ["kill", "kill@2", "error", "lost@2"])
    def test_a_removal_that_ends_early_is_followed_by_another_one(self, kept, fault, caplog) -> None:
        table = delivered(kept("delta", compacts=False, **BY_KEY))
        table.ahead_ms = 2 * HOUR_MS
        faults.arm(f"lakeupkeep.vacuum={fault}")
        if fault.startswith("kill"):
            with pytest.raises(Died):
                table.deliver((1, "next"))
        else:
            table.deliver((1, "next"))
            assert len(failures(caplog)) == 1
        faults.arm("")
        assert table.content("id", "name") == Counter([(1, "next")])
        assert table.verify().ok
        assert len(table.stored()) > 2
        table.deliver((1, "last"))
        assert table.content("id", "name") == Counter([(1, "last")])
        assert table.stored() == table.active()
        assert table.verify().ok

    def test_files_of_others_stay(self, kept, caplog) -> None:
        table = delivered(kept("delta", compacts=False, **BY_KEY), batches=2)
        for name in ("readme.parquet", "part-00000-c000.snappy.parquet"):
            (table.rig.root / name).write_bytes(b"PAR1")
        table.ahead_ms = 2 * HOUR_MS
        table.deliver((1, "last"))
        assert table.stored() - table.active() == {"readme.parquet", "part-00000-c000.snappy.parquet"}
        assert failures(caplog) == []


def dated(table) -> None:
    """Let each commit be so many seconds old by its version."""
    for path in (table.rig.root / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        for action in actions:
            if "commitInfo" in action:
                action["commitInfo"]["timestamp"] = int(path.stem) * 1_000
        path.write_text("\n".join(map(json.dumps, actions)))


class TestExpiry:
    def test_snapshots_leave_with_the_files_that_only_they_had(self, kept, caplog) -> None:
        table = delivered(kept("iceberg", compacts=False, **BY_KEY))
        old = [*table.rig.table().snapshots()]
        table.ahead_ms = 2 * HOUR_MS
        table.deliver((1, "last"))
        [left] = table.rig.table().snapshots()
        assert table.stored() == table.active()
        assert not any(stored(each.manifest_list) for each in old)
        assert all(stored(each.manifest_path) for each in left.manifests(table.rig.table().io))
        assert table.content("id", "name") == Counter([(1, "last")])
        assert table.verify().ok
        assert failures(caplog) == []

    def test_the_newest_ones_stay_and_can_be_read(self, kept) -> None:
        table = kept("iceberg", compacts=False, **BY_KEY)
        table.retain_last, table.ahead_ms = 3, 2 * HOUR_MS
        delivered(table)
        there = sorted(table.rig.table().snapshots(), key=lambda each: each.sequence_number)
        names = [table.rig.table().scan(snapshot_id=each.snapshot_id).to_arrow()["name"].to_pylist() for each in there]
        assert names == [[str(BATCHES - 3)], [str(BATCHES - 2)], [str(BATCHES - 1)]]
        assert len(table.stored()) == 3

    def test_what_a_tag_or_a_branch_names_stays_and_can_be_read(self, kept) -> None:
        table = delivered(kept("iceberg", compacts=False, **BY_KEY))
        of_tag, of_branch = (table.rig.table().snapshots()[at].snapshot_id for at in (1, 3))
        table.rig.table().manage_snapshots().create_tag(of_tag, "kept").create_branch(of_branch, "side").commit()
        table.ahead_ms = 2 * HOUR_MS
        for number in range(2):
            table.deliver((1, f"last {number}"))
            assert {of_tag, of_branch} < {each.snapshot_id for each in table.rig.table().snapshots()}
        assert table.rig.table().scan(snapshot_id=of_tag).to_arrow()["name"].to_pylist() == ["1"]
        assert table.rig.table().scan(snapshot_id=of_branch).to_arrow()["name"].to_pylist() == ["3"]
        assert table.stored() == table.active() | files_at(table, of_tag) | files_at(table, of_branch)

    def test_files_that_a_snapshot_shares_with_one_that_left_stay(self, kept) -> None:
        """Appended ones are in all snapshots since, and so are the manifests that name them."""
        table = kept("iceberg", compacts=False)
        table.ahead_ms = 2 * HOUR_MS
        for number in range(BATCHES):
            table.deliver((number, "a"))
        assert table.content("id", "name") == Counter((number, "a") for number in range(BATCHES))
        assert len(table.stored()) == BATCHES
        assert table.verify().ok

    def test_files_stay_that_another_manifest_names_by_now(self, kept) -> None:
        """The one that named two of them is written anew where one is replaced."""
        table = kept("iceberg", compacts=False, partition_by=["name"], **BY_KEY)
        table.ahead_ms = 2 * HOUR_MS
        table.deliver((1, "a"), (2, "b"))
        table.deliver((1, "c"))
        assert len(table.rig.table().snapshots()) == 1
        assert table.stored() == table.active()
        assert table.content("id", "name") == Counter([(1, "c"), (2, "b")])
        assert table.verify().ok

    @pytest.mark.parametrize("fault", ["kill", "kill@2", "error", "error@2", "lost", "lost@2"])
    def test_an_expiry_that_ends_early_is_followed_by_another_one(self, kept, fault, caplog) -> None:
        table = delivered(kept("iceberg", compacts=False, **BY_KEY))
        table.ahead_ms = 2 * HOUR_MS
        faults.arm(f"lakeupkeep.expire={fault}")
        if fault.startswith("kill"):
            with pytest.raises(Died):
                table.deliver((1, "next"))
        else:
            table.deliver((1, "next"))
            assert len(failures(caplog)) == (0 if fault == "lost" else 1)  # a commit that landed and raised is found
        faults.arm("")
        assert table.content("id", "name") == Counter([(1, "next")])
        assert table.verify().ok
        table.deliver((1, "last"))
        assert table.content("id", "name") == Counter([(1, "last")])
        assert len(table.rig.table().snapshots()) == 1
        assert table.verify().ok

    def test_what_others_commit_in_between_lets_it_wait(self, kept, monkeypatch, caplog) -> None:
        table = delivered(kept("iceberg", compacts=False, **BY_KEY), batches=2)
        table.ahead_ms = 2 * HOUR_MS
        overtaking(monkeypatch, [table.others_changed])
        table.deliver((1, "next"))
        assert len(table.rig.table().snapshots()) == 4
        table.deliver((1, "last"))
        assert len(table.rig.table().snapshots()) == 1
        assert table.verify().ok
        assert failures(caplog) == []

    def test_a_tag_that_comes_in_between_is_not_lost(self, kept, monkeypatch, caplog) -> None:
        """The library takes it out together with the snapshot that it names."""
        table = delivered(kept("iceberg", compacts=False, **BY_KEY), batches=2)
        first = table.rig.table().snapshots()[0].snapshot_id
        table.ahead_ms = 2 * HOUR_MS
        overtaking(monkeypatch, [lambda: table.rig.table().manage_snapshots().create_tag(first, "kept").commit()])
        table.deliver((1, "next"))
        table.deliver((1, "last"))
        assert table.rig.table().refs()["kept"].snapshot_id == first
        assert table.rig.table().scan(snapshot_id=first).to_arrow()["name"].to_pylist() == ["0"]
        assert failures(caplog) == []

    def test_files_that_are_gone_already(self, kept, caplog) -> None:
        table = delivered(kept("iceberg", compacts=False, **BY_KEY), batches=3)
        old = table.rig.table().snapshots()
        Path(urlparse(old[0].manifest_list).path).unlink()
        [name] = files_at(table, old[1].snapshot_id)
        (table.rig.root / "data" / name).unlink()
        table.ahead_ms = 2 * HOUR_MS
        table.deliver((1, "last"))
        assert len(table.rig.table().snapshots()) == 1
        assert table.verify().ok
        assert failures(caplog) == []

    def test_nothing_else_in_the_directory_is_touched(self, kept) -> None:
        table = delivered(kept("iceberg", compacts=False, **BY_KEY), batches=2)
        others = [table.rig.root / "data" / "waiting.parquet", table.rig.root / "metadata" / "notes.avro"]
        for path in others:
            path.write_bytes(b"PAR1")
        table.ahead_ms = 2 * HOUR_MS
        table.deliver((1, "last"))
        assert [path for path in others if not path.exists()] == []

    def test_a_table_whose_files_must_stay(self, kept, caplog) -> None:
        table = delivered(kept("iceberg", compacts=False, **BY_KEY), batches=2)
        table.rig.table().transaction().set_properties({"gc.enabled": "false"}).commit_transaction()
        table.ahead_ms = 2 * HOUR_MS
        table.deliver((1, "last"))
        [failure] = failures(caplog)
        assert "has gc.enabled=false, which forbids to remove its files" in failure
        assert len(table.stored()) == 3


def stored(location: str) -> bool:
    """Whether a file of a table is there."""
    return Path(urlparse(location).path).exists()


def overtaking(monkeypatch, acts) -> None:
    """Do these once before the next expiry is committed."""
    real, waiting = iceberg_log.Snapshot.expire, iter(acts)

    def overtaken(self, snapshot_ids):
        for act in waiting:
            act()
        real(self, snapshot_ids)

    monkeypatch.setattr(iceberg_log.Snapshot, "expire", overtaken)
