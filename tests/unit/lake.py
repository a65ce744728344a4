"""A pipeline with two accounts, in directories or stores, driven through the real coordinator by hand instead of by Spark."""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa
from tests.servers.server import Place
from tests.unit.parquet_target import ARROW, QUERY, SCHEMA

from penstock import Pipeline
from penstock.commit.coordinator import Coordinator
from penstock.commit.outcome import Delivered, StagedBatch
from penstock.core.model import Attempt, Batch, BatchId, Generation, OffsetRange, QueryId, RowDigest, SourceName, new_nonce
from penstock.core.row_hash import row_hashes
from penstock.protocols import SCHEMA_KEY
from penstock.run.assembly import assemble
from penstock.run.runtime import Runtime, coordinator_of, opened_by_this_process, prepare

FILE = """\
pipeline: shop
home: ./state
sources: {orders: {format: rate}}
sinks:
  lake: {type: parquet, accounts: ACCOUNTS, route: {column: id}, partition_by: [place]}
ledger: LEDGER
"""
ACCOUNTS = ("a", "b")
ROWS = 4
"""Of a batch; half of them in each account."""


class Lake:
    """Batch n holds the rows n * ROWS and so on; `batches` numbers them over all queries."""

    def __init__(
        self, directory: Path, *, ledger: str = "sqlite:///ledger.db", places: Mapping[str, Place] | None = None
    ) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.file = directory / "shop.yaml"
        stores = {name: place.settings for name, place in (places or {}).items()}
        accounts = json.dumps({name: stores.get(name, f"./{name}") for name in ACCOUNTS})
        self.file.write_text(FILE.replace("LEDGER", ledger).replace("ACCOUNTS", accounts))
        self.pipeline = Pipeline.from_file(self.file)

    def replace(self, text: str, instead: str) -> None:
        """Change the pipeline file."""
        before = self.file.read_text()
        assert text in before
        self.file.write_text(before.replace(text, instead))
        self.pipeline = Pipeline.from_file(self.file)

    def ids(self, batches: int) -> list[int]:
        """Of the first so many batches."""
        return list(range(batches * ROWS))

    def run(self, numbers: Sequence[int], *, query: str = QUERY, first: int = 0, schema: str = SCHEMA) -> list[Delivered]:
        """A driver that opens the pipeline and delivers the batches `numbers` of the query whose batch 0 holds batch `first`."""
        with closing(assemble(self.pipeline.plan)) as runtime:
            prepare(runtime, schema=schema)
            coordinator = coordinator_of(runtime)
            coordinator.open(opened_by_this_process(runtime))
            return [self.deliver(runtime, coordinator, number, query=query, first=first, schema=schema) for number in numbers]

    def deliver(
        self, runtime: Runtime, coordinator: Coordinator, number: int, *, query: str, first: int = 0, schema: str = SCHEMA
    ) -> Delivered:
        batch_id = BatchId(number - first)
        offsets = OffsetRange(source=SourceName("orders"), start=str(number) if batch_id else None, end=str(number + 1))
        batch = Batch(query_id=QueryId(query), batch_id=batch_id, offsets=(offsets,))
        return coordinator.deliver(batch, lambda generation: self._stage(runtime, generation, batch_id, number, schema))

    def _stage(self, runtime: Runtime, generation: Generation, batch_id: BatchId, number: int, schema: str) -> StagedBatch:
        ids = range(number * ROWS, (number + 1) * ROWS)
        rows = pa.RecordBatch.from_pylist(
            [{"id": row, "place": f"{number:03d}/x y", "day": None} for row in ids],
            schema=ARROW.with_metadata({SCHEMA_KEY: schema.encode()}),
        )
        attempt = Attempt(generation=generation, batch_id=batch_id, partition=0, task_attempt=0, nonce=new_nonce())
        writer = runtime.sinks[0].stager().open(attempt, rows.schema)
        writer.write(
            rows, hashes=row_hashes(rows, self._row_digest(runtime)), accounts=pa.array([ACCOUNTS[row % 2] for row in ids])
        )
        return StagedBatch(pieces=tuple(writer.finish()), rows_in=len(rows), schema=schema)

    def _row_digest(self, runtime: Runtime) -> RowDigest:
        tail = runtime.ledger.tail()
        assert tail is not None
        return tail.summary.row_digest

    def obstacle(self, account: str, number: int) -> Path:
        """A file that keeps batch `number` from being published in `account`, until it is removed."""
        path = self.directory / account / f"place={number:03d}%2Fx y"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        return path

    def listed(self, account: str) -> list[Path]:
        return sorted((self.directory / account).rglob("*.parquet"))
