"""`penstock adopt --from`, killed at each fault point: the same call finishes it.

One process of its own forks for each kill: it has no threads, and loads everything once.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.core import faults
from penstock.run.operations import verify
from tests.unit.file_sink_world import Query, Successor

pytestmark = pytest.mark.crash

FAULTS = (
    *("adopt.copy=kill", "adopt.files=kill", "adopt.list_write=kill", "adopt.list_write=torn", "adopt.list_place=kill"),
    *("adopt.file_move=kill", "adopt.file_move=kill@2", "adopt.log_move=kill", "adopt.record=kill"),
)


def test_a_take_over_that_was_killed_is_finished_by_the_same_call(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-m", __name__, str(tmp_path)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{ended.stdout}{ended.stderr}"


def kill_at(fault: str, directory: Path) -> None:
    directory.mkdir()
    query = Query(directory).run(0, 1, 2, 3)
    left_out = [query.write(7, "failed").name, query.write(8, "failed").name]
    whole = {path.name: path.read_bytes() for path in query.table.rglob("part-*")}
    pipeline = Successor(directory, query)
    child = os.fork()
    if child == 0:
        faults.arm(fault)
        pipeline.adopt()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, fault
    assert {path.name: path.read_bytes() for path in directory.rglob("part-*")} == whole, fault
    assert pipeline.adopt().done
    assert not {*left_out} & {*query.files()}, fault
    pipeline.deliver(4)
    assert verify(pipeline.plan).ok, fault
    assert len(query.files()) == 5, fault


if __name__ == "__main__":
    for number, each in enumerate(FAULTS):
        kill_at(each, Path(sys.argv[1], str(number)))
