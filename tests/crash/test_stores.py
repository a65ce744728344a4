"""SIGKILL of driver or worker at random moments, over accounts in object stores and a directory, with a reader listing them all.

CI runs a slice; `make soak` runs PENSTOCK_SOAK_KILLS of them. The seed is printed; PENSTOCK_SEED replays it.
"""

import io
import json
import os
import random
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

from penstock.sink.parquet.object.area import LOOKED_FOR_S
from tests.crash.commandline import penstock
from tests.crash.killing import kill_often
from tests.crash.probe import Probe
from tests.crash.stopping import started
from tests.crash.world import STAGED_BY_TASKS, Row, World, account_rows, assert_same, make_world, parquet_rows
from tests.seed import SEED
from tests.servers.fixtures import accounts_on
from tests.servers.server import Outside

KILLS = int(os.environ.get("PENSTOCK_SOAK_KILLS", "3"))

SMALL, LARGE = (20, 200, 2), (6, 8_000, 1)
"""Files, rows a file and files a batch: files that travel inside the decision, and files that tasks upload."""

PIECES = 12
"""Files of a batch: account and month of a row belong together."""

pytestmark = [
    pytest.mark.crash,
    pytest.mark.spark,
    pytest.mark.campaign,
    pytest.mark.timeout(3600),
    pytest.mark.usefixtures("spark"),
]


@pytest.mark.parametrize(
    ("size", "kinds"),
    [
        (SMALL, {"EWR": "az", "JFK": "s3", "LGA": ""}),
        (LARGE, {"EWR": "gs", "JFK": "s3", "LGA": "hdfs"}),
        (LARGE, {"EWR": "az", "JFK": "s3", "LGA": "gs", "BOS": "hdfs", "ORD": ""}),
    ],
    ids=["small, with a directory", "large", "all five kinds"],
)
def test_random_kills_lose_nothing_and_double_nothing_in_stores(
    tmp_path: Path, size: tuple[int, int, int], kinds: dict[str, str]
) -> None:
    """An account of no kind is a directory."""
    seed = SEED + size[0]
    generator = random.Random(seed)
    files, rows, per_trigger = size
    world = make_world(
        tmp_path,
        files=files,
        rows_per_file=rows,
        seed=seed,
        per_trigger=per_trigger,
        wide=True,
        accounts=list(kinds),
        stores=accounts_on(**{account: kind for account, kind in kinds.items() if kind}),
    )
    if size == LARGE:
        world = replace(world, program=STAGED_BY_TASKS)
    with Probe(world) as probe:
        killed = kill_often(world, generator, wanted=-(-KILLS // 3), files=files, rows_per_file=rows)
    print(f"PENSTOCK_SEED={SEED} {size}: killed {killed}, the reader looked {probe.passes} times")
    assert probe.violations == []
    world.assert_exact()
    world.assert_verified()
    assert_same_to_duckdb(world, tmp_path / "fetched")


@pytest.mark.parametrize(
    ("fault", "rows"),
    [("object.publish.complete@3", 8_000), ("object.mark.write@1", 8_000), ("inline.put@3", 100)],
    ids=["before a completion", "before a mark", "before a small file"],
)
def test_a_driver_that_slept_resurrects_nothing(spark: SparkSession, tmp_path: Path, fault: str, rows: int) -> None:
    """A newer one published, and maintenance removed a month from every account, before it wakes up."""
    stores = accounts_on(EWR="az", JFK="s3", LGA="hdfs")
    world = make_world(tmp_path / "world", files=2, rows_per_file=rows, seed=SEED, per_trigger=1, wide=True, stores=stores)
    with started(world, fault) as older:
        older.await_that(lambda: is_alone(world, fault), what="everything but what it sleeps before")
        older.stop()
        newer = penstock("run", str(world.file), "--json")
        assert newer.code == 0, str(newer)
        maintain(world)
        woken = older.go_on(after_s=LOOKED_FOR_S + 1)
    assert (woken.code, woken.last["error"]["kind"]) == (4, "Fenced"), str(woken)
    assert penstock("sweep", str(world.file), "--yes", "--json").code == 0
    world.assert_exact()


def test_one_pipeline_into_all_kinds_at_once(spark: SparkSession, tmp_path: Path) -> None:
    """Killed in the midst of staging, publishing and marking; every row is in just one of five accounts, once."""
    world = make_world(tmp_path, files=4, rows_per_file=8_000, seed=SEED, per_trigger=2, wide=True)
    stores = accounts_on(azure="az", google="gs", amazon="s3", hadoop="hdfs")
    remote = {name: place.settings for name, (place, _) in stores.items()}
    world.rewrite(
        ("{EWR: ./lake/ewr, JFK: ./lake/jfk, LGA: ./lake/lga}", json.dumps({**remote, "local": "./lake/local"})),
        ("route: {column: origin}", "route: {hash: [id]}"),
    )
    for fault in ("object.publish.complete=kill@7", "object.mark.write=kill@2", "inline.put=kill@2"):
        world.kill(fault)
    done = penstock("run", str(world.file), "--json")
    assert done.code == 0, str(done)
    found = {name: rows_of_store(store) for name, (_, store) in stores.items()}
    found["local"] = account_rows(world.account("local"))
    assert all(found.values())
    assert_same("all five", found=sum(found.values(), Counter()), expected=sum(world.expected.values(), Counter()))
    world.assert_verified()


def assert_same_to_duckdb(world: World, directory: Path) -> None:
    """Another library than the one that wrote the files reads the same rows out of all accounts."""
    for account, store in world.stores.items():
        for name in world.listing(account):
            path = directory / account / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(store.get(name))
    files = [f"{directory}/{account}/**/*.parquet" for account in world.stores]
    columns = "id, origin, CAST(month AS INTEGER), payload, amount"
    found = Counter(duckdb.read_parquet(files, hive_partitioning=True).project(columns).fetchall())
    assert_same("DuckDB", found=found, expected=sum((world.expected[account] for account in world.stores), Counter()))


def rows_of_store(store: Outside) -> "Counter[Row]":
    names = [name for name in store.listing() if not name.startswith("_penstock/")]
    return sum((parquet_rows(io.BytesIO(store.get(name)), name) for name in names), Counter())


def is_alone(world: World, fault: str) -> bool:
    """Whether nothing else is under way: neither the other sink's transaction, whose lock would sleep too, nor a request."""
    shown = sum(len(world.listing(account)) for account in world.stores)
    return in_warehouse(world) > 0 and shown >= (PIECES if fault.startswith("object.mark") else PIECES - 1)


def in_warehouse(world: World) -> int:
    try:
        with closing(sqlite3.connect(world.root / "warehouse.db")) as connection:
            return int(connection.execute("SELECT count(*) FROM flights").fetchone()[0])
    except sqlite3.OperationalError:  # there is no table yet
        return 0


def maintain(world: World) -> None:
    """What is published may be removed: here a month of every account."""
    for account, store in world.stores.items():
        for name in [name for name in world.listing(account) if name.startswith("month=1/")]:
            store.delete(name)
        kept = {row: count for row, count in world.expected[account].items() if row[2] != 1}
        world.expected[account].clear()
        world.expected[account].update(kept)
    with closing(sqlite3.connect(world.root / "warehouse.db")) as connection, connection:
        connection.execute("DELETE FROM flights WHERE month = 1")
