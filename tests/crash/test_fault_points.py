"""Every fault point x kind through the whole pipeline, with a reader watching: what comes out is exact, whatever happened.

CI runs a seeded slice; `make soak` runs all of them (PENSTOCK_SOAK_FAULTS=all), the first occurrence of every point first.
The seed is printed; PENSTOCK_SEED replays it.
"""

import json
import os
import random
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.core.faults import points
from penstock.run.fault_points import import_all
from tests.crash.commandline import penstock
from tests.crash.oldledgers import write_old_ledger
from tests.crash.probe import Probe
from tests.crash.shop import assert_sold, new_shop, written
from tests.crash.test_kafka_killed import POINTS as KAFKA_POINTS
from tests.crash.world import World, make_world
from tests.seed import SEED
from tests.servers.fixtures import accounts_on

EVERYTHING = os.environ.get("PENSTOCK_SOAK_FAULTS") == "all"
SLICE = 6


pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(300)]

TASK_POINTS = (
    *("stage.start", "stage.report", "parquet.stage.open", "parquet.stage.write", "parquet.stage.sync", "parquet.stage.seal"),
    *("spool.write", "spool.sync"),
)
PARQUET_POINTS = (
    *("parquet.prepare", "parquet.publish.directory", "parquet.publish.sync", "parquet.marker.read", "parquet.marker.write"),
    *("parquet.marker.sync", "parquet.marker.place", "parquet.marker.seal", "parquet.marker.forget"),
    *("claim.write", "claim.place"),
)
SQLITE_POINTS = ("sqlite.prepare", "sqlite.begin", "sqlite.move", "sqlite.mark", "sqlite.commit")
SQLITE_LEDGER_POINTS = ("ledger.sqlite_insert", "ledger.sqlite_commit")
SPOOL_POINTS = ("spool.claim", "spool.sign", "spool.read", "spool.discard")
PROOF_PUTS, PROOF_WINNERS = 100, 20
"""How often the self-test of a ledger in a directory writes an object, and how often it creates one."""


@dataclass(frozen=True)
class Variant:
    """A pipeline that reaches `points`. `at`: occurrences that are worth a try where the first is not the only one.

    By default the pieces of a task are too large to travel in the decision. `stores`: accounts that are in one, and its kind.
    `spool`: the kind of store that it is in. `database`: every row goes into a table of such a database, too; `ledger_too`: and
    the ledger is in the same one.
    """

    points: tuple[str, ...]
    files: int = 4
    rows_per_file: int = 2_000
    changes: tuple[tuple[str, str], ...] = ()
    before: str = ""
    old_ledger: str = ""
    at: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    stores: Mapping[str, str] = field(default_factory=dict)
    spool: str = ""
    database: str = ""
    ledger_too: bool = False


def ledger(place: str) -> tuple[tuple[str, str], ...]:
    return (("trigger:", f"ledger: {place}\ntrigger:"),)


LINKS = ", ".join(f"{name}: {{url: ./lake/{name.lower()}, options: {{publish_by: link}}}}" for name in ("EWR", "JFK", "LGA"))
STORES = {"EWR": "az", "JFK": "s3", "LGA": "hdfs"}
SHOWN = "guarantee: at_least_once\nsinks:\n  people: {type: console, rows: 2}\n"

