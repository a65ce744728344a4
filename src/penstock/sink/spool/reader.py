"""The driver side of the spool: a decided piece becomes rows again, or the reader says what is wrong with it."""

import hashlib
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import BinaryIO

import pyarrow as pa

from penstock.core.codec import decode_document
from penstock.core.faults import FaultPoint
from penstock.core.model import Staged
from penstock.errors import Retryable, StagedDataLost
from penstock.sink.spool.place import Place
from penstock.sink.spool.writer import FORMAT, VERSION
from penstock.support.filesystem_errors import problem_of

READ = FaultPoint("spool.read", "The driver opens a decided spool piece.")

_CHUNK_BYTES = 8 << 20


def size_bytes_of(piece: Staged) -> int:
    """Of the file, or of what travels in its stead."""
    return int(str(piece.ref["size_bytes"]))


def read_piece(piece: Staged, place: Place, *, copy: BinaryIO | None = None) -> Iterator["pa.RecordBatch"]:
    """The piece's rows as they were written, verified as a whole before the first one, or from a `copy` that was verified.

    Raises StagedDataLost if the piece is missing or other than staged, Retryable if it cannot be read now, FormatTooNew,
    and what a store raises.
    """
    with _translate_errors(piece, place), _open(piece, place) if copy is None else copy as file:
        if copy is None:
            for _ in _verified(piece, file, place):
                pass
            file.seek(0)
        decode_document(file.readline().rstrip(b"\n"), kind=FORMAT, newest=VERSION, where=f"Spool piece {piece.name}")
        yield from _batches(piece, file, place)


def read_cached(piece: Staged, rows: "Sequence[pa.RecordBatch]", place: Place) -> Iterator["pa.RecordBatch"]:
    """The same rows, which are in memory still, if the file is still there. Raises StagedDataLost, Retryable.

    It is gone when another driver has published it: for sinks that nothing fences that is the last chance to notice.
    """
    with _translate_errors(piece, place), _open(piece, place) as file:
        _require_size(piece, file.seek(0, io.SEEK_END), place)
        yield from rows


def copy_piece(piece: Staged, place: Place, write: Callable[[bytes], None]) -> None:
    """Hand all bytes of the piece to `write`, in their order. Raises as `read_piece`, at the end at the latest."""
    with _translate_errors(piece, place), _open(piece, place) as file:
        for chunk in _verified(piece, file, place):
            write(chunk)


@contextmanager
def _translate_errors(piece: Staged, place: Place) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise _lost(piece, place, "it is missing") from None
    except OSError as cause:
        problem = problem_of(cause)
        raise Retryable(
            f"The spool piece {piece.name} in {place.where} cannot be read: {problem.reason}.",
            remedy=f"{problem.advice}, then try again.",
        ) from cause


def _open(piece: Staged, place: Place) -> BinaryIO:
    with ExitStack() as unless_returned:
        with READ.around(error=OSError, lost=OSError):
            file = place.open(piece.name) if piece.inline is None else io.BytesIO(piece.inline)
            unless_returned.callback(file.close)
        unless_returned.pop_all()
        return file


def _verified(piece: Staged, file: BinaryIO, place: Place) -> Iterator[bytes]:
    """The bytes of `file`, never more than were staged; those that are others are told after the last one."""
    found = hashlib.sha256()
    size_bytes = 0
    while chunk := file.read(_CHUNK_BYTES):
        found.update(chunk)
        size_bytes += len(chunk)
        if size_bytes > size_bytes_of(piece):
            break
        yield chunk
    _require_size(piece, size_bytes, place)
    if found.hexdigest() != piece.ref["sha256"]:
        raise _lost(piece, place, f"its checksum is {found.hexdigest()}, expected {piece.ref['sha256']}")


def _require_size(piece: Staged, size_bytes: int, place: Place) -> None:
    expected = size_bytes_of(piece)
    if size_bytes != expected:
        raise _lost(piece, place, f"it has {size_bytes} bytes{' or more' * (size_bytes > expected)}, expected {expected}")


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
