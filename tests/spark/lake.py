"""A parquet sink below one directory, staged into from Spark and read back by Spark."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.core.model import (
    NEWEST_ROW_DIGEST,
    AccountName,
    Batch,
    BatchId,
    Generation,
    LedgerId,
    PipelineName,
    Position,
    Publication,
    QueryId,
    SinkName,
    Staged,
)
from penstock.sink.parquet import ParquetSink, directory_account
from penstock.spark.column_name import quoted
from penstock.stage.batch import StagedRows, stage_batch
from penstock.stage.path import BatchSize
from penstock.testing.conformance.bench import DecidedBatches

PIPELINE = PipelineName("numbers")
LEDGER_ID = LedgerId("5e" * 16)
SMALL = BatchSize(rows=100, size_bytes=10_000, row_bytes=100)
ONE_GENERATION = Generation(1)


class Lake:
    """Accounts below `directory`; without names one account and no route."""

    def __init__(self, directory: Path, *accounts: str, route: str | None = None, name: str = "lake", **settings: Any) -> None:
        self.directory, self.names = directory, accounts or ("only",)
        self.sink = ParquetSink(
            name=SinkName(name),
            pipeline=PIPELINE,
            accounts={AccountName(name): directory_account(self.root(name)) for name in self.names},
            route_sql=route,
            **settings,
        )

    def root(self, account: str | None = None) -> Path:
        return self.directory / "lake" / (account or self.names[0])

    def stage(
        self, rows: DataFrame, *, batch_id: int = 0, previous: BatchSize | None = None, small_input: bool = False
    ) -> StagedRows:
        self.sink.use_row_digest(NEWEST_ROW_DIGEST)
        self.sink.prepare(pipeline=PIPELINE, schema=rows.schema.json())
        return stage_batch(
            rows,
            sinks=[self.sink],
            generation=ONE_GENERATION,
            batch_id=BatchId(batch_id),
            row_digest=NEWEST_ROW_DIGEST,
            previous=previous,
            small_input=small_input,
        )

    def publish(self, staged: Sequence[Staged], rows: DataFrame, *, batch_id: int = 0) -> Publication:
        publication = Publication(
            pipeline=PIPELINE,
            sink=self.sink.name,
            position=Position(batch_id + 2),
            generation=ONE_GENERATION,
            batch=Batch(query_id=QueryId("query"), batch_id=BatchId(batch_id), offsets=()),
            staged=tuple(staged),
            schema=rows.schema.json(),
            ledger_id=LEDGER_ID,
        )
        self.sink.publish(publication)
        return publication

    def deliver(self, rows: DataFrame, *, previous: BatchSize | None = None, small_input: bool = False) -> StagedRows:
        """Stage, publish and verify `rows`."""
        staged = self.stage(rows, previous=previous, small_input=small_input)
        publication = self.publish(staged.pieces, rows)
        report = self.sink.verify(DecidedBatches([publication]))
        assert report.ok, report
        return staged

    def read(self, spark: SparkSession, schema: str | None = None) -> DataFrame:
        reader = spark.read if schema is None else spark.read.schema(schema)
        frames = [reader.parquet(str(self.root(name))) for name in self.names if any(self.root(name).rglob("*.parquet"))]
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.unionByName(frame)
        return whole

    def staged(self) -> list[Path]:
        return sorted(self.directory.rglob("*.staged"))


def content(rows: DataFrame) -> Counter[str]:
    """The rows as a multiset, columns by name."""
    names = sorted(rows.columns)
    ordered = rows.select(*(quoted(name) for name in names))
    return Counter(repr(tuple(zip(names, row, strict=True))) for row in ordered.collect())
