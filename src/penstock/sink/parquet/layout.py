"""Names of published files: `<partition directories>/part-<attempt token>-<number>-<owner>.<compression>.parquet`.

The token makes a name that no other attempt ever uses, and tells which batch of the owner the file belongs to.

Partition directories are `column=value`, as Hive and Spark write them, escaped so that every value comes back as it was. Escaped
are Spark's own set of characters; NUL, which Spark cannot write but reads back; the first letter of `null`, in any case, which
DuckDB takes for NULL; and the end of `._COPYING_`, a suffix that Spark skips as hidden. Two texts have no directory that reads
back as they are: the empty one and `__HIVE_DEFAULT_PARTITION__`. Spark silently turns both into null; see `is_lost_as_directory`.
"""

import datetime as dt
import hashlib
import re
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from penstock.core.model import Attempt, BatchId, Generation, PipelineName, SinkName
from penstock.errors import StageFailed, Usage

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


Value: TypeAlias = "str | int | bool | dt.date | None"

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
    if text.lower() == _NULL_OF_DUCKDB:
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
    """One column of `partition_by`; `index` is its place among the columns of the rows."""

    name: str
    index: int
    kind: "pa.DataType"

    def directory(self, value: Value) -> str:
        """Return the directory name for `value`. Raises StageFailed for a name that no file system accepts."""
        name = f"{escape(self.name)}={NULL if value is None else escape(_text(value))}"
        size_bytes = len(name.encode())
        if size_bytes > NAME_LIMIT_BYTES:
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


def _partition_column(schema: "pa.Schema", name: str) -> PartitionColumn:
    index = schema.get_field_index(name)
    if index < 0:
        raise Usage(
            f"partition_by names the column {name!r}, but the rows have {', '.join(schema.names)}.",
            remedy="Correct partition_by, or add the column in the transform.",
        )
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


def _text(value: "str | int | bool | dt.date") -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, dt.date) else str(value)
