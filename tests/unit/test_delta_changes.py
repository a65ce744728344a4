"""Rows of a Delta table that others replace, where the format matters. What holds for all is in `test_lake_changes`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from tests.conformance.delta_rig import (
    DeltaRig,
    OverlappingPartitionedRig,
    OverlappingRig,
    OverwriteRig,
    PartitionedUpsertRig,
)

from penstock.core import faults
from penstock.errors import PublishFailed, Refused
from penstock.sink.delta.log import Snapshot
from penstock.sink.lake.log import Change
from penstock.testing.conformance import Bench, require_equal
from penstock.testing.conformance.bench import publish


def opened(rig: DeltaRig) -> Iterator[Bench]:
    bench = Bench(rig)
    yield bench
    bench.close()


@pytest.fixture(params=[OverlappingRig], ids=lambda rig: rig.__name__)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    yield from opened(request.param(tmp_path))


def by(*rigs: type[DeltaRig]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("bench", rigs, indirect=True, ids=[rig.__name__ for rig in rigs])


def table_at(bench: Bench) -> DeltaTable:
    return DeltaTable(str(bench.rig.root))


class TestBesideOtherWriters:
    def test_what_a_try_wrote_in_vain_is_removed_and_nothing_else(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        """Also by the run after one that was killed; files of former versions stay for their readers."""
        sink = bench.sink()
        bench.deliver(sink, bench.rows(range(40)), batch_id=0)
        rows = bench.rows(range(1000, 1040))
        shown = bench.decide((rows, bench.stage(sink, rows, batch_id=1)), batch_id=1)

        def killed(self: Snapshot, change: Change, publication: object) -> int:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(Snapshot, "commit", killed)
            with pytest.raises(KeyboardInterrupt):
                sink.publish(shown.publication)
        assert len([name for name in bench.rig.leftovers() if name.endswith(".parquet")]) == 1
        faults.arm("lakeleft.collect=error")
        assert not bench.sink().publish(shown.publication).already
        faults.arm("")
        assert len([name for name in bench.rig.leftovers() if name.endswith(".parquet")]) == 1
        assert bench.sink().publish(shown.publication).already
        assert bench.rig.leftovers() == []
        bench.require_shown(*bench.decided)
        older = pa.table(DeltaTable(str(bench.rig.root), version=1).scan()).to_pylist()
        require_equal(older, bench.decided[0].rows)

    def test_a_commit_that_landed_and_raised_is_not_repeated(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        sink = bench.sink()
        bench.deliver(sink, bench.rows(range(40)), batch_id=0)
        rows = bench.rows(range(1000, 1040))
        shown = bench.decide((rows, bench.stage(sink, rows, batch_id=1)), batch_id=1)
        real, calls = DeltaTable.create_write_transaction, []

        def landed(self: DeltaTable, *given: object, **named: object) -> None:
            calls.append(given)
            real(self, *given, **named)  # type: ignore[arg-type]
            raise DeltaError("the checkpoint failed")

        monkeypatch.setattr(DeltaTable, "create_write_transaction", landed)
        assert not sink.publish(shown.publication).already
        assert bench.sink().publish(shown.publication).already
        assert len(calls) == 1
        bench.require_shown(*bench.decided)
        assert bench.rig.leftovers() == []
        assert bench.verify(bench.sink()).ok

    @by(PartitionedUpsertRig, OverwriteRig, OverlappingPartitionedRig)
    def test_files_of_a_compaction_are_replaced(self, bench: Bench) -> None:
        """Their paths are quoted in the log, where hostile texts are in them twice."""
        sink = bench.sink()
        for at in (0, 1000, 2000):
            bench.deliver(sink, bench.rows(range(at, at + 40)), bench.rows(range(at + 500, at + 520)), batch_id=at)
            table_at(bench).optimize.compact()
        bench.require_shown(*bench.decided)
        bench.deliver(sink, bench.rows(range(2000, 2040)), bench.rows(range(5, 25)), batch_id=3)
        bench.require_shown(*bench.decided)
        assert bench.verify(bench.sink()).ok
        table_at(bench).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
        bench.require_shown(*bench.decided)

    def test_a_path_that_the_library_quotes_in_another_way(self, bench: Bench) -> None:
        sink = bench.sink()
        bench.deliver(sink, bench.rows([1]), batch_id=0)
        [(path, _)] = bench.rig.active()
        renamed(bench, path, "a^b.parquet")
        rows = bench.rows([1])
        shown = bench.decide((rows, bench.stage(sink, rows, batch_id=1)), batch_id=1)
        with pytest.raises(PublishFailed, match="quotes the path of file"):
            sink.publish(shown.publication)
        renamed(bench, "a^b.parquet", "rewritten.parquet")
        publish(sink, shown.publication)
        bench.require_shown(*bench.decided)

    def test_a_table_whose_rows_must_stay(self, bench: Bench) -> None:
        sink = bench.sink()
        rows = bench.rows([1])
        shown = bench.decide((rows, bench.stage(sink, rows, batch_id=0)), batch_id=0)
        table_at(bench).alter.set_table_properties({"delta.appendOnly": "true"})
        with pytest.raises(PublishFailed, match=r"has delta\.appendOnly, and write: upsert takes rows out of it"):
            sink.publish(shown.publication)
        with pytest.raises(Refused, match=r"delta\.appendOnly"):
            bench.sink()
        assert not all(finding.ok for finding in bench.rig.make().check())
        table_at(bench).alter.set_table_properties({"delta.appendOnly": "false", "delta.enableChangeDataFeed": "true"})
        with pytest.raises(Refused, match="has a change data feed"):
            bench.sink()
        table_at(bench).alter.set_table_properties({"delta.enableChangeDataFeed": "false"})
        publish(bench.sink(), shown.publication)
        bench.require_shown(shown)


def renamed(bench: Bench, old: str, new: str) -> None:
    """As by a writer that puts paths into the log as they are."""
    (bench.rig.root / old).rename(bench.rig.root / new)
    size_bytes = (bench.rig.root / new).stat().st_size
    added = {"path": new, "size": size_bytes, "partitionValues": {}, "modificationTime": 1, "dataChange": False}
    removed = {"path": old, "dataChange": False, "deletionTimestamp": 1}
    lines = [json.dumps({"add": added}), json.dumps({"remove": removed})]
    (bench.rig.root / "_delta_log" / f"{table_at(bench).version() + 1:020d}.json").write_text("\n".join(lines))
