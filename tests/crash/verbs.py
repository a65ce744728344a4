"""The verbs that act, each on a pipeline that has delivered: what it is asked for, and what must be true once it was done.

A verb is given a world whose batches 0 to 4 are delivered, by a process that has ended.
"""

import csv
import random
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from tests.crash.commandline import Ended, penstock
from tests.crash.world import SCHEMA, Row, World, account_rows, assert_same, database_rows

FILES, ROWS = 5, 40


def command(world: World, *words: str) -> Ended:
    """`penstock WORDS` in the test's process, which ends well."""
    done = penstock(*words, directory=world.root)
    assert done.code == 0, f"{words}: {done}"
    return done


def go_on(world: World) -> None:
    """The source gets one more file, and the pipeline runs to the end and sweeps."""
    feed(world, files=1)
    for words in (("run",), ("sweep", "--yes")):
        command(world, words[0], "pipeline.yaml", *words[1:], "--json")


def feed(world: World, *, files: int) -> None:
    count = len(list((world.root / "incoming").iterdir()))
    world.feed(random.Random(f"more {count}"), files=files, rows_per_file=ROWS)


def everything(world: World) -> "Counter[Row]":
    return sum(world.expected.values(), Counter[Row]())


def exact(world: World) -> None:
    """The pipeline goes on; its sinks hold the source, and `verify` agrees."""
    go_on(world)
    world.assert_exact()
    command(world, "verify", "pipeline.yaml")


@dataclass(frozen=True)
class Verb:
    """`words`: the command, which finishes what it began when it is given again. `undo`: the one that takes it back.

    `is_done`: how it is refused when it was killed after its last change.
    """

    words: tuple[str, ...]
    prepare: Callable[[World], None]
    undo: tuple[str, ...] = ()
    goes_on: Callable[[World], None] = exact
    is_done: str = ""
    starts_spark: bool = False


STATEFUL = """\
pipeline: ids
home: ./ids
sources:
  flights: {{format: csv, path: ./incoming, schema: "{schema}", options: {{header: true, maxFilesPerTrigger: 1}}}}
transform: {{sql: "SELECT id, count(*) AS many FROM flights GROUP BY id"}}
output_mode: update
sinks:
  counts: {{type: sqlite, url: "sqlite:///ids.db", table: counts, write: upsert, key: [id]}}
spark: {{conf: {{spark.sql.shuffle.partitions: "2"}}}}
trigger: {{available_now: true}}
"""


def lose_state(world: World) -> None:
    """A second pipeline, whose query keeps state, on the same input: it has a savepoint, ran on, and lost its checkpoint."""
    (world.root / "ids.yaml").write_text(STATEFUL.format(schema=SCHEMA))
    count = len(list((world.root / "incoming").iterdir()))
    deliver(world, "--batches", "2")
    command(world, "savepoint", "create", "ids.yaml", "a")
    deliver(world)
    assert counted(world).total() == count * ROWS
    shutil.rmtree(world.root / "ids" / "checkpoint")


