"""Checks that the input files of a batch are still those that Spark planned it with.

Spark lists the files of a batch once and reads them later by name. It silently skips a file that was removed in between, and
reads a changed file as it is now. Both were observed with Spark 4.3, in a repeated batch and between planning and reading.

The check compares modification times: Spark logs the time with the name, but no size. A file truncated by a copy, a full disk or
a second writer has another time. An operator who repairs a corrupt file confirms it by giving the file the logged time.
"""

import shlex
from collections.abc import Mapping, Sequence
from urllib.parse import unquote, urlsplit

from penstock.checkpoint.input_listing import InputListing, Seen
from penstock.checkpoint.source_log import InputFile
from penstock.core.model import BatchId, SourceName
from penstock.errors import InputChanged

_SOME = 3
_UNDECIDED = (
    "Put the files back as they were and let nothing write to them, then start again: nothing of the batch was decided. If a "
    "change is meant, as in a file that was mended, give the file the time that is expected"
)
_DELIVERED = (
    "Put the files back as they were, with their modification times, and start again: the batch's rows are delivered, but Spark "
    "needs its input once more for the query's state."
)


def require_unchanged(
    batch_id: BatchId,
    inputs: Mapping[SourceName, Sequence[InputFile]],
    *,
    look: InputListing | None = None,
    delivered: bool = False,
) -> None:
    """Raise InputChanged if an input file is gone or has another modification time than Spark planned it with.

    Called before a batch of an earlier run is staged; after any batch is staged and before it is decided, so that what was staged
    is what was planned (I4); and, with `delivered`, after a batch that was delivered before was computed again for its state,
    before Spark commits it. Costs one stat or request per file. Files that are not visible from here are skipped; without `look`
    those are all files outside local and mounted directories.
    """
    for name, files in inputs.items():
        looks = zip(files, (look or InputListing()).at(files), strict=True)
        wrong = [(file, change) for file, seen in looks if (change := _change(file, seen)) is not None]
        if wrong:
            more = f" and {len(wrong) - _SOME} more" if len(wrong) > _SOME else ""
            changes = "; ".join(change for _, change in wrong[:_SOME])
            raise InputChanged(
                f"Input of batch {batch_id} was changed under source {name}: {changes}{more}.",
                remedy=_DELIVERED if delivered else f"{_UNDECIDED}: {_as_planned(wrong[0][0])}.",
            )


def _as_planned(file: InputFile) -> str:
    """Return how to give `file` the modification time that Spark logged."""
    if urlsplit(file.path).scheme in {"", "file"}:
        return f"touch -d @{_stamp(file.modified_ms)} {shlex.quote(_shown(file.path))}"
    return f"{file.modified_ms} ms, by the operation SETTIMES of WebHDFS"


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
    """Return the path of a local file, or else the URL, unescaped."""
    parts = urlsplit(url)
    return unquote(parts.path if parts.scheme in {"", "file"} else url)