VARIANTS: Mapping[str, Variant] = {
    "usual": Variant(
        points=(
            *(*TASK_POINTS, "stage.collect", *PARQUET_POINTS, "rename.move", *SQLITE_POINTS, *SQLITE_LEDGER_POINTS),
            *SPOOL_POINTS,
        ),
        at={
            **dict.fromkeys(SQLITE_LEDGER_POINTS, (1, 2, 3)),
            **dict.fromkeys(("sqlite.begin", "sqlite.move", "sqlite.mark", "sqlite.commit", "spool.write", "spool.read"), (1, 2)),
            **dict.fromkeys(("parquet.marker.read", "parquet.marker.write", "parquet.marker.place"), (1, 5)),
            **dict.fromkeys(("parquet.publish.sync", "parquet.stage.write"), (1, 4)),
            **dict.fromkeys(("claim.write", "claim.place"), (1, 2)),
            "rename.move": (1, 4, 30),
        },
    ),
    "swept": Variant(points=("parquet.sweep.unlink", "spool.sweep"), before="stage.report=error"),
    "linked": Variant(
        points=("hardlink.link", "hardlink.unlink"),
        changes=(("{EWR: ./lake/ewr, JFK: ./lake/jfk, LGA: ./lake/lga}", f"{{{LINKS}}}"),),
        at={"hardlink.link": (1, 20), "hardlink.unlink": (1, 20)},
    ),
    "riding": Variant(
        points=(*SQLITE_LEDGER_POINTS, "sqlite.move", "sqlite.mark", "spool.discard", "spool.read"),
        changes=ledger("sqlite:///warehouse.db"),
        at=dict.fromkeys(SQLITE_LEDGER_POINTS, (1, 2, 3)),
    ),
    "ledger in a directory": Variant(
        points=(
            *("ledger.append", "ledger.read_floors", "ledger.hint", "ledger.directory_write", "ledger.directory_sync_file"),
            *("ledger.directory_link", "ledger.directory_unlink", "ledger.directory_sync"),
        ),
        files=9,
        rows_per_file=100,
        changes=(*ledger("./state/ledger"), ("maxFilesPerTrigger: 2", "maxFilesPerTrigger: 1")),
        at={
            **dict.fromkeys(("ledger.append", "ledger.read_floors"), (1, 2, 3)),
            **{
                f"ledger.directory_{step}": (1, PROOF_PUTS + 1, PROOF_PUTS + 2, PROOF_PUTS + 3)
                for step in ("write", "sync_file", "link", "unlink")
            },
            "ledger.directory_sync": (1, PROOF_WINNERS + 1, PROOF_WINNERS + 2, PROOF_WINNERS + 3),
        },
    ),
    "published behind": Variant(
        points=(
            *("stage.start", "stage.report", "spool.write", "spool.read", "spool.discard", *SQLITE_LEDGER_POINTS),
            *("sqlite.begin", "sqlite.move", "sqlite.mark", "sqlite.commit"),
            *("parquet.publish.sync", "parquet.marker.read", "parquet.marker.place", "rename.move"),
        ),
        changes=(("trigger:", "publish_behind: true\ntrigger:"), ("maxFilesPerTrigger: 2", "maxFilesPerTrigger: 1")),
        at={
            **dict.fromkeys(SQLITE_LEDGER_POINTS, (2, 3)),
            **dict.fromkeys(("sqlite.begin", "sqlite.move", "sqlite.mark", "sqlite.commit", "spool.read"), (1, 2, 4)),
            **dict.fromkeys(("parquet.publish.sync", "parquet.marker.read", "parquet.marker.place", "rename.move"), (1, 6)),
        },
    ),
    "old ledger": Variant(points=("ledger.sqlite_prune",), old_ledger="sqlite"),
    "old ledger in a directory": Variant(
        points=("ledger.write_floor", "ledger.forget"), changes=ledger("./state/ledger"), old_ledger="directory"
    ),
    "stores": Variant(
        points=(
            *("object.prepare", "object.stage.begin", "object.stage.part", "object.publish.complete", "object.publish.look"),
            *("claim.put", "object.mark.read", "object.mark.write"),
        ),
        at={
            **dict.fromkeys(("object.stage.begin", "object.stage.part"), (1, 4)),
            **dict.fromkeys(("object.publish.complete", "object.publish.look"), (1, 3, 10)),
            **dict.fromkeys(("object.mark.read", "object.mark.write"), (1, 2, 3)),
        },
        rows_per_file=8_000,
        stores=STORES,
    ),
    "small files in stores": Variant(points=("inline.put",), rows_per_file=100, at={"inline.put": (1, 4, 20)}, stores=STORES),
    "swept in stores": Variant(
        points=("multipart.discard",), before="stage.report=error", rows_per_file=8_000, stores={"EWR": "gs", "JFK": "s3"}
    ),
    "spool in a store": Variant(
        points=("spool.write", "spool.sync", *SPOOL_POINTS),
        at=dict.fromkeys(("spool.write", "spool.read", "spool.discard"), (1, 2)),
        spool="az",
    ),
    "swept spool in a store": Variant(points=("spool.sweep",), before="stage.report=error", spool="s3"),
    "postgres": Variant(
        points=(
            *("postgres.prepare", "postgres.begin", "postgres.fence", "postgres.copy", "postgres.move", "postgres.mark"),
            "postgres.commit",
        ),
        at=dict.fromkeys(
            ("postgres.begin", "postgres.fence", "postgres.copy", "postgres.move", "postgres.mark", "postgres.commit"), (1, 2)
        ),
        database="postgres",
    ),
    "mysql": Variant(
        points=tuple(f"mysql.{step}" for step in ("prepare", "begin", "fence", "load", "move", "mark", "commit")),
        at=dict.fromkeys((f"mysql.{step}" for step in ("begin", "fence", "load", "move", "mark", "commit")), (1, 2)),
        database="mysql",
    ),
    "redshift": Variant(
        points=tuple(f"redshift.{step}" for step in ("prepare", "begin", "fence", "stage", "move", "mark", "commit")),
        at=dict.fromkeys((f"redshift.{step}" for step in ("begin", "stage", "move", "mark", "commit")), (1, 2)),
        rows_per_file=500,
        database="redshift",
    ),
    "duckdb": Variant(
        points=tuple(f"duckdb.{step}" for step in ("prepare", "begin", "stage", "move", "mark", "commit")),
        at=dict.fromkeys((f"duckdb.{step}" for step in ("begin", "stage", "move", "mark", "commit")), (1, 2)),
        database="duckdb",
    ),
    "delta": Variant(
        points=("delta.prepare", "delta.look", "delta.commit", "deltalog.sync"),
        at={"delta.look": (1, 4), "delta.commit": (1, 2), "deltalog.sync": (1, 2)},
        database="delta",
    ),
    "iceberg": Variant(
        points=("iceberg.prepare", "iceberg.look", "iceberg.commit"),
        at={"iceberg.look": (1, 4), "iceberg.commit": (1, 2)},
        database="iceberg",
    ),
    "delta, compacted": Variant(
        points=("lakecompaction.write", "lakecompaction.commit", "delta.commit", "deltalog.sync"),
        at={
            **dict.fromkeys(("lakecompaction.write", "lakecompaction.commit"), (1, 2)),
            "delta.commit": (2,),
            "deltalog.sync": (2,),
        },
        database="compacted delta",
    ),
    "iceberg, compacted": Variant(
        points=("lakecompaction.write", "lakecompaction.commit", "iceberg.commit"),
        at={**dict.fromkeys(("lakecompaction.write", "lakecompaction.commit"), (1, 2)), "iceberg.commit": (2,)},
        database="compacted iceberg",
    ),
    "cassandra": Variant(
        points=tuple(f"cassandra.{step}" for step in ("prepare", "read", "stamp", "write", "mark")),
        at=dict.fromkeys((f"cassandra.{step}" for step in ("read", "stamp", "write", "mark")), (1, 2)),
        database="cassandra",
    ),
    "any driver": Variant(
        points=tuple(f"dbapi.{step}" for step in ("prepare", "begin", "fence", "move", "mark", "commit")),
        at=dict.fromkeys((f"dbapi.{step}" for step in ("begin", "fence", "move", "mark", "commit")), (1, 2)),
        database="dbapi",
    ),
    "a sink of one's own": Variant(
        points=tuple(f"own.{step}" for step in ("prepare", "begin", "rows", "mark", "commit")),
        at=dict.fromkeys((f"own.{step}" for step in ("rows", "mark", "commit")), (1, 2)),
        database="own",
    ),
    "riding in postgres": Variant(
        points=(
            *("ledger.postgres_create", "ledger.postgres_insert", "ledger.postgres_commit", "postgres.fence", "postgres.copy"),
            *("postgres.move", "postgres.mark", "spool.read", "spool.discard"),
        ),
        at={
            **dict.fromkeys(("ledger.postgres_insert", "ledger.postgres_commit"), (1, 2, 3)),
            **dict.fromkeys(("postgres.fence", "postgres.copy", "postgres.move", "postgres.mark"), (1, 2)),
        },
        database="postgres",
        ledger_too=True,
    ),
    "old ledger in postgres": Variant(
        points=("ledger.postgres_prune",), old_ledger="postgres", database="postgres", ledger_too=True
    ),
    "riding in mysql": Variant(
        points=(
            *("ledger.mysql_create", "ledger.mysql_insert", "ledger.mysql_commit", "mysql.fence", "mysql.load"),
            *("mysql.move", "mysql.mark", "spool.read", "spool.discard"),
        ),
        at={
            **dict.fromkeys(("ledger.mysql_insert", "ledger.mysql_commit"), (1, 2, 3)),
            **dict.fromkeys(("mysql.fence", "mysql.load", "mysql.move", "mysql.mark"), (1, 2)),
        },
        database="mysql",
        ledger_too=True,
    ),
    "old ledger in mysql": Variant(points=("ledger.mysql_prune",), old_ledger="mysql", database="mysql", ledger_too=True),
    "at least once": Variant(points=("console.print",), rows_per_file=100, changes=(("sinks:\n", SHOWN),)),
}


