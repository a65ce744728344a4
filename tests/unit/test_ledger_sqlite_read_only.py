"""A ledger whose directory cannot be written is read: beside its log, or alone while nobody writes it, and never silently old."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

import pytest
from tests.crash.mounting import read_only

from penstock.core.model import Entry
from penstock.errors import Failed, Retryable
from penstock.ledger import sqlite, sqlite_files
from penstock.ledger.sqlite import SqliteLedger
from penstock.testing.entries import PIPELINE, chain

ENTRIES = tuple(islice(chain(), 4))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger with two entries, closed by the driver that wrote them."""
    path = tmp_path / "state" / "ledger.db"
    append(path, *ENTRIES[:2])
    return path


@pytest.fixture
def read_as_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger is read as by one who may not write its directory."""
    monkeypatch.setattr(sqlite_files, "is_writable", lambda _: False)
    monkeypatch.setattr(sqlite, "is_writable", lambda _: False)


@pytest.fixture
def reader(path: Path, read_as_another: None) -> Iterator[SqliteLedger]:
    with closing(opened(path)) as ledger:
        yield ledger


def opened(path: Path) -> SqliteLedger:
    return SqliteLedger(path, pipeline=PIPELINE, busy_timeout_s=0.05)


def append(path: Path, *entries: Entry) -> None:
    with closing(opened(path)) as driver:
        for entry in entries:
            driver.append(entry)


def beside(path: Path) -> list[str]:
    return sorted(each.name for each in path.parent.iterdir())


def leave_log(path: Path, *, entry: Entry) -> dict[str, bytes]:
    """Return the files that a driver leaves which is killed after it appended `entry`, and put them there."""
    with closing(opened(path)) as driver:
        driver.append(entry)
        left = {each.name: each.read_bytes() for each in path.parent.iterdir()}
    for name, content in left.items():
        path.with_name(name).write_bytes(content)
    assert left[f"{path.name}-wal"]
    return left


def test_on_a_read_only_mount(path: Path) -> None:
    with read_only(path.parent), closing(opened(path)) as reader:
        assert reader.tail() == ENTRIES[1]
        assert list(reader.newest_first()) == [ENTRIES[1], ENTRIES[0]]
        assert reader.newest_lease() is None
        with pytest.raises(Failed, match="the file system is read-only"):
            reader.append(ENTRIES[2])
        assert beside(path) == ["ledger.db"]
    append(path, ENTRIES[2])


def test_on_a_read_only_mount_the_log_of_a_killed_driver_is_read(path: Path) -> None:
    left = leave_log(path, entry=ENTRIES[2])
    with read_only(path.parent), closing(opened(path)) as reader:
        assert reader.tail() == ENTRIES[2]
    assert path.read_bytes() == left[path.name]


def test_on_a_read_only_mount_beside_a_driver(path: Path) -> None:
    """The driver has the directory from before it was mounted: what it appends is seen at once."""
    with closing(opened(path)) as driver:
        driver.append(ENTRIES[2])
        with read_only(path.parent), closing(opened(path)) as reader:
            assert reader.tail() == ENTRIES[2]
            driver.append(ENTRIES[3])
            assert reader.tail() == ENTRIES[3]


def test_a_driver_that_starts_and_ends_between_two_looks_is_seen(reader: SqliteLedger, path: Path) -> None:
    assert reader.tail() == ENTRIES[1]
    append(path, ENTRIES[2])
    assert reader.tail() == ENTRIES[2]
    with closing(opened(path)) as driver:
        driver.append(ENTRIES[3])
        assert reader.tail() == ENTRIES[3]  # from its log


def test_what_changes_while_it_is_read_is_read_again(reader: SqliteLedger, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = iter([ENTRIES[2]])
    read = sqlite._first_row

    def meanwhile(*arguments: object, **keys: object) -> object:
        row = read(*arguments, **keys)  # type: ignore[arg-type]
        for entry in changes:
            append(path, entry)
        return row

    monkeypatch.setattr(sqlite, "_first_row", meanwhile)
    assert reader.tail() == ENTRIES[2]


def test_what_never_stands_still_is_not_told(reader: SqliteLedger, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def torn(*_: object, **__: object) -> object:
        path.write_bytes(path.read_bytes() + b"\0")
        raise sqlite3.DatabaseError("database disk image is malformed")

    monkeypatch.setattr(sqlite, "_first_row", torn)
    with pytest.raises(Retryable, match="changed during 3 looks"):
        reader.tail()


@pytest.mark.parametrize(
    ("missing", "said"), [("-shm", "the newest entries are in ledger.db-wal"), ("-wal", "may hold the newest")]
)
def test_what_cannot_be_read_whole_is_refused(reader: SqliteLedger, path: Path, missing: str, said: str, tmp_path: Path) -> None:
    leave_log(path, entry=ENTRIES[2])
    path.with_name(f"{path.name}{missing}").unlink()
    with pytest.raises(Failed, match=f"ledger.db{missing} is missing, and .*{said}") as refused:
        reader.tail()
    assert f"copy {path}* into a directory that can be written" in refused.value.remedy


def test_the_copy_that_the_refusal_advises_has_the_newest_entry(path: Path, tmp_path: Path) -> None:
    leave_log(path, entry=ENTRIES[2])
    path.with_name("ledger.db-shm").unlink()
    copy = tmp_path / "copy"
    copy.mkdir()
    for each in path.parent.glob(f"{path.name}*"):
        (copy / each.name).write_bytes(each.read_bytes())
    with closing(opened(copy / path.name)) as reader:
        assert reader.tail() == ENTRIES[2]


def test_an_empty_log_counts_as_none(reader: SqliteLedger, path: Path) -> None:
    path.with_name("ledger.db-wal").touch()
    assert reader.tail() == ENTRIES[1]
    path.with_name("ledger.db-wal").unlink()
    path.unlink()
    reader.close()
    assert reader.tail() is None
