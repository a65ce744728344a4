"""Spark reads its input from an object store and keeps its checkpoint there, by its own connectors; Penstock's home is elsewhere.

The query is stopped, killed, loses a commit and an input file, which comes back overwritten, and is started again; Penstock reads
the checkpoint by itself.
"""

import itertools
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession
from ruamel.yaml import YAML

from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.core.model import BatchId, SourceName
from tests.crash import shared_java
from tests.crash.commandline import Ended, penstock
from tests.crash.errors import run
from tests.crash.verbs import operated
from tests.crash.world import World, make_world
from tests.seed import SEED as RUN
from tests.servers import connectors
from tests.servers.fixtures import accounts_on, server
from tests.servers.server import Outside, Place
from tests.servers.store_commands import carry_out
from tests.spark.stores import connect, disconnect, load
from tests.spark.test_howto import blocks

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.timeout(600)]

SEED = 17
FILES = 6
IS_SOAK = os.environ.get("PENSTOCK_SOAK_FAULTS") == "all"
DRAW = random.Random(RUN)
STORES = ["s3", "az", "gs"]
OPERATED = STORES if IS_SOAK else [DRAW.choice(STORES)]
"""Where batches are taken back, too, and given to a new sink."""

WITH_STATE = list(itertools.product(STORES, ["HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider"]))


@pytest.fixture(name="session")
def _session(spark: SparkSession) -> Iterator[SparkSession]:
    load(shared_java.jvm())
    yield spark
    for jvm in (spark.sparkContext._jvm, shared_java.jvm()):
        disconnect(jvm)


def test_input_and_checkpoint_in_s3(session: SparkSession, tmp_path: Path) -> None:
    survive(session, tmp_path, "s3")


def test_input_and_checkpoint_in_azure(session: SparkSession, tmp_path: Path) -> None:
    survive(session, tmp_path, "az")


def test_input_and_checkpoint_in_google_cloud_storage(session: SparkSession, tmp_path: Path) -> None:
    survive(session, tmp_path, "gs")


def survive(spark: SparkSession, root: Path, kind: str) -> None:
    place, checkpoint = accounts_on(checkpoint=kind)["checkpoint"]
    connect(spark, place)
    world, incoming = made(root, place, kind)
    checkpoint.put("offsets/.0.67c1ac74-8d0e-4e2b-a87f-67091fa019b8.tmp", b"v1\n")  # of a driver that was killed before
    checked = penstock("check", str(world.file), "--json")
    assert checked.code == 0, str(checked)
    assert penstock("status", str(world.file), "--json").code == 0
    stopped = run(world, "--batches", "1")
    assert (stopped.code, stopped.last["batches"]) == (0, 1), str(stopped)
    world.kill("ledger.sqlite_commit=kill@4")
    assert_readable(world, place)
    assert_changed_input_is_refused(world, place, incoming)
    done = run(world)
    assert done.code == 0, str(done)
    world.assert_exact()
    world.assert_verified()
    for _ in range(2):
        checkpoint.delete(newest_commit(checkpoint))
        assert penstock("status", str(world.file), "--json").last["checkpoint"]["is_replay"] is True
        again = run(world)
        assert again.code == 0, str(again)
    world.assert_exact()
    if kind in OPERATED:
        operated(world)


IDS = """\
pipeline: ids
home: ./home
checkpoint: {checkpoint}
spark: {{conf: {conf}}}
sources:
  orders: {{format: csv, path: ./in, schema: "n INT", options: {{maxFilesPerTrigger: 1}}}}
transform: {{python: "distinct:once"}}
sinks:
  lake: {{type: parquet, accounts: {{all: ./lake}}}}
trigger: {{available_now: true}}
"""
ONCE = """\
def once(spark, sources):
    return sources["orders"].dropDuplicates(["n"])
"""


@pytest.mark.parametrize(("kind", "provider"), WITH_STATE if IS_SOAK else [DRAW.choice(WITH_STATE)])
def test_lost_state_in_a_store_is_made_again(session: SparkSession, tmp_path: Path, kind: str, provider: str) -> None:
    """From a savepoint there and the batches behind it; state that is not there would deliver 2 and 4 again."""
    place, checkpoint = accounts_on(checkpoint=kind)["checkpoint"]
    connect(session, place)
    conf = {f"spark.hadoop.{name}": value for name, value in connectors.settings(place).items()}
    conf |= {"spark.jars": ",".join(map(str, connectors.jars())), "spark.sql.shuffle.partitions": "2"}
    conf |= {"spark.sql.streaming.stateStore.providerClass": f"org.apache.spark.sql.execution.streaming.state.{provider}"}
    written = Place(connectors.spelled(place), place.options).written
    (tmp_path / "distinct.py").write_text(ONCE)
    (tmp_path / "ids.yaml").write_text(IDS.format(checkpoint=written, conf=json.dumps(conf)))

    def command(*words: str) -> Ended:
        ended = penstock(*words, directory=tmp_path)
        assert ended.code == 0, f"{words}: {ended}"
        return ended

    def deliver(*files: str) -> None:
        (tmp_path / "in").mkdir(exist_ok=True)
        for content in files:
            (tmp_path / "in" / f"{len(list((tmp_path / 'in').iterdir()))}.csv").write_text(content)
        command("run", "ids.yaml")

    deliver("1\n", "2\n")
    saved = Place(f"{place.url.removesuffix('table')}savepoints", place.options)
    to = ("--to", saved.url, *(part for key, value in saved.options.items() for part in ("--option", f"{key}={value}")))
    command("savepoint", "create", "ids.yaml", "a", *to)
    deliver("3\n", "4\n", "5\n")
    for name in checkpoint.listing():
        checkpoint.delete(name)
    command("checkpoint", "rebuild", "ids.yaml", *to, "--yes")
    deliver("2\n4\n6\n")
    found = ds.dataset(tmp_path / "lake", format="parquet").to_table()["n"].to_pylist()
    assert sorted(found) == [1, 2, 3, 4, 5, 6]
    for words in (("verify",), ("checkpoint", "verify")):
        command(*words, "ids.yaml")


