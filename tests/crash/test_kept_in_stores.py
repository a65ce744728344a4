"""Checkpoint and ledger in stores: killed, started again and operated upon, on real servers, through the command line.

Spark brings Hadoop's client of HDFS along, so there a pipeline runs on a checkpoint that is not a directory. For other stores
Spark needs connectors: tests/conformance/test_checkpoint_on_stores.py tests every reader of checkpoints there.
"""

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import replace as replaced
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.crash.commandline import Ended, penstock
from tests.crash.errors import assert_continues, run
from tests.crash.stopping import stopped
from tests.crash.verbs import operated
from tests.crash.world import World, make_world
from tests.memory import held_directory, in_memory
from tests.servers.fixtures import accounts_on, server
from tests.servers.hdfs import HdfsOutside
from tests.servers.server import Outside, Place

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.timeout(600)]

SEED = 11
QUERY = "5f0d6a0e-7b0c-4c57-8f5b-8f3a1f1c2d3e"
"""Of somebody else."""


def made(root: Path, **places: Place) -> World:
    """A world of four files, a batch each, whose checkpoint or ledger is in a store."""
    extra = "\n".join(f"{name}: {place.written}" for name, place in places.items())
    return make_world(root / "world", files=4, rows_per_file=60, seed=SEED, per_trigger=1, extra=extra)


# --- the checkpoint


@pytest.fixture(name="checkpoint")
def _checkpoint() -> tuple[Place, Outside]:
    return accounts_on(checkpoint="hdfs")["checkpoint"]


def test_killed_on_a_checkpoint_in_hdfs(spark: SparkSession, tmp_path: Path, checkpoint: tuple[Place, Outside]) -> None:
    place, store = checkpoint
    world = made(tmp_path, checkpoint=place)
    for fault in ("ledger.sqlite_commit=kill@3", "rename.move=kill@4", "sqlite.commit=kill@2"):
        world.kill(fault)
        planned = json.loads(penstock("checkpoint", "inspect", str(world.file), "--json").out)
        assert planned["ok"], planned
    done = run(world)
    assert done.code == 0, str(done)
    world.assert_exact()
    world.assert_verified()
    assert not world.checkpoint.exists()
    assert {"metadata", "offsets/3", "commits/3"} <= store.listing().keys()


@dataclass(frozen=True)
class Delivered:
    """A world whose batches are delivered, on a checkpoint in HDFS, and how both were then."""

    world: World
    store: Outside
    copy: Path
    keys: Mapping[str, bytes]

    def again(self) -> World:
        """The same once more, whatever was done to it meanwhile: under the same name, which Spark's logs hold."""
        shutil.rmtree(self.world.root)
        shutil.copytree(self.copy, self.world.root)
        remove_all(self.store)
        for key, data in self.keys.items():
            self.store.put(key, data)
        return replaced(self.world, expected={account: Counter(rows) for account, rows in self.world.expected.items()})


@pytest.fixture(name="once", scope="module")
def _once(spark: SparkSession) -> Iterator[Delivered]:
    """Batches 0 to 3 are delivered."""
    place, store = accounts_on(checkpoint="hdfs")["checkpoint"]
    with held_directory(parent=in_memory()) as root:
        world = made(root, checkpoint=place)
        done = run(world)
        assert done.code == 0, str(done)
        world.assert_exact()
        copy = Path(shutil.copytree(world.root, root / "copy"))
        yield Delivered(world, store, copy, {key: store.get(key) for key in store.listing()})


@pytest.fixture(name="delivered")
def _delivered(once: Delivered) -> tuple[World, Outside]:
    return once.again(), once.store


def test_the_newest_commit_removed_changes_nothing(delivered: tuple[World, Outside]) -> None:
    world, store = delivered
    for _ in range(2):
        store.delete("commits/3")
        assert penstock("status", str(world.file), "--json").last["checkpoint"]["is_replay"] is True
        again = run(world)
        assert again.code == 0, str(again)
        assert {name: share["already_committed"] for name, share in again.last["sinks"].items()} == {"lake": 1, "warehouse": 1}
    assert_continues(world)


def test_batches_are_taken_back_and_given_to_a_new_sink(delivered: tuple[World, Outside]) -> None:
    operated(delivered[0])


def remove_all(store: Outside) -> None:
    for key in list(store.listing()):
        store.delete(key)


def replace(store: Outside) -> None:
    store.put("metadata", json.dumps({"id": QUERY}).encode())


def remove_metadata(store: Outside) -> None:
    store.delete("metadata")


def remove_newest_batch(store: Outside) -> None:
    """As an older copy of the checkpoint would be."""
    for key in ("commits/2", "commits/3", "offsets/2", "offsets/3", "sources/0/2", "sources/0/3"):
        store.delete(key)


def remove_newest_offsets(store: Outside) -> None:
    store.delete("offsets/3")


def tear(store: Outside) -> None:
    store.delete("commits/3")
    store.put("offsets/3", b"v1\n{")


@pytest.mark.parametrize(
    ("harm", "kind"),
    [
        (remove_all, "CheckpointMissing"),
        (remove_metadata, "CheckpointMissing"),
        (replace, "CheckpointReplaced"),
        (remove_newest_offsets, "CheckpointDamaged"),
        (tear, "CheckpointDamaged"),
    ],
)
def test_a_harmed_checkpoint_is_refused_until_it_is_put_back(
    delivered: tuple[World, Outside], harm: Callable[[Outside], None], kind: str
) -> None:
    world, store = delivered
    before = {key: store.get(key) for key in store.listing()}
    harm(store)
    for _ in range(2):
        assert_refused(run(world), kind)
    world.assert_exact()
    for key, data in before.items():
        store.put(key, data)
    assert_continues(world)


