"""Reads in a task exactly the rows of the files of one piece as Arrow batches, or raises."""

from collections.abc import Iterator

import pyarrow as pa

from penstock.errors import Failed, InputChanged, InputLost, PenstockError, Retryable
from penstock.run.chain.pieces import Piece, PieceFile
from penstock.sink.parquet.table import read_rows
from penstock.spark.schema import arrow_schema


def batches_of(piece: Piece) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the files of `piece`, in their order. Raises InputLost, InputChanged, Retryable, Failed."""
    wanted = pa.schema([field.remove_metadata() for field in arrow_schema(piece.columns)])
    for file in piece.files:
        found = 0
        for batch in _rows_of(piece, file):
            found += batch.num_rows
            yield _fitted(batch, wanted)
        if found != file.rows and (found or piece.fails_on_loss):
            raise InputChanged(
                f"{_named(piece, file)} has {found:,} rows, and {file.rows:,} were decided: it was written anew.",
                remedy="Put the file back as it was. Let maintenance give what it writes another name.",
            )


def _rows_of(piece: Piece, file: PieceFile) -> Iterator[pa.RecordBatch]:
    try:
        with piece.area.open(file.name) as data:
            yield from read_rows(data, name=file.name, schema=file.schema)
    except PenstockError:
        raise
    except FileNotFoundError:
        if piece.fails_on_loss:
            raise _gone(piece, file) from None
    except (pa.ArrowException, OSError, ValueError) as cause:
        reason = str(cause).split("\n", maxsplit=1)[0]
        raise Failed(
            f"{_named(piece, file)} cannot be read: {reason}.", remedy="Run `penstock verify` on the pipeline that wrote it."
        ) from cause


def _gone(piece: Piece, file: PieceFile) -> PenstockError:
    if piece.area.marker() is None:
        return Retryable(
            f"Account {piece.account!r} of pipeline {piece.pipeline!r} is not at {piece.place.url}.",
            remedy="Mount or restore it, and start again.",
        )
    return InputLost(
        f"{_named(piece, file)} is gone, with {file.rows:,} rows that source {piece.source!r} had not read.",
        remedy="Put the file back. If it was removed on purpose, the option failOnDataLoss: false passes over its rows.",
    )


def _named(piece: Piece, file: PieceFile) -> str:
    return f"{piece.place.root_for_readers}/{file.name} of batch {file.batch_id} of pipeline {piece.pipeline!r}"


def _fitted(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """Return the rows with the columns of the stream: one that the batch lacks is NULL."""
    return pa.RecordBatch.from_arrays([_column(batch, field) for field in wanted], schema=wanted)


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    index = batch.schema.get_field_index(field.name)
    if index < 0:
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(index)
    return column if column.type == field.type else column.cast(field.type)
