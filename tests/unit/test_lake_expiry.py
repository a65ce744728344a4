"""Snapshots that leave an Iceberg table with the files that only they had, and all that stays beside them."""

import logging
from collections import Counter
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlparse

import pytest
from tests.unit.maintained_lake import BATCHES, BY_KEY, HOUR_MS, Died, MaintainedLake, delivered, failures, files_at

from penstock.core import faults
from penstock.sink.iceberg import expiry
from penstock.sink.iceberg import log as iceberg_log


@pytest.fixture(autouse=True)
def told(caplog):
    caplog.set_level(logging.INFO, logger="penstock.sink.lake")


@pytest.fixture
def kept(tmp_path, monkeypatch):
    made = []

    def die():
        raise Died

    def kept(**settings):
        made.append(MaintainedLake(tmp_path, "iceberg", compacts=False, cleans=True, **{**BY_KEY, **settings}))
        return made[-1]

    monkeypatch.setattr(faults, "_kill", die)
    yield kept
    faults.arm("")
    for one in made:
        one.bench.close()


def test_snapshots_leave_with_the_files_that_only_they_had(kept, caplog) -> None:
    table = delivered(kept())
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


def test_the_newest_ones_stay_and_can_be_read(kept) -> None:
    table = kept()
    table.retain_last, table.ahead_ms = 3, 2 * HOUR_MS
    delivered(table)
    assert names(table) == [[str(BATCHES - 3)], [str(BATCHES - 2)], [str(BATCHES - 1)]]
    assert len(table.stored()) == 3


def test_what_a_tag_or_a_branch_names_stays_and_can_be_read(kept) -> None:
    """With their files, though snapshots that leave have them, too."""
    table, named = kept(), []
    for number in range(3):
        table.deliver((1, str(number)))
        table.others_changed()
        named.append(snapshots(table)[-1].snapshot_id)
    _, of_tag, of_branch = named
    table.deliver((1, "next"))
    table.rig.table().manage_snapshots().create_tag(of_tag, "kept").create_branch(of_branch, "side").commit()
    table.ahead_ms = 2 * HOUR_MS
    for number in range(2):
        table.deliver((1, f"last {number}"))
        assert {of_tag, of_branch} < {each.snapshot_id for each in table.rig.table().snapshots()}
    assert table.rig.table().scan(snapshot_id=of_tag).to_arrow()["name"].to_pylist() == ["1"]
    assert table.rig.table().scan(snapshot_id=of_branch).to_arrow()["name"].to_pylist() == ["2"]
    assert table.stored() == table.active() | files_at(table, of_tag) | files_at(table, of_branch)


def test_files_that_a_snapshot_shares_with_one_that_left_stay(kept) -> None:
    """Appended ones are in all snapshots since, and so are the manifests that name them."""
    table = kept(write="append")
    table.ahead_ms = 2 * HOUR_MS
    for number in range(BATCHES):
        table.deliver((number, "a"))
    assert table.content("id", "name") == Counter((number, "a") for number in range(BATCHES))
    assert len(table.stored()) == BATCHES
    assert table.verify().ok


def test_files_stay_that_another_manifest_names_by_now(kept) -> None:
    """The one that named two of them is written anew where one is replaced."""
    table = kept(partition_by=["name"])
    table.ahead_ms = 2 * HOUR_MS
    table.deliver((1, "a"), (2, "b"))
    table.deliver((1, "c"))
    assert len(table.rig.table().snapshots()) == 1
    assert table.stored() == table.active()
    assert table.content("id", "name") == Counter([(1, "c"), (2, "b")])
    assert table.verify().ok


