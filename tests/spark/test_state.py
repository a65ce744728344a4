"""The state of real queries, as `penstock state` tells it: by checkpoint, by Spark's metrics, and rows by Spark's reader."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name Spark's own documentation uses

from penstock.checkpoint.copying import copy_checkpoint
from penstock.errors import Failed, Refused, Usage
from penstock.run import state_rows
from penstock.run.pipeline import Pipeline
from penstock.run.state_rows import StateChoice
from penstock.spec.pipeline import PipelineSettings
from tests.spark.page import Page, assert_told, run_beside
from tests.spark.stateful import PROVIDER, ROCKSDB, counted_by_timers, events, joined
from tests.spark.target import Target

pytestmark = pytest.mark.spark
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
AGGREGATION, DEDUPLICATION = StateChoice(operator_id=0), StateChoice(operator_id=1)


@pytest.fixture(name="provider", params=[HDFS, ROCKSDB], ids=["HDFS", "RocksDB"])
def _provider(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    spark.conf.set(PROVIDER, request.param)
    yield request.param
    spark.conf.unset(PROVIDER)


@pytest.fixture(name="rocksdb")
def _rocksdb(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(PROVIDER, ROCKSDB)
    yield
    spark.conf.unset(PROVIDER)


def put(folder: Path, number: int, *rows: tuple[int, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{number}.csv"
    file.write_text("".join(f"{n},2026-01-01T{at}Z\n" for n, at in rows))
    os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def pipeline_of(target: Target) -> Pipeline:
    return Pipeline(PipelineSettings(pipeline="numbers", home=target.root / "home", sinks=target.sinks))  # type: ignore[arg-type]


def counted_once(spark: SparkSession, root: Path) -> DataFrame:
    """Each `n` once, counted by the minute in which it came."""
    once = events(spark, root / "in").dropDuplicates(["n"])
    return once.groupBy(F.window("at", "1 minute"), "n").count().select("n", "count")


def keys_of(rows: Sequence[Mapping[str, Any]], name: str) -> list[int]:
    return sorted(row["value"][name] for row in rows)


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_two_operators(spark: SparkSession, tmp_path: Path, provider: str) -> None:
    target = Target(tmp_path)
    put(tmp_path / "in", 0, (1, "00:00:01"), (2, "00:00:02"))
    put(tmp_path / "in", 1, (1, "00:05:00"), (3, "00:05:01"))
    target.deliver(counted_once(spark, tmp_path))
    pipeline = pipeline_of(target)
    before = tree(target.checkpoint)

    report = pipeline.state(memory="1KB", disk="1GB")
    aggregation, deduplication = report.operators
    assert [each.on_disk.name for each in report.operators] == ["stateStoreSave", "dedupe"]
    assert [each.measured.name for each in report.operators if each.measured] == ["stateStoreSave", "dedupe"]
    assert [each.measured.rows for each in report.operators if each.measured] == [1, 3]
    assert (aggregation.on_disk.bounded, deduplication.on_disk.bounded) == (True, False)
    assert {each.on_disk.provider for each in report.operators} == {"RocksDB" if provider == ROCKSDB else "HDFS"}
    assert deduplication.measured is not None
    assert (deduplication.measured.disk_bytes is None) is (provider == HDFS)
    assert [(each.of, each.is_reached) for each in report.forecasts] == [("memory", True), ("disk", False)]
    assert report.batch_id == len(list((target.checkpoint / "commits").glob("[0-9]*"))) - 1

    found = pipeline.find_state({"n": "3"}, spark, choice=DEDUPLICATION)
    assert [row["key"] for row in found.rows] == [{"n": 3}]
    assert not pipeline.find_state({"n": "7"}, spark, choice=DEDUPLICATION).rows
    assert not pipeline.find_state({"n": "3"}, spark, choice=StateChoice(operator_id=1, batch_id=0)).rows
    (window,) = pipeline.find_state({"n": "3", "window.start": "2026-01-01T00:05:00Z"}, spark, choice=AGGREGATION).rows
    assert window["value"] == {"count": 1}
    limited = pipeline.find_state({}, spark, choice=DEDUPLICATION, limit=2)
    assert (len(limited.rows), limited.more) == (2, True)

    done = pipeline.export_state(tmp_path / "ids", spark, choice=DEDUPLICATION)
    rows = pq.read_table(tmp_path / "ids").to_pylist()
    assert (done.rows, sorted(row["key"]["n"] for row in rows)) == (3, [1, 2, 3])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "ids", "in", "lake", "warehouse.db"]
    assert tree(target.checkpoint) == before, "reading changed the checkpoint"

    with pytest.raises(Refused, match="There is something at"):
        pipeline.export_state(tmp_path / "ids", spark, choice=DEDUPLICATION)
    with pytest.raises(Usage, match=r"0 \(stateStoreSave\), 1 \(dedupe\), and none was chosen"):
        pipeline.find_state({"n": "3"}, spark)
    with pytest.raises(Usage, match="and 2 is none of them"):
        pipeline.find_state({"n": "3"}, spark, choice=StateChoice(operator_id=2))
    with pytest.raises(Usage, match="The column n of the keys is of type int, found 'seven'"):
        pipeline.find_state({"n": "seven"}, spark, choice=DEDUPLICATION)
    with pytest.raises(Usage, match=r"has the fields window.start and window.end"):
        pipeline.find_state({"window": "1"}, spark, choice=AGGREGATION)
    with pytest.raises(Usage, match="expected a directory of this machine"):
        pipeline.export_state("s3://bucket/ids", spark, choice=DEDUPLICATION)
    with pytest.raises(Usage, match="The keys have no column m, but n"):
        pipeline.find_state({"m": "3"}, spark, choice=DEDUPLICATION)
    with pytest.raises(Failed, match="Spark cannot read the state of operator 1"):
        pipeline.export_state(tmp_path / "other", spark, choice=StateChoice(operator_id=1, batch_id=77))
    assert not [path for path in tmp_path.iterdir() if "other" in path.name]


def test_both_sides_of_a_join(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target(tmp_path)
    put(tmp_path / "in", 0, (1, "00:00:01"), (2, "00:00:02"))
    put(tmp_path / "right", 0, (1, "00:00:03"), (4, "00:00:04"))
    target.deliver(joined(spark, tmp_path))
    pipeline = pipeline_of(target)
    with pytest.raises(Usage, match="`--side left` or `--side right`"):
        pipeline.find_state({}, spark)
    left = pipeline.find_state({}, spark, choice=StateChoice(side="left")).rows
    right = pipeline.find_state({}, spark, choice=StateChoice(side="right")).rows
    assert [keys_of(rows, name) for rows, name in ((left, "n"), (right, "m"))] == [[1, 2], [1, 4]]
    copies = list[str]()
    with monkeypatch.context() as patched:  # as of a store that Spark has no connector for
        patched.setattr(state_rows, "is_blob", lambda _: True)
        patched.setattr(
            state_rows, "copy_checkpoint", lambda source, to: (copies.append(to.location), copy_checkpoint(source, to))
        )
        assert len(pipeline.find_state({"field0": "4"}, spark, choice=StateChoice(side="right")).rows) == 1
    assert [Path(copy).exists() for copy in copies] == [False]


@pytest.mark.usefixtures("rocksdb")
def test_variables_of_user_code(spark: SparkSession, tmp_path: Path) -> None:
    target = Target(tmp_path)
    put(tmp_path / "in", 0, (1, "00:00:01"), (1, "00:00:02"), (2, "00:00:02"))
    target.deliver(counted_by_timers(spark, tmp_path))
    pipeline = pipeline_of(target)
    (operator,) = pipeline.state().operators
    assert operator.on_disk.bounded is None
    assert "many" in [each.name for each in operator.on_disk.stores[0].variables]
    with pytest.raises(Usage, match=r"has the variables .*many"):
        pipeline.find_state({"n": "1"}, spark)
    (found,) = pipeline.find_state({"n": "1"}, spark, choice=StateChoice(variable="many")).rows
    assert (found["key"], found["value"]) == ({"n": 1}, {"many": 2})


def test_the_page_works(tmp_path: Path) -> None:
    page = Page("state")
    (tmp_path / "orders.yaml").write_text(page.blocks("yaml")[0])
    (tmp_path / "jobs.py").write_text(page.blocks("python")[0])
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming/1.csv").write_text("".join(f"{n},EWR,2026-01-01T00:00:00Z\n" for n in (17, 17, 18)))
    check, run, state, larger, key, export, status = page.commands
    assert_told(run_beside(tmp_path, check), 0, "It keeps every distinct key, for ever. Put a watermark on the source")
    assert_told(run_beside(tmp_path, run), 0)
    assert_told(run_beside(tmp_path, state), 0, "for ever: no watermark removes anything", "rows 2", "id INT __dummy__ VOID")
    assert_told(run_beside(tmp_path, larger), 0, "8.0 GB in memory")
    (found,) = map(json.loads, run_beside(tmp_path, key).stdout.splitlines())
    assert found["key"] == {"id": 17}
    assert_told(run_beside(tmp_path, export), 0, "Wrote 2 rows of operator 0 into ids.")
    assert_told(run_beside(tmp_path, status), 0, "2 rows of dedupe")
    shutil.rmtree(tmp_path / "ids")
    assert_told(run_beside(tmp_path, f"{export} --operator 1"), 2, "1 is none of them")
    assert_told(
        run_beside(tmp_path, f"{check} --set state_limits.memory=1KB"), 0, "The state is beyond its limit of 1.0 kB in memory"
    )
