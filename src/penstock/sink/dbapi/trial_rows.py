"""Rows that are written into a table on trial, read back and rolled back, and the values in them.

The values are ordinary ones, and those that some databases do not keep.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.model import NEWEST_ROW_DIGEST, Totals
from penstock.errors import Refused
from penstock.sink.dbapi.database import reason_of
from penstock.sink.dbapi.driver import Session
from penstock.sink.dbapi.load import count, rows_of, scan
from penstock.sink.dbapi.row_validator import INFINITY, NAN, NUL
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
            return reason_of(problem)[:200]
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
        for batch in scan(self._session, self._statements.read(), self._schema):
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
        return _totals(scan(self._session, self._statements.read(), self._schema))


def _totals(batches: Iterator["pa.RecordBatch"]) -> Totals:
    return totals_of(batches, NEWEST_ROW_DIGEST)


# --- values

_NUMBERS = ("007", "1.50", "1e3")
"""Texts of numbers. A column that SQLite takes for a numeric one, such as STRING, turns them into 7, 1.5 and 1000."""
_TEXTS = ("a", "", " ", "b ", "'", '"', "`", "\\", "%s", "?", ":p1", "$1", "\t", "\r\n", "é", "e\u0301", "\U0001f600", *_NUMBERS)
ROWS = len(_TEXTS)
"""How many rows hold all `_TEXTS`; no other type has more values of its own."""
_MORE = range(1, 2 * ROWS)
"""Further values of types that a key may have: in so many rows no key repeats, even one that Penstock does not know of.

They are enough where a table has some of them already.
"""
_DAYS = (dt.date(2000, 2, 29), dt.date(1, 1, 1), dt.date(9999, 12, 31))
_MOMENTS = (
    dt.datetime(2013, 1, 31, 5, 15),  # noqa: DTZ001 - Arrow gives it the column's zone
    dt.datetime(1, 1, 1),  # noqa: DTZ001
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
)
SPECIALS: Final[Mapping[str, Any]] = {NAN: float("nan"), INFINITY: float("-inf"), NUL: "a\0b"}


def special_of(kind: "pa.DataType") -> Sequence[str]:
    """Return which of NAN, INFINITY and NUL a value of the type can be or contain."""
    return (NAN, INFINITY) if pa.types.is_floating(kind) else (NUL,) if pa.types.is_string(kind) else ()


def widest_of(kind: "pa.DataType") -> Any:
    """Return the character or byte that takes the most space, None for a type whose values have no length."""
    return "\U0001f600" if pa.types.is_string(kind) else b"\xff" if pa.types.is_binary(kind) else None


def edges_of(kind: "pa.DataType") -> Sequence[Any]:
    """Return ordinary and extreme values, the most ordinary first, then further ones."""
    return next(edges(kind) for is_kind, edges in _EDGES if is_kind(kind))


def _integers(kind: Any) -> Sequence[Any]:
    most = (1 << (kind.bit_width - 1)) - 1
    return (7, most, -most - 1, 0, *(most - at for at in _MORE))


def _decimals(kind: Any) -> Sequence[Any]:
    most = 10**kind.precision - 1
    digits = (7, most, -most, *(most - at for at in _MORE if 7 != most - at > 0))
    return [Decimal((int(number < 0), [*map(int, str(abs(number)))], -kind.scale)) for number in digits]


def _moments(kind: Any) -> Sequence[Any]:
    zone = dt.timezone.utc if kind.tz else None
    moments = (*_MOMENTS, *(_MOMENTS[-1] - dt.timedelta(microseconds=at) for at in _MORE))
    return [moment.replace(tzinfo=zone) for moment in moments]


_EDGES: Final[Sequence[tuple[Callable[[Any], bool], Callable[[Any], Sequence[Any]]]]] = (
    (pa.types.is_boolean, lambda _: (True, False)),
    (pa.types.is_integer, _integers),
    (pa.types.is_float32, lambda _: (0.5, 3.4028234663852886e38, 1.401298464324817e-45)),
    (pa.types.is_float64, lambda _: (0.5, 1.7976931348623157e308, 5e-324, 0.1)),
    (pa.types.is_decimal, _decimals),
    (pa.types.is_string, lambda _: (*_TEXTS, *(str(9 + at) for at in _MORE))),
    (pa.types.is_binary, lambda _: (b"plain", b"", bytes(range(256)))),
    (pa.types.is_date, lambda _: (*_DAYS, *(_DAYS[-1] - dt.timedelta(days=at) for at in _MORE))),
    (pa.types.is_timestamp, _moments),
)
