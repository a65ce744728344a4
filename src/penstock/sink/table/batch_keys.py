"""Whether every key of a batch is there once, found out while its rows pass."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.core.row_hash import row_hashes

_MOST_ROWS = 4_000_000
"""Rows of which hashes are kept: 32 MB, and as many again to compare them."""


class BatchKeys:
    """The keys of a batch, by their hashes. Rows pass through `seen` once, then `are_distinct` may be asked."""

    def __init__(self, key: Sequence[str]) -> None:
        self._key = [name.lower() for name in key]
        self._hashes: list[np.ndarray[tuple[int], np.dtype[np.uint64]]] = []
        self._rows = 0
        self._comparable = True

    def seen(self, batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        """Yield the batches unchanged."""
        for batch in batches:
            self._rows += batch.num_rows
            keys = batch.select([index for index, name in enumerate(batch.schema.names) if name.lower() in self._key])
            self._comparable &= self._rows <= _MOST_ROWS and not any(pa.types.is_floating(kind) for kind in keys.schema.types)
            if self._comparable:
                self._hashes.append(row_hashes(keys).to_numpy())
            yield batch

    def are_distinct(self) -> bool:
        """Return whether no two rows have the same key. False if in doubt: for many rows, floats (0.0 is -0.0), equal hashes."""
        if not self._comparable or not self._hashes:
            return False
        return len(np.unique(np.concatenate(self._hashes))) == self._rows
