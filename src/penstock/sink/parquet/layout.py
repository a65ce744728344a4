"""Names of published files: `<partition directories>/part-<attempt token>-<number>-<owner>.<compression>.parquet`.

The token makes a name that no other attempt ever uses, and tells which batch of the owner the file belongs to.
"""

import hashlib
import re

from penstock.core.model import Attempt, BatchId, Generation, PipelineName, SinkName

_SUFFIX = ".parquet"
_OWNER = re.compile(r"-\d{5}-([0-9a-f]{8})$")


def owner_of(pipeline: PipelineName, sink: SinkName) -> str:
    """Return the owner in a file's name, 8 digits: generations and batches of different pipelines cannot be compared."""
    return hashlib.sha256(f"{pipeline}\n{sink}".encode()).hexdigest()[:8]


def file_name(attempt: Attempt, *, number: int, owner: str, compression: str, directories: str) -> str:
    """Return the name of the `number`-th file of `attempt`, relative to the account's root."""
    codec = "" if compression == "none" else f".{compression}"
    base = f"part-{attempt.token}-{number:05d}-{owner}{codec}{_SUFFIX}"
    return f"{directories}/{base}" if directories else base


def attempt_of(name: str) -> Attempt | None:
    """Return the attempt that wrote a file, None if it is not Penstock's. Only the last part counts: directories hold data."""
    return Attempt.find(name.rpartition("/")[2])


def order_of(name: str) -> tuple[Generation, BatchId] | None:
    """Return the sort key for an account's files by their decisions, oldest first; None for a file that is not Penstock's."""
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
    """Return whether readers of tables skip what lies at `name`, as Spark, DuckDB and pyarrow do."""
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in name.split("/"))
