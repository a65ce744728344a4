"""How Arrow values are passed to any driver and read back: only in types that all databases have."""

from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.sink.table.storage import (
    ColumnStorage,
    ColumnStorages,
    Declares,
    Restore,
    Values,
    always,
    anything,
    as_is,
    digits_of,
    to_flags,
    to_integers,
    to_plain_moments,
    to_reals,
    to_values,
    without_negative_scale,
)
from penstock.sink.table.target import NotStoredError

_types = pa.types


def _decimal(kind: "pa.DataType") -> str:
    precision, scale = digits_of(kind)
    return f"DECIMAL({precision}, {scale})"


def _in_utc(column: "pa.Array") -> "pa.Array":
    """Return timestamps without a zone, in UTC."""
    return column.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us")) if column.type.tz else column


def _only(*kinds: type) -> Restore:
    """Return a function that converts values of these Python types alone."""

    def restore(values: Values, kind: Any) -> "pa.Array":
        for value in values:
            if value is not None and type(value) not in kinds:
                raise NotStoredError(f"expected {kinds[0].__name__}, found {type(value).__name__}")
        return to_values(values, kind)

    return restore


def _moments(values: Values, kind: Any) -> "pa.Array":
    return to_plain_moments(values).cast(pa.timestamp("us", "UTC") if kind.tz else kind)


def _octets(values: Values, kind: Any) -> "pa.Array":
    return pa.array([None if value is None else bytes(memoryview(value)) for value in values], kind)


def _storage(spark: str, declared: Declares, restore: Restore, encode: Any = as_is) -> ColumnStorage:
    return ColumnStorage(spark=spark, declared=declared, takes=anything, encode=encode, restore=restore)


STORAGES: ColumnStorages[ColumnStorage] = ColumnStorages(
    "a database behind any driver",
    (_types.is_boolean, _storage("boolean", always("BOOLEAN"), to_flags)),
    (_types.is_integer, _storage("byte, short, integer, long", always("BIGINT"), to_integers)),
    (_types.is_floating, _storage("float, double", always("DOUBLE PRECISION"), to_reals)),
    (_types.is_decimal, _storage("decimal(p,s)", _decimal, _only(Decimal), without_negative_scale)),
    (_types.is_string, _storage("string", always("TEXT"), _only(str))),
    (_types.is_binary, _storage("binary", always("BLOB"), _octets)),
    (_types.is_date, _storage("date", always("DATE"), _only(date))),
    (_types.is_timestamp, _storage("timestamp, timestamp_ntz", always("TIMESTAMP"), _moments, _in_utc)),
)
values_of = STORAGES.values_of
