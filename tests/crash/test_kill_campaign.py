"""SIGKILL of the driver or of a Python worker at random moments, again and again, with a reader watching: exactly once.

CI runs a slice; `make soak` runs PENSTOCK_SOAK_KILLS of them. The seed is printed; PENSTOCK_SEED replays it.
"""

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.crash.killing import kill_often
from tests.crash.probe import Probe
from tests.crash.world import STAGED_BY_TASKS, make_world
from tests.fast_spark import FILES, USERS_FILE_MANAGER
from tests.seed import SEED

KILLS = int(os.environ.get("PENSTOCK_SOAK_KILLS", "3"))
KILLS_PER_WORLD = 10

DRIVER, DISTRIBUTED = (20, 200, 2), (6, 4_000, 1)
"""Files, rows a file and files a batch: batches that the driver stages, and batches that tasks stage."""

pytestmark = [
    pytest.mark.crash,
    pytest.mark.spark,
    pytest.mark.campaign,
    pytest.mark.timeout(3600),
    pytest.mark.usefixtures("spark"),
]


@pytest.mark.parametrize("part", range(-(-KILLS // KILLS_PER_WORLD)))
def test_random_kills_lose_nothing_and_double_nothing(tmp_path: Path, part: int) -> None:
    seed = SEED + part
    generator = random.Random(seed)
    files, rows, per_trigger = DRIVER if part % 2 else DISTRIBUTED
    world = make_world(tmp_path, files=files, rows_per_file=rows, seed=seed, per_trigger=per_trigger, wide=True)
    world.rewrite(("spark.log.level", f"{FILES}: {USERS_FILE_MANAGER}, spark.log.level"))
    world = replace(world, forked=False, **({"program": STAGED_BY_TASKS} if rows == DISTRIBUTED[1] else {}))
    is_behind = generator.random() < 0.5
    if is_behind:
        world.rewrite(("trigger:", "publish_behind: true\ntrigger:"))
    wanted = min(KILLS_PER_WORLD, KILLS - part * KILLS_PER_WORLD)
    with Probe(world) as probe:
        killed = kill_often(world, generator, wanted=wanted, files=files, rows_per_file=rows)
    print(
        f"PENSTOCK_SEED={SEED} part {part}, published behind {is_behind}: killed {killed}, the reader looked {probe.passes} times"
    )
    assert probe.violations == []
    world.assert_exact()
    world.assert_verified()
