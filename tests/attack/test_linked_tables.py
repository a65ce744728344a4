"""Savepoints whose tables of RocksDB are links to the checkpoint's: whatever happens to one, the other stays as it is."""

import errno
import os
import shutil
from pathlib import Path

import pytest
from tests.upgrade.test_savepoints import ROCKSDB, made, tables_below, unpacked

from penstock.checkpoint import files as checkpoint_files
from penstock.checkpoint import savepoint as saved
from penstock.checkpoint.acting import carry_out, undo
from penstock.checkpoint.copying import copy_checkpoint
from penstock.checkpoint.files import LocalFiles
from penstock.checkpoint.savepoint import Savepoint
from penstock.core import faults
from penstock.errors import Retryable


class Killed(BaseException):
    """The process ends there."""


def content_below(directory: Path) -> dict[str, bytes]:
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture
def source(tmp_path: Path) -> LocalFiles:
    return unpacked(ROCKSDB, tmp_path / "checkpoint")


@pytest.fixture
def place(tmp_path: Path) -> LocalFiles:
    return LocalFiles(tmp_path / "savepoints")


def killed_after(monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    """Let the process end with the `calls`-th link, rename, removal or flush, which has happened by then."""
    left = [calls]

    def counted(real):
        def call(*arguments, **named):
            result = real(*arguments, **named)
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            return result

        return call

    for owner, name in ((Path, "hardlink_to"), (Path, "replace"), (Path, "unlink"), (os, "fsync")):
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))


def test_a_kill_at_any_call_harms_neither(tmp_path: Path, source: LocalFiles, place: LocalFiles) -> None:
    before, one, calls = content_below(tmp_path / "checkpoint"), None, 0
    while one is None:
        calls += 1 if calls < 40 else 9
        shutil.rmtree(tmp_path / "savepoints", ignore_errors=True)
        with pytest.MonkeyPatch.context() as patched:
            killed_after(patched, calls)
            try:
                one = made(place, "a", source)
            except Killed:
                assert saved.savepoints_in(place) == () or place.read("a/savepoint.json") is not None
        if one is None and place.read("a/savepoint.json") is None:
            again = made(place, "a", source)
            assert list(saved.problems(place, again)) == []
        assert content_below(tmp_path / "checkpoint") == before
    assert calls > len(tables_below(tmp_path / "checkpoint"))


