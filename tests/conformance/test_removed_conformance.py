"""`verify --accept-removed` on a directory and on a store, killed at the append and told that it failed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.servers.fixtures import accounts_on
from tests.unit.lake import Lake

from penstock.core.faults import arm


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    arm("")


def killed(lake: Lake, fault: str) -> None:
    words = ("verify", str(lake.file), "--accept-removed", "--yes", "--reason", "kept for 90 days")
    ended = subprocess.run(
        [sys.executable, "-m", "penstock", *words],
        env={**os.environ, "PENSTOCK_FAULTS": fault},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stdout + ended.stderr


def acts(lake: Lake) -> int:
    return sum(row.kind == "removal_accepted" for row in lake.pipeline.history())


def test_an_act_that_was_killed_is_not_there_or_there_once(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.run([0, 1])
    lake.listed("a")[0].unlink()
    killed(lake, "ledger.sqlite_insert=kill")
    killed(lake, "ledger.sqlite_commit=kill")
    assert acts(lake) == 0
    assert not lake.pipeline.verify().ok
    arm("ledger.sqlite_commit=lost")
    assert lake.pipeline.accept_removed(reason="kept for 90 days", yes=True).verification.ok
    assert acts(lake) == 1
    assert lake.pipeline.verify().ok


@pytest.mark.parametrize("kind", ["az", "s3"])
def test_objects_that_were_removed_are_accepted_and_stay_so(tmp_path: Path, kind: str) -> None:
    """Nothing is published again, and an object that comes back is reported."""
    [(place, outside)] = accounts_on(lake=kind).values()
    lake = Lake(tmp_path, places={"a": place})
    lake.run([0, 1, 2])
    names = {file.batch_id: file.name for file in lake.pipeline.read("lake", ["a"]).files}
    first = outside.get(names[0])
    for batch in (0, 2):
        outside.delete(names[batch])
    lake.pipeline.recover()
    assert [file.batch_id for file in lake.pipeline.read("lake", ["a"]).files] == [1]
    done = lake.pipeline.accept_removed(reason="kept for 90 days", yes=True)
    assert done.verification.ok
    assert [(files.account, files.totals.rows) for files in done.files] == [("a", 4)]
    lake.pipeline.recover()
    assert lake.pipeline.verify().ok
    outside.put(names[0], first)
    [problem] = lake.pipeline.verify().sinks[done.files[0].sink].problems
    assert problem.message.endswith("was accepted as removed on purpose, and is there again.")
