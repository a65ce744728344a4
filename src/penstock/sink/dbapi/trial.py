"""The trial of a table: rows of extreme values are written, read back, and rolled back. It tells what the database keeps.

Nothing else can: a driver names no types that all databases share. A value that does not come back as it went is refused, in the
whole column where it is an ordinary one, in the tasks where it is NaN, an infinity, NUL, NULL or a very long text.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from penstock.errors import Refused
from penstock.model import Totals
from penstock.sink.dbapi.admission import INFINITY, NAN, NUL
from penstock.sink.dbapi.driver import Session
from penstock.sink.dbapi.move import rows_of, scan
from penstock.sink.dbapi.statements import TableStatements
from penstock.sink.table.content import totals_of
from penstock.sink.table.target import NotStoredError

TROUBLE: Final = (pa.ArrowException, ValueError, TypeError, OverflowError, ArithmeticError, Warning)
"""What drivers raise besides their own errors for values that they do not take."""

_NUMBERS = ("007", "1.50", "1e3")
"""As texts. A column that SQLite takes for a numeric one, STRING say, makes 7, 1.5 and 1000 of them."""
_TEXTS = ("a", "", " ", "b ", "'", '"', "`", "\\", "%s", "?", ":p1", "$1", "\t", "\r\n", "é", "e\u0301", "\U0001f600", *_NUMBERS)
_DAYS = (dt.date(2000, 2, 29), dt.date(1, 1, 1), dt.date(9999, 12, 31))
_MOMENTS = (
    dt.datetime(2013, 1, 31, 5, 15),  # noqa: DTZ001 - Arrow gives it the column's zone
    dt.datetime(1, 1, 1),  # noqa: DTZ001
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
)
_SPECIALS = {NAN: float("nan"), INFINITY: float("-inf"), NUL: "a\0b"}
_WIDEST = "\U0001f600"
_LOOKS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a table keeps. `required`: columns that hold no NULL; the others as `Admission` has them."""

    required: tuple[str, ...] = ()
    lacking: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    longest: Mapping[str, int] = field(default_factory=dict)


