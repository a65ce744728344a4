"""How large a query's state was after its batches, by Spark's own metrics: JSON lines in the pipeline's home.

Nothing relies on them: they are appended if that is possible, and read if they are there. The file stays small: once it is full,
of each time before the newest sample one is kept, the more seldom the longer ago it was.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from penstock.core.model import BatchId, Generation, new_nonce
from penstock.support.private_files import open_private

FILE = "state.jsonl"
FULL_BYTES = 500_000
"""At this size samples are left out; some 300 are kept."""
_FORMAT, _VERSION = "penstock.state", 1
_HOUR_MS = 3_600_000
DAY_MS = 24 * _HOUR_MS
_OLDEST_MS = 32 * DAY_MS
_RECENTLY_MS, _EARLIER_MS = _HOUR_MS // 6, 6 * _HOUR_MS
"""Of the newest day a sample for each ten minutes is kept, of the days before one for each six hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSample:
    """The state of one operator after a batch, by Spark's StreamingQueryProgress; `name` is Spark's.

    `memory_bytes` is what the stores of all partitions use in memory, `disk_bytes` the size of RocksDB's tables, None with
    another provider. `rows_updated`, `rows_removed` and `rows_late` (dropped behind the watermark) are of that batch alone.
    """

    name: str
    rows: int
    memory_bytes: int
    disk_bytes: int | None = None
    rows_updated: int = 0
    rows_removed: int = 0
    rows_late: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSample:
    """The state after batch `batch_id`, which ended at `at_ms`. The operators are in the order of their numbers."""

    generation: Generation
    batch_id: BatchId
    at_ms: int
    operators: tuple[OperatorSample, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(operator.name for operator in self.operators)


class StateSamples:
    """Writes the samples of one pipeline below its home. One thread of a driver writes."""

    def __init__(self, home: str) -> None:
        self._path = Path(home) / FILE
        self._full_bytes = FULL_BYTES

    def write(self, sample: StateSample) -> None:
        """Append one sample, unless the home is not a directory that can be written to."""
        with suppress(OSError):
            with open_private(self._path, "ab") as file:
                file.write(_line(sample))
                size_bytes = file.tell()
            if size_bytes >= self._full_bytes:
                self._thin()

    def _thin(self) -> None:
        """Put what is kept in the place of the file. A sample that another driver writes meanwhile can be lost with it."""
        kept = b"".join(map(_line, thinned(list(_read(self._path)))))
        fresh = self._path.with_name(f".{FILE}-{new_nonce()}")
        with open_private(fresh, "xb") as file:
            file.write(kept)
        fresh.replace(self._path)
        self._full_bytes = max(FULL_BYTES, 2 * len(kept))


def thinned(samples: Sequence[StateSample]) -> Sequence[StateSample]:
    """Return the samples that are kept of `samples`, oldest first: the newest one always."""
    newest_ms = max((sample.at_ms for sample in samples), default=0)
    kept = dict[tuple[int, int], StateSample]()
    for sample in samples:
        age_ms = newest_ms - sample.at_ms
        if age_ms <= _OLDEST_MS:
            step_ms = _RECENTLY_MS if age_ms <= DAY_MS else _EARLIER_MS
            kept[step_ms, sample.at_ms // step_ms] = sample
    return list(kept.values())


def state_samples(home: str, *, newest: int | None = None) -> Sequence[StateSample]:
    """Return the samples that lead to the newest one, oldest first, none if the query keeps no state or nobody noted it.

    Batches that a rewind took back, those of another checkpoint, and those of a query with other operators are left out, and
    batches after `newest`, if that is given.
    """
    found = [sample for sample in _read(Path(home) / FILE) if newest is None or sample.batch_id <= newest]
    if not found:
        return ()
    names, after = found[-1].names, found[-1].batch_id + 1
    leading = list[StateSample]()
    for sample in takewhile(lambda sample: sample.names == names, reversed(found)):
        if sample.batch_id < after:
            after = sample.batch_id
            leading.append(sample)
    return leading[::-1]


def _line(sample: StateSample) -> bytes:
    values = {"format": _FORMAT, "version": _VERSION, **asdict(sample)}
    return json.dumps(values, separators=(",", ":")).encode() + b"\n"


def _read(path: Path) -> Iterator[StateSample]:
    with suppress(OSError), path.open("rb") as file:
        yield from _samples(file)


def _samples(lines: Iterable[bytes]) -> Iterator[StateSample]:
    """Yield what this version can read: a line may be cut off, or of a newer version."""
    for line in lines:
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            values: dict[str, Any] = json.loads(line)
            if values.pop("format") == _FORMAT and values.pop("version") == _VERSION:
                operators = tuple(OperatorSample(**each) for each in values.pop("operators"))
                yield StateSample(operators=operators, **values)
