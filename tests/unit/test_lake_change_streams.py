"""Batches in a table one after the other, by changing settings and of random rows, against a replay in memory."""

import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import duckdb
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from tests.conformance import delta_rig, iceberg_rig
from tests.conformance.delta_rig import OverlappingRig, sink_into
from tests.conformance.iceberg_rig import IcebergRig, expired, local
from tests.conformance.lake_rig import LakeRig
from tests.seed import SEED

from penstock.errors import Failed, Usage
from penstock.sink.lake.write_mode import WRITES, WriteMode
from penstock.sink.parquet import directory_account
from penstock.testing.conformance import PIPELINE, Bench, Row, require_equal
from penstock.testing.conformance.bench import publish

FORMATS = pytest.mark.parametrize("rigs", [delta_rig, iceberg_rig], ids=["delta", "iceberg"])


def opened(rig: LakeRig) -> Iterator[Bench]:
    bench = Bench(rig)
    yield bench
    bench.close()


@pytest.fixture(params=[OverlappingRig], ids=lambda rig: rig.__name__)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    yield from opened(request.param(tmp_path))


def ids_of_duckdb(bench: Bench) -> "Counter[int]":
    """By another engine, of the files that the table consists of."""
    if isinstance(bench.rig, IcebergRig):
        files = [str(local(file)) for file in bench.rig.active()]
    else:
        files = [str(bench.rig.root / unquote(path)) for path, _ in bench.rig.active()]
    return Counter(number for (number,) in duckdb.sql(f"SELECT id FROM read_parquet({files})").fetchall())


class TestSettingsThatChange:
    """A decided batch is written as it was decided, and `verify` goes on counting."""

    @pytest.mark.parametrize("partition_by", [(), ("flag",)], ids=["flat", "partitioned"])
    @FORMATS
    def test_every_way_after_every_other(self, tmp_path: Path, rigs: ModuleType, partition_by: tuple[str, ...]) -> None:
        generator = random.Random(SEED)
        print(f"PENSTOCK_SEED={SEED}")
        ways = [write for write in WRITES if write != "history" and (partition_by or write != "overwrite_partitions")]
        there: list[Row] = []
        bench = Bench(rigs.OverlappingRig(tmp_path))
        for number in range(14):
            write = ways[0] if number == 0 else generator.choice(ways)
            bench.rig = rigs.OverlappingRig(tmp_path)
            bench.rig.write, bench.rig.partition_by = write, partition_by
            rows = bench.rows(generator.sample(range(number * 1000, number * 1000 + 60), 20))
            sink = bench.sink()
            if generator.random() < 0.5:
                bench.deliver(sink, rows[:12], rows[12:], batch_id=number)
            else:  # decided, and published by a run with other settings
                shown = bench.decide((rows, bench.stage(sink, rows, batch_id=number)), batch_id=number)
                bench.rig.write = generator.choice(["append", "upsert", "replace"])
                publish(bench.sink(), shown.publication)
            there = after(there, rows, write, partition_by)
            require_equal(bench.rig.read_back(), there)
            report = bench.verify(bench.sink())
            assert report.ok, (number, write, report)
        bench.close()

    @FORMATS
    def test_an_empty_batch_clears_a_table_only_if_settings_and_marker_replace(self, tmp_path: Path, rigs: ModuleType) -> None:
        for bench in opened(rigs.ReplaceRig(tmp_path)):
            bench.deliver(bench.sink(), bench.rows([1, 2]), batch_id=0)
            publish(bench.sink(), bench.decide(batch_id=1).publication)  # an earlier run's, as are the others
            assert list(bench.rig.read_back()) == []
            first = bench.deliver(bench.sink(), bench.rows([3]), batch_id=2)
            empty = bench.decide(batch_id=3)
            bench.rig.write = "append"
            assert bench.sink().publish(empty.publication).already
            second = bench.deliver(bench.sink(), bench.rows([4]), batch_id=4)
            empty = bench.decide(batch_id=5)
            bench.rig.write = "replace"
            publish(bench.sink(), empty.publication)
            require_equal(bench.rig.read_back(), [*first.rows, *second.rows])
            assert bench.verify(bench.sink()).ok

    def test_a_batch_by_key_without_a_spool_is_told(self, bench: Bench) -> None:
        sink = bench.sink()
        rows = bench.rows([1])
        shown = bench.decide((rows, bench.stage(sink, rows, batch_id=0)), batch_id=0)
        plain = sink_into(directory_account(bench.rig.root))
        plain.prepare(pipeline=PIPELINE, schema=bench.rig.schema)
        with pytest.raises(Failed, match="was decided with write: upsert, and sink 'lake' has no spool"):
            plain.publish(shown.publication)

    @pytest.mark.parametrize(
        ("mode", "says"),
        [
            (WriteMode(write="upsert"), "needs a key"),
            (WriteMode(write="insert_if_absent", key=("id",), sequence_by="id"), "`sequence_by` is for `write: upsert`"),
            (WriteMode(write="upsert", key=("id",), sequence_by="seen", deletes=True), "without rows that delete"),
            (WriteMode(write="overwrite_partitions"), "needs partitions"),
            (WriteMode(write="merge"), "expected one of append, upsert, insert_if_absent, replace, overwrite_partitions"),
        ],
    )
    def test_modes_that_lack_something(self, tmp_path: Path, mode: WriteMode, says: str) -> None:
        with pytest.raises(Usage, match=says):
            sink_into(directory_account(tmp_path / "table"), mode=mode)


