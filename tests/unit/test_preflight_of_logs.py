"""What another interval of a file source's log means: Spark looks for a compacted entry among those that are there."""

from pathlib import Path

import pytest
from tests.unit.preflight_world import World, said

from penstock.run.preflight.change import Verdict

KEY = "spark.sql.streaming.fileSource.log.compactInterval"


@pytest.mark.parametrize(
    ("entries", "interval", "verdict"),
    [(2, "2", Verdict.BREAKS), (2, "3", Verdict.SAFE), (4, "5", Verdict.SAFE), (4, "3", Verdict.BREAKS), (9, "x", Verdict.SAFE)],
)
def test_the_interval_of_a_log_that_was_never_compacted(tmp_path: Path, entries: int, interval: str, verdict: Verdict) -> None:
    world = World(tmp_path, "files")
    log = tmp_path / "state/checkpoint/sources/0"
    for path in log.iterdir():
        path.unlink()
    for number in range(entries):
        (log / str(number)).write_text("v1")
    world.change(("partitions: 2", f"partitions: 2, {KEY}: {interval}"))
    assert said(world.preflight())[f"spark.conf.{KEY}"].verdict is verdict
