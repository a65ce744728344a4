"""Files of former versions that maintenance removes, in real tables of both libraries, and all those that it leaves alone."""

import json
import logging
import os
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.conformance import delta_rig, iceberg_rig
from tests.unit.maintained_lake import BATCHES, BY_KEY, HOUR_MS, Died, MaintainedLake, delivered, failures, files_at

from penstock.core import faults
from penstock.sink.delta import log as delta_log
from penstock.sink.iceberg import log as iceberg_log
from penstock.sink.lake.table_writer import TableWriter
from penstock.testing.conformance import Bench
from penstock.testing.conformance.bench import publish


@pytest.fixture(autouse=True)
def told(caplog):
    caplog.set_level(logging.INFO, logger="penstock.sink.lake")


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


@pytest.mark.parametrize("name", ["CleanedRig", "CleanedOverlappingRig"])
@pytest.mark.parametrize("rigs", [delta_rig, iceberg_rig], ids=["delta", "iceberg"])
def test_what_a_newer_driver_moved_and_did_not_commit_stays(tmp_path: Path, rigs, name, monkeypatch) -> None:
    """It died there, long ago by the clock of an older driver that wakes up. The library's own full vacuum takes such files."""
    bench = Bench(getattr(rigs, name)(tmp_path))
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
        """What was newest when the retention began is not known any more: somebody may read it. Once that is over, files go."""
        table = delivered(kept("delta", compacts=False, **BY_KEY), batches=12)
        log = table.rig.root / "_delta_log"
        for version in range(10):
            (log / f"{version:020d}.json").unlink()
        table.now_ms = lambda: HOUR_MS  # all that is left is younger
        table.deliver((1, "last"))
        assert failures(caplog) == []
        assert len(table.stored()) == 13
        dated(table)
        table.now_ms = lambda: 10_000 + HOUR_MS
        table.deliver((1, "very last"))
        assert failures(caplog) == []
        for version in range(11, 15):
            assert files_at(table, version) <= table.stored()
        assert len(table.stored()) < 14
        assert table.verify().ok

    def test_what_was_newest_before_a_long_pause_stays_as_long_as_other_versions(self, kept, caplog) -> None:
        """Also if the clean-up of the log has taken its entry, since the version after it is a checkpoint."""
        table = delivered(kept("delta", compacts=False, **BY_KEY), batches=9)
        paused, log = files_at(table, table.version()), table.rig.root / "_delta_log"
        dated(table)
        for path in log.iterdir():
            os.utime(path, (1, 1))
        table.cleans = False
        table.deliver((1, "after the pause"))
        table.rig.table().create_checkpoint()
        table.rig.table().cleanup_metadata()
        assert not (log / f"{9:020d}.json").exists()
        table.cleans = True
        table.deliver((1, "last"))
        assert paused <= table.stored()
        assert failures(caplog) == []

    def test_files_stay_that_an_older_driver_is_about_to_commit(self, kept, monkeypatch) -> None:
        """It woke up late and compacts: its batch was published before the retention began."""
        table = kept("delta", compacts=False)
        table.cleans = False
        for number in range(3):
            table.deliver((number, "a"))
        oldest, newest = table.publications()[0], table.publications()[-1]
        real = TableWriter.show

        def stalled(self, pieces):
            real(self, pieces)
            table.compacts, table.cleans, table.ahead_ms = False, True, 2 * HOUR_MS
            assert table.maintain_after(newest) == []

        table.compacts = True
        with monkeypatch.context() as patched:
            patched.setattr(TableWriter, "show", stalled)
            assert table.maintain_after(oldest) == []
        assert table.active() < table.stored()
        assert len(table.active()) == 1
        assert table.content("id", "name") == Counter((number, "a") for number in range(3))
        assert table.verify().ok

    def test_what_an_older_driver_compacted_within_the_retention_can_be_read(self, kept) -> None:
        """Its batch was published before the retention began, but its commit came later."""
        table = kept("delta", compacts=False)
        table.cleans = False
        for number in range(3):
            table.deliver((number, "a"))
        table.compacts = True
        assert table.maintain_after(table.publications()[0]) == []
        compacted = table.version()
        table.deliver((3, "a"))
        dated(table)
        table.compacts, table.cleans = False, True
        table.now_ms = lambda: (compacted - 1) * 1_000 + HOUR_MS
        assert table.maintain_after(table.publications()[-1]) == []
        assert not files_at(table, compacted) <= table.active()
        for version in range(compacted - 1, table.version() + 1):
            assert files_at(table, version) <= table.stored()

    @pytest.mark.parametrize("fault", ["kill", "kill@2", "error", "lost@2"])
    def test_a_removal_that_ends_early_is_followed_by_another_one(self, kept, fault, caplog) -> None:
        table = delivered(kept("delta", compacts=False, **BY_KEY))
        table.ahead_ms = 2 * HOUR_MS
        faults.arm(f"deltavacuum.remove={fault}")
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
