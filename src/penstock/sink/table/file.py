"""The common part of sinks into a table of a database that is one file, and what errors of such a file mean."""

import os
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.core.model import Finding, PipelineName, SinkReport
from penstock.errors import Conflict, Failed, PenstockError, PublishFailed, Usage
from penstock.protocols import SinkDecisions
from penstock.sink.table.dialect import C, T
from penstock.sink.table.sink import TableSinkArguments
from penstock.sink.table.sql_sink import SqlSink
from penstock.sink.table.verification import without_marker
from penstock.sql.session import SqlDatabase
from penstock.support.filesystem_errors import FULL, PathProblem, file_problem

if TYPE_CHECKING:
    from typing_extensions import Unpack

BUSY_TIMEOUT_S = 10.0


class DatabaseFile(SqlDatabase[C]):
    """The database file at `path`, with one connection for publications. Not thread-safe by itself.

    `refused`: the exception for a row that a constraint refuses. `damaged`, `full`: parts of the messages about a file that is no
    database, and about a full disk. `lock` is held while the file is written to. `write_begins`: the statement that begins a
    transaction that writes.
    """

    refused: type[Exception]
    damaged: tuple[str, ...]
    full: str
    write_begins: ClassVar[str]

    def __init__(self, path: "str | os.PathLike[str]", *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        if os.fspath(path) in {"", ":memory:"}:
            raise Usage("A database in memory is lost at exit.", remedy="Name a file, or use a sink of type memory.")
        self.path = self.place = os.path.realpath(path)
        self._busy_timeout_s = busy_timeout_s
        self.lock = RLock()
        self._connection: C | None = None

    @property
    def exists(self) -> bool:
        return Path(self.path).exists()

    @abstractmethod
    def create(self) -> None:
        """Create the file if it is missing. Raise Failed."""

    def require_writable(self, kind: type[Failed] = Failed) -> None:
        """Raise `kind` if the file, or its directory, is seen not to take a write. A full disk may take it: that is tried."""
        problem = file_problem(self.path)
        if problem is not None and not problem.lacks:
            failed = "used" if self.exists else "created"
            raise kind(f"The database {self.path} cannot be {failed}: {problem.reason}.", remedy=self._remedy(problem))

    def _remedy(self, problem: PathProblem) -> str:
        if self.exists:
            return f"{problem.advice} and start again: what was decided is published then."
        return f"{problem.advice}, or name a file elsewhere in `url`; then start again."

    def begin(self, connection: C) -> None:
        connection.execute(self.write_begins)

    def commit(self, connection: C) -> None:
        connection.execute("COMMIT")

    def _reason(self, cause: Any) -> str:
        """Return the database's own message."""
        return str(cause)

    def _translate_error(self, cause: Any, kind: type[Failed]) -> PenstockError | Conflict:
        reason = self._reason(cause)
        if isinstance(cause, self.refused):
            return kind(
                f"The table in {self.path} refused a row: {reason}.",
                remedy="Drop the constraint or correct the table's rows, then start again: what was decided is published then.",
            )
        if any(sign in reason for sign in self.damaged):
            return kind(
                f"The file {self.path} cannot be used as a database: {reason}.",
                remedy="Restore it from a backup and start again: what was decided is published then.",
            )
        seen = self._problem(reason)
        return kind(
            f"The database {self.path} cannot be used: {seen.reason}.",
            remedy=self._remedy(seen),
        )

    def _conflict_in(self, cause: Any) -> Conflict | None:
        translated = self._translate_error(cause, PublishFailed)
        return translated if isinstance(translated, Conflict) else None

    def _diagnose(self, cause: Any) -> tuple[str, str]:
        seen = self._problem(self._reason(cause))
        return seen.reason, f"{seen.advice} and try again"

    def _problem(self, reason: str) -> PathProblem:
        """Return the problem that the database's message and a look at the file show together."""
        seen = file_problem(self.path) or (FULL if self.full in reason else None)
        if seen is None:
            return PathProblem(reason=reason, advice="Mend the cause")
        return PathProblem(reason=f"{seen.reason} ({reason})", advice=seen.advice)


class FileSink(SqlSink[C, T]):
    """The common part of sinks into one table of a database file, which is created where it is missing."""

    _database: DatabaseFile[C]
    _database_type: ClassVar[type[DatabaseFile[Any]]]

    def __init__(
        self, *, path: "str | os.PathLike[str]", busy_timeout_s: float = BUSY_TIMEOUT_S, **filling: "Unpack[TableSinkArguments]"
    ) -> None:
        self._database = self._database_type(path, busy_timeout_s=busy_timeout_s)
        super().__init__(**filling)
        self._lock = self._database.lock

    def check(self) -> Sequence[Finding]:
        """Look at the file, or at the directory where it would be created."""
        try:
            self._database.require_writable()
        except Failed as error:
            return [Finding(subject=f"sink {self._name}", ok=False, message=str(error))]
        return super().check()

    def require_writable(self, *, home: str) -> None:
        """Raise Failed if the file, or the directory where it would be created, takes no write.

        A missing directory passes if a start creates it: the pipeline's `home`, or one above it.
        """
        directory, created = Path(self._database.path).parent.resolve(), Path(home).resolve()
        if directory.is_dir() or directory not in {created, *created.parents}:
            self._database.require_writable()

    def prepare(self, *, pipeline: PipelineName, schema: str | None) -> None:
        """Create or check the file, the table and its marker. Raise Usage, Refused, Failed, Retryable."""
        if not self._database.exists:
            if schema is None:
                self._spool.prepare(pipeline)
                return
            if self._create:
                self._database.create()
        super().prepare(pipeline=pipeline, schema=schema)

    def verify(self, decisions: SinkDecisions) -> SinkReport:
        """Compare the table with its marker, and the marker with the ledger."""
        if not self._database.exists:
            return without_marker(decisions, f"There is no database file {self._database.path}.")
        return super().verify(decisions)

    def _open_preparation(self, connection: C) -> None:
        self._database.begin(connection)
        for statement in self._own.creates.values():
            connection.execute(statement)

    def _add_ledger_id(self, connection: C) -> None:
        self._database.begin(connection)
        super()._add_ledger_id(connection)
        self._database.commit(connection)
