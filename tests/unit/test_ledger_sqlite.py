"""What only the SQLite ledger has: sinks in its transaction, locks, a full disk, a COMMIT whose answer was lost."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from threading import Thread

import pytest

from penstock.commit.append import append_once
from penstock.core.faults import arm
from penstock.core.model import Position
from penstock.errors import Failed, LedgerMismatch, OutcomeUnknown, PositionTaken, Retryable, StoreIgnoresConditions
from penstock.ledger import self_test, sqlite
from penstock.ledger.sqlite import SqliteLedger
from penstock.testing.entries import PIPELINE, chain, decided_entry, opened_entry


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[SqliteLedger]:
    with closing(SqliteLedger(path, pipeline=PIPELINE, busy_timeout_s=0.05)) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    arm("")


@pytest.fixture(autouse=True)
def _no_file_system_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "_PROVED", set())


def test_rows_and_entry_are_one_transaction(ledger: SqliteLedger, path: Path) -> None:
    entries = list(islice(chain(), 2))
    ledger.append(entries[0])

    def rows(transaction: object) -> None:
        assert isinstance(transaction, sqlite3.Connection)
        assert transaction.in_transaction
        transaction.execute("CREATE TABLE flights (name TEXT)")
        transaction.execute("INSERT INTO flights VALUES ('UA1')")

    ledger.append(entries[1], within=rows)
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT name FROM flights").fetchall() == [("UA1",)]
    assert ledger.tail() == entries[1]
    assert ledger.home == f"sqlite:{path}"


def test_the_home_is_the_real_path(path: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "state")
    assert SqliteLedger(tmp_path / "link" / "ledger.db", pipeline=PIPELINE).home == f"sqlite:{path}"


def test_a_path_that_cannot_be_looked_at_is_told(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / ("x" * 300) / "ledger.db", pipeline=PIPELINE)
    with pytest.raises(Failed, match="cannot be looked at: the name is too long"):
        ledger.tail()


def test_the_folders_of_a_new_file_are_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite makes durable what is in the file's own folder, and no more."""
    synced, sync = set[Path](), os.fsync

    def noting(handle: int) -> None:
        synced.add(Path(f"/proc/self/fd/{handle}").readlink())
        sync(handle)

    monkeypatch.setattr(os, "fsync", noting)
    with closing(SqliteLedger(tmp_path / "state/flights/ledger.db", pipeline=PIPELINE)) as ledger:
        ledger.append(opened_entry())
    assert synced >= {tmp_path, tmp_path / "state"}


def test_a_rider_that_fails_leaves_neither_rows_nor_entry(ledger: SqliteLedger, path: Path) -> None:
    entries = list(islice(chain(), 2))
    ledger.append(entries[0])

    def rows(transaction: object) -> None:
        assert isinstance(transaction, sqlite3.Connection)
        transaction.execute("CREATE TABLE flights (name TEXT)")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ledger.append(entries[1], within=rows)
    assert ledger.tail() == entries[0]
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("penstock_ledger",)]
    ledger.append(entries[1])


def test_a_rider_is_not_called_when_the_position_is_taken(ledger: SqliteLedger) -> None:
    entries = list(islice(chain(), 2))
    for entry in entries:
        ledger.append(entry)
    called = []
    with pytest.raises(PositionTaken):
        ledger.append(decided_entry(after=entries[0]), within=called.append)
    assert called == []


@pytest.mark.parametrize("kind", ["error", "lost"])
def test_a_commit_without_an_answer_is_unknown_and_then_read_back(ledger: SqliteLedger, kind: str) -> None:
    entries = list(islice(chain(), 2))
    ledger.append(entries[0])
    arm(f"ledger.sqlite_commit={kind}")
    with pytest.raises(OutcomeUnknown):
        ledger.append(entries[1])
    assert ledger.read(Position(2)) == (entries[1] if kind == "lost" else None)
    arm(f"ledger.sqlite_commit={kind}")
    entry = decided_entry(after=entries[1]) if kind == "lost" else entries[1]
    assert append_once(ledger, entry) is None
    assert ledger.tail() == entry


def test_a_locked_file_is_tried_again_later(ledger: SqliteLedger, path: Path) -> None:
    entries = list(islice(chain(), 2))
    ledger.append(entries[0])
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Retryable, match="locked") as caught:
            ledger.append(entries[1])
        assert not isinstance(caught.value, OutcomeUnknown)
        assert ledger.tail() == entries[0]
        other.execute("ROLLBACK")
    ledger.append(entries[1])


def test_a_full_disk_is_told_and_nothing_is_written(ledger: SqliteLedger) -> None:
    entries = list(islice(chain(), 2))
    ledger.append(entries[0])
    connection = ledger._connection
    assert connection is not None
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(Failed, match="full") as caught:
        ledger.append(decided_entry(after=entries[0], inline=b"x" * 100_000))
    assert "Make room" in caught.value.remedy
    assert ledger.tail() == entries[0]
    ledger.append(entries[1])


def test_a_file_that_is_no_database_is_refused(path: Path, ledger: SqliteLedger) -> None:
    path.parent.mkdir()
    path.write_text("This is not SQLite. " * 100)
    with pytest.raises(LedgerMismatch, match="not a database"):
        ledger.tail()
    with pytest.raises(LedgerMismatch, match="not a database"):
        ledger.append(opened_entry())


