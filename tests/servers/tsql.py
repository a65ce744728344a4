"""What stands in for SQL Server, of which there is none to run: python-tds's connection over a SQLite file that takes T-SQL.

It takes the statements that are recorded in tests/unit/dialogues and no others, and has SQLite really do them, with transactions,
locks and other processes. It watches over the order: nothing is written outside of a transaction, no rows without the lock on the
marker, no COMMIT of rows without their marker and batch, and no temporary table made in a scope of its own. What it cannot
show is what only SQL Server knows: whether it likes the statements, how it locks, and how it speaks.
"""

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytds

from tests.servers.tsql_in_sqlite import (
    COLUMN,
    MERGE,
    NAME,
    described,
    merged,
    placed,
    plain,
    recorded,
    restored,
    split_definition,
    stored,
    translate,
    unquoted,
)

DIALOGUES = Path(__file__).parents[1] / "unit" / "dialogues"
DEADLOCK, LOCKED, SNAPSHOT, DUPLICATE, REPEATED, UNKNOWN = 1205, 1222, 3960, 2627, 2705, 102

_CATALOG = """
CREATE TABLE IF NOT EXISTS "double.table" (place TEXT PRIMARY KEY, kind TEXT);
CREATE TABLE IF NOT EXISTS "double.column" (place TEXT, name TEXT, type TEXT, length INT, precision INT, scale INT,
    collation TEXT, nullable INT, identity INT DEFAULT 0, computed INT DEFAULT 0, always INT DEFAULT 0, filled INT DEFAULT 0);
CREATE TABLE IF NOT EXISTS "double.unique" (place TEXT, number INT, name TEXT);
CREATE TABLE IF NOT EXISTS "double.lock" (turns INT);
INSERT INTO "double.lock" SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM "double.lock");
"""


@dataclass
class Trouble:
    """What happens at the next statements that begin with `sign`: an error of that number, or a broken network at 0.

    `after`: once the statement is done, so that its answer is lost.
    """

    sign: str
    number: int = 0
    after: bool = False
    times: int = 1

    def due(self, statement: str, *, after: bool) -> bool:
        if self.after is not after or not self.times or not statement.startswith(self.sign):
            return False
        self.times -= 1
        return True


@dataclass
class Watch:
    """What is seen of all sessions in this process: the dialogue as it was recorded, and what is to go wrong."""

    said: list[str] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)

    def arm(self, sign: str, number: int = 0, *, after: bool = False, times: int = 1) -> None:
        self.troubles.append(Trouble(sign, number, after, times))


WATCH = Watch()


def connect(directory: Path, server: str, *, database: str, autocommit: bool, **_: Any) -> "Session":
    """As `pytds.connect`, once `directory` is bound."""
    assert autocommit
    return Session(Path(directory) / f"{database}.db")


def known() -> frozenset[str]:
    """Every statement that was recorded."""
    lines = (line for file in DIALOGUES.glob("*.sql") for line in file.read_text(encoding="utf-8").splitlines())
    return frozenset(line for line in lines if line and not line.startswith("--"))


_SAME_EVERYWHERE: dict[str, list[tuple[Any, ...]]] = {
    "sys.databases": [("READ_WRITE", "DISABLED", 1)],
    "HAS_PERMS": [(1,)],
    "sys.security_policies": [],
}
"""What the catalog says whatever table it is asked about."""


