"""`penstock doctor` over accounts in stores, on a real server of each kind: a decision waits, and what it does not name."""

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.servers.fixtures import accounts_on
from tests.unit.parquet_target import SCHEMA, rows, seeded, stage

from penstock.commit.outcome import StagedBatch
from penstock.core.model import Batch, BatchId, OffsetRange, QueryId, SourceName, Staged
from penstock.run.assembly import assemble
from penstock.run.doctor import PendingPieces
from penstock.run.pipeline import Pipeline
from penstock.run.runtime import coordinator_of, opened_by_this_process
from penstock.sink.parquet import ParquetSink

FILE = """\
pipeline: flights
home: ./state
sources: {{events: {{format: rate}}}}
sinks:
  lake: {{type: parquet, accounts: {accounts}, route: {{hash: [id]}}}}
"""
BATCH = Batch(
    query_id=QueryId("query"), batch_id=BatchId(0), offsets=(OffsetRange(source=SourceName("events"), start=None, end="3"),)
)
TOO_LARGE_TO_TRAVEL = 300_000


def decide_and_stop(pipeline: Pipeline) -> tuple[Staged, ...]:
    """Of two attempts the last is decided, and nobody publishes it; both have a file for each account."""
    with closing(assemble(pipeline.plan)) as parts:
        (sink,) = parts.sinks
        assert isinstance(sink, ParquetSink)
        coordinator = coordinator_of(replace(parts, sinks=()))
        sink.prepare(pipeline=parts.pipeline, schema=SCHEMA)
        coordinator.open(opened_by_this_process(parts))
        many = rows(1, 2, place=seeded().randbytes(TOO_LARGE_TO_TRAVEL).hex())
        _, pieces = (stage(sink, many, routes=["here", "there"]) for _ in range(2))
        coordinator.deliver(BATCH, lambda _: StagedBatch(pieces=pieces, rows_in=2, schema=SCHEMA))
        return pieces


@pytest.mark.parametrize("kind", ["az", "gs", "hdfs", "s3"])
def test_what_waits_in_a_store_is_told_account_by_account(kind: str, tmp_path: Path) -> None:
    """Azure does not list blocks; S3 lists uploads without their sizes."""
    places = accounts_on(here=kind, there=kind)
    accounts = {name: place.settings for name, (place, _) in places.items()}
    file = tmp_path / "flights.yaml"
    file.write_text(FILE.format(accounts=json.dumps(accounts)))
    pipeline = Pipeline.from_file(file)
    sizes = {piece.account: piece.totals.size_bytes for piece in decide_and_stop(pipeline)}
    found = pipeline.doctor()
    assert not found.ok
    assert [(one.account, one.state, one.mark) for one in found.accounts] == [(name, "outstanding", None) for name in accounts]
    for one in found.accounts:
        size_bytes = sizes[one.account]
        assert (one.decided.pieces, one.decided.size_bytes, one.decided.oldest_batch) == (1, size_bytes, 0)
        assert one.running == PendingPieces()
        known = size_bytes if kind in {"gs", "hdfs"} else None
        assert (one.dead.pieces, one.dead.size_bytes) == ((0, None) if kind == "az" else (1, known))
    assert [finding.subject for finding in found.findings] == [f"lifecycle of {place.url}" for place, _ in places.values()]
    pipeline.recover()
    after = replace(pipeline.doctor(), refused=None)  # no query ran: there is no checkpoint
    assert after.ok
    assert [(one.state, one.mark, one.decided, one.running, one.dead) for one in after.accounts] == [
        ("published", 2, PendingPieces(), PendingPieces(), PendingPieces())
    ] * 2
