"""The pass over a batch's records that finds those which cannot be decoded, and keeps them as they came."""

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
    """Picklable. For `mapInArrow` over the columns of Spark's Kafka source, headers included; yields
    SCHEMA_CHECKED as Arrow's own bytes in one column, PACKED: Spark cannot hand on all that may be null in it.

    A task stops after it has found more than `at_most`.
    """

    decode: DecodePass
    at_most: int

    def __call__(self, batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        """Called by Spark in each task."""
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
    """The bad rows of `batch`, with what is wrong with them."""
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
    """What the tasks of the pass have found."""
    tables = [pa.ipc.open_stream(one).read_all() for one in found]
    return pa.concat_tables([arrow_schema(SCHEMA_CHECKED).empty_table(), *tables])


def _as(values: "pa.Array | list[object]", field: "pa.Field") -> "pa.Array":
    return pa.array(values, field.type) if isinstance(values, list) else values.cast(field.type)