class Session:
    """One connection."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._sqlite = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        if not self._sqlite.execute("SELECT 1 FROM sqlite_master WHERE name = 'double.lock'").fetchone():
            self._sqlite.execute("PRAGMA journal_mode = WAL")
            self._sqlite.executescript(f"BEGIN IMMEDIATE; {_CATALOG} COMMIT;")
        self._known = known()
        self._settings = ""
        self._fresh()

    def cursor(self) -> "Cursor":
        return Cursor(self)

    def close(self) -> None:
        self._sqlite.close()

    # --- the order that is watched over

    def _fresh(self) -> None:
        self.locked, self.rows_in, self.marked, self.noted = False, set[str](), False, False

    def run(self, statement: str, values: "Mapping[str, Any] | None") -> tuple[list[tuple[Any, ...]], int]:
        """Rows and their number."""
        text = statement % {name: f":{name}" for name in values} if values is not None else statement
        told = recorded(text)
        WATCH.said.append(told)
        if told not in self._known:
            raise self._violation(f"an unknown statement: {told}")
        self._fail(told, after=False)
        try:
            answer = self._answer(text, values)
        except sqlite3.Error as cause:
            raise self._told(cause) from cause
        self._fail(told, after=True)
        return answer

    def _fail(self, told: str, *, after: bool) -> None:
        for trouble in WATCH.troubles:
            if trouble.due(told, after=after):
                if not trouble.number:
                    self._sqlite.close()
                    raise pytds.ClosedConnectionError
                raise self._error(trouble.number, "Transaction was deadlocked; it has been chosen as the deadlock victim.")

    def _error(self, number: int, text: str, kind: type[pytds.DatabaseError] = pytds.OperationalError) -> pytds.DatabaseError:
        """By XACT_ABORT nothing is left of the transaction."""
        with suppress(sqlite3.Error):
            if self._sqlite.in_transaction:
                self._sqlite.execute("ROLLBACK")
        self._fresh()
        error = kind(text)
        error.msg_no = error.number = number
        error.text = text
        return error

    def _violation(self, what: str) -> pytds.DatabaseError:
        with self.path.with_suffix(".violations").open("a", encoding="utf-8") as file:
            file.write(f"{what}\n")
        return self._error(UNKNOWN, f"Incorrect: {what}", pytds.ProgrammingError)

    def _told(self, cause: sqlite3.Error) -> pytds.DatabaseError:
        said = str(cause)
        if "locked" in said:
            return self._error(LOCKED if "snapshot" not in said else SNAPSHOT, "Lock request time out period exceeded.")
        if "UNIQUE" in said:
            return self._error(DUPLICATE, "Violation of PRIMARY KEY constraint.", pytds.IntegrityError)
        if "no such table" in said:
            name = said.partition(": ")[2]
            return self._error(208, f"Invalid object name '{name}'.", pytds.ProgrammingError)
        return self._error(50000, said)

    def _require(self, condition: object, what: str) -> None:
        if not condition:
            raise self._violation(what)

    # --- the statements

    def _answer(self, text: str, values: "Mapping[str, Any] | None") -> tuple[list[tuple[Any, ...]], int]:
        if text.startswith("SET "):
            return self._set(text)
        if text.endswith("TRANSACTION") or text.startswith("COMMIT TRANSACTION"):
            return self._begin() if text.startswith("BEGIN") else self._commit()
        if text == "SELECT XACT_STATE()":
            return [(1 if self._sqlite.in_transaction else 0,)], 1
        if "sys." in text or "HAS_PERMS_BY_NAME" in text:
            return self._catalog(text, values or {})
        if text.startswith(("CREATE TABLE", "ALTER TABLE")):
            return self._create(text, values) if text.startswith("CREATE") else self._alter(text)
        return self._statement(text, values)

    def _set(self, text: str) -> tuple[list[tuple[Any, ...]], int]:
        self._settings += text
        if text.startswith("SET LOCK_TIMEOUT"):
            self._sqlite.execute(f"PRAGMA busy_timeout = {text.rpartition(' ')[2]}")
        return [], -1

    def _begin(self) -> tuple[list[tuple[Any, ...]], int]:
        self._require("XACT_ABORT ON" in self._settings, "a transaction without XACT_ABORT")
        self._require(not self._sqlite.in_transaction, "a transaction in another one")
        self._sqlite.execute("BEGIN")
        self._fresh()
        return [], -1

    def _commit(self) -> tuple[list[tuple[Any, ...]], int]:
        if not self._sqlite.in_transaction:
            raise self._error(3902, "The COMMIT TRANSACTION request has no corresponding BEGIN TRANSACTION.")
        self._require(not self.rows_in or (self.marked and self.noted), "a COMMIT of rows without their marker and batch")
        self._sqlite.execute("COMMIT")
        self._fresh()
        return [], -1

    def _catalog(self, text: str, values: Mapping[str, Any]) -> tuple[list[tuple[Any, ...]], int]:
        place = f"{values.get('schema')}.{values.get('table')}"
        for asked, answers in _SAME_EVERYWHERE.items():
            if asked in text:
                return answers, len(answers)
        if "sys.columns c JOIN sys.objects" in text:
            columns = "name, type, length, precision, scale, collation, nullable, identity, computed, always, filled"
            return self._rows(f'SELECT {columns} FROM "double.column" WHERE place = ? ORDER BY rowid', place)
        if "sys.indexes" in text:
            return self._rows('SELECT number, name FROM "double.unique" WHERE place = ? ORDER BY number', place)
        if text.startswith("SELECT 1 FROM sys.schemas"):
            return ([(1,)], 1) if values["schema"] != "nowhere" else ([], 0)
        return self._rows("SELECT kind, 0, 0, 'NON_TEMPORAL_TABLE' FROM \"double.table\" WHERE place = ?", place)

    def _rows(self, query: str, *values: Any) -> tuple[list[tuple[Any, ...]], int]:
        found = self._sqlite.execute(query, values).fetchall()
        return found, len(found)

    def _create(self, text: str, values: object) -> tuple[list[tuple[Any, ...]], int]:
        name, rest = split_definition(text)
        columns = [described(found) for found in COLUMN.finditer(rest.partition("PRIMARY KEY")[0])]
        key = re.findall(NAME, rest.partition("PRIMARY KEY")[2])
        if name.startswith("#"):
            self._require(values is None, "a temporary table in a scope of its own")
            self._require(self._sqlite.in_transaction, "staging outside of a transaction")
        parts = [plain(column[0]) for column in columns] + ([f"PRIMARY KEY ({', '.join(map(plain, key))})"] if key else [])
        self._sqlite.execute(f"CREATE TABLE {placed(name)} ({', '.join(parts)})")
        if not name.startswith("#"):
            self._note(name, columns, key)
        return [], -1

    def _alter(self, text: str) -> tuple[list[tuple[Any, ...]], int]:
        found = re.fullmatch(rf"ALTER TABLE ({NAME}\.{NAME}) ADD (.*)", text)
        assert found is not None, text
        column = COLUMN.fullmatch(found[2])
        assert column is not None, text
        name, *rest = described(column)
        try:
            self._sqlite.execute(f"ALTER TABLE {plain(found[1])} ADD COLUMN {plain(name)}")
        except sqlite3.OperationalError as cause:
            if "duplicate column" not in str(cause):
                raise
            raise self._error(REPEATED, f"Column names in each table must be unique: {name}.", pytds.ProgrammingError) from cause
        self._note_columns(unquoted(plain(found[1])), [(name, *rest)])
        return [], -1

    def _note(self, name: str, columns: Sequence[tuple[Any, ...]], key: Sequence[str]) -> None:
        place = unquoted(plain(name))
        self._sqlite.execute('INSERT INTO "double.table" VALUES (?, ?)', (place, "USER_TABLE"))
        self._note_columns(place, columns)
        uniques = [(place, 1, unquoted(plain(column))) for column in key]
        self._sqlite.executemany('INSERT INTO "double.unique" VALUES (?, ?, ?)', uniques)

    def _note_columns(self, place: str, columns: Sequence[tuple[Any, ...]]) -> None:
        fields = "place, name, type, length, precision, scale, collation, nullable"
        rows = [(place, unquoted(plain(column)), *rest) for column, *rest in columns]
        self._sqlite.executemany(f'INSERT INTO "double.column" ({fields}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)', rows)

    def _statement(self, text: str, values: "Mapping[str, Any] | None") -> tuple[list[tuple[Any, ...]], int]:
        self._watch(text)
        translated, bound = translate(text), {name: stored(value) for name, value in (values or {}).items()}
        merge = MERGE.fullmatch(translated)
        if merge is not None:
            return [], sum(self._sqlite.execute(step).rowcount for step in merged(merge))
        cursor = self._sqlite.execute(translated, bound)
        if cursor.description is None:
            return [], cursor.rowcount
        found = [tuple(map(restored, row)) for row in cursor.fetchall()]
        return found, len(found)

    def _watch(self, text: str) -> None:
        if "UPDLOCK" in text and "[penstock_marker]" in text:
            self._require(self._sqlite.in_transaction, "a lock outside of a transaction")
            self._sqlite.execute('UPDATE "double.lock" SET turns = turns + 1')
            self.locked = True
        if text.startswith("SELECT"):
            return
        self._require(self._sqlite.in_transaction, f"a statement outside of a transaction: {text}")
        written = re.search(rf"(?:INTO|UPDATE|DELETE FROM) ({NAME}\.{NAME})", text)
        if written is None:
            return
        self._require(self.locked, "a write before the marker is locked")
        name = written[1].rpartition(".")[2]
        self.marked = self.marked or name == "[penstock_marker]"
        self.noted = self.noted or name == "[penstock_batch]"
        self.rows_in |= {name} - {"[penstock_marker]", "[penstock_batch]"}

    def load(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """As INSERT BULK."""
        told = f"INSERT BULK {table} …"
        WATCH.said.append(told)
        self._require(
            told in self._known and self._sqlite.in_transaction and self.locked, "bulk load without a transaction and its lock"
        )
        self._fail(told, after=False)
        names = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
        marks = ", ".join("?" * len(columns))
        self._sqlite.executemany(
            f"INSERT INTO {placed(table)} ({names}) VALUES ({marks})", (list(map(stored, row)) for row in rows)
        )
        self._fail(told, after=True)


class Cursor:
    """As python-tds's, as far as the sink uses it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._rows: Iterator[tuple[Any, ...]] = iter(())
        self.rowcount = -1

    def execute(self, statement: str, values: "Mapping[str, Any] | None" = None) -> "Cursor":
        found, self.rowcount = self._session.run(statement, values or None)
        self._rows = iter(found)
        return self

    def fetchone(self) -> "tuple[Any, ...] | None":
        return next(self._rows, None)

    def fetchall(self) -> list[tuple[Any, ...]]:
        return list(self._rows)

    def fetchmany(self, size: int) -> list[tuple[Any, ...]]:
        return [row for _, row in zip(range(size), self._rows, strict=False)]

    def copy_to(self, *, data: Iterable[Sequence[Any]], table_or_view: str, columns: Sequence[pytds.Column]) -> None:
        assert all(column.type is not None for column in columns)
        self._session.load(table_or_view, [column.column_name for column in columns], data)
