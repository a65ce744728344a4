"""What is in a table: rows counted and hashed."""

from collections.abc import Iterator

import pyarrow as pa

from penstock.model import Totals
from penstock.rowhash import digest, row_hashes


def totals_of(batches: Iterator["pa.RecordBatch"]) -> Totals:
    """How many rows there are, and their digest."""
    return sum((Totals(rows=batch.num_rows, digest=digest(row_hashes(batch))) for batch in batches), Totals())