@pytest.mark.parametrize("step", ["commit", "remove", "forget"])
@pytest.mark.parametrize("fault", ["kill", "error", "lost"])
def test_an_expiry_that_ends_early_is_finished_by_a_later_one(kept, step, fault, caplog) -> None:
    """Nothing stays of what it left, by the note that its commit makes in the table."""
    table = delivered(kept())
    table.ahead_ms = 2 * HOUR_MS
    faults.arm(f"icebergexpiry.{step}={fault}")
    if fault == "kill":
        with pytest.raises(Died):
            table.deliver((1, "next"))
    else:
        table.deliver((1, "next"))
        is_found = fault == "lost" and step != "remove"  # a commit that landed and raised
        assert len(failures(caplog)) == (0 if is_found else 1)
    faults.arm("")
    assert table.content("id", "name") == Counter([(1, "next")])
    assert table.verify().ok
    table.deliver((1, "last"))
    assert table.content("id", "name") == Counter([(1, "last")])
    assert len(table.rig.table().snapshots()) == 1
    assert table.stored() == table.active()
    assert lists_and_manifests(table) == {path.name for path in (table.rig.root / "metadata").glob("*.avro")}
    assert notes(table) == []
    assert table.verify().ok


@pytest.mark.parametrize("at", range(2, 12))
def test_one_that_is_killed_between_any_two_removals(kept, at) -> None:
    table = delivered(kept(), batches=3)
    table.ahead_ms = 2 * HOUR_MS
    faults.arm(f"icebergexpiry.remove=kill@{at}")
    with suppress(Died):
        table.deliver((1, "next"))
    faults.arm("")
    table.deliver((1, "last"))
    assert table.stored() == table.active()
    assert lists_and_manifests(table) == {path.name for path in (table.rig.root / "metadata").glob("*.avro")}
    assert notes(table) == []


def test_many_snapshots_leave_in_several_rounds(kept, monkeypatch) -> None:
    """The oldest first: what notes them is a part of the table's metadata."""
    monkeypatch.setattr(expiry, "MOST_SNAPSHOTS", 2)
    table = delivered(kept(), batches=5)
    table.ahead_ms = 2 * HOUR_MS
    assert names(table) == [["0"], ["1"], ["2"], ["3"], ["4"]]
    table.deliver((1, "5"))
    assert names(table) == [["2"], ["3"], ["4"], ["5"]]
    assert len(table.stored()) == 4


def test_the_snapshot_stays_that_was_the_newest_one_when_the_retention_began(kept) -> None:
    """Somebody may have begun to read it just before it was replaced, however old it is."""
    table = delivered(kept(), batches=3)
    idle = snapshots(table)[-1]
    table.now_ms = lambda: idle.timestamp_ms + 1 + HOUR_MS
    table.deliver((1, "next"))
    assert names(table) == [["2"], ["next"]]


def test_files_stay_that_retained_snapshots_share_with_one_of_a_branch_that_is_gone(kept, caplog) -> None:
    """It had sprung from a snapshot that stays, and no neighbour of it on `main` leaves."""
    table = delivered(kept(), batches=1)
    table.rig.table().manage_snapshots().create_branch(snapshots(table)[0].snapshot_id, "side").commit()
    transaction = table.rig.table().transaction()
    with transaction.update_snapshot(branch="side").fast_append():
        pass
    transaction.commit_transaction()
    table.rig.table().manage_snapshots().remove_branch("side").commit()
    assert len(snapshots(table)) == 2
    table.retain_last, table.ahead_ms = 10, 2 * HOUR_MS
    table.deliver((1, "next"))
    table.deliver((1, "last"))
    assert failures(caplog) == []
    assert names(table) == [["0"], ["next"], ["last"]]


def test_of_two_at_the_same_time_one_does_it(kept, monkeypatch) -> None:
    table = delivered(kept())
    newest = table.publications()[-1]
    table.ahead_ms = 2 * HOUR_MS
    overtaking(monkeypatch, [lambda: table.maintain_after(newest)])
    [failure] = table.maintain_after(newest)
    assert "was not maintained, and is in a later round" in failure
    assert len(snapshots(table)) == 1
    assert table.stored() == table.active()
    assert notes(table) == []
    assert table.maintain_after(newest) == []
    assert table.content("id", "name") == Counter([(1, str(BATCHES - 1))])


