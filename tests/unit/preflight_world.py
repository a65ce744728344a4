"""A pipeline that has run, made of a real checkpoint: its ledger, its lake and the description of its last run, without Spark."""

import shutil
import tarfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa
from tests.unit.parquet_target import ARROW, SCHEMA
from tests.upgrade.checkpoint_archives import ARCHIVES

from penstock import Pipeline
from penstock.commit.outcome import StagedBatch
from penstock.core import bad_record
from penstock.core.model import Adopted, Attempt, BatchId, Generation, SourceName, new_nonce
from penstock.core.row_hash import row_hashes
from penstock.protocols import SCHEMA_KEY
from penstock.run.assembly import assemble
from penstock.run.preflight.change import PipelineChange, Preflight
from penstock.run.preflight.compare import SeenBySpark, compare, versions_of
from penstock.run.preflight.description import RecordedRun, describe, record_run
from penstock.run.runtime import coordinator_of, opened_by_this_process, prepare
from penstock.spark.schema import arrow_schema
from penstock.stage.batch import stage_aside
from penstock.transform.state_held import StateHeld

FILE = """\
pipeline: flights
home: ./state
spark: {conf: {spark.sql.shuffle.partitions: 2}}
sources:
SOURCES
transform:
  sql: SELECT * FROM a
sinks:
  lake:
    type: parquet
    accounts: {north: ./north, south: ./south}
    route: {column: place}
  table: {type: sqlite, url: "sqlite:///flights.db", table: flights}
trigger: {processing_time: 10s}
"""
SOURCE = (
    '  {name}: {{format: csv, path: ./in/{name}, schema: "n INT, at TIMESTAMP", '
    "options: {{maxFilesPerTrigger: 1, header: true}}, watermark: {{column: at, delay: 30m}}}}"
)
HELD = {
    "files": (),
    "aggregation": (StateHeld(kind="stateStoreSave", keys="[window, n]", holds="count(1)"),),
    "rocksdb": (StateHeld(kind="dedupe", keys="[n]", holds=""),),
    "join": (StateHeld(kind="symmetricHashJoin", keys="Inner, (n = n)", holds="", opaque=1),),
}


class World:
    """The pipeline as it ran. `case` names the checkpoint, `spark` the version that made it; `aside`: with a quarantine."""

    def __init__(self, directory: Path, case: str, *, spark: str = "4.3", settled: bool = True, aside: bool = False) -> None:
        self.directory, self.case, self.spark = directory, case, spark
        self.names = [SourceName(name) for name in (("a", "b") if case == "join" else ("a",))]
        self.file = directory / "flights.yaml"
        text = FILE.replace("sinks:", "quarantine: ./aside\nsinks:") if aside else FILE
        self.file.write_text(text.replace("SOURCES", "\n".join(SOURCE.format(name=name) for name in self.names)))
        [archive] = [path for path in ARCHIVES if path.name == f"spark-{spark}-{case}.tar.xz"]
        with tarfile.open(archive) as opened:
            opened.extractall(directory / "state", filter="data")
        self._deliver(settled=settled)

    def _deliver(self, *, settled: bool) -> None:
        """Deliver the checkpoint's newest batch, as a run would that began there."""
        pipeline = Pipeline.from_file(self.file)
        with closing(assemble(pipeline.plan)) as runtime:
            prepare(runtime, schema=SCHEMA)
            coordinator = coordinator_of(runtime)
            coordinator.open(opened_by_this_process(runtime))
            newest = runtime.checkpoint.latest_offsets_id()
            assert newest is not None
            query = runtime.checkpoint.query_id()
            coordinator.adopt(Adopted(query_id=query, next_batch_id=newest, reason="", operator="test"))

            def stage(generation: Generation) -> StagedBatch:
                rows = pa.RecordBatch.from_pylist(
                    [{"id": 1, "place": "north", "day": None}, {"id": 2, "place": "south", "day": None}],
                    schema=ARROW.with_metadata({SCHEMA_KEY: SCHEMA.encode()}),
                )
                attempt = Attempt(generation=generation, batch_id=BatchId(newest), partition=0, task_attempt=0, nonce=new_nonce())
                writer = runtime.sinks[0].stager().open(attempt, rows.schema)
                hashes = row_hashes(rows, coordinator.summary.row_digest)
                writer.write(rows, hashes=hashes, accounts=pa.array(["north", "south"]))
                pieces = writer.finish()
                if runtime.quarantine is not None:
                    bad = pa.Table.from_pylist([{"error": "bad"}], schema=arrow_schema(bad_record.SCHEMA))
                    sink, row_digest = runtime.quarantine.sink, coordinator.summary.row_digest
                    of_batch = stage_aside(bad, sink, generation=generation, batch_id=BatchId(newest), row_digest=row_digest)
                    pieces = [*pieces, *of_batch.pieces]
                return StagedBatch(pieces=tuple(pieces), rows_in=2, schema=SCHEMA)

            coordinator.deliver(runtime.checkpoint.batch(newest, self.names), stage)
            if settled:
                coordinator.settle(opened_by_this_process(runtime))
            self.generation, self.ledger_id = coordinator.generation, coordinator.summary.ledger_id
        self.describe()

    def describe(self, *, state: tuple[StateHeld, ...] | None = None, versions: dict[str, str] | None = None) -> None:
        """Record what the file is now as what the last run was."""
        settings = Pipeline.from_file(self.file).settings
        description = describe(
            settings,
            modules=self.directory,
            versions={**versions_of(f"{self.spark}.0"), **(versions or {})},
            state=HELD[self.case] if state is None else state,
        )
        assert self.ledger_id is not None
        run = RecordedRun(
            pipeline=Pipeline.from_file(self.file).plan.pipeline,
            ledger_id=self.ledger_id,
            generation=self.generation,
            description=description,
        )
        record_run(str(self.directory / "state"), run, keep=())

    def forget(self) -> None:
        """As a Penstock left it that kept no descriptions."""
        shutil.rmtree(self.directory / "state/runs")

    def change(self, *changes: tuple[str, str]) -> None:
        text = self.file.read_text()
        for old, new in changes:
            assert old in text, f"{old!r} is not in the pipeline file"
            text = text.replace(old, new)
        self.file.write_text(text)

    def preflight(
        self,
        *,
        state: tuple[StateHeld, ...] | None = None,
        order: Sequence[str] | None = None,
        spark: str | None = None,
        seen: bool = True,
        schema: str = SCHEMA,
    ) -> Preflight:
        """What `check` would say. `state` and `order` are those of the plan of the changed query; without `seen`, no Spark."""
        pipeline = Pipeline.from_file(self.file)
        by_spark = SeenBySpark(
            order=tuple(map(SourceName, self.names if order is None else order)),
            state=HELD[self.case] if state is None else state,
            version=spark or f"{self.spark}.0",
            schema=schema,
        )
        with closing(assemble(pipeline.plan)) as runtime:
            tail = runtime.ledger.tail()
            assert tail is not None
            given = by_spark if seen else None
            return compare(pipeline.settings, pipeline.plan, runtime.ledger, summary=tail.summary, seen=given)

    def copy(self, directory: Path) -> "World":
        """The same in another directory, at the cost of copying some small files."""
        shutil.copytree(self.directory, directory, dirs_exist_ok=True)
        other = World.__new__(World)
        other.__dict__ |= self.__dict__ | {"directory": directory, "file": directory / "flights.yaml"}
        other.describe()
        return other


def said(found: Preflight) -> dict[str, PipelineChange]:
    """The changes by their part."""
    return {change.part: change for change in found.changes}