@dataclass(frozen=True)
class Case:
    variant: str
    point: str
    kind: str
    occurrence: int

    def __str__(self) -> str:
        return f"{self.variant}: {self.point}={self.kind}@{self.occurrence}"

    @property
    def faults(self) -> str:
        return f"{self.point}={self.kind}{':0.3' if self.kind == 'stall' else ''}@{self.occurrence}"

    @property
    def kills(self) -> bool:
        return self.kind in {"kill", "torn"}


def cases() -> Sequence[Case]:
    import_all()
    kinds = {point.name: [kind.value for kind in point.kinds] for point in points()}
    ranked = [
        (rank, Case(name, point, kind, occurrence))
        for name, variant in VARIANTS.items()
        for point in variant.points
        for kind in kinds[point]
        for rank, occurrence in enumerate(variant.at.get(point, (1,)))
    ]
    every = [case for _, case in sorted(ranked, key=itemgetter(0))]
    return every if EVERYTHING else random.Random(SEED).sample(every, SLICE)


ELSEWHERE = {
    "sqlserver.": "no server is to be had, so the suite of its sink does on what stands in for one",
    "kafka-ends.": "only a broker that forgot something leads there: tests/live/test_kafka_forgotten.py",
    "publish.": "only Kafka, Cassandra and HTTP are published by tasks: tests/crash/test_published_on_executors.py",
    "lakekeys.": "rows of a Delta table that are replaced: its conformance suite",
    "lakehistory.": "versions of a Delta table's rows: its conformance suite",
    "compare.": "tables with history, which are killed there in the conformance suite of SQLite",
    "table.add_columns": "tests/attack/test_grown_tables.py",
    "lake.add_columns": "tests/attack/test_grown_lakes.py, and a query in tests/spark/test_grown_lake.py",
    "lakeleft.": "files of former versions that are removed: the suites of tables that are maintained",
    "deltavacuum.": "the same",
    "icebergexpiry.": "the same",
    "http.": "its conformance suite, and a query in tests/spark/test_http_page.py",
    "journal.": "no pipeline writes it: tests/unit/test_journal_readers.py and tests/live/test_journal_killed.py",
    "mqtt.": "no pipeline subscribes to a broker: tests/unit/test_packet_ids.py and tests/live/test_mqtt.py",
    "checkpoint.": "no run does these acts: tests/crash/test_checkpoint_acts.py",
    "rewind.": "tests/crash/test_rewind.py",
    "table.take_back": "the same",
    "laketables.": "the conformance suite of many Delta tables, and a query in tests/spark/test_many_tables_page.py",
    "tables.": "tests/unit/test_many_tables.py, and a query in tests/spark/test_many_tables_page.py",
    "savepoint.": "tests/crash/test_savepoints_killed.py",
    "rebuild.": "state is made again: tests/spark/test_savepoints.py, and a verb in tests/crash/verbs.py",
    "adopt.": "tests/crash/test_taking_over_killed.py",
}
"""Prefixes of points that no variant reaches, and what kills there instead."""


