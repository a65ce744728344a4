"""Spark pass that collects the undecodable records of a batch, unchanged, for the quarantine."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.core.bad_record import PACKED, RAW, SCHEMA_CHECKED
from penstock.errors import PenstockError
from penstock.registry.decoding import Decoded, DecodePass, Decoder, DecodingFailed
from penstock.spark.schema import arrow_schema
from penstock.support.error_transport import through_spark


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinePass:
    """Finds undecodable records with `mapInArrow` over the columns of Spark's Kafka source, headers included. Picklable.

    Yields rows of SCHEMA_CHECKED as Arrow IPC bytes in the one column PACKED: Spark cannot pass on all that may be null in them.
    A task yields no more once it has found more than `at_most`.
    """

    decode: DecodePass
    at_most: int

    def __call__(self, batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        try:
            yield from self._found(batches)
        except PenstockError as error:
            raise DecodingFailed(through_spark(error)) from None

    def _found(self, batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        decoder = Decoder(self.decode)
        left = self.at_most
        for batch in batches:
            decoded = decoder.decoded(batch)
            if decoded.bad and left >= 0:
                left -= len(decoded.bad)
                yield _packed(_bad_rows(self.decode.source, batch, decoded))


def _bad_rows(source: str, batch: "pa.RecordBatch", decoded: Decoded) -> "pa.RecordBatch":
    """Return the undecodable rows of `batch`, each with its reason."""
    rows = pa.array(decoded.bad.keys(), pa.int64())
    schema = arrow_schema(SCHEMA_CHECKED)
    bad = list(decoded.bad.values())
    columns = {
        "source": [source] * len(bad),
        **{name: batch.column(name).take(rows) for name in RAW},
        "undecodable": [each.column for each in bad],
        "schema_id": [each.reason.schema_id for each in bad],
        "error": [each.reason.reason for each in bad],
        "unknown": [each.reason.unknown for each in bad],
    }
    arrays = [_as(columns[field.name], field) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _packed(rows: "pa.RecordBatch") -> "pa.RecordBatch":
    written = pa.BufferOutputStream()
    with pa.ipc.new_stream(written, rows.schema) as stream:
        stream.write_batch(rows)
    return pa.RecordBatch.from_pydict({PACKED: [written.getvalue().to_pybytes()]})


def unpacked(found: Iterable[bytes]) -> "pa.Table":
    """Return the rows that the tasks of the pass found, as one table."""
    tables = [pa.ipc.open_stream(one).read_all() for one in found]
    return pa.concat_tables([arrow_schema(SCHEMA_CHECKED).empty_table(), *tables])


def _as(values: "pa.Array | list[object]", field: "pa.Field") -> "pa.Array":
    return pa.array(values, field.type) if isinstance(values, list) else values.cast(field.type)
