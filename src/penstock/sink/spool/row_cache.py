"""Rows that lie in the spool and in memory: the driver need not read back what it has staged itself."""

from collections.abc import Iterable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Final

from penstock.core.model import Staged

if TYPE_CHECKING:
    import pyarrow as pa

_MOST: Final = 2
"""Pieces: one that is published while the next batch is staged."""
_MOST_BYTES: Final = 64 << 20
"""Of a piece: four times what a batch has that the driver is expected to stage."""


class RowCache:
    """Rows of the newest pieces, in the memory that they came in. Safe to use from several threads. Pickled, it is None.

    Nothing rests on it: a piece that is not here is read from its file, by this process or by the next one.
    """

    def __init__(self) -> None:
        self._rows: dict[str, Sequence[pa.RecordBatch]] = {}
        self._lock = Lock()

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """A task is not where its rows are published."""
        return type(None), ()

    def hold(self, name: str, rows: "Sequence[pa.RecordBatch]") -> None:
        """All rows of a piece whose file is durable, unless they are too large. The oldest piece may go for it."""
        if sum(batch.nbytes for batch in rows) > _MOST_BYTES:
            return
        with self._lock:
            self._rows[name] = rows
            while len(self._rows) > _MOST:
                del self._rows[next(iter(self._rows))]

    def rows_of(self, piece: Staged) -> "Sequence[pa.RecordBatch] | None":
        """None where they are not here."""
        return self._rows.get(piece.name)

    def let_go(self, pieces: Iterable[Staged]) -> None:
        """Those that are published."""
        with self._lock:
            for piece in pieces:
                self._rows.pop(piece.name, None)
