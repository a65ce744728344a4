"""Are the input files of a batch still what Spark planned it with.

Spark lists the files of a batch once, and reads them later by name. A file that was removed in between is passed over in silence,
and one that was changed is read as it is now: seen with Spark 4.3, both at a repeated batch and between planning and reading.

A corrupt file may be mended: what a run finds when it opens is taken as it is, for nothing was decided of it. Only what
changes after that, while Spark may be reading it, cannot be told apart from a half-read file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from urllib.parse import unquote, urlsplit

from penstock.checkpoint.input_look import InputLook, Seen
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


def as_found(
    inputs: Mapping[SourceName, Sequence[InputFile]], *, look: InputLook | None = None
) -> Mapping[SourceName, tuple[InputFile, ...]]:
    """`inputs` with the modification times that the files have now; a file that is gone keeps the one it was planned with."""
    return {name: tuple(map(_as_found, files, (look or InputLook()).at(files))) for name, files in inputs.items()}


def require_unchanged(
    batch_id: BatchId,
    inputs: Mapping[SourceName, Sequence[InputFile]],
    *,
    look: InputLook | None = None,
    delivered: bool = False,
) -> None:
    """Raise InputChanged if an input file is gone, or has another modification time than in `inputs`.

    Called after a batch was staged and before it is decided: then what was staged is what was planned; and after one that was
    `delivered` before was computed again for its state, before Spark commits it. Costs one look a file. Files that cannot be
    seen from here are passed over; without `look` those are all that are not in local or mounted directories.
    """
    for name, files in inputs.items():
        wrong = [change for change in map(_change, files, (look or InputLook()).at(files)) if change is not None]
        if wrong:
            more = f" and {len(wrong) - _SOME} more" if len(wrong) > _SOME else ""
            raise InputChanged(
                f"Input of batch {batch_id} was changed under source {name}: {'; '.join(wrong[:_SOME])}{more}.",
                remedy=_DELIVERED if delivered else _UNDECIDED,
            )


def _as_found(file: InputFile, seen: Seen | None) -> InputFile:
    return file if seen is None or seen.modified_ms is None else replace(file, modified_ms=seen.modified_ms)


def _change(file: InputFile, seen: Seen | None) -> str | None:
    if seen is None:
        return None
    if seen.is_gone:
        return f"{_shown(file.path)} is gone"
    if seen.modified_ms is None or seen.modified_ms == file.modified_ms:
        return None
    return f"{_shown(file.path)} was modified at {_stamp(seen.modified_ms)}, expected {_stamp(file.modified_ms)} (Unix time)"


def _stamp(unix_ms: int) -> str:
    return f"{unix_ms // 1000}.{unix_ms % 1000:03}"


def _shown(url: str) -> str:
    """A local path for a local file."""
    parts = urlsplit(url)
    return unquote(parts.path if parts.scheme in {"", "file"} else url)
