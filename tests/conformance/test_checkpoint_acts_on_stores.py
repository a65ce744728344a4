"""Every verb that acts, on checkpoints in stores: those that each Spark wrote, and the one of a pipeline, by the command line.

A run draws one store for each test, and one version of Spark; all with PENSTOCK_SOAK_FAULTS=all. Spark is not started.
"""

import json
import os
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.crash.commandline import penstock
from tests.crash.test_savepoints_killed import PIPELINE, append, decide, ledger_of
from tests.seed import SEED
from tests.servers.fixtures import accounts_on
from tests.servers.server import Outside, Place
from tests.unit.file_sink_world import Query, Successor
from tests.upgrade.checkpoint_archives import ARCHIVES, content_of

from penstock.checkpoint.act import ACTS
from penstock.checkpoint.files import Files, open_files
from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.checkpoint.verification import verify_files
from penstock.core.model import Adopted, BatchId, QueryId
from penstock.core.topics import InputFile
from penstock.run.operations import verify
from penstock.run.taking_over import take_over

EVERYTHING = os.environ.get("PENSTOCK_SOAK_FAULTS") == "all"
DRAW = random.Random(SEED)
STORES = ("az", "gs", "hdfs", "s3")
VERSIONS = ("3.5", "4.0", "4.1", "4.2", "4.3")

pytestmark = pytest.mark.campaign


def kinds() -> Sequence[str]:
    """The stores of one test."""
    return STORES if EVERYTHING else [DRAW.choice(STORES)]


def cases() -> Sequence[tuple[str, Path]]:
    """Stores, each with a checkpoint of each version of Spark."""
    of_versions = [[path for path in ARCHIVES if path.name.startswith(f"spark-{version}-")] for version in VERSIONS]
    every = [(kind, DRAW.choice(archives)) for kind in STORES for archives in of_versions]
    return every if EVERYTHING else [DRAW.choice(every)]


def put_all(store: Outside, content: Mapping[str, bytes]) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda one: store.put(*one), content.items()))


def held(store: Outside, below: str = "") -> dict[str, bytes]:
    """What is there, but for the acts' backups."""
    names = [name for name in store.listing() if name.startswith(below) and f"{ACTS}/" not in name]
    with ThreadPoolExecutor(8) as pool:
        return dict(zip((name.removeprefix(below) for name in names), pool.map(store.get, names), strict=True))


@dataclass(frozen=True)
class Shell:
    """Commands in one directory, on checkpoints in one store."""

    directory: Path
    place: Place

    def __call__(self, *words: str, code: int = 0) -> str:
        ended = penstock(*words, directory=self.directory)
        assert ended.code == code, f"{words}: {ended}"
        return ended.out

    @property
    def options(self) -> list[str]:
        return [part for key, value in self.place.options.items() for part in ("--option", f"{key}={value}")]

    @property
    def other_options(self) -> list[str]:
        return [part.replace("--option", "--other-option") for part in self.options]


@pytest.mark.parametrize(("kind", "archive"), cases(), ids=lambda value: value if isinstance(value, str) else value.name)
def test_acts_on_a_checkpoint_of_each_spark(tmp_path: Path, kind: str, archive: Path) -> None:
    place, store = accounts_on(checkpoint=kind)["checkpoint"]
    shell, whole = Shell(tmp_path, place), content_of(archive)
    put_all(store, whole)
    newest = max(int(name[8:]) for name in whole if name.startswith("commits/") and name[8:].isdecimal())

    def acted(verb: str, *words: str) -> dict[str, bytes]:
        """Planned, done, verified, and undone to the byte."""
        before = held(store)
        shell("checkpoint", verb, place.url, *words, *shell.options)
        assert held(store) == before
        shell("checkpoint", verb, place.url, *words, "--yes", *shell.options)
        shell("checkpoint", "verify", place.url, *shell.options)
        after = held(store)
        shell("checkpoint", verb, place.url, "--undo", "--yes", *shell.options)
        assert held(store) == before
        return after

    assert acted("rewind", "--to-batch", str(newest - 1)).keys() < whole.keys()
    assert acted("gc", "--keep-batches", "2").keys() < whole.keys()
    damage(store, newest)
    shell("checkpoint", "verify", place.url, *shell.options, code=5)
    repaired = acted("repair")
    assert {name: data for name, data in repaired.items() if name in whole}.items() <= {
        **whole,
        f"offsets/{newest - 1}": repaired[f"offsets/{newest - 1}"],
    }.items()
    shell("checkpoint", "repair", place.url, "--yes", *shell.options)
    shell("checkpoint", "copy", place.url, f"{place.url}-copy", *shell.options, *shell.other_options)
    older_state = 5 if any(name.startswith("state/") for name in whole) else 0  # which a copy leaves behind
    shell("checkpoint", "diff", place.url, f"{place.url}-copy", *shell.options, *shell.other_options, code=older_state)
    assert verify_files(open_files(f"{place.url}-copy", options=place.options)).ok


def damage(store: Outside, newest: int) -> None:
    """A hole before the newest batch (bug 24), and what writers left."""
    for name in (f"offsets/{newest - 1}", f"offsets/.{newest - 1}.crc"):
        if name in store.listing():
            store.delete(name)
    store.put(f"offsets/.{newest + 1}.aa-bb.tmp", b"v1\n")


