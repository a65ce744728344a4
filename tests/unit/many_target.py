"""A pipeline whose one sink fills many tables, driven through the real coordinator by hand instead of by Spark."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.unit.table_target import spark_schema

from penstock import Pipeline
from penstock.commit.outcome import Delivered, StagedBatch
from penstock.core.deletes import with_deletes
from penstock.core.model import (
    Attempt,
    Batch,
    BatchId,
    Generation,
    OffsetRange,
    Publication,
    Published,
    QueryId,
    SourceName,
    Staged,
    new_nonce,
)
from penstock.core.row_hash import row_hashes
from penstock.core.unrouted import without_unrouted
from penstock.errors import PublishFailed
from penstock.protocols import SCHEMA_KEY, Sink, Taken
from penstock.run.assembly import assemble, ledger_of
from penstock.run.runtime import Runtime, coordinator_of, opened_by_this_process, prepare
from penstock.spark.schema import arrow_schema
from penstock.stage.opening import staged_with_tables

QUERY = QueryId("5f0c9f0e-0000-4000-8000-000000000001")
SCHEMA = spark_schema(id="long", region="string", name="string")
Row = tuple[int, str | None, str | None]
FILE = """\
pipeline: shop
home: ./state
sources: {orders: {format: rate}}
quarantine: ./bad
ledger: LEDGER
sinks:
  orders: SINK
"""
TABLES = {"pattern": "[a-z]+_orders", "at_most": 5}
SINKS: Mapping[str, Mapping[str, Any]] = {
    "sqlite": {"url": "sqlite:///shop.db", "table": "{region}_orders"},
    "duckdb": {"url": "duckdb:///shop.duckdb", "table": "{region}_orders"},
    "delta": {"path": "./lake/{region}_orders"},
    "iceberg": {"catalog": "sqlite:///catalog.db", "warehouse": "./warehouse", "table": "shop.{region}_orders"},
}


@dataclass(frozen=True)
class Pieces:
    pieces: tuple[Staged, ...]


class World:
    """The sink of `kind` in a directory. Batches are given as rows of (id, region, name)."""

    def __init__(
        self, directory: Path, kind: str, *, ledger: str = "sqlite:///ledger.db", deletes: bool = False, **given: Any
    ) -> None:
        self.directory, self.deletes = directory, deletes
        directory.mkdir(exist_ok=True)
        self.file = directory / "shop.yaml"
        self.ledger, self.kind = ledger, kind
        self.configure(**given)

    def configure(self, **given: Any) -> None:
        """Write the pipeline file anew."""
        sink = {"type": self.kind, **SINKS.get(self.kind, {}), "tables": TABLES, **given}
        text = FILE.replace("LEDGER", self.ledger).replace("SINK", json.dumps({k: v for k, v in sink.items() if v is not None}))
        self.file.write_text(text)
        self.pipeline = Pipeline.from_file(self.file)

    def sink(self) -> Sink:
        """A new sink, not prepared."""
        return assemble(self.pipeline.plan).sinks[0]

    def run(
        self,
        batches: Mapping[int, Sequence[Sequence[Row]]],
        *,
        schema: str = SCHEMA,
        publishes: bool = True,
        before_deciding: Callable[[], None] = lambda: None,
    ) -> list[Delivered]:
        """A driver that opens the pipeline and delivers batches, each given as what its tasks have, unless it ends before.

        `before_deciding` is called when a batch is staged.
        """
        with closing(assemble(self.pipeline.plan)) as runtime:
            taken = {runtime.sinks[0].name: Taken(where=None, own=None, schema=schema)}
            prepare(runtime, schema=schema, taken=taken)
            coordinator = coordinator_of(runtime, sleep=lambda _: None)
            coordinator.open(opened_by_this_process(runtime))
            done = []
            if not publishes:
                runtime.sinks[0].publish = _end_here  # type: ignore[method-assign]
            for number, tasks in batches.items():
                offsets = OffsetRange(source=SourceName("orders"), start=str(number) if number else None, end=str(number + 1))
                batch = Batch(query_id=QUERY, batch_id=BatchId(number), offsets=(offsets,))

                def stage(generation: Generation, number: int = number, tasks: Sequence[Sequence[Row]] = tasks) -> StagedBatch:
                    staged = self._staged(runtime, generation, number, tasks, schema)
                    before_deciding()
                    return staged

                done.append(coordinator.deliver(batch, stage))
            coordinator.wait()
            return done

    def stage_only(self, number: int, tasks: Sequence[Sequence[Row]]) -> None:
        """A driver that ends before it decides the batch; its pieces are on the disk."""
        with closing(assemble(self.pipeline.plan)) as runtime:
            prepare(runtime, schema=SCHEMA)
            coordinator = coordinator_of(runtime)
            coordinator.open(opened_by_this_process(runtime))
            sink: Any = runtime.sinks[0]
            if hasattr(sink, "_spool") and sink._spool is not None:
                sink._spool.inline_limit_bytes = 0
            self._staged(runtime, coordinator.generation, number, tasks, SCHEMA)

    def staged_files(self) -> list[Path]:
        found = [*self.directory.rglob("*.staged"), *self.directory.rglob("*.arrow")]
        return sorted(path for path in found if path.is_file())

    def _staged(
        self, runtime: Runtime, generation: Generation, number: int, tasks: Sequence[Sequence[Row]], schema: str
    ) -> StagedBatch:
        sinks = runtime.row_sinks
        whole = staged_with_tables(lambda: self._pieces(sinks[0], generation, number, tasks, schema), sinks)
        pieces, dropped = without_unrouted(whole.pieces)
        return StagedBatch(pieces=pieces, rows_in=sum(map(len, tasks)), schema=schema, dropped=dropped)

    def _pieces(self, sink: Sink, generation: Generation, number: int, tasks: Sequence[Sequence[Row]], schema: str) -> Pieces:
        stager, pieces = sink.stager(), list[Staged]()
        arrow = arrow_schema(schema).with_metadata({SCHEMA_KEY: schema.encode()})
        for partition, rows in enumerate(tasks):
            attempt = Attempt(
                generation=generation, batch_id=BatchId(number), partition=partition, task_attempt=0, nonce=new_nonce()
            )
            batch = pa.RecordBatch.from_pylist([dict(zip(arrow.names, row, strict=True)) for row in rows], schema=arrow)
            hashes = row_hashes(batch)
            tables = pa.array([f"{row[1]}_orders" if row[1] else None for row in rows], pa.string())
            if self.deletes:
                batch = with_deletes(batch, pa.array([row[2] == "gone" for row in rows], pa.bool_()))
            writer = stager.open(attempt, batch.schema)
            for start in range(0, len(rows), 7):
                accounts = None if sink.route_sql is None else tables.slice(start, 7)
                writer.write(batch.slice(start, 7), hashes=hashes.slice(start, 7), accounts=accounts)
            pieces += writer.finish()
        return Pieces(tuple(pieces))

    # --- looked at by other code

    def content(self) -> dict[str, Counter[Row]]:
        """Every table with its rows."""
        return {table: Counter(rows) for table, rows in self.found().items()}

    def found(self, columns: Sequence[str] = ("id", "region", "name")) -> dict[str, list[Any]]:
        return {"sqlite": _sqlite, "duckdb": _duckdb, "delta": _delta, "iceberg": _iceberg}[self.kind](self.directory, columns)

    def tail(self) -> int:
        """The position of the ledger's newest entry."""
        with closing(ledger_of(self.pipeline.plan)) as ledger:
            tail = ledger.tail()
            return 0 if tail is None else int(tail.position)

    def decided(self) -> int:
        """How many batches are decided."""
        if self.ledger.startswith("sqlite") and not (self.directory / "ledger.db").exists():
            return 0
        with closing(ledger_of(self.pipeline.plan)) as ledger:
            tail = ledger.tail()
            return 0 if tail is None else int(tail.summary.next_batch_id or 0)


