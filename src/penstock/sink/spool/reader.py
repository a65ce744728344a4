"""The driver side of the spool: reads decided pieces back as rows, and reports what is wrong with one.

Pieces in a store are first fetched into a local file and verified, before a database waits for them.
"""

import hashlib
import io
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import IO, BinaryIO

import pyarrow as pa

from penstock.blob.object_file import open_ranged
from penstock.core.codec import decode_document
from penstock.core.faults import FaultPoint
from penstock.core.model import Staged
from penstock.errors import Retryable, StagedDataLost
from penstock.sink.concurrent import map_concurrently
from penstock.sink.spool.place import Place
from penstock.sink.spool.writer import FORMAT, VERSION
from penstock.support.filesystem_errors import translate_os_errors

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


@contextmanager
def _translate_errors(piece: Staged, place: Place) -> Iterator[None]:
    what = f"The spool piece {piece.name} in {place.where} cannot be read"
    with translate_os_errors(Retryable, what, then=", then try again."):
        try:
            yield
        except FileNotFoundError:
            raise _lost(piece, place, "it is missing") from None


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


PARALLEL = 4
"""How many pieces are fetched at the same time; each takes some megabytes of memory meanwhile."""


@dataclass(slots=True)
class Copies:
    """Copies of pieces, one after the other in one local file. It has no name, so it goes with the process, however that ends."""

    file: IO[bytes]
    starts: dict[str, int]

    def open(self, piece: Staged) -> BinaryIO:
        """Open the copy of `piece` for reading. Raises KeyError if there is none."""
        start = self.starts[piece.name]
        return open_ranged(lambda at, length: os.pread(self.file.fileno(), length, start + at), size_bytes_of(piece))

    def add(self, piece: Staged, place: Place) -> None:
        """Copy `piece` and verify its bytes. Raises as `read_piece`."""
        at = self.starts[piece.name]
        with _translate_errors(piece, place), _open(piece, place) as file:
            for chunk in _verified(piece, file, place):
                with _copying():
                    _write_all(self.file.fileno(), chunk, at)
                at += len(chunk)


@contextmanager
def copied(pieces: Sequence[Staged], place: Place) -> Iterator[Copies]:
    """Yield copies of all `pieces`, which exist until the context ends; none may be inline. Raises as `read_piece`."""
    starts = accumulate((size_bytes_of(piece) for piece in pieces), initial=0)
    with _copying():
        file = tempfile.TemporaryFile(prefix="penstock-spool-", buffering=0)  # noqa: SIM115 - closed below
    with file:
        copies = Copies(file, {piece.name: start for piece, start in zip(pieces, starts, strict=False)})
        map_concurrently(lambda piece: copies.add(piece, place), pieces, parallel=PARALLEL)
        yield copies


def _write_all(handle: int, data: bytes, at: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(handle, rest, at)
        rest, at = rest[written:], at + written


def _copying() -> AbstractContextManager[None]:
    return translate_os_errors(
        Retryable,
        f"What is to be published cannot be fetched from the spool into {tempfile.gettempdir()}",
        then=", or let TMPDIR name a directory with room for the largest batch; then try again.",
    )
