"""`verify --accept-removed` on directories and on stores, by the command line, killed at the append and told that it failed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.servers.fixtures import accounts_on
from tests.unit.lake import ACCOUNTS, Lake

ACCEPT = ("--accept-removed", "--yes", "--reason", "kept for 90 days")


def verify(lake: Lake, *words: str, code: int, faults: str = "") -> dict[str, Any]:
    command = [sys.executable, "-m", "penstock", "verify", str(lake.file), "--json", *words]
    ended = subprocess.run(
        command, env={**os.environ, "PENSTOCK_FAULTS": faults}, capture_output=True, text=True, check=False, cwd=lake.directory
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    return json.loads(ended.stdout) if ended.stdout else {}


@pytest.mark.parametrize("kind", ["directory", "s3"])
def test_what_was_removed_is_accepted_once_whatever_happens_to_the_act(tmp_path: Path, kind: str) -> None:
    """A killed act is not there, or there once; a lost answer is read back; nothing is resurrected, and a zombie is reported."""
    stores = {} if kind == "directory" else accounts_on(**dict.fromkeys(ACCOUNTS, kind))
    lake = Lake(tmp_path, places={name: place for name, (place, _) in stores.items()})
    lake.run([0, 1, 2])
    batches = {file.batch_id: file.name for file in lake.pipeline.read("lake", ["a"]).files}

    def remove(number: int) -> bytes:
        name = batches[number]
        if kind == "directory":
            data = (tmp_path / "a" / name).read_bytes()
            (tmp_path / "a" / name).unlink()
            return data
        _, outside = stores["a"]
        data = outside.get(name)
        outside.delete(name)
        return data

    first = remove(0)
    assert verify(lake, code=5)["ok"] is False
    verify(lake, *ACCEPT, code=-9, faults="ledger.sqlite_insert=kill")
    assert verify(lake, code=5)["removed_at"] is None
    verify(lake, *ACCEPT, code=-9, faults="ledger.sqlite_commit=kill")
    done = verify(lake, *ACCEPT, code=0, faults="ledger.sqlite_commit=lost")
    assert [each["rows"] for each in done["removal"]["missing"]] == [2]
    after = verify(lake, code=0)
    assert after["sinks"]["lake"]["rows_removed"] == 2
    assert sum(row.kind == "removal_accepted" for row in lake.pipeline.history()) == 1
    remove(2)
    lake.pipeline.recover()
    assert {file.batch_id for file in lake.pipeline.read("lake", ["a"]).files} == {1}, "nothing is published again"
    assert verify(lake, *ACCEPT, code=0)["sinks"]["lake"]["rows_removed"] == 4
    if kind == "directory":
        (tmp_path / "a" / batches[0]).write_bytes(first)
    else:
        stores["a"][1].put(batches[0], first)
    [problem] = verify(lake, code=5)["sinks"]["lake"]["problems"]
    assert problem["message"].endswith("was accepted as removed on purpose, and is there again.")
