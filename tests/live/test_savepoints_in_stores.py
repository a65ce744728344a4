"""Savepoints in stores, on their servers: made, compared, restored after the checkpoint was lost, and deleted."""

import shutil
from pathlib import Path

import pytest
from tests.servers.fixtures import accounts_on
from tests.unit.rewound_world import RewoundWorld

from penstock.checkpoint.files import open_files, places_below
from penstock.checkpoint.savepoint import savepoints_in
from penstock.run.operations import verify
from penstock.run.savepoints import check, create, place_of, remove, restore


@pytest.mark.parametrize("kind", ["s3", "az", "hdfs"])
def test_a_savepoint_is_kept_in_a_store_and_restored(tmp_path: Path, kind: str) -> None:
    [(store, _)] = accounts_on(savepoints=kind).values()
    world = RewoundWorld(tmp_path).go_on(0, 1)
    place = place_of(world.plan, to=f"{store.url}/kept", options=store.options)
    early = create(world.plan, "early", place)
    assert early.new_files == len(early.savepoint.files) > 0
    world.go_on(2, 3)
    late = create(world.plan, "late", place)
    assert check(world.plan, "early", place).ok
    assert check(world.plan, "late", place).ok
    assert sorted(each.name for each in savepoints_in(place)) == ["early", "late"]
    shutil.rmtree(world.checkpoint)
    assert restore(world.plan, "early", place, reason="a test", yes=True).done
    assert (world.batches(), world.numbers("commits")) == ([0, 1], [0, 1])
    assert check(world.plan, "late", place).problems == ("batch 3 was taken back since",)
    world.go_on(2)
    assert verify(world.plan).ok
    assert remove("early", place, yes=True) >= early.new_files
    assert {path.partition("/")[0] for path in places_below(place, "")} == {"late"}
    [damaged, *_] = [path for path in places_below(place, "late/checkpoint") if "/offsets/" in path]
    open_files(f"{store.url}/kept", options=store.options).write(damaged, b"v1\n")
    assert any("offsets" in problem for problem in check(world.plan, late.savepoint.name, place).problems)
