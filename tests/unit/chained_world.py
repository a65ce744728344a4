"""A pipeline file beside a `RewoundWorld`, and readers that follow what it delivers."""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.unit.parquet_target import QUERY, stage
from tests.unit.removed_world import Run
from tests.unit.rewound_world import RewoundWorld

import penstock
from penstock.commit.outcome import StagedBatch
from penstock.core.model import BatchId, Generation
from penstock.run.assembly import DeliveryPlan
from penstock.run.chain.fetch import batches_of
from penstock.run.chain.stream import TableStream
from penstock.run.chain.table import open_chained
from penstock.sink.parquet import ParquetSink
from penstock.source.chain.settings import ChainSettings, settings_in

FILE = """\
pipeline: flights
home: ./home
sources:
  flights: {format: csv, path: ./incoming, schema: "id INT"}
sinks:
  lake: {type: parquet, accounts: {a: ./lake/a, b: ./lake/b}, route: {column: place}, unrouted: fail, partition_by: [place]}
"""


class ChainedWorld(RewoundWorld):
    """A `RewoundWorld` that a file describes. Batch N holds rows 10N to 10N + 4: 3 of account `a`, 2 of account `b`."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.file = root / "flights.yaml"
        self.file.write_text(FILE)
        self.plan: DeliveryPlan = penstock.Pipeline.from_file(self.file).plan

    def go_on(self, *batches: int) -> "ChainedWorld":
        super().go_on(*batches)
        return self

    def deliver_rows(self, number: int, rows: pa.RecordBatch, schema: str) -> None:
        """Deliver a batch of these rows, which all are of account `a`, in another run."""
        run = Run(self.plan, self.checkpoint)
        with closing(run.runtime):
            run.write("metadata", f'{{"id":"{QUERY}"}}')
            run.plan(number)
            sink = run.sink
            assert isinstance(sink, ParquetSink)

            def staged(generation: Generation) -> StagedBatch:
                pieces = stage(sink, rows, routes=["a"] * rows.num_rows, batch_id=number, generation=generation)
                return StagedBatch(pieces=pieces, rows_in=rows.num_rows, schema=schema)

            planned = run.runtime.checkpoint.batch(BatchId(number), run.runtime.source_names(BatchId(number)))
            run.coordinator.deliver(planned, staged)
            run.write(f"commits/{number}", "v1\n{}")

    def settings(self, **options: Any) -> ChainSettings:
        given = settings_in({"path": str(self.file), "penstock.source": "flights", **{k: str(v) for k, v in options.items()}})
        if given.columns is not None:
            return given
        table = open_chained(given)
        try:
            return settings_in({**{k: str(v) for k, v in options.items()}, **_own(self.file, table.columns())})
        finally:
            table.close()

    def reader(self, **options: Any) -> TableStream:
        return TableStream(self.settings(**options))


def _own(file: Path, columns: str) -> dict[str, str]:
    return {"path": str(file), "penstock.source": "flights", "penstock.columns": columns}


def rows(reader: TableStream, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [row for piece in reader.planned(start, end) for batch in batches_of(piece) for row in batch.to_pylist()]


def ids(reader: TableStream, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[int]:
    return sorted(row["id"] for row in rows(reader, start, end))


def batches(reader: TableStream, start: Mapping[str, Any]) -> Iterator[list[int]]:
    """Yield the ids of each micro-batch, as Spark reads them: offsets go through JSON."""
    while (end := reader.advance(start)) != start:
        end = json.loads(json.dumps(end))
        yield ids(reader, start, end)
        start = end


def delivered(*numbers: int) -> list[int]:
    """Return the ids of these batches."""
    return [number * 10 + row for number in numbers for row in range(5)]
