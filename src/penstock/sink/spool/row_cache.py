"""A cache of the rows that the driver staged itself, so that it need not read them back from the spool."""

from collections.abc import Iterable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Final

from penstock.core.model import Staged

if TYPE_CHECKING:
    import pyarrow as pa

_MOST: Final = 2
"""Pieces in the cache: one is published while the next batch is staged."""
_MOST_BYTES: Final = 64 << 20
"""Size of the largest piece that is cached: four times the size of a batch that the driver is expected to stage."""


class RowCache:
    """The rows of the newest pieces, in the memory in which they arrived. Thread-safe. Pickled, it is None.

    Nothing depends on it: a piece that is not here is read from its file, by this process or by the next one.
    """

    def __init__(self) -> None:
        self._rows: dict[str, Sequence[pa.RecordBatch]] = {}
        self._lock = Lock()

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Pickle as None: a task does not publish its rows."""
        return type(None), ()

    def put(self, name: str, rows: "Sequence[pa.RecordBatch]") -> None:
        """Cache the rows of a piece whose file is durable, unless they are too large. The oldest piece may have to go."""
        if sum(batch.nbytes for batch in rows) > _MOST_BYTES:
            return
        with self._lock:
            self._rows[name] = rows
            while len(self._rows) > _MOST:
                del self._rows[next(iter(self._rows))]

    def rows_of(self, piece: Staged) -> "Sequence[pa.RecordBatch] | None":
        """Return the rows of `piece`, None if they are not cached."""
        return self._rows.get(piece.name)

    def evict(self, pieces: Iterable[Staged]) -> None:
        """Drop the rows of published pieces."""
        with self._lock:
            for piece in pieces:
                self._rows.pop(piece.name, None)
