"""A reader that lists the accounts all the time while the pipeline runs, dies and recovers."""

import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
from proof import AIRPORTS, is_data
from typing_extensions import Self

PAUSE_S = 0.05


class Reader:
    """Lists every account again and again and opens each file it has not seen before."""

    def __init__(self, work: Path) -> None:
        self._roots = [work / "lake" / airport for airport in AIRPORTS]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.looks = 0
        self.seen: set[Path] = set()
        self.torn: set[Path] = set()
        self.vanished: set[Path] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._stop.wait(PAUSE_S):
            self._look()

    def _look(self) -> None:
        listed = {path for root in self._roots for path in root.rglob("*") if is_data(path.relative_to(root)) and path.is_file()}
        self.vanished |= self.seen - listed
        for path in listed - self.seen:
            try:
                pyarrow.parquet.read_table(path, partitioning=None)
            except (pa.ArrowException, OSError):
                self.torn.add(path)
        self.seen |= listed
        self.looks += 1
