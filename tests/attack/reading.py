"""What is in a target, read by another client than the sink's, and what rows must look like there.

Both as plain values that tell every difference: numbers of floating point as their digits, times as microseconds, dates as days.
"""

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as is_
from tests.unit.table_target import spark_schema

from penstock.spark.schema import arrow_schema

_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - of readers that give none
_MICROSECOND = dt.timedelta(microseconds=1)


def plain(column: "pa.Array | pa.ChunkedArray") -> list[Any]:
    """The values of a column of the rows."""
    kind, column = column.type, column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if is_.is_nested(kind):
        return [None if value is None else _nested(dict(value) if is_.is_map(kind) else value) for value in column.to_pylist()]
    if is_.is_time(kind):
        return [None if value is None else value // 1000 for value in column.cast(pa.time64("ns")).view(pa.int64()).to_pylist()]
    if is_.is_date(kind):
        return column.view(pa.int32()).to_pylist()
    if is_.is_temporal(kind):
        return column.view(pa.int64()).to_pylist()
    convert = _of_kind(kind)
    return [None if value is None else convert(value) for value in column.to_pylist()]


def read(rig: Any, columns: Mapping[str, Any], *, table: str | None = None) -> "Counter[tuple[Any, ...]]":
    """All rows of the rig's target; of another `table`, as SQL has it."""
    schema = arrow_schema(spark_schema(**columns))
    if hasattr(rig, "parquet_files"):
        return Counter(row for path in rig.parquet_files() for row in plain_rows(pq.ParquetFile(path).read(schema.names), schema))
    dialect = DIALECTS[type(rig).__module__.rpartition(".")[2].removesuffix("_target")]
    selected = ", ".join(dialect.expression(field) for field in schema)
    found = rig.sql(f"SELECT {selected} FROM {table or rig.table}")
    return Counter(tuple(dialect.value(value, field.type) for value, field in zip(row, schema, strict=True)) for row in found)


def expected(rows: "pa.RecordBatch") -> "Counter[tuple[Any, ...]]":
    return Counter(plain_rows(rows, rows.schema))


def plain_rows(rows: Any, schema: "pa.Schema") -> list[tuple[Any, ...]]:
    return list(zip(*(plain(rows.column(name)) for name in schema.names), strict=True))


def _nested(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _real(value: Any) -> str:
    return repr(float(value) + 0.0)


def _of_kind(kind: "pa.DataType") -> Callable[[Any], Any]:
    if is_.is_floating(kind):
        return _real
    if is_.is_decimal(kind):
        return lambda value: format(value, "f")
    return bool if is_.is_boolean(kind) else bytes if is_.is_binary(kind) else lambda value: value


def _days(value: dt.date) -> int:
    return value.toordinal() - _EPOCH.toordinal()


def _microseconds(moment: dt.datetime) -> int:
    return (moment.replace(tzinfo=None) - _EPOCH) // _MICROSECOND


def _iso(text: str) -> int:
    return _microseconds(dt.datetime.fromisoformat(text.removesuffix("Z")))


class Dialect:
    """`selected`: for kinds of columns, the expression that is read instead of it. `made`: what its value is made into."""

    def __init__(self, quote: str = '"', *, selected: Any = (), made: Any = ()) -> None:
        self._quote, self._selected, self._made = quote, tuple(selected), tuple(made)

    def quoted(self, name: str) -> str:
        return f"{self._quote}{name.replace(self._quote, 2 * self._quote)}{self._quote}"

    def expression(self, field: "pa.Field") -> str:
        template = next((template for test, template in self._selected if test(field.type)), "{}")
        return template.replace("{}", self.quoted(field.name))

    def value(self, found: Any, kind: "pa.DataType") -> Any:
        if found is None:
            return None
        make = next((make for test, make in self._made if test(kind)), _of_kind(kind))
        return make(found)


def _from_json(text: str) -> str:
    return _nested(json.loads(text))


NESTED = (is_.is_nested, _from_json)

DIALECTS = {
    "sqlite": Dialect(
        made=[
            NESTED,
            (is_.is_decimal, str),
            (is_.is_date, lambda text: _days(dt.date.fromisoformat(text))),
            (is_.is_timestamp, _iso),
            (is_.is_time, lambda text: _iso(f"1970-01-01 {text[:15]}")),
        ],
    ),
    "duckdb": Dialect(
        selected=[
            (is_.is_date, "datediff('day', DATE '1970-01-01', {})"),
            (lambda kind: is_.is_timestamp(kind) or is_.is_time(kind), "epoch_us({})"),
            (is_.is_map, "CAST({} AS JSON)"),
        ],
        made=[(is_.is_map, _from_json), (is_.is_nested, _nested)],
    ),
    "postgres": Dialect(
        selected=[
            (is_.is_date, "{} - date '1970-01-01'"),
            (
                is_.is_temporal,  # the whole epoch is rounded where it is far away
                "extract(epoch from date_trunc('second', {})) * 1000000 + extract(microseconds from {})::bigint % 1000000",
            ),
            (is_.is_nested, "{}::text"),
            (is_.is_floating, "{}::float8"),
        ],
        made=[NESTED, (is_.is_temporal, int)],
    ),
    "mysql": Dialect(
        "`",
        selected=[(is_.is_floating, "{} * 1e0")],
        made=[
            NESTED,
            (is_.is_date, _days),
            (is_.is_timestamp, _microseconds),
            (is_.is_time, lambda found: found // _MICROSECOND),
        ],
    ),
    "cassandra": Dialect(
        selected=[(is_.is_timestamp, "toUnixTimestamp({})")],
        made=[
            NESTED,
            (is_.is_date, lambda found: found.days_from_epoch),
            (is_.is_timestamp, lambda found: found * 1000),
            (is_.is_time, lambda found: found.nanosecond_time // 1000),
        ],
    ),
}
DIALECTS["redshift"] = DIALECTS["postgres"]
DIALECTS["dbapi"] = DIALECTS["sqlite"]
