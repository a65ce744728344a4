"""What a writer that is handed to `Delivery.start` must not say itself: where the rows go, and where Spark keeps the checkpoint.

Spark would drop the one and the other without a word: the last `foreachBatch` and the last option of a name win.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, quote, unquote, urlsplit
from weakref import WeakSet

from penstock.errors import Usage

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_CHECKPOINT = "checkpointlocation"
_STARTED: "WeakSet[DataStreamWriter]" = WeakSet()
"""Writers that a delivery has started a query of: what they say was said by it."""


def require_writer(given: object) -> None:
    """Raise Usage unless `given` is what `df.writeStream` returns."""
    if not hasattr(type(given), "foreachBatch"):
        raise Usage(
            f"Delivery.start takes a DataStreamWriter, found an object of class {type(given).__name__}.",
            remedy="Give it `df.writeStream` of a streaming DataFrame, as in `delivery.start(df.writeStream)`. It takes "
            "the place of the writer's own `start()`.",
        )


def require_no_place(writer: "DataStreamWriter", *, sink: str | None, options: Mapping[str, str] | None, checkpoint: str) -> None:
    """Raise Usage if `writer` has a sink or a checkpoint of its own, as a query that was started without Penstock has.

    `sink` and `options` are what can be seen of it, None where nothing can. `checkpoint` is the delivery's.
    """
    if writer in _STARTED:
        return
    given = (options or {}).get(_CHECKPOINT)
    if given is not None and not _is_same(given, checkpoint):
        raise Usage(
            f"The query has the option checkpointLocation, {given}, but the delivery keeps the checkpoint at {checkpoint}.",
            remedy=f'To go on with the checkpoint of the query, give it to the delivery: `checkpoint="{given}"`. '
            "Else take the option out.",
        )
    if sink is None and "path" in (options or {}):
        sink = "the option path"
    if sink is not None:
        raise Usage(
            f"The query writes somewhere itself ({sink}), which would get no rows.",
            remedy=f"Take {sink} out of the query: a delivery writes into its `sinks` only.",
        )


def note_started(writer: "DataStreamWriter") -> None:
    """Remember that a delivery has put itself and its checkpoint into `writer`, which may be handed over once more."""
    _STARTED.add(writer)


def sink_in(source: str, *, default: str) -> str | None:
    """Return how a person calls the sink of a writer, from the name that Spark has for it; None if it has none of its own."""
    if source in {"foreachBatch", "foreach"}:
        return f"`{source}`"
    return None if source in {"", default} else f"`format({source!r})`"


def sink_in_message(message: Any) -> str | None:
    """Return the same from the message that a client of Spark Connect sends."""
    for name, called in {"foreach_batch": "`foreachBatch`", "foreach_writer": "`foreach`"}.items():
        if message.HasField(name):
            return called
    return sink_in(str(message.format), default="")


def _is_same(one: str, other: str) -> bool:
    """Return whether two locations can be one place: one that leaves out its store can be in the default one."""
    first, second = _split(one), _split(other)
    if first.netloc and second.netloc and first.netloc != second.netloc:
        return False
    return _path(first) == _path(second)


def _split(location: str) -> SplitResult:
    is_url = "://" in location or location.startswith("file:")
    return urlsplit(location if is_url else f"file:{quote(str(Path(location).absolute()))}")


def _path(location: SplitResult) -> str:
    path = unquote(location.path).rstrip("/")
    return str(Path(path).resolve()) if location.scheme == "file" else path
