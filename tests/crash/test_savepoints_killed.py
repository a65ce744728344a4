"""Savepoints and rebuilt checkpoints in processes of their own, killed at every fault point: the same command finishes them."""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.checkpoint.source_log import fingerprint
from penstock.commit.summary import after_decision, after_opening
from penstock.core.model import (
    Batch,
    BatchId,
    Decided,
    Decision,
    OffsetRange,
    PipelineName,
    Position,
    QueryId,
    SourceName,
    new_nonce,
)
from penstock.core.topics import Evidence, FilesRead, InputFile
from penstock.ledger.open import open_ledger
from penstock.protocols import Ledger
from penstock.testing.entries import opened_entry
from tests.crash.commandline import penstock
from tests.upgrade.checkpoint_archives import ARCHIVES, content_of

pytestmark = pytest.mark.crash

PIPELINE = """\
pipeline: {name}
home: ./{name}
ledger: ./{name}/ledger
sources:
  in: {{format: csv, path: ./in, schema: "n INT"}}
sinks:
  lake: {{type: parquet, accounts: {{all: ./{name}/lake}}}}
"""


def killed(directory: Path, *words: str, at: str) -> None:
    """Run `penstock WORDS` in a process of its own, which is killed at a fault point."""
    point, _, occurrence = at.partition("@")
    environment = {**os.environ, "PENSTOCK_FAULTS": f"{point}=kill@{occurrence or 1}"}
    command = [sys.executable, "-m", "penstock", *words]
    ended = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, f"{at}: {ended.stdout}{ended.stderr}"