@pytest.fixture(params=kinds())
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Shell:
    """A pipeline that delivered eight batches; the checkpoint that Spark left is in the store."""
    place, store = accounts_on(checkpoint=request.param)["checkpoint"]
    [archive] = [path for path in ARCHIVES if path.name.startswith("spark-4.3-files.")]
    content = content_of(archive)
    put_all(store, content)
    for name, url in (("orders", place.url), ("shadow", f"{place.url}-shadow")):
        kept = json.dumps({"url": url, "options": dict(place.options)})
        (tmp_path / f"{name}.yaml").write_text(f"{PIPELINE.format(name=name)}checkpoint: {kept}\n")
    decide(tmp_path, QueryId(json.loads(content["metadata"])["id"]))
    return Shell(tmp_path, place)


def test_acts_on_the_checkpoint_of_a_pipeline(shell: Shell) -> None:
    files = open_files(shell.place.url, options=shell.place.options)
    query_id = QueryId(json.loads(files.read("metadata") or b"")["id"])
    acts: Mapping[str, Callable[[], None]] = {
        "gc --keep-batches 2": lambda: None,
        "rewind --to-batch 6": lambda: None,
        "repair": lambda: files.delete("metadata"),
        "rebuild": lambda: [files.delete(name) for name in ("metadata", "offsets/7", "offsets/.7.crc")],
    }
    for act, harm in acts.items():
        verb, *words = act.split()
        harm()
        shell("checkpoint", verb, "orders.yaml", *words, "--yes")
        shell("checkpoint", "verify", "orders.yaml")
        shell("checkpoint", verb, "orders.yaml", "--undo", "--yes")
        if verb != "gc":
            shell("checkpoint", verb, "orders.yaml", *words, "--yes")
    assert json.loads(files.read("metadata") or b"")["id"] == query_id
    assert json.loads(shell("status", "orders.yaml", "--json"))["health"] in {"ok", "replay"}


def test_batches_are_taken_back_and_savepoints_are_kept_beside_the_checkpoint(shell: Shell) -> None:
    kept = ["--to", f"{shell.place.url}-savepoints", *shell.options]
    shell("savepoint", "create", "orders.yaml", "a", *kept)
    deliver(shell, 8)
    empty_batch(shell, 8)
    shell("rewind", "orders.yaml", "--to-batch", "7", "--yes")
    assert "goes on with batch 8" in shell("checkpoint", "explain", "orders.yaml")
    shell("savepoint", "verify", "orders.yaml", "a", *kept)
    deliver(shell, 8)
    for name in list(files_of(shell).names("offsets")):
        files_of(shell).delete(f"offsets/{name}")
    files_of(shell).delete("metadata")
    shell("savepoint", "restore", "orders.yaml", "a", "--yes", *kept)
    assert "goes on with batch 8" in shell("checkpoint", "explain", "orders.yaml")
    assert json.loads(shell("status", "orders.yaml", "--json"))["health"] == "ok"
    shell("savepoint", "fork", "orders.yaml", "a", "shadow.yaml", "--yes", *kept)
    assert "goes on with batch 8" in shell("checkpoint", "explain", "shadow.yaml")
    shell("savepoint", "create", "shadow.yaml", "b", *kept, code=3)  # it has decided nothing yet
    shell("savepoint", "delete", "orders.yaml", "a", "--yes", *kept)
    assert "There is no savepoint" in shell("savepoint", "list", "orders.yaml", *kept)


def files_of(shell: Shell) -> Files:
    return open_files(shell.place.url, options=shell.place.options)


def deliver(shell: Shell, batch_id: int) -> None:
    """The ledger decides a batch of one file, which is there."""
    read = shell.directory / "in" / f"{batch_id}.csv"
    read.parent.mkdir(exist_ok=True)
    read.write_text("1\n")
    file = InputFile(read.as_uri(), read.stat().st_mtime_ns // 1_000_000)
    query_id = QueryId(json.loads(files_of(shell).read("metadata") or b"")["id"])
    with closing(ledger_of(shell.directory)) as ledger:
        append(ledger, query_id, BatchId(batch_id), start=batch_id - 1, end=batch_id, read=(file,))


def empty_batch(shell: Shell, batch_id: int) -> None:
    """Spark's logs have the batch, too."""
    files = files_of(shell)
    before = files.read(f"offsets/{batch_id - 1}") or b""
    ended = f'"logOffset":{batch_id - 1}'.encode()
    assert ended in before
    files.write(f"offsets/{batch_id}", before.replace(ended, f'"logOffset":{batch_id}'.encode()))
    files.write(f"commits/{batch_id}", files.read(f"commits/{batch_id - 1}") or b"")
    path = (shell.directory / "in" / f"{batch_id}.csv").as_uri()
    files.write(f"sources/0/{batch_id}", f'v1\n{{"path":"{path}","timestamp":1,"batchId":{batch_id}}}'.encode())


@pytest.mark.parametrize("kind", kinds())
def test_a_query_is_taken_over_from_a_store(tmp_path: Path, kind: str) -> None:
    place, store = accounts_on(checkpoint=kind)["checkpoint"]
    query = Query(tmp_path).run(0, 1, 2, 3)
    put_all(
        store,
        {
            path.relative_to(query.checkpoint).as_posix(): path.read_bytes()
            for path in query.checkpoint.rglob("*")
            if path.is_file()
        },
    )
    shutil.rmtree(query.checkpoint)
    pipeline = Successor(tmp_path, query)
    origin = SparkCheckpoint(place.url, options=place.options)
    for yes in (False, True, True):
        assert take_over(pipeline.plan, origin, reason="a test", yes=yes).done is yes
    assert [entry.body.next_batch_id for entry in pipeline.entries() if isinstance(entry.body, Adopted)] == [4]
    pipeline.deliver(4)
    assert verify(pipeline.plan).ok
    assert len(query.files()) == 5
