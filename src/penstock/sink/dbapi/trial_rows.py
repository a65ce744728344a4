"""Rows that are written into a table on trial, read back and rolled back."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.model import NEWEST_ROW_DIGEST, Totals
from penstock.errors import Refused
from penstock.sink.dbapi.driver import Session
from penstock.sink.dbapi.load import count, rows_of, scan
from penstock.sink.dbapi.statements import TableStatements
from penstock.sink.table.publication import totals_of
from penstock.sink.table.target import NotStoredError

_CLIENT_ERRORS: Final = (pa.ArrowException, ValueError, TypeError, OverflowError, ArithmeticError, Warning)
"""What drivers raise, besides their own errors, for values that they do not take."""

_LOOKS = 2

Row: TypeAlias = Mapping[str, Any]
"""A value for each column, by name."""


class Attempts:
    """Trial writes of rows of `schema`, on an open session between transactions. Most methods read the whole table."""

    def __init__(self, session: Session, statements: TableStatements, schema: "pa.Schema") -> None:
        self._session, self._statements, self._schema = session, statements, schema
        self._before = Totals()

    def begin(self) -> None:
        """Note what the table holds. Raise Refused if its rows cannot be read as rows of `schema`."""
        try:
            self._before = self._content()
        except NotStoredError as cause:
            raise Refused(
                f"Table {self._statements.table!r} holds rows that could not be read as those that are to come: {cause}.",
                remedy="Give its columns the types that they had. With `write: replace`: run `penstock recover`, if a batch is "
                "outstanding, then empty the table. Or name another one in `table:`, and another sink if this one filled it.",
            ) from cause

    def end(self) -> None:
        """Raise Refused unless the table holds what it held: trial rows remain, or others wrote and distorted the trial."""
        if self._content() != self._before:
            raise self._not_undone()

    def problem_with(self, *rows: Row) -> str | None:
        """Return what goes wrong with these rows in one transaction, None if they come back unchanged."""
        batch = self._batch(*rows)
        try:
            self._session.execute_many(self._statements.insert, rows_of(batch))
            back = self._content_now()
        except (self._session.driver.error, NotStoredError, *_CLIENT_ERRORS) as problem:
            return " ".join(str(problem).split())[:200].rstrip(".") or type(problem).__name__
        finally:
            self._session.rollback()
        return None if back == self._before + _totals(iter([batch])) else "it came back changed"

    def come_back(self, rows: Iterable[Row]) -> bool:
        """Return whether all rows come back unchanged, tried in as few transactions as their keys allow."""
        return all(self.problem_with(*together) is None for together in self._groups_with_distinct_keys(rows))

    def takes(self, row: Row) -> bool:
        """Return whether the row can be written at all. Nothing is read, so how it would come back stays unknown."""
        try:
            self._session.execute_many(self._statements.insert, rows_of(self._batch(row)))
        except (self._session.driver.error, *_CLIENT_ERRORS):
            return False
        finally:
            self._session.rollback()
        return True

    def require_undone(self, rows: Sequence[Row]) -> None:
        """Raise Refused if one of these rows that the table takes stays after a rollback. Counts rows, and reads none."""
        if all(self._keeps_after_rollback(rows) for _ in range(_LOOKS)):
            raise self._not_undone()

    def not_there(self, values: Mapping[str, Sequence[Any]]) -> Mapping[str, Sequence[Any]]:
        """Return the columns' values without those in the table; all of a column's values if the table has all of them."""
        there: dict[str, set[Any]] = {name: set() for name in values}
        for batch in scan(self._session, self._statements.read, self._schema):
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                there[name].update(pc.index_in(column, value_set=pa.array(values[name], column.type)).to_pylist())
        self._session.rollback()
        return {name: [one for at, one in enumerate(given) if at not in there[name]] or given for name, given in values.items()}

    def _keeps_after_rollback(self, rows: Sequence[Row]) -> bool:
        """Return whether a rolled-back row raises the row count. Rows that others write meanwhile count, too."""
        for row in rows:
            before = self._count()
            if self.takes(row):  # else its key is there, say
                return self._count() > before
        return False

    def _count(self) -> int:
        rows = count(self._session, self._statements)
        self._session.rollback()
        return rows

    def _not_undone(self) -> Refused:
        return Refused(
            f"Table {self._statements.table!r} keeps what was rolled back, so nothing in it could be exactly once: "
            "rows of a trial are in it now.",
            remedy="Remove them, and let the table be one with transactions (InnoDB instead of MyISAM, say); "
            "take `autocommit` out of `connect:`.",
        )

    def _groups_with_distinct_keys(self, rows: Iterable[Row]) -> Iterator[Sequence[Row]]:
        """Yield groups of rows that the table can hold together: each key once."""
        together: list[Row] = []
        seen: set[Any] = set()
        for row in rows:
            key = tuple(row[name] for name in self._statements.key)
            if key and key in seen:
                yield together
                together, seen = [], set()
            seen.add(key)
            together.append(row)
        if together:
            yield together

    def _batch(self, *rows: Row) -> "pa.RecordBatch":
        return pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=self._schema)

    def _content(self) -> Totals:
        try:
            return self._content_now()
        finally:
            self._session.rollback()

    def _content_now(self) -> Totals:
        return _totals(scan(self._session, self._statements.read, self._schema))


def _totals(batches: Iterator["pa.RecordBatch"]) -> Totals:
    return totals_of(batches, NEWEST_ROW_DIGEST)
