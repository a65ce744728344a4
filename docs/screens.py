"""Writes docs/pictures/screens/*.png: what the status page shows of two pipelines that run here. Run by `make screens`.

It needs Spark, and Chromium as `make servers` installs it. Two pipelines deliver generated rows into directories and databases
below a temporary directory; the second one is killed between a decision and its publication.
"""

import csv
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.request import urlopen

from tests.servers import chromium
from tests.servers.server import free_port

FOLDER: Final = Path(__file__).parent / "pictures" / "screens"
LARGEST_BYTES: Final = 150_000
BATCHES: Final = 42
PATIENCE_S: Final = 600.0
_SHOTS: Final = {"overview": ("/", 400), "pipeline": ("/pipelines/flights", 1000)}
_FILE: Final = """\
pipeline: {name}
home: ./state/{name}
spark: {{master: "local[2]", conf: {{spark.ui.enabled: false, spark.sql.shuffle.partitions: 2}}}}
sources:
  {name}: {{format: csv, path: ./{name}, schema: "id INT, place STRING, amount DOUBLE", options: {{maxFilesPerTrigger: 1}}}}
sinks:
  lake: {{type: parquet, accounts: {{{accounts}}}, route: {{column: place}}}}
  warehouse: {{type: sqlite, url: 'sqlite:///{name}.db', table: {name}}}
trigger: {{{trigger}}}
"""
_PLACES: Final = {"flights": ("EWR", "JFK", "LGA"), "orders": ("eu", "us")}
_TRIGGERS: Final = {"flights": "processing_time: 1s", "orders": "available_now: true"}


def main() -> None:
    """Run the pipelines, look at their page, and write it as people see it, light and dark."""
    FOLDER.mkdir(exist_ok=True)
    with TemporaryDirectory() as name:
        directory = Path(name)
        for pipeline, places in _PLACES.items():
            _write(directory, pipeline, places)
        _run(directory, "run", "orders.yaml", faults="sqlite.commit=kill@6").wait()
        port = free_port()
        with (
            _running(directory, "run", "flights.yaml"),
            _running(directory, "metrics", "flights.yaml", "orders.yaml", "--listen", f"127.0.0.1:{port}"),
        ):
            _await_batches(directory)
            for shot, (path, height) in _SHOTS.items():
                _picture(_page(f"http://127.0.0.1:{port}{path}"), shot, height=height, directory=directory)


def _write(directory: Path, name: str, places: tuple[str, ...]) -> None:
    """Write the pipeline file and its input: a file for each batch, with more rows at one time of the day than at another."""
    accounts = ", ".join(f"{place}: ./lake/{name}/{place}" for place in places)
    text = _FILE.format(name=name, accounts=accounts, trigger=_TRIGGERS[name])
    (directory / f"{name}.yaml").write_text(text, encoding="utf-8")
    (directory / name).mkdir()
    drawn = random.Random(7)  # noqa: S311 - what it draws is no secret
    for number in range(BATCHES + 200 if name == "flights" else 9):
        rows = 1_500 + abs(number % 24 - 12) * 400 + drawn.randrange(900)
        with (directory / name / f"{number:03}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows((number * 10_000 + row, drawn.choice(places), row / 4) for row in range(rows))


def _run(directory: Path, *words: str, faults: str = "") -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "PENSTOCK_FAULTS": faults}
    return subprocess.Popen([sys.executable, "-m", "penstock", *words], cwd=directory, env=environment, stdout=subprocess.DEVNULL)


@contextmanager
def _running(directory: Path, *words: str) -> Iterator[None]:
    process = _run(directory, *words)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _await_batches(directory: Path) -> None:
    commits, deadline = directory / "state/flights/checkpoint/commits" / str(BATCHES), time.monotonic() + PATIENCE_S
    while not commits.exists():
        assert time.monotonic() < deadline, f"batch {BATCHES} did not come"
        time.sleep(0.2)


def _page(url: str) -> str:
    """Return the page at a moment between two batches, when everything is published: most moments are, and this one is shown."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with urlopen(url, timeout=60) as answer:  # noqa: S310 - of this machine
            page: str = answer.read().decode()
        if "the driver publishes batch" not in page:
            return page
        assert time.monotonic() < deadline, "a batch is always on its way"
        time.sleep(0.3)


def _picture(page: str, name: str, *, height: int, directory: Path) -> None:
    """Write the page as PNG, light and dark."""
    assert str(directory) not in page
    assert os.uname().nodename not in page
    for kind, media in {"light": "not all", "dark": "all"}.items():
        shown = re.sub(r'<meta http-equiv="(?:Content-Security-Policy|refresh)"[^>]*>', "", page)
        file = directory / f"{name}-{kind}.html"
        file.write_text(shown.replace("(prefers-color-scheme: dark)", media), encoding="utf-8")
        picture = FOLDER / f"{name}-{kind}.png"
        chromium.pictured(file, picture, width=1200, height=height)
        assert picture.stat().st_size < LARGEST_BYTES, f"{picture} is too large"


if __name__ == "__main__":
    main()