def test_an_older_copy_is_recognised(delivered: tuple[World, Outside]) -> None:
    world, store = delivered
    remove_newest_batch(store)
    again = run(world)
    assert again.code == 0, str(again)
    assert again.last["sinks"]["lake"]["already_committed"] == 2
    assert_continues(world)


def test_another_checkpoint_can_be_adopted(delivered: tuple[World, Outside]) -> None:
    world, store = delivered
    replace(store)
    assert_refused(run(world), "CheckpointReplaced")
    done = penstock("adopt", str(world.file), "--yes", "--reason", "the same under another name", "--json")
    assert (done.code, done.last["done"]) == (0, True), str(done)
    assert_continues(world)


def assert_refused(ended: Ended, kind: str) -> None:
    assert (ended.code, ended.last["error"]["kind"]) == (3, kind), str(ended)
    assert len(ended.err.splitlines()) == 2, ended.err


# --- input files beside it


@pytest.fixture(name="beside")
def _beside(spark: SparkSession, tmp_path: Path, checkpoint: tuple[Place, Outside]) -> tuple[World, HdfsOutside]:
    """The input is in HDFS, too, and two of its four files are planned, staged and not decided."""
    place, _ = checkpoint
    incoming = Place(f"{place.url.removesuffix('table')}incoming with spaces", place.options)
    store = server("hdfs").outside(incoming)
    world = make_world(
        tmp_path / "world", files=4, rows_per_file=60, seed=SEED, per_trigger=2, extra=f"checkpoint: {place.written}"
    )
    for file in (world.root / "incoming").iterdir():
        store.put(file.name, file.read_bytes())
    world.rewrite(("path: ./incoming", f'path: "{incoming.url}"'))
    world.kill("ledger.sqlite_commit=kill@2")
    return world, store


def test_input_that_changes_under_a_batch_is_refused(beside: tuple[World, HdfsOutside]) -> None:
    """While the driver stands still between staging and deciding; afterwards it is refused until the remedy was carried out."""
    world, store = beside
    with stopped(world, "stage.collect@1") as driver:
        name = min(store.listing())
        store.put(name, store.get(name))
        changed = driver.go_on()
    assert (changed.code, changed.last["error"]["kind"]) == (1, "InputChanged"), str(changed)
    assert f"{name} was modified at" in changed.err
    again = run(world)
    assert (again.code, again.last["error"]["kind"]) == (1, "InputChanged"), str(again)
    (planned_ms,) = re.findall(r"expected: (\d+) ms, by the operation SETTIMES", again.err)
    store.set_modified(name, planned_ms)
    done = run(world)
    assert done.code == 0, str(done)
    world.assert_exact()


# --- the ledger


@pytest.mark.parametrize("kind", ["az", "gs", "hdfs", "s3"])
def test_a_ledger_in_a_store_with_options_of_its_own(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    place, store = accounts_on(ledger=kind)["ledger"]
    world = made(tmp_path, ledger=place)
    stopped = run(world, "--batches", "2")
    assert (stopped.code, stopped.last["batches"]) == (0, 2), str(stopped)
    world.kill("sqlite.commit=kill@2")
    recovered = penstock("recover", str(world.file), "--json")
    assert (recovered.code, recovered.last["sinks"]["warehouse"]["already"]) == (0, False), str(recovered)
    done = run(world)
    assert done.code == 0, str(done)
    world.assert_exact()
    assert any(key.startswith("entries/") for key in store.listing())
    assert not (world.root / "state" / "ledger.db").exists()
    for shown in ("status", "history", "verify", "check", "explain", "sweep"):
        said = penstock(shown, str(world.file), "--json")
        assert said.code == 0, str(said)
        assert_hidden(said, place)
    assert place.url in penstock("status", str(world.file), "--json").last["ledger"]


def assert_hidden(said: Ended, place: Place) -> None:
    """No option of the place is shown, secret or not."""
    shown = [value for value in place.options.values() if value in str(said) and value not in place.url]
    assert not [value for value in shown if len(value) > len("us-east-1")], str(said)


@pytest.mark.parametrize(
    ("kind", "wrong"), [("az", {"account_key": "d3Jvbmctc2VjcmV0LXdyb25n"}), ("s3", {"secret_access_key": "wrong-secret-wrong"})]
)
@pytest.mark.parametrize("command", ["run", "status", "verify", "recover"])
def test_wrong_credentials_of_the_ledger_are_told_without_them(
    spark: SparkSession, tmp_path: Path, kind: str, wrong: dict[str, str], command: str
) -> None:
    place, _ = accounts_on(ledger=kind)["ledger"]
    world = made(tmp_path, ledger=Place(place.url, {**place.options, **wrong}))
    refused = penstock(command, str(world.file), "--json")
    assert (refused.code, refused.last["error"]["kind"]) == (1, "Failed"), str(refused)
    assert len(refused.err.splitlines()) == 2, refused.err
    assert place.url in refused.err
    assert "credentials" in refused.err
    assert not [secret for secret in wrong.values() if secret in str(refused)]
