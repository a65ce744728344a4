"""How values are kept in the columns of a table: one storage for each group of Arrow types, and rules that databases share."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from penstock.sink.table.nested import from_json, to_json
from penstock.sink.table.numbers import to_integers
from penstock.sink.table.target import NotStoredError

if TYPE_CHECKING:
    from typing_extensions import Self

Values: TypeAlias = list[Any]
IsKind: TypeAlias = Callable[[Any], bool]
Declares: TypeAlias = Callable[[Any], str]
Takes: TypeAlias = Callable[[str, Any], bool]
"""Whether a column so declared (as the catalog says it) keeps every value of an Arrow type."""
Encode: TypeAlias = Callable[["pa.Array"], "pa.Array"]
Restore: TypeAlias = Callable[[Values, Any], "pa.Array"]


class Restoring(Protocol):
    """A storage: it makes Arrow's values of the database's."""

    @property
    def restore(self) -> Restore:
        """Raises NotStoredError, or what Arrow and Python raise, for values that were not stored from the type."""
        ...


S = TypeVar("S", bound=Restoring)


class Storages(Generic[S]):
    """The storages of one `database`, each with the test for the Arrow types that are so stored; the first that fits counts."""

    def __init__(self, database: str, *storages: tuple[IsKind, S]) -> None:
        self._database, self._storages = database, storages

    def __iter__(self) -> Iterator[tuple[IsKind, S]]:
        return iter(self._storages)

    def __len__(self) -> int:
        return len(self._storages)

    def of(self, kind: "pa.DataType") -> S:
        """How values of `kind` are stored. Raises TypeError for a type that Spark does not produce."""
        for is_kind, storage in self._storages:
            if is_kind(kind):
                return storage
        raise TypeError(f"Arrow's {kind} has no place in {self._database}")

    def restored(self, values: Sequence[Any], kind: "pa.DataType") -> "pa.Array":
        """The Arrow column that `values` (as the database's client gives them) were stored from. Raises NotStoredError."""
        try:
            return self.of(kind).restore(list(values), kind)
        except NotStoredError:
            raise
        except (pa.ArrowException, ValueError, OverflowError, TypeError, KeyError, ArithmeticError) as cause:
            raise NotStoredError(f"expected a stored {kind}: {cause}") from cause


def batch_of(
    rows: Sequence[Sequence[Any]], schema: "pa.Schema", restored: Callable[[Sequence[Any], "pa.DataType"], "pa.Array"]
) -> "pa.RecordBatch":
    """Rows of a database, one at least, as an Arrow batch of `schema`. Raises NotStoredError, naming the column."""
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

    `declared`: the type of a column that is created. `takes`: whether an existing column will do. `encode` and `restore`: to the
    values that travel, and back. For people: `spark` names the types, `also` the other columns that will do, `refused` the values
    that do not.
    """

    spark: str
    declared: Declares
    takes: Takes
    encode: Encode
    restore: Restore
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
        """Kept by columns of these types alone, the first of which is created; `same` are other words for it."""
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
        """Kept by integers of this type, and by the columns that `takes` knows."""
        return cls(spark=spark, declared=always(declared), takes=takes, encode=encode, restore=to_integers, also=also, **own)


# --- which columns are created, and which will do


def always(name: str) -> Declares:
    """That type, whatever the values' own is."""
    return lambda _: name


def only(*names: str) -> Takes:
    """Columns of these types."""
    return lambda declared, _: declared in names


def anything(_declared: str, _kind: Any) -> bool:
    """Every column."""
    return True


def digits_of(kind: Any) -> tuple[int, int]:
    """Precision and scale of a column that takes every value of a decimal type, whose scale may be negative."""
    return kind.precision - min(0, kind.scale), max(0, kind.scale)


def has_digits(found: "re.Match[str] | None", before: int, after: int) -> bool:
    """Whether a column takes so many digits before and after the point; `found` are its precision and scale, None for neither."""
    return found is not None and int(found[1]) - int(found[2]) >= before and int(found[2]) >= after


# --- encoding


def as_is(column: "pa.Array") -> "pa.Array":
    """The values themselves."""
    return column


def without_negative_scale(column: "pa.Array") -> "pa.Array":
    """Decimals with all their digits."""
    return column.cast(pa.decimal128(38, 0)) if column.type.scale < 0 else column


def json_texts(column: "pa.Array") -> "pa.Array":
    """Nested values as `to_json` writes them."""
    return pa.array(to_json(column), pa.string())


def nothing(column: "pa.Array") -> "pa.Array":
    """As many NULLs."""
    return pa.nulls(len(column), pa.string())


# --- restoring


def to_values(values: Values, kind: Any) -> "pa.Array":
    """Values that Arrow takes as they are."""
    return pa.array(values, kind)


def to_texts(values: Values, kind: Any) -> "pa.Array":
    """Texts, or what Arrow reads of a text."""
    return pa.array(values, pa.string()).cast(kind)


def to_flags(values: Values, kind: Any) -> "pa.Array":
    """Booleans out of 0 and 1."""
    if not {0, 1, None}.issuperset(values):
        raise NotStoredError("expected 0 or 1")
    return pa.array([None if value is None else value == 1 for value in values], kind)


def to_durations(values: Values, kind: Any) -> "pa.Array":
    """Durations out of integers in their unit."""
    return pa.array(values, pa.int64()).cast(kind)


def to_nested(values: Values, kind: Any) -> "pa.Array":
    """Nested values out of their JSON."""
    return from_json(values, kind)
