"""Names of published files: `<partition directories>/part-<attempt token>-<number>-<owner>.<compression>.parquet`.

The token makes a name that no other attempt ever uses, and tells which batch of the owner the file belongs to.

Partition directories are `column=value`, as Hive and Spark write them, escaped so that every value comes back as it was. Escaped
are Spark's own set of characters; NUL, which Spark cannot write but reads back; the first letter of `null`, in any case, which
DuckDB takes for NULL; and the end of `._COPYING_`, a suffix that Spark skips as hidden. Two texts have no directory that reads
back as they are: the empty one and `__HIVE_DEFAULT_PARTITION__`. Spark silently turns both into null; see `is_lost_as_directory`.

Where a table's own list of files has the partition values, a part of a name may also be `days(column)=value`: that value is made
of a column that the file holds itself. No reader sees such a part as a directory.
"""

import datetime as dt
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TypeAlias

import pyarrow as pa

from penstock.core.model import Attempt, BatchId, Generation, PipelineName, SinkName
from penstock.core.partition_term import PartitionTerm, source_of, term_of
from penstock.errors import StageFailed, Usage
from penstock.sink.parquet.transforms import kind_of, transformed

DECIDED_PREFIX = "part"
"""The first part in the name of a file whose rows a batch decided."""
_SUFFIX = ".parquet"
_OWNER = re.compile(r"-\d{5}-([0-9a-f]{8})$")


def owner_of(pipeline: PipelineName, sink: SinkName) -> str:
    """Return the owner's part of file names, 8 hexadecimal digits: each sink of each pipeline counts its own batches."""
    return hashlib.sha256(f"{pipeline}\n{sink}".encode()).hexdigest()[:8]


def file_name(
    attempt: Attempt, *, number: int, owner: str, compression: str, directories: str, prefix: str = DECIDED_PREFIX
) -> str:
    """Return the name of the `number`-th file of `attempt`, relative to the account's root."""
    codec = "" if compression == "none" else f".{compression}"
    base = f"{prefix}-{attempt.token}-{number:05d}-{owner}{codec}{_SUFFIX}"
    return f"{directories}/{base}" if directories else base


def attempt_of(name: str) -> Attempt | None:
    """Return the attempt that wrote a file, None if it is not Penstock's. Only the last part counts: directories hold data."""
    return Attempt.find(name.rpartition("/")[2])


def order_of(name: str) -> tuple[Generation, BatchId] | None:
    """Return the key that sorts an account's files by their decisions, oldest first; None for a file that is not Penstock's."""
    attempt = attempt_of(name)
    return None if attempt is None else (attempt.generation, attempt.batch_id)


def owner_in(name: str) -> str | None:
    """Return the owner in a file's name, None if there is none, as in the first versions of Penstock."""
    found = _OWNER.search(name.rpartition("/")[2].partition(".")[0])
    return None if found is None else found[1]


def is_owned(name: str, owner: str) -> bool:
    """Return whether `owner` wrote the file, for certain."""
    return owner_in(name) == owner


def is_parquet(name: str) -> bool:
    """Return whether readers take the file for Parquet."""
    return name.endswith(_SUFFIX)


def is_hidden(name: str) -> bool:
    """Return whether readers of tables skip what lies at `name`, as Spark, DuckDB and pyarrow do.

    What ends with `._COPYING_` is not hidden: Spark skips it, but pyarrow reads it.
    """
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in name.split("/"))


Value: TypeAlias = "str | int | bool | bytes | Decimal | dt.date | None"

NULL = "__HIVE_DEFAULT_PARTITION__"
NAME_LIMIT_BYTES = 255
"""The longest name of a file or directory that every file system in use accepts."""

_ESCAPED = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")
_CODED = re.compile(r"%([0-9A-Fa-f]{2})")
_NULL_OF_DUCKDB = "null"
"""DuckDB reads it as NULL, in small letters or capitals, unless a letter of it is escaped."""
_HIDDEN_ENDING = "._COPYING_"


def escape(text: str) -> str:
    """Return `text` as one name, or a part of one, below a table's root."""
    if text.lower() == _NULL_OF_DUCKDB or text == NULL:
        return f"%{ord(text[0]):02X}{text[1:]}"
    escaped = _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)
    return escaped[:-1] + "%5F" if escaped.endswith(_HIDDEN_ENDING) else escaped


def unescape(name: str) -> str:
    """Return the text that `escape` turned into `name`, as Spark reads it."""
    return _CODED.sub(lambda found: chr(int(found[1], 16)), name)


