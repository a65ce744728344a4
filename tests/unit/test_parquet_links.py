"""Directories of an account that are links: readers follow them, and so must whoever proves or reads the table."""

import os
import shutil
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from tests.unit.lake import Lake

from penstock.errors import PublishFailed
from penstock.run.operations import recover, verify


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path / "shop")
    lake.run([0, 1])
    return lake


def partition(lake: Lake) -> Path:
    return lake.listed("a")[0].parent


def shown(lake: Lake) -> list[int]:
    return sorted(row["id"] for row in lake.pipeline.read().arrow().to_pylist())


def read_by_arrow(lake: Lake) -> int:
    return sum(int(ds.dataset(lake.directory / name, format="parquet").count_rows()) for name in "ab")


def test_a_partition_that_was_moved_and_linked_is_still_there(lake: Lake, tmp_path: Path) -> None:
    """`penstock.read` left its rows out without a word, and `verify` told them as lost."""
    before = partition(lake)
    before.rename(tmp_path / "archive")
    before.symlink_to(tmp_path / "archive")
    file = next((tmp_path / "archive").iterdir())
    file.rename(tmp_path / file.name)
    file.symlink_to(tmp_path / file.name)
    assert (shown(lake), read_by_arrow(lake)) == (lake.ids(2), 8)
    report = verify(lake.pipeline.plan)
    assert report.ok
    assert report.sinks["lake"].accounts["a"].found.size_bytes == report.sinks["lake"].accounts["a"].expected.size_bytes


def test_rows_that_a_link_adds_are_found(lake: Lake, tmp_path: Path) -> None:
    """`verify` said that nothing else was there, while readers had rows twice."""
    shutil.copytree(partition(lake), tmp_path / "archive")
    (lake.directory / "a" / "place=more").symlink_to(tmp_path / "archive")
    assert read_by_arrow(lake) == 10
    report = verify(lake.pipeline.plan)
    assert not report.ok
    assert "place=more/part-" in report.sinks["lake"].problems[0].message


def test_links_that_lead_in_a_circle_are_not_followed_for_ever(lake: Lake) -> None:
    root = lake.directory / "a"
    (root / "place=up").symlink_to(root)
    for name, other in (("x", "y"), ("y", "x")):
        (root / name).mkdir()
        (root / name / "on").symlink_to(root / other)
    (root / "gone").symlink_to(root / "nowhere")
    (root / "self").symlink_to(root / "self")
    with pytest.raises(OSError, match="Too many levels"):
        os.stat(root / "/".join(["place=up"] * 50))
    assert [problem.file for problem in verify(lake.pipeline.plan).sinks["lake"].problems] == ["gone", "self"]
    for name in ("gone", "self"):
        (root / name).unlink()
    assert verify(lake.pipeline.plan).ok


def test_a_partition_on_another_disk_is_moved_back_as_the_error_says(
    lake: Lake, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    here = tmp_path.stat().st_dev
    places = [place for place in (Path("/dev/shm"), tmp_path_factory.getbasetemp()) if place.is_dir()]
    elsewhere = next((place for place in places if place.stat().st_dev != here), None)
    if elsewhere is None:
        pytest.skip("there is no other file system")
    away = elsewhere / f"penstock-{os.getpid()}"
    away.mkdir()
    try:
        link = lake.directory / "a" / partition(lake).name.replace("000", "002")
        link.symlink_to(away)
        with pytest.raises(PublishFailed, match="it is on another file system or mount") as told:
            lake.run([2])
        assert "Move it to the file system of the account and start again" in told.value.remedy
        link.unlink()
        shutil.copytree(away, link)
    finally:
        shutil.rmtree(away)
    recover(lake.pipeline.plan)
    assert shown(lake) == lake.ids(3)
    assert verify(lake.pipeline.plan).ok