def after(there: list[Row], rows: list[Row], write: str, partition_by: tuple[str, ...]) -> list[Row]:
    """The table after a batch, by a replay in memory. Rows are told apart by their id."""
    if write == "append":
        return there + rows
    if write == "replace":
        return rows
    if write == "overwrite_partitions":
        touched = {tuple(row[name] for name in partition_by) for row in rows}
        return [row for row in there if tuple(row[name] for name in partition_by) not in touched] + rows
    present, new = {row["id"] for row in there}, {}
    for row in rows:
        if write == "upsert":
            new[row["id"]] = row
        elif row["id"] not in present:
            new.setdefault(row["id"], row)
    return [row for row in there if row["id"] not in new] + list(new.values())


CHANGES = 1_500 if os.environ.get("PENSTOCK_SOAK_FAULTS") == "all" else 600


@pytest.mark.parametrize(
    ("rigs", "write", "partition_by", "key"),
    [
        (delta_rig, "upsert", (), ("id",)),
        (delta_rig, "upsert", ("flag",), ("id",)),
        (delta_rig, "upsert", ("place", "flag"), ("id", "place")),
        (delta_rig, "upsert or delete", ("flag",), ("id",)),
        (iceberg_rig, "upsert or delete", (), ("place", "id")),
        (delta_rig, "newest", ("flag",), ("id",)),
        (iceberg_rig, "newest", (), ("id",)),
        (delta_rig, "insert_if_absent", ("flag",), ("id",)),
        (delta_rig, "insert_if_absent", (), ("place", "id")),
        (iceberg_rig, "upsert", ("flag",), ("id",)),
        (iceberg_rig, "insert_if_absent", (), ("place", "id")),
    ],
    ids=lambda given: getattr(given, "__name__", str(given)).rpartition(".")[2],
)
def test_random_changes_equal_a_replay_in_memory(
    tmp_path: Path, rigs: ModuleType, write: str, partition_by: tuple[str, ...], key: tuple[str, ...]
) -> None:
    """Changes of few keys in random batches, repeated and late, beside maintenance and another writer's commits."""
    generator = random.Random(f"{SEED} {write} {key}")
    print(f"PENSTOCK_SEED={SEED}")
    kinds = {"upsert or delete": rigs.DeleteRig, "newest": rigs.NewestRig}
    rig = kinds.get(write, rigs.ChangingRig)(tmp_path)
    rig.write, rig.key, rig.partition_by = "upsert" if write in kinds else write, key, partition_by
    decided: list[list[Row]] = []
    for bench in opened(rig):
        sink, number, done = bench.sink(), 0, 0
        while done < (CHANGES if rigs is delta_rig else CHANGES // 3):  # its commits take twice as long
            size = generator.choice([1, 7, 60, 200])
            rows = [{**row, "id": generator.randrange(300)} for row in rig.rows(range(done, done + size))]
            at = generator.randrange(size)
            attempts = [
                (part, bench.stage(sink, part, batch_id=number, partition=place))
                for place, part in enumerate((rows[:at], rows[at:]))
            ]
            shown = bench.decide(*attempts, batch_id=number)
            for _ in range(generator.choice([1, 1, 2])):
                publish(sink, shown.publication)
            decided.append(rows)
            done, number = done + size, number + 1
            beside(bench, generator)
            if generator.random() < 0.2:
                sink.close()
                sink = bench.sink()
                assert sink.publish(shown.publication).already
        there = list(rig.settle(decided))
        require_equal(rig.read_back(), there)
        assert ids_of_duckdb(bench) == Counter(row["id"] for row in there)
        assert bench.verify(bench.sink()).ok


def beside(bench: Bench, generator: random.Random) -> None:
    """What others do to the table now and then."""
    act = generator.randrange(8)
    if isinstance(bench.rig, IcebergRig):
        _beside_iceberg(bench.rig, act)
    else:
        _beside_delta(bench.rig.table(), act)


def _beside_delta(table: DeltaTable, act: int) -> None:
    if act == 0:
        table.optimize.compact()
    elif act == 1:
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    elif act == 2:
        properties = CommitProperties(app_transactions=[Transaction("somebody else", table.version())])
        table.create_write_transaction([], "append", table.schema(), commit_properties=properties)


def _beside_iceberg(rig: IcebergRig, act: int) -> None:
    if act == 0:
        expired(rig)
    elif act == 1:
        rig.table().transaction().set_properties({"owner": "somebody else"}).commit_transaction()
    elif act == 2:
        rig.change()