def is_lost_as_directory(value: Value) -> bool:
    """Return whether readers would see null instead of `value`."""
    return value in {"", NULL}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionColumn:
    """One entry of `partition_by`: a column, or with `term` what is made of one.

    `index` is the place of that column among those of the rows, `kind` the type of the partition's values.
    """

    name: str
    index: int
    kind: "pa.DataType"
    term: PartitionTerm | None = None

    def values_of(self, rows: "pa.Table") -> "pa.Array | pa.ChunkedArray":
        """Return the partition's value for each row. Raises StageFailed for a row that has none."""
        column = rows.column(self.index)
        if self.term is None:
            return column
        try:
            return pa.chunked_array([transformed(self.term, chunk) for chunk in column.chunks], self.kind)
        except pa.ArrowException as cause:
            raise StageFailed(
                f"A value of column {self.term.column!r} has no partition by {self.name}: {cause}.",
                remedy="Repair such values in the transform, or filter such rows.",
            ) from cause

    def directory(self, value: Value) -> str:
        """Return the directory name for `value`. Raises StageFailed for a name that no file system accepts."""
        name = f"{escape(self.name)}={NULL if value is None else escape(text_of_value(value))}"
        size_bytes = len(name.encode())
        if size_bytes > NAME_LIMIT_BYTES and self.term is None:
            raise StageFailed(
                f"A value of partition column {self.name!r} makes a directory name of {size_bytes} bytes, "
                f"but file systems take at most {NAME_LIMIT_BYTES}: {str(value)[:40]!r}…",
                remedy="Partition by a shorter expression of it (a prefix, a hash), made in the transform.",
            )
        return name

    def value_in(self, directory: str) -> Value:
        """Return the value of `directory`, the part after `column=`. Raises ValueError if it is of another type."""
        if directory == NULL:
            return None
        text = unescape(directory)
        if pa.types.is_boolean(self.kind):
            if text not in {"true", "false"}:
                raise ValueError(f"expected true or false, found {text!r}")
            return text == "true"
        if pa.types.is_integer(self.kind):
            return int(text)
        if pa.types.is_decimal(self.kind):
            return _decimal(text)
        if pa.types.is_binary(self.kind) or pa.types.is_large_binary(self.kind):
            return bytes.fromhex(text)
        return dt.date.fromisoformat(text) if pa.types.is_date32(self.kind) else text


def require_distinct(rows: "pa.Schema", readers_of: str) -> None:
    """Raise Usage for two columns whose names differ only in case."""
    names = [name.casefold() for name in rows.names]
    doubled = next((name for place, name in enumerate(rows.names) if name.casefold() in names[:place]), None)
    if doubled is not None:
        raise Usage(
            f"Two columns are named {doubled!r} and differ only in case: readers of {readers_of} mix them up.",
            remedy="Rename one of them in the transform.",
        )


def partition_columns(schema: "pa.Schema", names: "tuple[str, ...]") -> "tuple[PartitionColumn, ...]":
    """Return the columns of `partition_by` as found in `schema`. Raises Usage if such rows cannot be partitioned by them."""
    columns = tuple(_partition_column(schema, name) for name in names)
    if columns and len(columns) == len(schema):
        raise Usage(
            f"Every column of the rows ({', '.join(names)}) is in partition_by, so the files would have none.",
            remedy="Leave at least one column out of partition_by.",
        )
    return columns


def partitions(schema: "pa.Schema", names: Sequence[str]) -> "tuple[PartitionColumn, ...]":
    """Return the entries of `partition_by` as `partition_columns` does, where they may also be terms."""
    terms = {name: term for name in names if (term := term_of(name, schema.names)) is not None}
    columns = {column.name: column for column in partition_columns(schema, tuple(name for name in names if name not in terms))}
    return tuple(columns[name] if name in columns else _derived(schema, name, terms[name]) for name in names)


def source_columns(names: Sequence[str], columns: Sequence[str]) -> Sequence[str]:
    """Return the columns, each once, that the values of these entries of `partition_by` are made of."""
    return list(dict.fromkeys(source_of(name, columns) for name in names))


def _derived(schema: "pa.Schema", name: str, term: PartitionTerm) -> PartitionColumn:
    index = _index(schema, term.column)
    source = schema.field(index).type
    kind = kind_of(term.function, source)
    if kind is None:
        raise Usage(
            f"partition_by has {name!r}, but column {term.column!r} has the type {source}, expected {_TAKEN[term.function]}.",
            remedy="Cast the column in the transform, or partition by another one.",
        )
    return PartitionColumn(name=name, index=index, kind=kind, term=term)


_TAKEN = {
    "bucket": "a whole number, decimal, date, timestamp, string or binary",
    "truncate": "a whole number, decimal, string or binary",
    "years": "a date or timestamp",
    "months": "a date or timestamp",
    "days": "a date or timestamp",
    "hours": "a timestamp",
}


def _index(schema: "pa.Schema", name: str) -> int:
    index = schema.get_field_index(name)
    if index < 0:
        raise Usage(
            f"partition_by names the column {name!r}, but the rows have {', '.join(schema.names)}.",
            remedy="Correct partition_by, or add the column in the transform.",
        )
    return int(index)


def _partition_column(schema: "pa.Schema", name: str) -> PartitionColumn:
    index = _index(schema, name)
    kind = schema.field(index).type
    fits = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_signed_integer(kind)
    if not (fits or pa.types.is_boolean(kind) or pa.types.is_date32(kind)):
        raise Usage(
            f"Partition column {name!r} has the type {kind}, expected string, an integer type, boolean or date.",
            remedy="Cast it to one of these in the transform; a timestamp to a date, say.",
        )
    if name.startswith((".", "_")):
        raise Usage(
            f"Partition column {name!r} makes directories that readers take for hidden and skip.",
            remedy="Rename the column in the transform so that it begins with a letter.",
        )
    return PartitionColumn(name=name, index=index, kind=kind)


def text_of_value(value: "str | int | bool | bytes | Decimal | dt.date") -> str:
    """Return the text of a partition value in names, and in what a table lists."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        return format(value, "f")
    return value.isoformat() if isinstance(value, dt.date) else str(value)


def texts_of(values: "pa.Array") -> set[str | None]:
    """Return the texts of partition values, None for NULL."""
    if pa.types.is_decimal(values.type) or pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        return {None if value is None else text_of_value(value) for value in values.to_pylist()}
    return {*values.cast(pa.string()).to_pylist()}


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as cause:
        raise ValueError(f"expected a number, found {text!r}") from cause
