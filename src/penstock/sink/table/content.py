"""The totals of a table's content: the number of rows and their digest."""

from collections.abc import Iterator

import pyarrow as pa

from penstock.core.model import RowDigest, Totals
from penstock.core.row_hash import digest, row_hashes
from penstock.errors import PublishFailed
from penstock.sink.table.target import NotStoredError


def totals_of(batches: Iterator["pa.RecordBatch"], row_digest: RowDigest) -> Totals:
    """Return the number of rows and their digest."""
    return sum((Totals(rows=batch.num_rows, digest=digest(row_hashes(batch, row_digest))) for batch in batches), Totals())


def totals_under_key(batches: Iterator["pa.RecordBatch"], row_digest: RowDigest, *, table: str) -> Totals:
    """Return the totals of rows under keys of a batch. Raise PublishFailed if Penstock cannot have written one of them."""
    try:
        return totals_of(batches, row_digest)
    except NotStoredError as cause:
        raise PublishFailed(
            f"Table {table!r} holds a row under a key of this batch that Penstock did not write: {cause}.",
            remedy="Correct or delete that row, then start again: the batch is published then.",
        ) from cause
