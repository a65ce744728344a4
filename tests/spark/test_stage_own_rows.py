"""Sinks that take rows of their own beside sinks that take them as they are: one pass, each with the digest of its rows."""

import json
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.core.model import NEWEST_ROW_DIGEST, BatchId, Generation, PipelineName, SinkName
from penstock.core.row_hash import digest, row_hashes
from penstock.protocols import OwnRows
from penstock.sink.kafka.records import RecordColumns
from penstock.sink.memory import MemorySink
from penstock.stage.batch import stage_batch
from penstock.stage.path import BatchSize, StagePath
from tests.spark.lake import SMALL

PIPELINE = PipelineName("shaped")


class ShapedSink(MemorySink):
    """Takes records, and keeps them as a sink of Kafka stages them."""

    def __init__(self, name: str, spool: str, shape: RecordColumns | None) -> None:
        super().__init__(name=SinkName(name), spool=spool)
        self.shape = shape
        self.prepare(pipeline=PIPELINE, schema=None)

    def own_rows(self, schema: str) -> OwnRows | None:
        return None if self.shape is None else self.shape.own_rows(schema, sink=self.name)


SHAPES = {
    "plain": None,
    "all": RecordColumns(json=(), key="id"),
    "some": RecordColumns(json=("when", "id")),
    "again": RecordColumns(json=(), key="when"),
}
ROW = (
    "struct(id, timestamp_micros(id + 1700000000000001) AS when, CAST(id AS STRING) AS name, IF(id = 1, NULL, id / 4) AS amount)"
)
EXPECTED = (
    {"id": 0, "when": "2023-11-14T22:13:20.000001Z", "name": "0", "amount": 0.0},
    {"id": 1, "when": "2023-11-14T22:13:20.000002Z", "name": "1"},
    {"id": 2, "when": "2023-11-14T22:13:20.000003Z", "name": "2", "amount": 0.5},
)


@pytest.mark.parametrize("names", [["plain", "all", "some", "again"], ["all", "again"], ["some", "plain"]], ids=",".join)
@pytest.mark.parametrize("previous", [None, SMALL], ids=["distributed", "driver"])
@pytest.mark.parametrize(("zone", "raw"), [("UTC", "false"), ("America/New_York", "true")], ids=["utc", "elsewhere"])
def test_each_sink_gets_its_own_rows(  # noqa: PLR0917 - pytest passes by name
    spark: SparkSession, tmp_path: Path, names: list[str], previous: BatchSize | None, zone: str, raw: str
) -> None:
    """The session's settings for time zones and for literals of SQL change nothing in them."""
    spark.conf.set("spark.sql.session.timeZone", zone)
    spark.conf.set("spark.sql.parser.escapedStringLiterals", raw)
    try:
        sinks = [ShapedSink(name, str(tmp_path / "spool"), SHAPES[name]) for name in names]
        rows = spark.range(0, 3, 1, 2).selectExpr(f"inline(array({ROW}))")
        staged = stage_batch(
            rows,
            sinks=sinks,
            generation=Generation(1),
            batch_id=BatchId(0),
            row_digest=NEWEST_ROW_DIGEST,
            previous=previous,
            small_input=True,
        )
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.conf.unset("spark.sql.parser.escapedStringLiterals")
    assert staged.path is (StagePath.DISTRIBUTED if previous is None else StagePath.DRIVER)
    assert staged.rows_in == 3
    for sink in sinks:
        pieces = [piece for piece in staged.pieces if piece.sink == sink.name]
        batches = list(sink._spool.read(pieces, pipeline=PIPELINE))
        assert (
            sum(digest(row_hashes(batch, NEWEST_ROW_DIGEST)) for batch in batches) % 2**64
            == sum(piece.totals.digest for piece in pieces) % 2**64
        )
        found = [row for batch in batches for row in batch.to_pylist()]
        assert Counter(_shown(sink.name, row) for row in found) == Counter(_shown(sink.name, row) for row in _wanted(sink.name))


def _wanted(name: str) -> list[dict[str, object]]:
    if name == "plain":
        return [{"id": row["id"]} for row in EXPECTED]
    if name == "some":
        return [{"value": json.dumps({"when": row["when"], "id": row["id"]})} for row in EXPECTED]
    key = "when" if name == "again" else "id"
    return [{"key": str(row[key]), "value": json.dumps(row)} for row in EXPECTED]


def _shown(name: str, row: dict[str, object]) -> str:
    if name == "plain":
        return str(row["id"])
    value = list(json.loads(str(row["value"])).items())
    return str((sorted(set(row) - {"value"}), row.get("key"), value))
