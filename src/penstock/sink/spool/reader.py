"""The driver side of the spool: reads decided pieces back as rows, and reports what is wrong with one."""

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
    """Return the size of a piece, in its file or inline."""
    return int(str(piece.ref["size_bytes"]))


def read_piece(piece: Staged, place: Place, *, copy: BinaryIO | None = None) -> Iterator["pa.RecordBatch"]:
    """Yield the rows of a piece as they were written, verified as a whole before the first row. A `copy` was verified before.

    Raises StagedDataLost if the piece is missing or differs from what was staged, Retryable if it cannot be read now,
    FormatTooNew, and what a store raises.
    """
    with _translate_errors(piece, place), _open(piece, place) if copy is None else copy as file:
        if copy is None:
            for _ in _verified(piece, file, place):
                pass
            file.seek(0)
        decode_document(file.readline().rstrip(b"\n"), kind=FORMAT, newest=VERSION, where=f"Spool piece {piece.name}")
        yield from _batches(piece, file, place)


def read_cached(piece: Staged, rows: "Sequence[pa.RecordBatch]", place: Place) -> Iterator["pa.RecordBatch"]:
    """Yield `rows`, the cached rows of a piece, if its file is still there. Raises StagedDataLost, Retryable.

    The file is gone if another driver has published it. For sinks that nothing fences, this is the last chance to notice.
    """
    with _translate_errors(piece, place), _open(piece, place) as file:
        _require_size(piece, file.seek(0, io.SEEK_END), place)
        yield from rows


def copy_piece(piece: Staged, place: Place, write: Callable[[bytes], None]) -> None:
    """Pass all bytes of the piece to `write`, in order. Raises as `read_piece`, at the end at the latest."""
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
    """Yield the bytes of `file`, never more than were staged. Raises StagedDataLost, after the last one, if they differ."""
    found = hashlib.sha256()
    size_bytes = 0
    while chunk := file.read(_CHUNK_BYTES):
        found.update(chunk)
        size_bytes += len(chunk)
        if size_bytes > size_bytes_of(piece):
            break
        yield chunk
    _require_size(piece, size_bytes, place)
    if found.hexdigest() != piece.ref["sha256"]:  # I4
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