def newest_commit(checkpoint: Outside) -> str:
    """Of the last batch, which is not always the number of files: a query that is stopped between its source's log and its
    offset log plans the next file into the same batch. Hadoop keeps an empty object for the directory itself.
    """
    commits = (key for key in checkpoint.listing() if key.startswith("commits/") and key.removeprefix("commits/").isdigit())
    return max(commits, key=lambda key: int(key.removeprefix("commits/")))


def made(root: Path, place: Place, kind: str) -> tuple[World, Outside]:
    """A world of so many files, a batch each, and its input."""
    written = Place(connectors.spelled(place), place.options).written
    world = make_world(root / "world", files=FILES, rows_per_file=60, seed=SEED, per_trigger=1, extra=f"checkpoint: {written}")
    source = Place(f"{place.url.removesuffix('table')}incoming with spaces", place.options)
    conf = {f"spark.hadoop.{name}": value for name, value in connectors.settings(place).items()}
    conf["spark.jars"] = ",".join(map(str, connectors.jars()))
    world.rewrite(
        ("path: ./incoming", f'path: "{connectors.spelled(source)}"'),
        ("conf: {", f"conf: {{{json.dumps(conf)[1:-1]}, "),
    )
    incoming = server(kind).outside(source)
    for file in (world.root / "incoming").iterdir():
        incoming.put(file.name, file.read_bytes())
    return world, incoming


def assert_readable(world: World, place: Place) -> None:
    """By the pipeline file and by the URL with its options; batch 3 is planned and was not decided."""
    options = [part for key, value in place.options.items() for part in ("--option", f"{key}={value}")]
    for named in ([str(world.file)], [connectors.spelled(place), *options]):
        inspected = penstock("checkpoint", "inspect", *named, "--json")
        assert inspected.code == 0, str(inspected)
        assert inspected.last["ok"], str(inspected)
        explained = penstock("checkpoint", "explain", *named, "--json")
        assert explained.code == 0, str(explained)
        assert "batch 3" in explained.last["headline"], str(explained)
        assert explained.last["problems"] == [], str(explained)
    status = penstock("status", str(world.file), "--json").last
    assert status["checkpoint"]["is_replay"] is True


def assert_changed_input_is_refused(world: World, place: Place, incoming: Outside) -> None:
    """The file that batch 3 was planned with is gone, then overwritten in the bucket by a part of it; no start goes on.

    Nor does one once the file is as it was, since the store has given it a new time; carrying out the remedy confirms it.
    """
    checkpoint = SparkCheckpoint(place.url, options=place.options)
    [[file]] = checkpoint.input_files(BatchId(3), [SourceName("flights")]).values()
    name = unquote(file.path.rpartition("/")[2])
    content = incoming.get(name)
    incoming.delete(name)
    assert_refused(run(world), f"{name} is gone")
    incoming.put(name, content[: content.index(b"\n", len(content) // 2) + 1])
    told = assert_refused(run(world), f"{name} was modified at")
    incoming.put(name, content)
    carry_out(told)


def assert_refused(ended: Ended, said: str) -> str:
    """What the error names as the remedy."""
    assert (ended.code, ended.last["error"]["kind"]) == (1, "InputChanged"), str(ended)
    assert said in ended.err, ended.err
    return str(ended.last["error"]["remedy"])


@pytest.mark.parametrize(("page", "kind"), [("s3", "s3"), ("azure", "az"), ("gcs", "gs")])
def test_the_page_says_what_spark_is_told(tmp_path: Path, page: str, kind: str) -> None:
    """In a process of its own, which ends; the jars come from this machine, and the rest of what is told is the emulator's."""
    place, _ = accounts_on(checkpoint=kind)["checkpoint"]
    world, _ = made(tmp_path, place, kind)
    shown, whole = (YAML(typ="safe").load(text) for text in (blocks(page, "yaml")[2], world.file.read_text()))
    for key, value in shown["spark"]["conf"].items():
        given = whole["spark"]["conf"][key]
        assert str(value).startswith("${") or str(value) == given
    schemes = [each["sources"]["flights"]["path"].partition("://")[0] for each in (shown, whole)]
    assert schemes in (["s3a", "s3a"], ["abfss", "abfs"], ["gs", "gs"]), schemes
    done = world.run("run", str(world.file), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    world.assert_exact()
