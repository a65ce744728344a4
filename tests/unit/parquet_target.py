"""A parquet sink on directories, played with by hand: stage rows, decide them, publish, read back."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import penstock
from penstock.core.model import (
    AccountName,
    Attempt,
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
    Totals,
    new_nonce,
)
from penstock.core.row_hash import row_hashes
from penstock.run.assembly import DeliveryPlan
from penstock.sink.parquet import ParquetSink, directory_account

PIPELINE, SINK = PipelineName("flights"), SinkName("lake")
LEDGER_ID = LedgerId("5e" * 16)
QUERY = QueryId("5f0c9f0e-0000-4000-8000-000000000001")
SCHEMA = (
    '{"type":"struct","fields":[{"name":"id","type":"long","nullable":false,"metadata":{}},'
    '{"name":"place","type":"string","nullable":true,"metadata":{}},{"name":"day","type":"date","nullable":true,"metadata":{}}]}'
)
ARROW = pa.schema([pa.field("id", pa.int64(), nullable=False), ("place", pa.string()), ("day", pa.date32())])


class Target:
    """Accounts `a`, `b`, … below one directory; without names one account `only` and no route."""

    def __init__(self, directory: Path, *accounts: str, **settings: Any) -> None:
        self.directory = directory
        self.names = accounts or ("only",)
        self._settings = settings
        self._options = settings.pop("options", None)

    def root(self, account: str | None = None) -> Path:
        return self.directory / "lake" / (account or self.names[0])

    def sink(self, *, schema: str | None = SCHEMA) -> ParquetSink:
        """A new, prepared object."""
        accounts = {AccountName(name): directory_account(self.root(name), options=self._options) for name in self.names}
        route = "route" if len(self.names) > 1 else None
        sink = ParquetSink(name=SINK, pipeline=PIPELINE, accounts=accounts, route_sql=route, **self._settings)
        sink.prepare(pipeline=PIPELINE, schema=schema)
        return sink

    def files(self) -> list[Path]:
        return sorted(path for name in self.names for path in self.root(name).rglob("*") if path.is_file())

    def staged(self) -> list[Path]:
        return sorted(self.directory.rglob("*.staged"))

    def content(self) -> Counter[str]:
        """The rows of the files without their partition columns."""
        return Counter(str(row) for path in self.files() for row in pq.ParquetFile(path).read().to_pylist())


def rows(*ids: int, place: str | None = "here") -> pa.RecordBatch:
    values = [{"id": number, "place": place, "day": None} for number in ids]
    return pa.RecordBatch.from_pylist(values, schema=ARROW)


def attempt(batch_id: int = 0, *, generation: int = 1, partition: int = 0) -> Attempt:
    return Attempt(
        generation=Generation(generation), batch_id=BatchId(batch_id), partition=partition, task_attempt=0, nonce=new_nonce()
    )


def stage(
    sink: ParquetSink,
    batch: pa.RecordBatch,
    *,
    routes: Sequence[str | None] | None = None,
    batch_id: int = 0,
    generation: int = 1,
) -> tuple[Staged, ...]:
    writer = sink.stager().open(attempt(batch_id, generation=generation), batch.schema)
    accounts = None if routes is None else pa.array(routes, pa.string())
    try:
        writer.write(batch, hashes=row_hashes(batch), accounts=accounts)
        return tuple(writer.finish())
    except BaseException:
        writer.abandon()
        raise


def decide(staged: Sequence[Staged], *, position: int = 2, batch_id: int = 0, schema: str = SCHEMA) -> Publication:
    return Publication(
        pipeline=PIPELINE,
        sink=SINK,
        position=Position(position),
        generation=Generation(1),
        batch=Batch(query_id=QUERY, batch_id=BatchId(batch_id), offsets=()),
        staged=tuple(staged),
        schema=schema,
        ledger_id=LEDGER_ID,
    )


def expected(*publications: Publication) -> Mapping[AccountName, Totals]:
    totals: dict[AccountName, Totals] = {}
    for publication in publications:
        for piece in publication.staged:
            totals[piece.account] = totals.get(piece.account, Totals()) + piece.totals
    return totals


def seeded() -> random.Random:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    return random.Random(seed)


def plan_of(root: Path, *sinks: str) -> DeliveryPlan:
    """Return the plan of a pipeline in `root`, with an account for each of `sinks`."""
    made = {name: penstock.Parquet(accounts={"only": root / name}) for name in sinks}
    return penstock.Delivery("flights", home=root / "home", sinks=made).plan
