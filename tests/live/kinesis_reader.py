"""A process that reads a stream as Spark does: it logs where a batch ends, reads the batch, and delivers it with its number.

`python -m tests.live.kinesis_reader OPTIONS DIRECTORY STEP`: it kills itself at that step, or ends with the stream's present end.
"""

import json
import os
import signal
import sqlite3
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from penstock.source.kinesis.connection import connect
from penstock.source.kinesis.fetch import batches_of
from penstock.source.kinesis.settings import NAME, settings_in
from penstock.source.kinesis.stream import KinesisStream


def main(options: dict[str, str], directory: Path, kill_at: int) -> None:
    steps = count(1)

    def step() -> None:
        if next(steps) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    settings = settings_in({NAME: "orders", **options})
    query = KinesisStream(settings, lambda: connect(settings))
    query.stop_at_now()
    with sqlite3.connect(directory / "rows.db") as sink:
        sink.execute("CREATE TABLE IF NOT EXISTS delivered (batch INT, number TEXT, shard TEXT, data TEXT)")
        sink.execute("CREATE TABLE IF NOT EXISTS done (batch INT PRIMARY KEY)")
    for number in count():
        start = _logged(directory, number - 1) or query.begin()
        end = _logged(directory, number)
        if end is None:
            step()
            end = query.advance(start)
            if end == start:
                return
            _log(directory, number, end)
        step()
        if sink.execute("SELECT count(*) FROM done WHERE batch = ?", (number,)).fetchone()[0]:
            continue
        rows = [
            (number, row["sequence_number"], row["shard_id"], row["data"].decode())
            for piece in query.planned(start, end)
            for batch in batches_of(piece, settings, connect(settings))
            for row in batch.to_pylist()
        ]
        step()
        with sink:
            sink.executemany("INSERT INTO delivered VALUES (?, ?, ?, ?)", rows)
            sink.execute("INSERT INTO done VALUES (?)", (number,))
            step()


def _logged(directory: Path, number: int) -> "dict[str, Any] | None":
    file = directory / f"{number}.offset"
    return dict(json.loads(file.read_text())) if file.exists() else None


def _log(directory: Path, number: int, end: dict[str, Any]) -> None:
    part = directory / f"{number}.part"
    part.write_text(json.dumps(end))
    part.rename(directory / f"{number}.offset")


def offsets(directory: Path) -> "Iterator[dict[str, Any]]":
    """Yield what is logged, in its order."""
    for number in count():
        found = _logged(directory, number)
        if found is None:
            return
        yield found


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