def done(directory: Path, *words: str) -> str:
    ended = penstock(*words, directory=directory)
    assert ended.code == 0, f"{words}: {ended}"
    return ended.out


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A pipeline that delivered eight batches of one file each, with the checkpoint that a real Spark left."""
    for name in ("orders", "shadow"):
        (tmp_path / f"{name}.yaml").write_text(PIPELINE.format(name=name))
    [archive] = [path for path in ARCHIVES if path.name.startswith("spark-4.3-files.")]
    content = content_of(archive)
    for name, data in content.items():
        place = tmp_path / "orders" / "checkpoint" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    decide(tmp_path, QueryId(json.loads(content["metadata"])["id"]))
    return tmp_path


def decide(directory: Path, query_id: QueryId) -> None:
    ledger = ledger_of(directory)
    opened = opened_entry(pipeline=PipelineName("orders"))
    ledger.append(replace(opened, summary=after_opening(None)))
    for number in range(8):
        read = (InputFile(f"file:///tmp/penstock-versions/in/a/{number:03}.csv", 1_700_000_000_000 + 1000 * number),)
        append(ledger, query_id, BatchId(number), start=number - 1, end=number, read=read)
    ledger.close()


def ledger_of(directory: Path) -> Ledger:
    return open_ledger(str(directory / "orders" / "ledger"), pipeline=PipelineName("orders"), options={})


def append(
    ledger: Ledger,
    query_id: QueryId,
    batch_id: BatchId,
    *,
    start: int,
    end: int,
    read: tuple[InputFile, ...],
    listed: tuple[InputFile, ...] | None = None,
) -> None:
    """Decide one batch that has no rows, and lists what it read."""
    after = ledger.tail()
    assert after is not None
    offsets = OffsetRange(
        source=SourceName("in"),
        start=None if start < 0 else f'{{"logOffset":{start}}}',
        end=f'{{"logOffset":{end}}}',
        content=fingerprint(read),
    )
    decision = Decision(
        batch=Batch(query_id=query_id, batch_id=batch_id, offsets=(offsets,)),
        staged=(),
        rows_in=0,
        schema='{"type":"struct","fields":[{"name":"n","type":"integer","nullable":true,"metadata":{}}]}',
        evidence=Evidence(files=(FilesRead(source=SourceName("in"), files=read if listed is None else listed),)),
    )
    position = Position(after.position + 1)
    summary = after_decision(after.summary, decision, position=position)
    body = Decided(decision=decision)
    ledger.append(replace(after, position=position, nonce=new_nonce(), written_at_ms=1 + position, body=body, summary=summary))


def test_a_savepoint_that_was_killed_is_finished_and_deleted(stopped: Path) -> None:
    create, delete = ("savepoint", "create", "orders.yaml", "a"), ("savepoint", "delete", "orders.yaml", "a", "--yes")
    for at in ("savepoint.file@4", "savepoint.manifest"):
        killed(stopped, *create, at=at)
        assert done(stopped, "savepoint", "list", "orders.yaml") == "There is no savepoint.\n"
    done(stopped, *create)
    done(stopped, "savepoint", "verify", "orders.yaml", "a")
    killed(stopped, *delete, at="savepoint.forget")
    done(stopped, "savepoint", "verify", "orders.yaml", "a")
    done(stopped, *delete)
    assert list((stopped / "orders" / "savepoints").iterdir()) == []


def test_a_fork_that_was_killed_is_finished(stopped: Path) -> None:
    done(stopped, "savepoint", "create", "orders.yaml", "a")
    fork = ("savepoint", "fork", "orders.yaml", "a", "shadow.yaml", "--yes", "--json")
    for at in ("savepoint.adopt", "savepoint.fork", "savepoint.fork_metadata"):
        killed(stopped, *fork, at=at)
    forked = json.loads(done(stopped, *fork))
    metadata = json.loads((stopped / "shadow" / "checkpoint" / "metadata").read_text())
    original = json.loads((stopped / "orders" / "checkpoint" / "metadata").read_text())
    assert metadata["id"] == forked["query_id"] != original["id"]
    kinds = [entry["kind"] for entry in json.loads(done(stopped, "history", "shadow.yaml", "--json"))]
    assert kinds.count("adopted") == 1
    assert "goes on with batch 8" in done(stopped, "checkpoint", "explain", "shadow.yaml")
    assert json.loads(done(stopped, "status", "shadow.yaml", "--json"))["health"] == "ok"


@pytest.mark.parametrize("point", ["checkpoint.keep", "checkpoint.change@3", "checkpoint.release"])
def test_a_rebuilt_checkpoint_that_was_killed_is_finished(stopped: Path, point: str) -> None:
    place = stopped / "orders" / "checkpoint"
    lost = {name: (place / name).read_bytes() for name in ("metadata", "sources/0/6", "sources/0/7", "offsets/7")}
    shutil.rmtree(place)
    rebuild = ("checkpoint", "rebuild", "orders.yaml", "--yes")
    if point == "checkpoint.keep":  # nothing is left that could be kept
        (place / "offsets").mkdir(parents=True)
        (place / "offsets" / "6").write_bytes(b"v1\n")
    killed(stopped, *rebuild, at=point)
    done(stopped, *rebuild)
    assert (place / "metadata").read_bytes() == lost["metadata"]
    assert (place / "offsets" / "7").read_bytes().split(b"\n")[2:] == lost["offsets/7"].split(b"\n")[2:]
    for name in ("6", "7"):
        assert (place / "sources" / "0" / name).read_bytes() == lost[f"sources/0/{name}"]
    done(stopped, "checkpoint", "verify", "orders.yaml")
    assert json.loads(done(stopped, "status", "orders.yaml", "--json"))["health"] == "ok"


def test_going_back_to_a_savepoint_that_was_killed_is_finished(stopped: Path) -> None:
    place, read = stopped / "orders" / "checkpoint", stopped / "in.csv"
    read.write_text("1\n")
    done(stopped, "savepoint", "create", "orders.yaml", "a")
    file = InputFile(read.as_uri(), read.stat().st_mtime_ns // 1_000_000)
    query_id = QueryId(json.loads((place / "metadata").read_text())["id"])
    append(ledger_of(stopped), query_id, BatchId(8), start=7, end=8, read=(file,))
    shutil.rmtree(place)
    restore = ("savepoint", "restore", "orders.yaml", "a", "--yes")
    for at in ("rewind.checkpoint", "checkpoint.change@3", "rewind.finish"):
        killed(stopped, *restore, at=at)
        refused = penstock("recover", "orders.yaml", directory=stopped)
        assert (refused.code, "`penstock savepoint restore FILE NAME --yes`" in refused.err) == (3, True)
        if at.startswith("checkpoint.change"):
            rewound = penstock("rewind", "orders.yaml", "--to-batch", "7", "--yes", directory=stopped)
            assert "Run the same `penstock savepoint restore` command again with --yes" in rewound.err, str(rewound)
    done(stopped, *restore)
    assert "goes on with batch 8" in done(stopped, "checkpoint", "explain", "orders.yaml")
    assert json.loads(done(stopped, "status", "orders.yaml", "--json"))["health"] == "ok"
    assert "nothing to take back" in done(stopped, *restore)


def test_a_batch_that_read_several_entries_of_the_log_of_files_is_rebuilt_with_all_of_them(stopped: Path) -> None:
    """Spark writes an entry before the plan that reads it: a stop in between, and the next start plans both as one batch."""
    place, ledger = stopped / "orders" / "checkpoint", ledger_of(stopped)
    query_id = QueryId(json.loads((place / "metadata").read_text())["id"])
    shutil.rmtree(place)
    for number, end in ((8, 9), (9, 12)):
        read = tuple(InputFile(f"file:///in/{end - back}.csv", 1_700_000_000_000 + end - back) for back in (2, 1, 0))
        append(ledger, query_id, BatchId(number), start=7 if number == 8 else 9, end=end, read=read)
    done(stopped, "checkpoint", "rebuild", "orders.yaml", "--yes")
    done(stopped, "checkpoint", "verify", "orders.yaml")
    found = {log_id: (place / "sources" / "0" / str(log_id)).read_text() for log_id in (10, 11, 12)}
    assert {log_id: text.count("file:///in/") for log_id, text in found.items()} == {10: 1, 11: 1, 12: 1}
    assert "".join(found.values()).count('"batchId":11') == 1


def test_what_a_killed_delete_left_of_a_savepoint_goes_with_the_next(stopped: Path) -> None:
    left = stopped / "orders" / "savepoints" / "a" / "checkpoint" / "state" / "0"
    left.mkdir(parents=True)
    ended = penstock("savepoint", "delete", "orders.yaml", "a", "--yes", directory=stopped)
    assert (ended.code, "has no savepoint 'a'" in ended.err) == (1, True), str(ended)
    assert not (stopped / "orders" / "savepoints" / "a").exists()


def test_files_that_the_ledger_does_not_list_are_refused(stopped: Path) -> None:
    place, ledger = stopped / "orders" / "checkpoint", ledger_of(stopped)
    query_id = QueryId(json.loads((place / "metadata").read_text())["id"])
    shutil.rmtree(place)

    def refused() -> str:
        ended = penstock("checkpoint", "rebuild", "orders.yaml", "--yes", directory=stopped)
        assert ended.code == 3, str(ended)
        assert not place.exists()
        return ended.err

    ledger.prune(below=Position(4))
    assert "has forgotten which files the first batches read of source in" in refused()
    append(ledger, query_id, BatchId(8), start=7, end=8, read=(InputFile("file:///in/8.csv", 8),), listed=())
    assert "does not list the files that batch 8 read of source in" in refused()