def test_an_entry_of_damaged_bytes_is_refused_and_not_shown(path: Path, ledger: SqliteLedger) -> None:
    ledger.append(next(iter(chain())))
    with closing(sqlite3.connect(path)) as other:
        other.execute("UPDATE penstock_ledger SET entry = CAST(CAST(entry AS BLOB) || x'ff' AS TEXT)")
        other.commit()
    with pytest.raises(LedgerMismatch, match="an entry is damaged: it is no UTF-8") as refused:
        ledger.tail()
    assert "generation" not in refused.value.message
    assert refused.value.remedy == "Restore the file from a backup."


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Failed, match="could not be created"):
        SqliteLedger(tmp_path / "file" / "ledger.db", pipeline=PIPELINE).append(opened_entry())


def test_a_database_without_a_ledger_is_empty_and_stays_as_it_is(path: Path, ledger: SqliteLedger) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE flights (name TEXT)")
    assert ledger.tail() is None
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("flights",)]


def test_threads_read_while_one_appends(ledger: SqliteLedger) -> None:
    entries = list(islice(chain(), 60))
    ledger.append(entries[0])
    seen: list[list[int]] = [[], []]

    def read(into: list[int]) -> None:
        while not into or into[-1] < 60:
            tail = ledger.tail()
            assert tail is not None
            into.append(tail.position)

    readers = [Thread(target=read, args=(into,)) for into in seen]
    for reader in readers:
        reader.start()
    for entry in entries[1:]:
        ledger.append(entry)
    for reader in readers:
        reader.join()
    assert all(into == sorted(into) for into in seen)


def test_the_journal_mode_must_be_had(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE t (x)")
        other.execute("BEGIN EXCLUSIVE")
        with closing(SqliteLedger(path, pipeline=PIPELINE, busy_timeout_s=0.05)) as ledger, pytest.raises(Retryable):
            ledger.prove()
        other.execute("ROLLBACK")


def test_locks_that_do_not_hold_are_found_out(ledger: SqliteLedger, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.append(opened_entry())
    monkeypatch.setattr(self_test, "_TRY_LOCK", f"raise SystemExit({self_test._FREE})")
    with pytest.raises(StoreIgnoresConditions, match="got it too"):
        ledger.prove()


def test_locks_are_the_file_systems_and_asked_for_once(ledger: SqliteLedger, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.prove()
    monkeypatch.setattr(self_test, "_TRY_LOCK", f"raise SystemExit({self_test._FREE})")
    with closing(SqliteLedger(path.with_name("other.db"), pipeline=PIPELINE)) as beside:
        beside.prove()
    sqlite._PROVED.clear()
    with pytest.raises(StoreIgnoresConditions):
        ledger.prove()


def test_a_file_that_cannot_be_written_is_not_taken_for_locks_that_do_not_hold(ledger: SqliteLedger, path: Path) -> None:
    """SQLite begins there, and takes no lock: the remedy was another disk, not the right that is missing."""
    ledger.append(opened_entry())
    with (
        closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)) as reader,
        pytest.raises(sqlite3.OperationalError, match="readonly database"),
    ):
        self_test.prove_locks(reader, path)


def test_of_one_file_system_nothing_follows_for_another(
    ledger: SqliteLedger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.append(opened_entry())
    monkeypatch.setattr(sqlite, "_PROVED", {path.stat().st_dev + 1})
    monkeypatch.setattr(self_test, "_TRY_LOCK", f"raise SystemExit({self_test._FREE})")
    with pytest.raises(StoreIgnoresConditions, match="got it too"):
        ledger.prove()
    with pytest.raises(StoreIgnoresConditions, match="got it too"):  # one that failed is asked again
        ledger.prove()


def test_a_damaged_table_is_found_by_the_self_test(ledger: SqliteLedger, path: Path) -> None:
    for entry in islice(chain(), 400):
        ledger.append(entry)
    ledger.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(path.read_bytes())
    content[8192:12288] = bytes(4096)
    path.write_bytes(content)
    with pytest.raises(LedgerMismatch):
        ledger.prove()


def test_the_self_test_leaves_no_table_and_a_killed_one_is_collected_later(ledger: SqliteLedger, path: Path) -> None:
    ledger.append(opened_entry())
    ledger.prove()

    def tables() -> list[tuple[str]]:
        with closing(sqlite3.connect(path)) as other:
            return other.execute("SELECT name FROM sqlite_master").fetchall()

    assert tables() == [("penstock_ledger",)]
    with closing(sqlite3.connect(path)) as other:
        other.execute(f"CREATE TABLE {self_test.PREFIX}0123456789abcdef (name)")
    ledger.prune(below=Position(1))
    assert tables() == [("penstock_ledger",)]


@pytest.mark.parametrize("name", ["led ger?mode=ro.db", "led#ger.db", "led%41ger.db"])
def test_signs_of_urls_in_a_path_are_signs_of_the_path(tmp_path: Path, name: str) -> None:
    with closing(SqliteLedger(tmp_path / name, pipeline=PIPELINE)) as ledger:
        ledger.prove()
        ledger.append(opened_entry())
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_file_that_was_emptied_is_told_as_that_and_the_remedy_goes_on(ledger: SqliteLedger, path: Path) -> None:
    [first] = islice(chain(), 1)
    ledger.append(first)
    with closing(sqlite3.connect(path)) as whole, closing(sqlite3.connect(path.with_name("backup"))) as backup:
        whole.backup(backup)
    path.write_bytes(b"")
    for act in (SqliteLedger.tail, SqliteLedger.prove):
        with closing(SqliteLedger(path, pipeline=PIPELINE)) as later, pytest.raises(LedgerMismatch, match="was emptied") as told:
            act(later)
        assert f"Remove {path.name}-wal and {path.name}-shm, and restore {path.name}" in told.value.remedy
    ledger.close()
    for beside in ("-wal", "-shm"):
        path.with_name(path.name + beside).unlink(missing_ok=True)
    path.with_name("backup").replace(path)
    assert ledger.tail() == first
