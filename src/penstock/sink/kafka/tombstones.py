"""Rows that delete, while they are staged for Kafka: each becomes a tombstone, a record of its key without a value."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.deletes import split_deletes
from penstock.core.model import RowDigest
from penstock.core.row_hash import row_hashes
from penstock.sink.kafka.target import VALUE


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstones:
    """How rows with the column of `core.deletes` are staged as records: a `StagedDeletes`. Picklable.

    Pieces do not have the column: that a record has no value says it all, to those who publish, verify and read it.
    """

    row_digest: RowDigest

    def schema_of(self, rows: "pa.Schema") -> "pa.Schema":
        return pa.schema(list(rows)[:-1], metadata=rows.metadata)

    def checked(self, rows: "pa.RecordBatch") -> "Iterator[pa.RecordBatch]":
        yield _records(rows)

    def bare(self, rows: "pa.RecordBatch", hashes: "pa.UInt64Array") -> "tuple[pa.RecordBatch, pa.UInt64Array]":
        """Return the records and their hashes; that of a tombstone covers all but the value."""
        records, (_, deletes) = _records(rows), split_deletes(rows)
        return records, pc.if_else(deletes, row_hashes(records, self.row_digest), hashes)


def _records(rows: "pa.RecordBatch") -> "pa.RecordBatch":
    """Return `rows` without the column, and without the values of those that delete."""
    plain, deletes = split_deletes(rows)
    if not pc.any(deletes).as_py():
        return plain
    place = plain.schema.get_field_index(VALUE)
    values = pc.if_else(deletes, pa.scalar(None, plain.schema.field(place).type), plain.column(place))
    return plain.set_column(place, plain.schema.field(place), values)