def _end_here(_: Publication) -> Published:
    raise PublishFailed("the driver ends here", remedy="none")


def expected(batches: Mapping[int, Sequence[Sequence[Row]]]) -> dict[str, Counter[Row]]:
    """What tables hold after such batches were appended."""
    found: dict[str, Counter[Row]] = {}
    for tasks in batches.values():
        for row in (row for rows in tasks for row in rows):
            found.setdefault(f"{row[1]}_orders", Counter())[row] += 1
    return found


def _sqlite(directory: Path, columns: Sequence[str]) -> dict[str, list[Any]]:
    import sqlite3

    with closing(sqlite3.connect(directory / "shop.db")) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        own = [name for name in names if name.endswith("_orders")]
        return {name: connection.execute(f'SELECT {", ".join(columns)} FROM "{name}"').fetchall() for name in own}


def _duckdb(directory: Path, columns: Sequence[str]) -> dict[str, list[Any]]:
    import duckdb

    with closing(duckdb.connect(str(directory / "shop.duckdb"), read_only=True)) as connection:
        names = [name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
        own = [name for name in names if name.endswith("_orders")]
        return {name: connection.execute(f'SELECT {", ".join(columns)} FROM "{name}"').fetchall() for name in own}


def _delta(directory: Path, columns: Sequence[str]) -> dict[str, list[Any]]:
    from deltalake import DeltaTable

    paths = [path for path in (directory / "lake").iterdir() if not path.name.startswith(".")]
    return {path.name: _tuples(DeltaTable(str(path)).to_pyarrow_table(), columns) for path in paths}


def _iceberg(directory: Path, columns: Sequence[str]) -> dict[str, list[Any]]:
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("default", uri=f"sqlite:///{directory / 'catalog.db'}", warehouse=str(directory / "warehouse"))
    try:
        names = [name for _, name in catalog.list_tables("shop")]
        return {name: _tuples(catalog.load_table(f"shop.{name}").scan().to_arrow(), columns) for name in names}
    finally:
        catalog.close()


def _tuples(table: "pa.Table", columns: Sequence[str]) -> list[Any]:
    return [tuple(row[name] for name in columns) for row in table.to_pylist()]
