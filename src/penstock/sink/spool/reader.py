"""The driver side of the spool: a decided piece becomes rows again, or the reader says what is wrong with it."""

import hashlib
import io
from collections.abc import Iterator
from contextlib import ExitStack
from typing import BinaryIO

import pyarrow as pa

from penstock.codec import decode_document
from penstock.diskreason import trouble_of
from penstock.errors import Retryable, StagedDataLost
from penstock.faults import FaultPoint
from penstock.model import Staged
from penstock.sink.spool.place import Place
from penstock.sink.spool.writer import FORMAT, VERSION

READ = FaultPoint("spool.read", "The driver opens a decided spool piece.")

_CHUNK_BYTES = 1 << 20


def read_piece(piece: Staged, place: Place) -> Iterator["pa.RecordBatch"]:
    """The piece's rows as they were written, verified as a whole before the first one.

    Raises StagedDataLost if the piece is missing or other than staged, Retryable if it cannot be read now, FormatTooNew,
    and what a store raises.
    """
    try:
        with _open(piece, place) as file:
            _verify(piece, file, place)
            decode_document(file.readline().rstrip(b"\n"), kind=FORMAT, newest=VERSION, where=f"Spool piece {piece.name}")
            yield from _batches(piece, file, place)
    except FileNotFoundError:
        raise _lost(piece, place, "it is missing") from None
    except OSError as cause:
        trouble = trouble_of(cause)
        raise Retryable(
            f"The spool piece {piece.name} in {place.where} cannot be read: {trouble.reason}.",
            remedy=f"{trouble.advice}, then try again.",
        ) from cause


def _open(piece: Staged, place: Place) -> BinaryIO:
    with ExitStack() as unless_returned:
        with READ.around(error=OSError, lost=OSError):
            file = place.open(piece.name) if piece.inline is None else io.BytesIO(piece.inline)
            unless_returned.callback(file.close)
        unless_returned.pop_all()
        return file


def _verify(piece: Staged, file: BinaryIO, place: Place) -> None:
    found, size_bytes = hashlib.sha256(), 0
    while chunk := file.read(_CHUNK_BYTES):
        found.update(chunk)
        size_bytes += len(chunk)
    if size_bytes != piece.ref["size_bytes"]:
        raise _lost(piece, place, f"it has {size_bytes} bytes, expected {piece.ref['size_bytes']}")
    if found.hexdigest() != piece.ref["sha256"]:
        raise _lost(piece, place, f"its checksum is {found.hexdigest()}, expected {piece.ref['sha256']}")
    file.seek(0)


def _batches(piece: Staged, file: BinaryIO, place: Place) -> Iterator["pa.RecordBatch"]:
    rows = 0
    with pa.ipc.open_stream(file) as stream:
        for batch in stream:
            rows += batch.num_rows
            yield batch
    if rows != piece.ref["rows"]:
        raise _lost(piece, place, f"it holds {rows} rows, expected {piece.ref['rows']}")


def _lost(piece: Staged, place: Place, what: str) -> StagedDataLost:
    where = "the decision itself" if piece.inline is not None else place.where
    return StagedDataLost(
        f"The decided spool piece {piece.name} of sink {piece.sink!r} in {where} is lost: {what}.",
        remedy="Mount or restore the spool as it was and start again: the batch is decided and is published from there.",
    )