@pytest.mark.parametrize("fault", ["kill", "kill@2", "error@2", "lost@2"])
def test_what_ends_between_two_tables_is_finished(
    tmp_path: Path, source: LocalFiles, place: LocalFiles, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    def die() -> None:
        raise Killed

    before = content_below(tmp_path / "checkpoint")
    monkeypatch.setattr(faults, "_kill", die)
    faults.arm(f"savepoint.link={fault}")
    with pytest.raises((Killed, Retryable)):
        made(place, "a", source)
    faults.arm("")
    assert saved.savepoints_in(place) == ()
    one = made(place, "a", source)
    assert list(saved.problems(place, one)) == []
    assert content_below(tmp_path / "checkpoint") == before


def test_what_another_command_is_linking_is_not_written_through(
    tmp_path: Path, source: LocalFiles, place: LocalFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two commands make one savepoint: one has linked a table under its hidden name, and the other one copies it."""
    table = min(tables_below(tmp_path / "checkpoint").values())
    before, real = content_below(tmp_path / "checkpoint"), Path.hardlink_to

    def taken(self: Path, target: Path) -> None:
        real(self, target)
        raise FileExistsError(errno.EEXIST, "File exists")

    monkeypatch.setattr(Path, "hardlink_to", taken)
    monkeypatch.setattr(Path, "unlink", lambda self, missing_ok=False: None)  # it is there again after the look
    assert not place.link("a/checkpoint/table", str(table.relative_to(tmp_path / "checkpoint")), of=source)
    with pytest.raises(Retryable, match="cannot be written"):
        place.write("a/checkpoint/table", b"other")
    assert content_below(tmp_path / "checkpoint") == before


def test_a_folder_of_links_is_as_durable_as_they_are(
    tmp_path: Path, source: LocalFiles, place: LocalFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without checksums of Hadoop nothing else may be written there afterwards."""
    table = min(tables_below(tmp_path / "checkpoint").values()).relative_to(tmp_path / "checkpoint")
    synced = set[str]()

    def noted(handle: int, fsync=os.fsync) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    assert place.link(f"a/checkpoint/{table}", str(table), of=source)
    folder = tmp_path / "savepoints" / "a" / "checkpoint" / table.parent
    expected = {folder, *(parent for parent in folder.parents if parent.is_relative_to(tmp_path))}
    assert {str(path) for path in expected} <= synced


def test_what_could_not_be_flushed_is_written_anew(
    tmp_path: Path, source: LocalFiles, place: LocalFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another flush of the same file could succeed although nothing was written."""

    def failed(path: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(checkpoint_files, "sync_file", failed)
    one = made(place, "a", source)
    assert {path.stat().st_nlink for path in (tmp_path / "savepoints").rglob("*") if path.is_file()} == {1}
    assert list(saved.problems(place, one)) == []


def test_a_table_that_is_a_symbolic_link_is_copied(tmp_path: Path, source: LocalFiles, place: LocalFiles) -> None:
    """A link to that link would be no copy, and would go with what it names."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for path in tables_below(tmp_path / "checkpoint").values():
        path.rename(elsewhere / path.name)
        path.symlink_to(elsewhere / path.name)
    one = made(place, "a", source)
    assert not any(path.is_symlink() for path in (tmp_path / "savepoints").rglob("*"))
    shutil.rmtree(elsewhere)
    assert list(saved.problems(place, one)) == []


def test_the_savepoint_before_may_be_deleted_meanwhile(
    tmp_path: Path, source: LocalFiles, place: LocalFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = made(place, "first", source)
    real = LocalFiles.is_link

    def deleted(self: LocalFiles, name: str, original: str) -> bool:
        saved.delete(place, "first")
        return real(self, name, original)

    monkeypatch.setattr(LocalFiles, "is_link", deleted)
    second = made(place, "second", source, at_ms=2)
    assert second.files == first.files
    assert list(saved.problems(place, second)) == []


class TestActsOnTheCheckpoint:
    """A restore that is made, undone and made again, and a fork, write no byte of a savepoint."""

    def restored(self, source: LocalFiles, place: LocalFiles, one: Savepoint) -> None:
        carry_out(source, saved.plan_restore(source, place, one))

    def test_a_restore_and_its_undoing(self, tmp_path: Path, source: LocalFiles, place: LocalFiles) -> None:
        one = made(place, "a", source)
        kept = content_below(tmp_path / "savepoints")
        tables = tables_below(tmp_path / "checkpoint")
        damaged = min(tables.values())
        damaged.unlink()
        damaged.write_bytes(b"other")
        for path in sorted(tables.values())[1:]:
            path.unlink()
        left = content_below(tmp_path / "checkpoint")
        self.restored(source, place, one)
        assert content_below(tmp_path / "savepoints") == kept
        undo(source, verb="restore", yes=True)
        assert left.items() <= content_below(tmp_path / "checkpoint").items()
        self.restored(source, place, one)
        assert content_below(tmp_path / "savepoints") == kept
        assert list(saved.problems(place, one)) == []

    def test_a_copy_of_a_savepoint_shares_nothing_with_it(self, tmp_path: Path, source: LocalFiles, place: LocalFiles) -> None:
        """Spark runs on such a copy, as of a fork."""
        made(place, "a", source)
        copy_checkpoint(saved.Below(place, "a/checkpoint"), LocalFiles(tmp_path / "fork"))
        assert {path.stat().st_nlink for path in tables_below(tmp_path / "fork").values()} == {1}
