"""Are the input files of a batch still what Spark planned it with.

Spark lists the files of a batch once, and reads them later by name. A file that was removed in between is passed over in silence,
and one that was changed is read as it is now: seen with Spark 4.3, both at a repeated batch and between planning and reading.

A corrupt file may be mended: what a run finds when it opens is taken as it is, for nothing was decided of it. Only what
changes after that, while Spark may be reading it, cannot be told apart from a half-read file.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from penstock.checkpoint.source_log import InputFile
from penstock.errors import InputChanged
from penstock.model import BatchId, SourceName

_SOME = 3
_UNDECIDED = (
    "Put back what is gone and let nothing write to these files, then start again: nothing of the batch was decided, and "
    "the next start takes the files as it finds them."
)
_DELIVERED = (
    "Put the files back as they were, with their modification times, and start again: the batch's rows are delivered, but Spark "
    "needs its input once more for the query's state."
)


def as_found(inputs: Mapping[SourceName, Iterable[InputFile]]) -> Mapping[SourceName, tuple[InputFile, ...]]:
    """`inputs` with the modification times that the files have now; a file that is gone keeps the one it was planned with."""
    return {name: tuple(map(_as_found, files)) for name, files in inputs.items()}


def require_unchanged(batch_id: BatchId, inputs: Mapping[SourceName, Iterable[InputFile]], *, delivered: bool = False) -> None:
    """Raise InputChanged if an input file is gone, or has another modification time than in `inputs`.

    Called after a batch was staged and before it is decided: then what was staged is what was planned; and after one that was
    `delivered` before was computed again for its state, before Spark commits it. Costs one stat a file. Files that are not in
    local or mounted directories are not looked at.
    """
    for name, files in inputs.items():
        wrong = list(_changes(files))
        if wrong:
            more = f" and {len(wrong) - _SOME} more" if len(wrong) > _SOME else ""
            raise InputChanged(
                f"Input of batch {batch_id} was changed under source {name}: {'; '.join(wrong[:_SOME])}{more}.",
                remedy=_DELIVERED if delivered else _UNDECIDED,
            )


def size_bytes_of(file: InputFile) -> int | None:
    """How large a file is, None if that cannot be seen from here. Costs one stat."""
    path = _local_path(file.path)
    try:
        return None if path is None else path.stat().st_size
    except OSError:
        return None


def _as_found(file: InputFile) -> InputFile:
    path = _local_path(file.path)
    found_ms = None if path is None else _modified_ms(path)
    return file if found_ms is None else replace(file, modified_ms=found_ms)


def _changes(files: Iterable[InputFile]) -> Iterator[str]:
    for file in files:
        path = _local_path(file.path)
        change = None if path is None else _change(path, file.modified_ms)
        if change is not None:
            yield change


def _change(path: Path, modified_ms: int) -> str | None:
    found_ms = _modified_ms(path)
    if found_ms is None:
        return f"{path} is gone"
    if found_ms != modified_ms:
        return f"{path} was modified at {_stamp(found_ms)}, expected {_stamp(modified_ms)} (Unix time)"
    return None


def _modified_ms(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except (FileNotFoundError, NotADirectoryError):
        return None


def _stamp(unix_ms: int) -> str:
    return f"{unix_ms // 1000}.{unix_ms % 1000:03}"


def _local_path(url: str) -> Path | None:
    """Spark logs URLs in which spaces and their like are escaped."""
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme in {"", "file"} else None
