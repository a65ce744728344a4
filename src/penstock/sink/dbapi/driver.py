"""A DB-API driver by the name of its module, and a session that passes statements and values to it."""

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from penstock.errors import DependencyMissing, Usage
from penstock.sink.dbapi.statements import STYLES, Sql

_NEEDED = ("connect", "paramstyle", "Error", "IntegrityError", "OperationalError", "InterfaceError", "InternalError")
_FETCHED_ROWS = 5_000


class Driver:
    """The driver module `name`. Raises DependencyMissing if it is not installed, Usage if it is no DB-API 2.0 driver."""

    def __init__(self, name: str) -> None:
        self.name = name
        try:
            module: Any = importlib.import_module(name)
        except ImportError as cause:
            raise DependencyMissing(
                f"The module {name} cannot be imported: {cause}.",
                remedy="Install its package where the driver runs, or correct `driver:`.",
            ) from cause
        lacking = [member for member in _NEEDED if not hasattr(module, member)]
        if lacking:
            raise Usage(
                f"Module {name} is no driver of the DB-API 2.0: it lacks {', '.join(lacking)}.",
                remedy="Name the module that has connect(), such as psycopg, pymysql or adbc_driver_sqlite.dbapi.",
            )
        if module.paramstyle not in STYLES:
            raise Usage(
                f"Driver {name} has the paramstyle {module.paramstyle!r}, expected one of {', '.join(STYLES)}.",
                remedy="Choose another driver for this database.",
            )
        self.style: str = module.paramstyle
        self.error: type[Exception] = module.Error
        self.refused: type[Exception] = module.IntegrityError
        self.passing: tuple[type[Exception], ...] = (module.OperationalError, module.InterfaceError, module.InternalError)
        self._connect = module.connect

    def open(self, arguments: Mapping[str, Any]) -> "Session":
        """Open a session. Raise the driver's errors, or Usage for arguments that `connect` does not take."""
        plain = {name: str(value) if isinstance(value, str) else value for name, value in arguments.items()}
        try:
            connection = self._connect(**plain)
        except TypeError as wrong:
            raise Usage(f"{self.name}.connect() does not take these arguments: {wrong}.", remedy="Correct `connect:`.") from wrong
        return Session(self, connection)


class Session:
    """One connection with one cursor; a transaction begins with its first statement. Raises the driver's errors."""

    def __init__(self, driver: Driver, connection: Any) -> None:
        self.driver, self._connection = driver, connection
        self._cursor = connection.cursor()

    def execute(self, sql: Sql | str, values: Mapping[str, Any] | None = None) -> "Session":
        """Run one statement; `fetchone`, `fetchall` and `fetched` return its rows."""
        text, names = (sql, ()) if isinstance(sql, str) else sql.rendered(self.driver.style)
        if names:
            self._cursor.execute(text, _bound(names, values or {}, self.driver.style))
        else:
            self._cursor.execute(text)
        return self

    def execute_many(self, sql: Sql, rows: Iterable[Sequence[Any]]) -> int:
        """Run one statement for each row, whose values are in the order of its parameters; return the number of rows written.

        That is the number of `rows` where the driver does not report it.
        """
        text, names = sql.rendered(self.driver.style)
        bound = [_bound(names, dict(zip(names, row, strict=True)), self.driver.style) for row in rows]
        if not bound:
            return 0
        self._cursor.executemany(text, bound)
        written = getattr(self._cursor, "rowcount", -1)
        return len(bound) if written < 0 else int(written)

    def fetchone(self) -> Sequence[Any] | None:
        """Return the next row, None after the last one, as a tuple: some drivers have lists or classes of their own."""
        row = self._cursor.fetchone()
        return None if row is None else tuple(row)

    def fetchall(self) -> Sequence[Sequence[Any]]:
        return [tuple(row) for row in self._cursor.fetchall()]

    def fetched(self) -> Iterator[Sequence[Sequence[Any]]]:
        """Yield all remaining rows, some at a time."""
        while rows := self._cursor.fetchmany(_FETCHED_ROWS):
            yield list(rows)

    def commit(self) -> None:
        self._connection.commit()

    def rollback(self) -> None:
        self._connection.rollback()

    def close(self) -> None:
        """Close the session, which rolls back its transaction. Errors of the driver are ignored: they mean nothing then."""
        for part in (self._cursor, self._connection):
            with suppress(self.driver.error, OSError, ValueError, RuntimeError):
                part.close()


def _bound(names: Sequence[str], values: Mapping[str, Any], style: str) -> Any:
    given = [values[name] for name in names]
    return {f"p{at}": value for at, value in enumerate(given, 1)} if style in {"named", "pyformat"} else tuple(given)