def deliver(world: World, *words: str) -> None:
    """By a process that has ended: of one that lives, the checkpoint would be in use."""
    run = [sys.executable, "-m", "penstock", "run", "ids.yaml", *words]
    ended = subprocess.run(run, cwd=world.root, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, f"{ended.stdout}{ended.stderr}"


def counted(world: World) -> "Counter[object]":
    with closing(sqlite3.connect(world.root / "ids.db")) as connection:
        return Counter(dict(connection.execute("SELECT id, many FROM counts")))


def state_exact(world: World) -> None:
    """Rows that come again count on: state that is not there would begin with one."""
    for file in sorted((world.root / "incoming").iterdir())[:2]:
        shutil.copy(file, file.with_name(f"again-{file.name}"))
    before = counted(world)
    command(world, "run", "ids.yaml")
    again = Counter[object]()
    for file in (world.root / "incoming").glob("again-*"):
        with file.open(newline="") as opened:
            again += Counter(int(row["id"]) for row in csv.DictReader(opened))
    assert counted(world) == before + again
    command(world, "verify", "ids.yaml")
    command(world, "checkpoint", "verify", "ids.yaml")


def nothing(_: World) -> None:
    pass


def copied(world: World) -> None:
    """The pipeline goes on from the copy, not from the original."""
    shutil.rmtree(world.checkpoint)
    world.rewrite(("trigger:", "checkpoint: ./copy\ntrigger:"))
    exact(world)


def damage(world: World) -> None:
    """Lost metadata, a hole before the newest batch (bug 24), and what a writer left."""
    for name in ("metadata", "offsets/3"):
        folder, _, file = name.rpartition("/")
        (world.checkpoint / name).unlink()
        (world.checkpoint / folder / f".{file}.crc").unlink()
    (world.checkpoint / "offsets" / ".5.aa-bb.tmp").write_bytes(b"v1\n")


def lose_checkpoint(world: World) -> None:
    """All but some files that are worth nothing without the others."""
    for name in ("metadata", ".metadata.crc"):
        (world.checkpoint / name).unlink()
    shutil.rmtree(world.checkpoint / "offsets")
    for name in ("4", ".4.crc"):
        (world.checkpoint / "commits" / name).unlink()


def save(world: World, name: str = "a") -> None:
    command(world, "savepoint", "create", "pipeline.yaml", name)


def save_and_go_on(world: World) -> None:
    save(world)
    feed(world, files=2)
    assert world.run_with("").code == 0  # a driver that has ended


def save_and_lose_checkpoint(world: World) -> None:
    save_and_go_on(world)
    shutil.rmtree(world.checkpoint)


def save_twice(world: World) -> None:
    save_and_go_on(world)
    save(world, "b")


def saved(world: World) -> None:
    """The savepoint is whole, and a pipeline that has lost its checkpoint meanwhile goes back to it."""
    command(world, "savepoint", "verify", "pipeline.yaml", "a")
    go_on(world)
    shutil.rmtree(world.checkpoint)
    command(world, "savepoint", "restore", "pipeline.yaml", "a", "--yes")
    exact(world)


def deleted(world: World) -> None:
    """The other savepoint, which shares files with the deleted one, is whole, and can be gone back to."""
    assert not (world.root / "state" / "savepoints" / "a").exists()
    command(world, "savepoint", "verify", "pipeline.yaml", "b")
    go_on(world)
    command(world, "savepoint", "restore", "pipeline.yaml", "b", "--yes")
    exact(world)


def with_shadow(world: World) -> None:
    save_and_go_on(world)
    text = world.file.read_text().replace("pipeline: crash", "pipeline: shadow").replace("./state", "./shadow")
    text = text.replace("./lake/", "./shadow-lake/").replace("warehouse.db", "shadow.db")
    (world.root / "shadow.yaml").write_text(text)


def forked(world: World) -> None:
    """The fork has what came behind the savepoint, the original has all."""
    exact(world)
    for words in (("run",), ("sweep", "--yes"), ("verify",)):
        command(world, words[0], "shadow.yaml", *words[1:])
    newest = World(world.root, {account: Counter[Row]() for account in world.expected})
    world_of_all = sorted((world.root / "incoming").iterdir())
    behind = rows_of_files(newest, world_of_all[FILES:])
    for account, rows in behind.items():
        assert_same(account, found=account_rows(world.root / "shadow-lake" / account.lower()), expected=rows)
    assert_same("shadow", found=database_rows(world.root / "shadow.db"), expected=sum(behind.values(), Counter[Row]()))
    command(world, "compare", "pipeline.yaml", "shadow.yaml", "--from-batch", str(FILES))


def rows_of_files(world: World, files: list[Path]) -> Mapping[str, "Counter[Row]"]:
    import csv

    for file in files:
        with file.open(newline="") as opened:
            for ident, origin, month, payload, amount in list(csv.reader(opened, escapechar="\\", doublequote=False))[1:]:
                world.expected[origin][(int(ident), origin, int(month), payload, float(amount))] += 1
    return world.expected


LATER = '  later: {type: sqlite, url: "sqlite:///later.db", table: flights}\n'


def add_sink(world: World) -> None:
    world.rewrite(("retry_timeout:", f"{LATER}retry_timeout:"))


def operated(world: World) -> None:
    """The newest batch is taken back and comes again, and a sink is added and given the past; wherever the checkpoint is."""
    newest = command(world, "status", "pipeline.yaml", "--json").last["last_batch_id"]
    command(world, "rewind", "pipeline.yaml", "--to-batch", str(newest - 1), "--keep", "warehouse", "--yes")
    command(world, "run", "pipeline.yaml", "--json")
    world.assert_exact()
    add_sink(world)
    command(world, "backfill", "pipeline.yaml", "--sink", "later")
    command(world, "run", "pipeline.yaml", "--json")
    world.assert_exact()
    world.assert_verified()
    assert_same("later", found=database_rows(world.root / "later.db"), expected=everything(world))


def backfilled(world: World) -> None:
    exact(world)
    assert_same("later", found=database_rows(world.root / "later.db"), expected=everything(world))


ACCOUNTS_OF_THE_LAKE = """\
    accounts: {EWR: ./lake/ewr, JFK: ./lake/jfk, LGA: ./lake/lga}
    route: {column: origin}
"""


def of_the_file_sink(world: World) -> None:
    """A query of plain Spark has filled a directory; no pipeline has run."""
    for name in ("state", "lake", ".penstock-staging"):
        shutil.rmtree(world.root / name, ignore_errors=True)
    (world.root / "warehouse.db").unlink()
    text = world.file.read_text().replace(ACCOUNTS_OF_THE_LAKE, "    accounts: {all: ./lake/all}\n")
    before, _, rest = text.partition("  warehouse:\n")
    world.file.write_text(f"{before}retry_timeout:{rest.partition('retry_timeout:')[2]}")
    options = {"header": "true", "maxFilesPerTrigger": "1"}
    rows = SparkSession.active().readStream.schema(SCHEMA).options(**options).csv(f"{world.root}/incoming")
    writer = rows.writeStream.format("parquet").partitionBy("month").option("path", f"{world.root}/lake/all")
    writer.option("checkpointLocation", f"{world.root}/old").trigger(availableNow=True).start().awaitTermination()


def taken_over(world: World) -> None:
    go_on(world)
    command(world, "verify", "pipeline.yaml")
    assert_same("all", found=account_rows(world.root / "lake" / "all"), expected=everything(world))


VERBS: Mapping[str, Verb] = {
    "checkpoint copy": Verb(
        ("checkpoint", "copy", "pipeline.yaml", "copy"), nothing, goes_on=copied, is_done="copy holds something already"
    ),
    "checkpoint repair": Verb(
        ("checkpoint", "repair", "pipeline.yaml", "--yes"), damage, ("checkpoint", "repair", "pipeline.yaml", "--undo", "--yes")
    ),
    "checkpoint rewind": Verb(
        ("checkpoint", "rewind", "pipeline.yaml", "--to-batch", "3", "--yes"),
        nothing,
        ("checkpoint", "rewind", "pipeline.yaml", "--undo", "--yes"),
    ),
    "checkpoint rebuild": Verb(
        ("checkpoint", "rebuild", "pipeline.yaml", "--yes"),
        lose_checkpoint,
        ("checkpoint", "rebuild", "pipeline.yaml", "--undo", "--yes"),
        is_done="is not lost",
    ),
    "checkpoint rebuild of state": Verb(
        ("checkpoint", "rebuild", "ids.yaml", "--yes"),
        lose_state,
        ("checkpoint", "rebuild", "ids.yaml", "--undo", "--yes"),
        goes_on=state_exact,
        is_done="is not lost",
        starts_spark=True,
    ),
    "checkpoint gc": Verb(
        ("checkpoint", "gc", "pipeline.yaml", "--keep-batches", "2", "--yes"),
        nothing,
        ("checkpoint", "gc", "pipeline.yaml", "--undo", "--yes"),
    ),
    "rewind": Verb(("rewind", "pipeline.yaml", "--to-batch", "1", "--yes"), nothing),
    "savepoint create": Verb(
        ("savepoint", "create", "pipeline.yaml", "a"), nothing, goes_on=saved, is_done="has a savepoint 'a' already"
    ),
    "savepoint restore": Verb(("savepoint", "restore", "pipeline.yaml", "a", "--yes"), save_and_lose_checkpoint),
    "savepoint fork": Verb(
        ("savepoint", "fork", "pipeline.yaml", "a", "shadow.yaml", "--yes"),
        with_shadow,
        goes_on=forked,
        is_done="holds batches already",
    ),
    "savepoint delete": Verb(
        ("savepoint", "delete", "pipeline.yaml", "a", "--yes"), save_twice, goes_on=deleted, is_done="has no savepoint 'a'"
    ),
    "backfill": Verb(("backfill", "pipeline.yaml", "--sink", "later"), add_sink, goes_on=backfilled, starts_spark=True),
    "adopt --from": Verb(
        ("adopt", "pipeline.yaml", "--from", "old", "--yes", "--reason", "it was plain Spark"),
        of_the_file_sink,
        goes_on=taken_over,
    ),
}