class Trial:
    """On an open session, between two transactions. `longest`: how long a text or some bytes are tried at most."""

    def __init__(self, session: Session, statements: TableStatements, schema: "pa.Schema", *, longest: int) -> None:
        self._session, self._statements, self._schema, self._longest = session, statements, schema, longest
        self._plain = {column.name: _edges(column.type)[0] for column in schema}

    def run(self) -> Kept:
        """Raise Refused for a table that does not keep ordinary values, or does not undo what is rolled back."""
        before = self._content()
        for rows in self._apart(self._ordinary()):
            if self._tried(*rows) is not None:
                for row in rows:
                    self._require(row)
        kept = Kept(required=self._required(), lacking=self._lacking(), longest=self._longest_of_columns())
        if self._content() != before:
            raise self._not_undone()
        return kept

    def require_undone(self) -> None:
        """Raise Refused for a table that was tried, and keeps now what is rolled back: it may be another one, or altered."""
        if all(self._grows() for _ in range(_LOOKS)):
            raise self._not_undone()

    def _grows(self) -> bool:
        """Whether a row that is rolled back stays; what others write meanwhile counts, too."""
        for row in self._ordinary():
            before = self._count()
            try:
                self._session.execute_many(self._statements.insert, rows_of(self._batch(row)))
            except (self._session.driver.error, *TROUBLE):
                self._session.rollback()  # its key is there, say
                continue
            self._session.rollback()
            return self._count() > before
        return False

    def _count(self) -> int:
        [rows] = self._session.execute(self._statements.count).fetchall()[0]
        self._session.rollback()
        return int(rows)

    def _not_undone(self) -> Refused:
        return Refused(
            f"Table {self._statements.table!r} keeps what was rolled back, so nothing in it could be exactly once: "
            "rows of a trial are in it now.",
            remedy="Remove them, and let the table be one with transactions (InnoDB instead of MyISAM, say); "
            "take `autocommit` out of `connect:`.",
        )

    def _batch(self, *rows: Mapping[str, Any]) -> "pa.RecordBatch":
        return pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=self._schema)

    def _ordinary(self) -> Iterator[Mapping[str, Any]]:
        edges = {column.name: _edges(column.type) for column in self._schema}
        for at in range(max(len(values) for values in edges.values())):
            yield {name: values[at % len(values)] for name, values in edges.items()}

    def _apart(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[Sequence[Mapping[str, Any]]]:
        """Rows that can be there together: each key once."""
        together: list[Mapping[str, Any]] = []
        seen: set[Any] = set()
        for row in rows:
            key = tuple(row[name] for name in self._statements.key)
            if key and key in seen:
                yield together
                together, seen = [], set()
            seen.add(key)
            together.append(row)
        yield together

    def _require(self, row: Mapping[str, Any]) -> None:
        trouble = self._tried(row)
        if trouble is None:
            return
        guilty = () if self._tried(self._plain) else row.items()
        name = next((name for name, value in guilty if self._tried({**self._plain, name: value}) is not None), None)
        told = f"column {name!r} ({self._schema.field(name).type}), value {row[name]!r:.60}" if name else "a row of plain values"
        raise Refused(
            f"Table {self._statements.table!r} does not give back what is written into it: {told}: {trouble}.",
            remedy="Declare the column with a type that keeps it (`columns:` of the sink, or your own CREATE TABLE), or cast it "
            "in the transform, to STRING say.",
        )

    def _required(self) -> tuple[str, ...]:
        key = self._statements.key
        others = [name for name in self._schema.names if name not in key]
        if not others or self._tried({**self._plain, **dict.fromkeys(others)}) is None:
            return key
        return (*key, *(name for name in others if self._tried({**self._plain, name: None}) is not None))

    def _lacking(self) -> Mapping[str, tuple[str, ...]]:
        found = {column.name: tuple(self._lacks(column)) for column in self._schema}
        return {name: whats for name, whats in found.items() if whats}

    def _lacks(self, column: "pa.Field") -> Iterator[str]:
        whats = (NAN, INFINITY) if pa.types.is_floating(column.type) else (NUL,) if pa.types.is_string(column.type) else ()
        for what in whats:
            if self._tried({**self._plain, column.name: _SPECIALS[what]}) is not None:
                yield what

    def _longest_of_columns(self) -> Mapping[str, int]:
        kinds = {column.name: column.type for column in self._schema}
        return {
            name: self._longest_of(name, _WIDEST if pa.types.is_string(kind) else b"\xff")
            for name, kind in kinds.items()
            if pa.types.is_string(kind) or pa.types.is_binary(kind)
        }

    def _longest_of(self, name: str, unit: Any) -> int:
        """By halves, if not all of it fits."""
        fits, too_long = 0, self._longest + 1
        probe = self._longest
        while too_long - fits > 1:
            if self._tried({**self._plain, name: unit * probe}) is None:
                fits = probe
            else:
                too_long = probe
            probe = (fits + too_long) // 2
        return fits

    def _tried(self, *rows: Mapping[str, Any]) -> str | None:
        """Write them, read the table, roll back; what went wrong, None if they came back."""
        batch, before = self._batch(*rows), self._content()
        try:
            self._session.execute_many(self._statements.insert, rows_of(batch))
            back = self._content_now()
        except (self._session.driver.error, NotStoredError, *TROUBLE) as trouble:
            return " ".join(str(trouble).split())[:200].rstrip(".") or type(trouble).__name__
        finally:
            self._session.rollback()
        return None if back == before + totals_of(iter([batch])) else "it came back changed"

    def _content(self) -> Totals:
        try:
            return self._content_now()
        finally:
            self._session.rollback()

    def _content_now(self) -> Totals:
        return totals_of(scan(self._session, self._statements.read, self._schema))


def _edges(kind: "pa.DataType") -> Sequence[Any]:
    """Ordinary and extreme values, the most ordinary first."""
    return next(edges(kind) for is_kind, edges in _EDGES if is_kind(kind))


def _integers(kind: Any) -> Sequence[Any]:
    most = (1 << (kind.bit_width - 1)) - 1
    return (7, most, -most - 1, 0)


def _decimals(kind: Any) -> Sequence[Any]:
    most = Decimal((0, (9,) * kind.precision, -kind.scale))
    return (Decimal((0, (7,), -kind.scale)), most, -most)


def _moments(kind: Any) -> Sequence[Any]:
    zone = dt.timezone.utc if kind.tz else None
    return tuple(moment.replace(tzinfo=zone) for moment in _MOMENTS)


_EDGES: Final[Sequence[tuple[Callable[[Any], bool], Callable[[Any], Sequence[Any]]]]] = (
    (pa.types.is_boolean, lambda _: (True, False)),
    (pa.types.is_integer, _integers),
    (pa.types.is_float32, lambda _: (0.5, 3.4028234663852886e38, 1.401298464324817e-45)),
    (pa.types.is_float64, lambda _: (0.5, 1.7976931348623157e308, 5e-324, 0.1)),
    (pa.types.is_decimal, _decimals),
    (pa.types.is_string, lambda _: _TEXTS),
    (pa.types.is_binary, lambda _: (b"plain", b"", bytes(range(256)))),
    (pa.types.is_date, lambda _: _DAYS),
    (pa.types.is_timestamp, _moments),
)