def test_every_point_is_reached_by_some_variant() -> None:
    reached = {point for variant in VARIANTS.values() for point in variant.points}
    known = {point.name for point in points() if not point.name.startswith(tuple(ELSEWHERE))}
    assert reached | set(KAFKA_POINTS) == known


@pytest.mark.parametrize("case", cases(), ids=str)
def test_one_fault_loses_nothing_and_doubles_nothing(
    spark: SparkSession, tmp_path: Path, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"PENSTOCK_SEED={SEED} {case}")
    variant, once = VARIANTS[case.variant], tmp_path / "once"
    shop = new_shop(variant.database, tmp_path) if variant.database else None
    world = world_of(tmp_path / "world", variant, shop)
    once.mkdir()
    monkeypatch.setenv("PENSTOCK_FAULTS_ONCE", str(once))
    with Probe(world) as probe:
        told = end_with_fault(world, case)
        assert list(once.iterdir()), f"{case} was not reached: {told}"
        second = second_fault(case)
        again = penstock("run", str(world.file), "--json", faults=second)
        print(f"first: {told}\nthen, with {second}: exit {again.code} {again.err}")
        done = penstock("run", str(world.file), "--json")
        assert done.code == 0, str(done)
        swept = penstock("sweep", str(world.file), "--yes", "--json")
        assert swept.code == 0, str(swept)
    assert probe.violations == []
    world.assert_exact()
    if shop is not None:
        assert_sold(variant.database, shop, sum(world.expected.values(), Counter()))
    verified = penstock("verify", str(world.file), "--json")
    assert verified.code == 0, str(verified)