def test_what_others_commit_in_between_lets_it_wait(kept, monkeypatch, caplog) -> None:
    table = delivered(kept(), batches=2)
    table.ahead_ms = 2 * HOUR_MS
    overtaking(monkeypatch, [table.others_changed])
    table.deliver((1, "next"))
    assert len(table.rig.table().snapshots()) == 4
    table.deliver((1, "last"))
    assert len(table.rig.table().snapshots()) == 1
    assert table.verify().ok
    assert failures(caplog) == []


def test_a_tag_that_comes_in_between_is_not_lost(kept, monkeypatch, caplog) -> None:
    """The library takes it out together with the snapshot that it names."""
    table = delivered(kept(), batches=2)
    first = table.rig.table().snapshots()[0].snapshot_id
    table.ahead_ms = 2 * HOUR_MS
    overtaking(monkeypatch, [lambda: table.rig.table().manage_snapshots().create_tag(first, "kept").commit()])
    table.deliver((1, "next"))
    table.deliver((1, "last"))
    assert table.rig.table().refs()["kept"].snapshot_id == first
    assert table.rig.table().scan(snapshot_id=first).to_arrow()["name"].to_pylist() == ["0"]
    assert failures(caplog) == []


def test_files_that_are_gone_already(kept, caplog) -> None:
    table = delivered(kept(), batches=3)
    old = table.rig.table().snapshots()
    Path(urlparse(old[0].manifest_list).path).unlink()
    [name] = files_at(table, old[1].snapshot_id)
    (table.rig.root / "data" / name).unlink()
    table.ahead_ms = 2 * HOUR_MS
    table.deliver((1, "last"))
    assert len(table.rig.table().snapshots()) == 1
    assert table.verify().ok
    assert failures(caplog) == []


def test_nothing_else_in_the_directory_is_touched(kept) -> None:
    table = delivered(kept(), batches=2)
    others = [table.rig.root / "data" / "waiting.parquet", table.rig.root / "metadata" / "notes.avro"]
    for path in others:
        path.write_bytes(b"PAR1")
    table.ahead_ms = 2 * HOUR_MS
    table.deliver((1, "last"))
    assert [path for path in others if not path.exists()] == []


def test_a_table_whose_files_must_stay(kept, caplog) -> None:
    table = delivered(kept(), batches=2)
    table.rig.table().transaction().set_properties({"gc.enabled": "false"}).commit_transaction()
    table.ahead_ms = 2 * HOUR_MS
    table.deliver((1, "last"))
    [failure] = failures(caplog)
    assert "has gc.enabled=false, which forbids to remove its files" in failure
    assert len(table.stored()) == 3


def snapshots(table):
    """The oldest first."""
    return sorted(table.rig.table().snapshots(), key=lambda each: each.sequence_number)


def names(table) -> list[list[str]]:
    """What the table's snapshots show, the oldest first."""
    return [table.rig.table().scan(snapshot_id=each.snapshot_id).to_arrow()["name"].to_pylist() for each in snapshots(table)]


def lists_and_manifests(table) -> set[str]:
    """The names of those that snapshots have."""
    of = table.rig.table()
    manifests = {manifest.manifest_path for each in of.snapshots() for manifest in each.manifests(of.io)}
    return {Path(urlparse(location).path).name for location in manifests | {each.manifest_list for each in of.snapshots()}}


def notes(table) -> list[str]:
    """The properties that note snapshots which have left."""
    return [name for name in table.rig.table().properties if name.startswith("penstock-expired.")]


def stored(location: str) -> bool:
    """Whether a file of a table is there."""
    return Path(urlparse(location).path).exists()


def overtaking(monkeypatch, acts) -> None:
    """Do these once before the next expiry is committed."""
    real, waiting = iceberg_log.Snapshot.expire, iter(acts)

    def overtaken(self, snapshot_ids, *, noted):
        for act in waiting:
            act()
        real(self, snapshot_ids, noted=noted)

    monkeypatch.setattr(iceberg_log.Snapshot, "expire", overtaken)
