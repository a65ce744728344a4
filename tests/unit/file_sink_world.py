"""A query that filled a directory by Spark's file sink, as it leaves its files behind, and the pipeline that takes it over."""

import json
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from tests.unit.parquet_target import SCHEMA, rows
from tests.unit.test_run_operations import Driver

import penstock
from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.core.model import Entry, SinkName, Summary
from penstock.run.assembly import DeliveryPlan, assemble, ledger_of
from penstock.run.continuation import require_continuation
from penstock.run.taking_over import TakeOver, take_over
from penstock.spec.delta import ExistingRows


class Query:
    """The query: batch N has one file with rows 10N and 10N + 1. `compact_every`: the interval of its log."""

    def __init__(self, root: Path, *, compact_every: int = 3) -> None:
        self.table, self.checkpoint = root / "a table", root / "old" / "checkpoint"
        self._compact_every = compact_every
        self._names: list[Path] = []
        self.log("metadata", '{"id":"query"}')

    def log(self, name: str, text: str) -> None:
        (self.checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (self.checkpoint / name).write_text(text)

    def plan(self, batch_id: int) -> "Query":
        self.log(f"offsets/{batch_id}", f'v1\n{{}}\n{{"t":{{"0":{batch_id}}}}}')
        return self

    def write(self, batch_id: int, name: str = "c000") -> Path:
        """Write the batch's file, as every task attempt does."""
        path = self.table / "place=h%3Aere" / f"part-00000-{batch_id}-{name}.snappy.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        table = pa.Table.from_batches([rows(10 * batch_id, 10 * batch_id + 1)]).drop_columns(["place"])
        pq.write_table(table.replace_schema_metadata({"org.apache.spark.sql.parquet.row.metadata": SCHEMA}), path)
        return path

    def note(self, batch_id: int, *paths: Path) -> None:
        """Log the batch's files in `_spark_metadata`."""
        self._names += paths
        is_compacted = (batch_id + 1) % self._compact_every == 0
        lines = [self.line(path) for path in (self._names if is_compacted else paths)]
        entry = self.table / "_spark_metadata" / (f"{batch_id}.compact" if is_compacted else str(batch_id))
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.write_text("\n".join(["v1", *lines]))

    def line(self, path: Path, action: str = "add") -> str:
        fields = {"path": f"file://{quote(str(path))}", "size": path.stat().st_size, "isDir": False, "action": action}
        return json.dumps({**fields, "modificationTime": 1, "blockReplication": 1, "blockSize": 33554432})

    def commit(self, batch_id: int) -> None:
        self.log(f"commits/{batch_id}", "v1\n{}")

    def run(self, *batches: int) -> "Query":
        for batch_id in batches:
            self.plan(batch_id)
            self.note(batch_id, self.write(batch_id))
            self.commit(batch_id)
        return self

    def files(self) -> list[str]:
        return sorted(path.name for path in self.table.rglob("*.parquet"))


class Successor:
    """The pipeline that goes on in the query's directory with a copy of its checkpoint."""

    def __init__(self, root: Path, query: Query, *, existing_rows: ExistingRows = "refuse") -> None:
        self.query, self.home = query, root / "home"
        lake = penstock.Parquet(accounts={"all": query.table}, partition_by=["place"], existing_rows=existing_rows)
        self.plan: DeliveryPlan = penstock.Delivery("flights", home=self.home, sinks={"lake": lake}).plan

    def adopt(self, *, yes: bool = True, trusted: tuple[str, ...] = ()) -> TakeOver:
        origin = SparkCheckpoint(self.query.checkpoint)
        names = [SinkName(name) for name in trusted]
        return take_over(self.plan, origin, reason="a test", yes=yes, trusted=names)

    @property
    def staging(self) -> Path:
        return self.query.table.parent / ".penstock-staging" / self.query.table.name / "flights" / "lake"

    def deliver(self, *batches: int) -> None:
        """Deliver batches in a run of the pipeline, as Spark plans them on the copy."""
        run = Driver(self.plan, self.home / "checkpoint")
        with closing(run.runtime):
            for number in batches:
                run.plan(number)
                run.deliver(number)
                run.write(f"commits/{number}", "v1\n{}")

    def start(self) -> None:
        """Ask what each start of the pipeline asks of its checkpoint. Raises what a start is refused with."""
        with closing(assemble(self.plan)) as runtime:
            tail = runtime.ledger.tail()
            require_continuation(Summary() if tail is None else tail.summary, runtime.checkpoint)

    def entries(self) -> list[Entry]:
        with closing(ledger_of(self.plan)) as ledger:
            return list(ledger.newest_first())
