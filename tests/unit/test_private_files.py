"""What Penstock makes for itself is for its user alone, and for a group where the directory says so."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.support.private_files import create_durably, create_private, make_private_directory, open_private


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> str:
    return f"{path.stat().st_mode & 0o7777:o}"


def make(directory: Path) -> list[str]:
    make_private_directory(directory / "made")
    with open_private(directory / "made/new", "xb"), open_private(directory / "made/log", "ab"):
        create_private(directory / "made/empty")
    return [mode(directory / name) for name in ("made", "made/new", "made/log", "made/empty")]


def test_others_read_nothing(tmp_path: Path) -> None:
    assert make(tmp_path / "parent") == ["700", "600", "600", "600"]
    assert mode(tmp_path / "parent") == "755"


def test_a_shared_directory_hands_its_group_on(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o2770)
    assert make(tmp_path / "shared") == ["2770", "660", "660", "660"]
    make_private_directory(tmp_path / "shared/made/inner")
    assert mode(tmp_path / "shared/made/inner") == "2770"


def test_what_is_there_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(mode=0o755)
    (tmp_path / "there/log").write_text("x")
    make_private_directory(tmp_path / "there")
    open_private(tmp_path / "there/log", "ab").close()
    create_private(tmp_path / "there/log")
    assert [mode(tmp_path / "there"), mode(tmp_path / "there/log")] == ["755", "644"]


def test_names_of_directories_are_durable_though_who_made_them_died_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, sync = set[Path](), os.fsync

    def noting(handle: int) -> None:
        synced.add(Path(f"/proc/self/fd/{handle}").readlink())
        sync(handle)

    (tmp_path / "a").mkdir()
    (tmp_path / "a/journal").mkdir()  # nobody forced these to the disk
    monkeypatch.setattr(os, "fsync", noting)
    create_durably(tmp_path / "a/journal/segments")
    assert synced >= {tmp_path, tmp_path / "a", tmp_path / "a/journal"}
    (tmp_path / "a/journal").rename(tmp_path / "a/other")  # another directory gets its name
    (tmp_path / "a/journal/segments").mkdir(parents=True)
    synced.clear()
    create_durably(tmp_path / "a/journal/segments")
    assert synced >= {tmp_path, tmp_path / "a", tmp_path / "a/journal"}
    synced.clear()
    create_durably(tmp_path / "a/journal/segments")
    assert not synced, "once in a process"


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_private_directory(tmp_path / "file")
