"""How values are stored in a table's columns: one storage for each group of Arrow types, and rules that databases share."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock.sink.table.nested import from_json, is_bytes, is_text, to_json
from penstock.sink.table.target import NotStoredError

if TYPE_CHECKING:
    from typing_extensions import Self

Values: TypeAlias = list[Any]
IsKind: TypeAlias = Callable[[Any], bool]
Declares: TypeAlias = Callable[[Any], str]
Takes: TypeAlias = Callable[[str, Any], bool]
"""Whether a column, by its type in the catalog, keeps every value of an Arrow type."""
Encode: TypeAlias = Callable[["pa.Array"], "pa.Array"]
Restore: TypeAlias = Callable[[Values, Any], "pa.Array"]

INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
"""Digits that a decimal column needs to hold every integer, by the integer's bits."""


class RestoresValues(Protocol):
    """A storage, which converts the database's values back to Arrow's."""

    @property
    def restore(self) -> Restore:
        """The conversion. It raises NotStoredError, or what Arrow and Python raise, for values not stored from the type."""
        ...


S = TypeVar("S", bound=RestoresValues)


class Storages(Generic[S]):
    """The storages of one `database`, each with the test for its Arrow types; the first test that succeeds decides."""

    def __init__(self, database: str, *storages: tuple[IsKind, S]) -> None:
        self._database, self._storages = database, storages

    @classmethod
    def of_types(cls, database: str, **storages: S) -> "Self":
        """Return the storages of Spark's types, by the names in `SPARK_TYPES`."""
        return cls(database, *((SPARK_TYPES[name], storage) for name, storage in storages.items()))

    def __iter__(self) -> Iterator[tuple[IsKind, S]]:
        return iter(self._storages)

    def __len__(self) -> int:
        return len(self._storages)

    def of(self, kind: "pa.DataType") -> S:
        """Return the storage for values of `kind`. Raise TypeError for a type that Spark does not produce."""
        for is_kind, storage in self._storages:
            if is_kind(kind):
                return storage
        raise TypeError(f"Arrow's {kind} has no place in {self._database}")

    def restored(self, values: Sequence[Any], kind: "pa.DataType") -> "pa.Array":
        """Convert `values`, as the database's client returns them, back to a column of `kind`. Raise NotStoredError."""
        try:
            return self.of(kind).restore(list(values), kind)
        except NotStoredError:
            raise
        except (pa.ArrowException, ValueError, OverflowError, TypeError, KeyError, ArithmeticError) as cause:
            raise NotStoredError(f"expected a stored {kind}: {cause}") from cause

    def batches(self, pages: Iterable[Sequence[Sequence[Any]]], schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
        """Yield an Arrow batch of `schema` for each page of a query's rows. Raise NotStoredError, naming the column."""
        for rows in pages:
            yield batch_of(rows, schema, self.restored)


SPARK_TYPES: Mapping[str, IsKind] = {
    "short": lambda kind: pa.types.is_int8(kind) or pa.types.is_int16(kind),
    "integer": pa.types.is_int32,
    "long": pa.types.is_int64,
    "float": pa.types.is_float32,
    "double": pa.types.is_float64,
    "boolean": pa.types.is_boolean,
    "decimal": pa.types.is_decimal,
    "string": is_text,
    "binary": is_bytes,
    "date": pa.types.is_date,
    "timestamp": lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None,
    "timestamp_ntz": lambda kind: pa.types.is_timestamp(kind) and kind.tz is None,
    "time": pa.types.is_time,
    "interval": pa.types.is_duration,
    "nested": pa.types.is_nested,
    "void": pa.types.is_null,
}
"""Tests for the Arrow types of Spark's: `short` is also a byte, `nested` a struct, array, map or variant."""


def batch_of(
    rows: Sequence[Sequence[Any]], schema: "pa.Schema", restored: Callable[[Sequence[Any], "pa.DataType"], "pa.Array"]
) -> "pa.RecordBatch":
    """Convert rows of a database, at least one, to an Arrow batch of `schema`. Raise NotStoredError, naming the column."""
    columns = []
    for field, values in zip(schema, zip(*rows, strict=True), strict=True):
        try:
            columns.append(restored(values, field.type))
        except NotStoredError as cause:
            raise NotStoredError(f"column {field.name!r}: {cause}") from cause
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnStorage:
    """How one group of Arrow types is stored in a column of a database that has types of its own.

    `declared`: the type of a column that is created. `takes`: whether an existing column will do. `encode` converts to the
    values that are sent, `restore` converts back what `read` selects, in which `{}` is the column. For people: `spark` names the
    types, `also` the other columns that will do, `refused` the values that will not.
    """

    spark: str
    declared: Declares
    takes: Takes
    encode: Encode
    restore: Restore
    read: str = "{}"
    also: str = ""
    refused: str = ""

    @classmethod
    def one_of(
        cls,
        spark: str,
        declared: str,
        *also: str,
        same: Sequence[str] = (),
        encode: Encode,
        restore: Restore,
        refused: str = "",
        **own: Any,
    ) -> "Self":
        """Return a storage for columns of these types alone. `declared` is the type created, `same` are other names for it."""
        return cls(
            spark=spark,
            declared=always(declared),
            takes=only(declared, *same, *also),
            encode=encode,
            restore=restore,
            also=", ".join(also),
            refused=refused,
            **own,
        )

    @classmethod
    def integers(cls, spark: str, declared: str, *, takes: Takes, encode: Encode, also: str, **own: Any) -> "Self":
        """Return a storage for integers, which are created as `declared` and stored in columns that `takes` accepts."""
        return cls(spark=spark, declared=always(declared), takes=takes, encode=encode, restore=to_integers, also=also, **own)

    @classmethod
    def decimals(cls, kinds: "Decimals", *, encode: Encode, restore: Restore | None = None, **own: Any) -> "Self":
        """Return a storage for decimals in columns that have all their digits."""
        declared, takes, restore = kinds.declared, kinds.takes, restore or to_values
        return cls(spark="decimal(p,s)", declared=declared, takes=takes, encode=encode, restore=restore, **own)

    @classmethod
    def texts(cls, declared: str, *, takes: Takes, **own: Any) -> "Self":
        """Return a storage for texts."""
        return cls(spark="string", declared=always(declared), takes=takes, encode=as_is, restore=to_texts, **own)

    @classmethod
    def json(cls, declared: str, *, takes: Takes, **own: Any) -> "Self":
        """Return a storage for nested values as JSON."""
        nested = "struct, array, map, variant"
        return cls(spark=nested, declared=always(declared), takes=takes, encode=json_texts, restore=to_nested, **own)

    @classmethod
    def nulls(cls, declared: str, *, takes: Takes, also: str, **own: Any) -> "Self":
        """Return a storage for columns without values."""
        return cls(spark="void", declared=always(declared), takes=takes, encode=nothing, restore=to_values, also=also, **own)


K = TypeVar("K", bound=ColumnStorage)


class ColumnStorages(Storages[K]):
    """`Storages` of a database that has types of its own."""

    def declared(self, schema: "pa.Schema") -> list[str]:
        """Return the types of the columns that are created for rows of `schema`."""
        return [self.of(field.type).declared(field.type) for field in schema]

    def values_of(self, column: "pa.Array") -> list[Any]:
        """Return the values that are sent."""
        values: list[Any] = self.of(column.type).encode(column).to_pylist()
        return values

    def read_as(self, schema: "pa.Schema") -> tuple[str, ...]:
        """Return the expressions that select the columns for `batches`."""
        return tuple(self.of(field.type).read for field in schema)


# --- which columns are created, and which will do


def size_in(pattern: "re.Pattern[str]", declared: str) -> int | None:
    """Return the size that `pattern` finds in a column's type, None if it does not match."""
    found = pattern.fullmatch(declared)
    return int(found[1]) if found else None


def always(name: str) -> Declares:
    """Return a function that declares every column as `name`."""
    return lambda _: name


def only(*names: str) -> Takes:
    """Return a function that accepts columns of these types alone."""
    return lambda declared, _: declared in names


def anything(_declared: str, _kind: Any) -> bool:
    """Accept every column."""
    return True


def digits_of(kind: Any) -> tuple[int, int]:
    """Return precision and scale of a column for every value of a decimal type, whose own scale may be negative."""
    return kind.precision - min(0, kind.scale), max(0, kind.scale)


@dataclass(frozen=True, slots=True)
class Decimals:
    """A database's decimal type. `places` finds precision and scale in a column's type; `unlimited` is the type without them."""

    name: str
    places: "re.Pattern[str]"
    unlimited: str | None = None

    def declared(self, kind: Any) -> str:
        """Return the type of a created column for values of a decimal type."""
        precision, scale = digits_of(kind)
        return f"{self.name}({precision},{scale})"

    def takes(self, declared: str, kind: Any) -> bool:
        """Return whether a column has the digits of a decimal type."""
        precision, scale = digits_of(kind)
        return self._has(declared, precision - scale, scale)

    def takes_integers(self, declared: str, kind: Any) -> bool:
        """Return whether a column has the digits of an integer type."""
        return self._has(declared, INTEGER_DIGITS[kind.bit_width], 0)

    def or_integers(self, **bits: int) -> Takes:
        """Return a function that accepts integer columns with enough of these `bits`, and decimals with enough digits."""
        return lambda declared, kind: bits.get(declared, 0) >= kind.bit_width or self.takes_integers(declared, kind)

    def _has(self, declared: str, before: int, after: int) -> bool:
        found = self.places.fullmatch(declared)
        enough = found is not None and int(found[1]) - int(found[2]) >= before and int(found[2]) >= after
        return enough or declared == self.unlimited


# --- encoding


def as_is(column: "pa.Array") -> "pa.Array":
    """Return the values unchanged."""
    return column


def cast_to(kind: "pa.DataType") -> Encode:
    """Return an encoder that casts values."""
    return lambda column: column.cast(kind)


def without_negative_scale(column: "pa.Array") -> "pa.Array":
    """Cast decimals with a negative scale to scale 0, so that they have all their digits."""
    return column.cast(pa.decimal128(38, 0)) if column.type.scale < 0 else column


def json_texts(column: "pa.Array") -> "pa.Array":
    """Return nested values as the JSON texts of `to_json`."""
    return pa.array(to_json(column), pa.string())


def nothing(column: "pa.Array") -> "pa.Array":
    """Return as many NULLs as there are values."""
    return pa.nulls(len(column), pa.string())


# --- restoring


def to_values(values: Values, kind: Any) -> "pa.Array":
    """Convert values that Arrow takes as they are."""
    return pa.array(values, kind)


def to_integers(values: Sequence[Any], kind: "pa.DataType") -> "pa.Array":
    """Convert integers, or decimals without a fraction, to `kind`. Raise NotStoredError for other decimals."""
    return pa.array([_whole(value) if isinstance(value, Decimal) else value for value in values], pa.int64()).cast(kind)


def to_reals(values: Sequence[Any], kind: "pa.DataType") -> "pa.Array":
    """Convert doubles to `kind`. Raise NotStoredError if `kind` cannot hold one of them exactly."""
    return narrowed_reals(pa.array(values, pa.float64()), kind)


def narrowed_reals(found: "pa.Array", kind: "pa.DataType") -> "pa.Array":
    """Return floats as `kind`. Raise NotStoredError if `kind` cannot hold one of them exactly."""
    if found.type.equals(kind):
        return found
    narrow = found.cast(kind, safe=False)
    if pc.any(pc.and_not(pc.not_equal(narrow.cast(pa.float64()), found), pc.is_nan(found))).as_py():
        raise NotStoredError(f"expected numbers that {kind} can hold")
    return narrow


def _whole(value: Decimal) -> int:
    if value != value.to_integral_value():
        raise NotStoredError(f"expected a whole number, found {value}")
    return int(value)


def to_texts(values: Values, kind: Any) -> "pa.Array":
    """Convert texts to a column of texts, or of a type that Arrow parses from texts."""
    return pa.array(values, pa.string()).cast(kind)


def to_flags(values: Values, kind: Any) -> "pa.Array":
    """Convert 0 and 1 to booleans. Raise NotStoredError for other values."""
    if not {0, 1, None}.issuperset(values):
        raise NotStoredError("expected 0 or 1")
    return pa.array([None if value is None else value == 1 for value in values], kind)


def to_plain_moments(values: Values) -> "pa.Array":
    """Convert Python's timestamps to ones without a zone, in UTC. Raise NotStoredError for other values."""
    naive = []
    for value in values:
        if not isinstance(value, datetime | None):
            raise NotStoredError(f"expected a date and a time, found {type(value).__name__}")
        naive.append(value.astimezone(timezone.utc).replace(tzinfo=None) if value is not None and value.tzinfo else value)
    return pa.array(naive, pa.timestamp("us"))


def to_durations(values: Values, kind: Any) -> "pa.Array":
    """Convert integers to durations in the unit of `kind`."""
    return pa.array(values, pa.int64()).cast(kind)


def to_nested(values: Values, kind: Any) -> "pa.Array":
    """Convert JSON texts to nested values."""
    return from_json(values, kind)


# --- texts in ISO form, for databases whose numbers and times a client does not convert reliably


def texts_by_way_of(*kinds: "pa.DataType") -> Encode:
    """Return an encoder that casts values to each of `kinds` in turn, then to text."""

    def encode(column: "pa.Array") -> "pa.Array":
        for kind in (*kinds, pa.string()):
            column = column.cast(kind)
        return column

    return encode


def decimal_texts(column: "pa.Array") -> "pa.Array":
    """Return decimals as texts with all their digits."""
    return without_negative_scale(column).cast(pa.string())


def moment_texts(column: "pa.Array") -> "pa.Array":
    """Return timestamps as texts to the microsecond; those with a zone in UTC, which the text does not say."""
    return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).cast(pa.timestamp("us")).cast(pa.string())


def to_moments(values: Values, kind: Any) -> "pa.Array":
    """Convert texts of `moment_texts` back to timestamps."""
    return pa.array(values, pa.string()).cast(pa.timestamp("us")).cast(pa.int64()).cast(pa.timestamp("us", kind.tz)).cast(kind)


def to_times(values: Values, kind: Any) -> "pa.Array":
    """Convert texts to times of day."""
    moments = [None if value is None else f"1970-01-01 {value}" for value in values]  # Arrow parses no times of day
    return pa.array(moments, pa.string()).cast(pa.timestamp("us")).cast(pa.int64()).cast(pa.time64("us")).cast(kind)