def world_of(root: Path, variant: Variant, shop: str | None) -> World:
    stores = accounts_on(**variant.stores)
    spool = accounts_on(spool=variant.spool)["spool"] if variant.spool else None
    world = make_world(
        root, files=variant.files, rows_per_file=variant.rows_per_file, seed=SEED, wide=True, stores=stores, spool=spool
    )
    world.rewrite(*variant.changes)
    if shop is not None:
        world.rewrite(("sinks:\n", f"sinks:\n  shop: {written(variant.database, shop, root)}\n"))
        world.rewrite(*(ledger(json.dumps(shop)) if variant.ledger_too else ()))
    if variant.old_ledger:
        write_old_ledger(root / "state", variant.old_ledger, shop)
    if variant.before:
        assert penstock("run", str(world.file), "--json", faults=variant.before).code != 0
        assert list(world.staging())
    return world


def end_with_fault(world: World, case: Case) -> str:
    """Run with the fault armed; how the run ended."""
    if not case.kills:
        ended = penstock("run", str(world.file), "--json", faults=case.faults)
        assert ended.code in ({0} if case.kind == "stall" else {0, 1, 75}), str(ended)
        assert_told(ended.code, ended.err)
        return f"exit {ended.code} {ended.err}"
    ended = world.run_with(case.faults, once=Path(os.environ["PENSTOCK_FAULTS_ONCE"]))
    assert ended.code in {-signal.SIGKILL, 1}, str(ended)
    return f"exit {ended.code} {ended.err}"


def assert_told(code: int, err: str) -> None:
    lines = err.splitlines()
    if code == 0:
        assert lines == []
    else:
        assert len(lines) == 2, err
        assert lines[0].startswith("error: ")


def second_fault(case: Case) -> str:
    """Something that fails in the recovery, too."""
    generator = random.Random(f"{SEED} {case}")
    points = [point for point in VARIANTS[case.variant].points if point != case.point]
    return f"{generator.choice(points)}={generator.choice(['error', 'lost'])}" if points else ""
