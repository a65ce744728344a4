"""The spool as a sink uses it: one object from `prepare` to `sweep`."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.diskreason import trouble_of
from penstock.errors import Failed, Retryable
from penstock.faults import FaultPoint
from penstock.model import Attempt, PipelineName, SinkName, Staged, SweepCut, Waiting
from penstock.sink.spool.place import Place, claim, directory_of
from penstock.sink.spool.reader import read_piece
from penstock.sink.spool.writer import INLINE_LIMIT_BYTES, RowCheck, SpoolStager

if TYPE_CHECKING:
    import pyarrow as pa

DISCARD = FaultPoint("spool.discard", "A sink removes a spool file whose rows its target holds durably.")
SWEEP = FaultPoint("spool.sweep", "The sweep removes a spool file of a dead attempt.")


class Spool:
    """The pieces of one sink under `root`, the `spool:` of the pipeline file. Driver side; safe to use from several threads."""

    def __init__(self, *, root: str, sink: SinkName, inline_limit_bytes: int = INLINE_LIMIT_BYTES) -> None:
        self.root, self._sink, self.inline_limit_bytes = str(Path(root).absolute()), sink, inline_limit_bytes
        self._place: Place | None = None

    def prepare(self, pipeline: PipelineName) -> None:
        """Create the sink's directory if it is missing. Raises Failed. Once per generation, before anything else."""
        self._place = claim(directory_of(self.root, pipeline, self._sink))

    def stager(self, check: RowCheck | None = None) -> SpoolStager:
        """The recipe for the tasks. `check` raises StageFailed for rows that the sink could not publish."""
        place, limit = self._prepared(), self.inline_limit_bytes
        if check is None:
            return SpoolStager(sink=self._sink, place=place, inline_limit_bytes=limit)
        return SpoolStager(sink=self._sink, place=place, inline_limit_bytes=limit, check=check)

    def read(self, pieces: Iterable[Staged], *, pipeline: PipelineName) -> Generator["pa.RecordBatch", None, None]:
        """The rows of `pieces` in their frozen order. Raises StagedDataLost, Retryable, FormatTooNew.

        Close it where you stop early: the file of a piece is open while its rows are given.
        """
        directory = str(directory_of(self.root, pipeline, self._sink))
        for piece in pieces:
            yield from read_piece(piece, directory)

    def discard(self, pieces: Iterable[Staged], *, pipeline: PipelineName) -> None:
        """Remove published pieces, after their rows are durable in the target; those that are gone are fine. Raises Retryable."""
        directory = directory_of(self.root, pipeline, self._sink)
        for piece in pieces:
            if piece.inline is None:
                with DISCARD.around(error=_stuck, lost=_stuck):
                    _remove(directory / piece.name)

    def sweep(self, cut: SweepCut, *, dry_run: bool) -> Sequence[str]:
        """Remove the files of attempts that are dead by `cut` and give their paths. Raises Retryable."""
        dead = [path for path, attempt in self._staged_files(cut.pipeline) if cut.is_dead(attempt)]
        for path in () if dry_run else dead:
            with SWEEP.around(error=_stuck, lost=_stuck):
                _remove(path)
        return [str(path) for path in dead]

    def waiting(self, pipeline: PipelineName) -> Iterator[Waiting]:
        """Every file of an attempt."""
        for path, attempt in self._staged_files(pipeline):
            with suppress(FileNotFoundError):  # discarded meanwhile
                yield Waiting(name=str(path), attempt=attempt, size_bytes=path.stat().st_size)

    def _staged_files(self, pipeline: PipelineName) -> Iterator[tuple[Path, Attempt]]:
        for path in _files(directory_of(self.root, pipeline, self._sink)):
            attempt = Attempt.find(path.name)
            if attempt is not None:
                yield path, attempt

    def _prepared(self) -> Place:
        if self._place is None:
            raise Failed(f"Sink {self._sink!r} was not prepared.", remedy="Call prepare() first.")
        return self._place


def _files(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.exists() else []


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as cause:
        trouble = trouble_of(cause)
        raise Retryable(f"The spool file {path} cannot be removed: {trouble.reason}.", remedy=f"{trouble.advice}.") from cause


def _stuck(point: str) -> Retryable:
    return Retryable(f"{point} failed.", remedy="Give the driver write access to the spool.")
