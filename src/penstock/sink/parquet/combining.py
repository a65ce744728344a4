"""Which small files of several tasks become one before they are decided, and the rows that they hold.

Files that travel in the decision are in the driver already. So it can write one file for all tasks: one put instead of many, and
one file for every reader.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.model import AccountName, Staged
from penstock.sink.parquet.splitting import Group, Lease

Place: TypeAlias = tuple[AccountName, str]
"""An account, and the partition directories below its root."""


def small_files(pieces: Sequence[Staged]) -> Mapping[Place, Sequence[Staged]]:
    """Return the pieces that travel in the decision, of every place that has several."""
    places: dict[Place, list[Staged]] = {}
    for piece in pieces:
        if piece.inline is not None:
            places.setdefault((piece.account, piece.name.rpartition("/")[0]), []).append(piece)
    return {place: own for place, own in places.items() if len(own) > 1}


def rows_schema(piece: Staged) -> "pa.Schema":
    """Return the columns of a small file, and what its footer says of the rows."""
    return pq.read_schema(pa.BufferReader(piece.inline))


def groups_of(place: Place, pieces: Sequence[Staged]) -> Iterator[Group]:
    """Yield the rows of small files, in the order of the files, each with the digest that its task counted."""
    account, directories = place
    for piece in pieces:
        rows = pq.ParquetFile(pa.BufferReader(piece.inline)).read(use_threads=False)
        yield Group(
            account=account,
            directories=directories,
            rows=rows,
            digest=piece.totals.digest,
            size_bytes=rows.nbytes,
            lease=Lease(rows),
        )
