"""`penstock.read`, again and again while the pipeline is killed and goes on, sees whole batches only.

CI runs a slice; `make soak` runs PENSTOCK_SOAK_KILLS kills. The seed is printed; PENSTOCK_SEED replays it.
"""

import csv
import json
import os
import random
from collections import Counter
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

from penstock import Pipeline
from tests.crash.killing import kill_often
from tests.crash.polling import Poller
from tests.crash.world import Row, World, assert_same, make_world, rows_of
from tests.seed import SEED
from tests.servers.fixtures import accounts_on

KILLS = int(os.environ.get("PENSTOCK_SOAK_KILLS", "2"))

pytestmark = [
    pytest.mark.crash,
    pytest.mark.spark,
    pytest.mark.campaign,
    pytest.mark.timeout(3600),
    pytest.mark.usefixtures("spark"),
]


class WholeReader(Poller):
    """`seen` holds the rows as of each batch, which must be the same whenever they are read."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._pipeline = Pipeline.from_file(world.file)
        self.seen: dict[int, Counter[Row]] = {}

    def look(self) -> None:
        found = self._pipeline.read()
        if found.as_of is None:
            return
        batch_id, rows = int(found.as_of.batch_id), rows_of(found.arrow())
        if rows != self.seen.setdefault(batch_id, rows):
            self.violations.append(f"the table as of batch {batch_id} was read twice, and was not the same")
        if batch_id < max(self.seen):
            self.violations.append(f"the table went back to batch {batch_id}")


@pytest.mark.parametrize("kinds", [{}, {"EWR": "az", "JFK": "s3"}], ids=["directories", "stores and a directory"])
def test_a_reader_sees_whole_batches_only(tmp_path: Path, kinds: dict[str, str]) -> None:
    seed = SEED + len(kinds)
    generator = random.Random(seed)
    world = make_world(tmp_path, files=20, rows_per_file=200, seed=seed, per_trigger=2, stores=accounts_on(**kinds))
    with WholeReader(world) as reader:
        killed = kill_often(world, generator, wanted=-(-KILLS // 2), files=20, rows_per_file=200)
    reader.look()
    print(f"PENSTOCK_SEED={SEED}: killed {killed}, read {reader.passes} times, as of {len(reader.seen)} batches")
    assert reader.violations == []
    for batch_id, rows in reader.seen.items():
        assert_same(f"as of batch {batch_id}", found=rows, expected=source_rows(world, batch_id))
    assert reader.seen[max(reader.seen)].total() == sum(rows.total() for rows in world.expected.values())


def source_rows(world: World, batch_id: int) -> "Counter[Row]":
    """What the source held up to the end of that batch, by Spark's own logs."""
    end = json.loads((world.checkpoint / "offsets" / str(batch_id)).read_text().splitlines()[2])["logOffset"]
    files: dict[str, int] = {}
    for log in (world.checkpoint / "sources" / "0").iterdir():
        if not log.name.startswith("."):
            for line in log.read_text().splitlines()[1:]:
                found = json.loads(line)
                files[unquote(urlparse(found["path"]).path)] = found["batchId"]
    return sum((csv_rows(Path(path)) for path, number in files.items() if number <= end), Counter())


def csv_rows(path: Path) -> "Counter[Row]":
    with path.open(newline="") as file:
        lines = list(csv.reader(file, escapechar="\\", doublequote=False))[1:]
    return Counter((int(ident), origin, int(month), payload, float(amount)) for ident, origin, month, payload, amount in lines)
