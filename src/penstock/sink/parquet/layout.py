"""Names of published files: `<partition directories>/part-<attempt token>-<number>.<compression>.parquet`.

The token makes a name that no other attempt ever uses, and tells which batch a file belongs to.
"""

from penstock.model import Attempt, BatchId, Generation

_SUFFIX = ".parquet"


def file_name(attempt: Attempt, *, number: int, compression: str, directories: str) -> str:
    """The name of the `number`-th file of `attempt`, relative to the account's root."""
    codec = "" if compression == "none" else f".{compression}"
    base = f"part-{attempt.token}-{number:05d}{codec}{_SUFFIX}"
    return f"{directories}/{base}" if directories else base


def order_of(name: str) -> tuple[Generation, BatchId] | None:
    """By which the files of an account are ordered, oldest first, as their decisions are; None for one that is not Penstock's."""
    attempt = Attempt.find(name.rpartition("/")[2])
    return None if attempt is None else (attempt.generation, attempt.batch_id)


def is_parquet(name: str) -> bool:
    """Whether readers take the file for Parquet."""
    return name.endswith(_SUFFIX)


def is_hidden(name: str) -> bool:
    """Whether readers of tables skip what lies at `name`, as Spark, DuckDB and pyarrow do."""
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in name.split("/"))
