"""Fetches pieces from a store into a local file and verifies them, before a database waits for them."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import IO, BinaryIO

from penstock.blob.object_reader import open_ranged
from penstock.core.model import Staged
from penstock.errors import Retryable
from penstock.sink.concurrent import map_concurrently
from penstock.sink.spool.place import Place
from penstock.sink.spool.reader import copy_piece, size_bytes_of
from penstock.support.filesystem_errors import translate_os_errors

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
        """Fetch `piece` and verify it. Raises as `read_piece`."""
        at = self.starts[piece.name]

        def write(data: bytes) -> None:
            nonlocal at
            with _translate_errors():
                _write_all(self.file.fileno(), data, at)
            at += len(data)

        copy_piece(piece, place, write)


@contextmanager
def copied(pieces: Sequence[Staged], place: Place) -> Iterator[Copies]:
    """Yield copies of all `pieces`, which exist until the context ends; none may be inline. Raises as `read_piece`."""
    starts = accumulate((size_bytes_of(piece) for piece in pieces), initial=0)
    with _translate_errors():
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


def _translate_errors() -> AbstractContextManager[None]:
    return translate_os_errors(
        Retryable,
        f"What is to be published cannot be fetched from the spool into {tempfile.gettempdir()}",
        then=", or let TMPDIR name a directory with room for the largest batch; then try again.",
    )
