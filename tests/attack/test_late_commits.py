"""Commits to a Delta log that forgets its entries: a driver that slept longer than the log is kept."""

import os
import time
from collections import Counter

import pytest
from tests.conformance.delta_rig import DeltaRig, OverlappingRig
from tests.unit.maintained_lake import MaintainedLake

from penstock.sink.delta.log import Snapshot
from penstock.testing.conformance import Bench
from penstock.testing.conformance.bench import publish


def forget(rig: DeltaRig) -> None:
    """Let the log go on, and forget all before its newest checkpoint."""
    rig.table().alter.set_table_properties({"delta.logRetentionDuration": "interval 3600 seconds"})
    for _ in range(3):
        table = rig.table()
        table.create_write_transaction([], "append", table.schema())
    old = time.time() - 7200
    for path in (rig.root / "_delta_log").iterdir():
        os.utime(path, (old, old))
    rig.table().create_checkpoint()
    rig.table().cleanup_metadata()


@pytest.mark.parametrize("kind", [DeltaRig, OverlappingRig], ids=["append", "upsert"])
def test_a_driver_that_slept_between_look_and_commit(tmp_path, kind, monkeypatch) -> None:
    """Another one published its batch meanwhile, and the log has no entry any more where it would commit."""
    bench = Bench(kind(tmp_path))
    sink = bench.sink()
    first = bench.deliver(sink, bench.rows(range(20)), batch_id=0)
    rows = bench.rows(range(100, 120))
    second = bench.decide((rows, bench.stage(sink, rows, batch_id=1)), batch_id=1)
    real = Snapshot.commit

    def late(self, change, publication):
        monkeypatch.setattr(Snapshot, "commit", real)
        publish(bench.sink(), publication)
        forget(bench.rig)
        return real(self, change, publication)

    monkeypatch.setattr(Snapshot, "commit", late)
    sink.publish(second.publication)
    bench.require_shown(first, second)
    assert bench.verify(bench.sink()).ok
    bench.close()


def test_a_compaction_that_slept_before_its_commit(tmp_path, monkeypatch) -> None:
    """Its entry finds a place before the log's newest checkpoint, where nobody reads it."""
    table = MaintainedLake(tmp_path, "delta")
    table.compacts = False
    for number in range(3):
        table.deliver((number, "a"))
    real, late_at = Snapshot.rewrite, list[int]()

    def late(self, change):
        forget(table.rig)
        late_at.append(self.next_version)
        return real(self, change)

    table.compacts = True
    with monkeypatch.context() as patched:
        patched.setattr(Snapshot, "rewrite", late)
        assert table.maintain_after(table.publications()[-1]) == []
    assert late_at[0] < table.version()
    table.deliver((3, "a"))
    assert table.content("id", "name") == Counter((number, "a") for number in range(4))
    assert table.verify().ok
    table.bench.close()
