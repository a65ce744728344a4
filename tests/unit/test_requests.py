"""How many requests a batch took: counted by tasks and driver, written into decisions, shown, and added up to a day."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.architecture.reading import ROOT
from tests.unit.commit_bench import OPENED, PIPELINE, Bench, batch_of

from penstock.blob import open_store
from penstock.commit.coordinator import Coordinator
from penstock.commit.outcome import StagedBatch
from penstock.core.codec import decode_message
from penstock.core.model import (
    Attempt,
    BatchId,
    Decided,
    Decision,
    Entry,
    Generation,
    PipelineName,
    Publication,
    Published,
    RequestEstimate,
    SinkName,
    Staged,
)
from penstock.ledger.log import LogLedger
from penstock.ledger.open import open_ledger
from penstock.ledger.store import BlobLedgerStore, MemoryStore
from penstock.observe.history import PieceCounts, history
from penstock.protocols import requesting, requests_since, requests_so_far
from penstock.run.explain import Costs, costs_of
from penstock.run.pipeline import Pipeline
from penstock.run.query import FENCE_LOOK_S
from penstock.sink.parquet import object_account
from penstock.stage.staging import RowForm, SinkShare, StagePass
from penstock.testing.entries import decided_entry, opened_entry
from penstock.testing.simulator.sinks import FilesSink


class Billed:
    """Counts for some places."""

    def __init__(self, **sent: int) -> None:
        self.sent = sent

    def requests_sent(self) -> Mapping[str, int]:
        return self.sent


def test_a_place_of_several_parts_is_counted_once_and_no_place_is_no_number() -> None:
    parts = requesting([Billed(a=3, b=4), object(), Billed(b=4), Billed()])
    assert len(parts) == 3
    assert requests_so_far(parts) == 7
    assert requests_since(5, parts) == 2
    assert requests_so_far([Billed()]) is None
    assert requests_since(None, parts) is None


# --- a task


class BilledStager(Billed):
    """One request for each Arrow batch, and one to finish."""

    def open(self, attempt: Attempt, schema: "pa.Schema") -> "BilledStager":
        return self

    def write(self, rows: "pa.RecordBatch", *, hashes: "pa.UInt64Array", accounts: "pa.StringArray | None") -> None:
        self.sent["a"] += 1

    def finish(self) -> Sequence[Staged]:
        self.sent["a"] += 1
        return ()

    def abandon(self) -> None:
        """Nothing."""


class FreeStager(BilledStager):
    def requests_sent(self) -> Mapping[str, int]:
        return {}


@pytest.mark.parametrize(("kind", "told"), [(BilledStager, 3), (FreeStager, None)])
def test_a_task_tells_what_its_attempt_sent_and_nothing_of_those_before(kind: type[BilledStager], told: int | None) -> None:
    stager = kind(a=40)
    stage_pass = StagePass(
        generation=Generation(1),
        batch_id=BatchId(0),
        forms=(RowForm(columns=("n",), schema="{}"),),
        shares=(SinkShare(sink=SinkName("lake"), stager=stager, route=None),),
    )
    rows = pa.RecordBatch.from_pydict({"n": [1, 2], "hash": pa.array([7, 8], pa.int64())})
    for attempt in range(2):
        message = decode_message(stage_pass.run([rows, rows], partition=0, task_attempt=attempt))
        assert (message.rows, message.requests) == (4, told)


# --- the driver


class BilledSink(FilesSink):
    """Three requests for each publication."""

    published = 0

    def publish(self, publication: Publication) -> Published:
        type(self).published += 3
        return super().publish(publication)

    def requests_sent(self) -> Mapping[str, int]:
        return {"s3://bucket/table": self.published}


def billed(bench: Bench) -> Coordinator:
    _, table = bench.sinks()
    coordinator = bench.coordinator(sinks=(BilledSink(bench.targets.files, bench.history, bench.steps), table))
    coordinator.open(OPENED)
    return coordinator


def deliver(bench: Bench, coordinator: Coordinator, number: int) -> None:
    def stage(generation: Generation) -> StagedBatch:
        return replace(bench.stage(batch_of(number))(generation), requests=10 + number)

    coordinator.deliver(batch_of(number), stage)


def requests_in(bench: Bench) -> list[tuple[int | None, int | None]]:
    decisions = [entry.body.decision for entry in bench.ledger().newest_first() if isinstance(entry.body, Decided)]
    return [(each.stage_requests, each.previous_publish_requests) for each in reversed(decisions)]


def test_a_decision_tells_its_own_staging_and_the_publication_before_it() -> None:
    bench = Bench()
    for numbers in ((0, 1, 2), (3, 4)):
        coordinator = billed(bench)
        for number in numbers:
            deliver(bench, coordinator, number)
    assert requests_in(bench) == [(10, None), (11, 3), (12, 3), (13, None), (14, 3)]
    rows = [row for row in history(bench.ledger().newest_first()) if row.kind == "decided"]
    assert [(row.stage_requests, row.publish_requests) for row in rows] == [(14, None), (13, 3), (12, None), (11, 3), (10, 3)]


def test_where_nobody_bills_no_count_is_written() -> None:
    bench = Bench()
    coordinator = bench.opened()
    for number in range(2):
        bench.deliver(coordinator, number)
    assert requests_in(bench) == [(None, None)] * 2
    decided = [entry for key in bench.store.keys("entries/") if b'"decided"' in (entry := bench.store.get(key) or b"")]
    assert len(decided) == 2
    assert all(b'"stage_requests":null' in entry and b'"previous_publish_requests":null' in entry for entry in decided)


class BilledStore(MemoryStore):
    """Counts what is put."""

    puts = 0

    def put_if_absent(self, key: str, data: bytes) -> bool:
        self.puts += 1
        return super().put_if_absent(key, data)

    @property
    def requests_each(self) -> object:
        return None

    def requests_sent(self) -> Mapping[str, int]:
        return {"s3://bucket/ledger": self.puts}


def test_a_ledger_counts_if_its_store_does() -> None:
    ledger = LogLedger(BilledStore(), pipeline=PIPELINE)
    ledger.append(opened_entry(pipeline=PIPELINE))
    assert ledger.requests_sent() == {"s3://bucket/ledger": 1}
    assert LogLedger(MemoryStore(), pipeline=PIPELINE).requests_sent() == {}
    assert LogLedger(MemoryStore(), pipeline=PIPELINE).estimated_requests() == {}


# --- what it comes to

STORES = """\
pipeline: shop
home: ./state
sources: {orders: {format: rate}}
sinks: {lake: {type: parquet, accounts: {a: 's3://bucket/a', b: 'az://bucket@account/b', c: ./c}, route: {column: x}}}
"""
SHOP = PipelineName("shop")


def counted(entry: Entry, *, stage: int | None, publish_before: int | None) -> Entry:
    assert isinstance(entry.body, Decided)
    decision: Decision = replace(entry.body.decision, stage_requests=stage, previous_publish_requests=publish_before)
    return replace(entry, body=Decided(decision=decision))


def costs_of_pipeline(pipeline: Pipeline) -> Costs | None:
    return costs_of(pipeline.plan, interval_ms=pipeline.settings.trigger.processing_time)


def pipeline_in(directory: Path, *requests: tuple[int | None, int | None], more: str = "", text: str = STORES) -> Pipeline:
    """A pipeline whose ledger holds decisions with these requests: to stage, and to publish the one before."""
    (directory / "f.yaml").write_text(text + more)
    (directory / "state").mkdir()
    ledger = open_ledger(f"sqlite:///{directory}/state/ledger.db", pipeline=SHOP)
    entry = opened_entry(pipeline=SHOP)
    ledger.append(entry)
    for stage, publish_before in requests:
        entry = counted(decided_entry(after=entry), stage=stage, publish_before=publish_before)
        ledger.append(entry)
    ledger.close()
    return Pipeline.from_file(directory / "f.yaml")


def test_the_mean_of_the_newest_batches_that_know_both(tmp_path: Path) -> None:
    forgotten = [(0, None), *[(1_000, 1_000)] * 3]
    newest = [(4, 1_000), *[(4, 8)] * 17, (0, 14), (6, 11), (5, None), (7, 20)]
    every_ten = "trigger: {processing_time: 10s}\n"
    costs = costs_of_pipeline(pipeline_in(tmp_path, *forgotten, *newest, more=every_ten))
    assert costs is not None
    assert costs.measured_batches == 20
    assert costs.requests_per_batch == (17 * 12 + 4 + 14 + 0 + 11 + 5 + 20) / 20
    assert (costs.batches_per_day, costs.requests_per_day) == (8_640, round(8_640 * costs.requests_per_batch))


def test_before_any_batch_it_is_estimated_from_the_accounts(tmp_path: Path) -> None:
    costs = costs_of_pipeline(pipeline_in(tmp_path, more="trigger: {available_now: true}\n"))
    assert costs == Costs(
        requests_per_batch=8.0, measured_batches=0, estimated=RequestEstimate(small=8, uploaded=5 + 4), interval_ms=None
    )
    assert (costs.batches_per_day, costs.requests_per_day, costs.look_requests_per_day) == (None, None, 0)


def test_a_ledger_in_a_store_is_appended_to_and_looked_at() -> None:
    ledger = open_ledger("s3://bucket/ledger", pipeline=SHOP)
    assert isinstance(ledger, LogLedger)
    assert ledger.estimated_requests() == {"s3://bucket/ledger": RequestEstimate(small=2.125, uploaded=2.125, look=3)}
    costs = Costs(requests_per_batch=1, measured_batches=1, estimated=RequestEstimate(look=3), interval_ms=1_000)
    assert (costs.looks_per_day, costs.look_requests_per_day) == (5_760, 17_280)


def test_a_ledger_that_cannot_be_read_costs_the_measurement_only(tmp_path: Path) -> None:
    pipeline = pipeline_in(tmp_path, (1, 1), (1, 1))
    (tmp_path / "state" / "ledger.db").write_bytes(b"no database at all" * 100)
    costs = costs_of_pipeline(pipeline)
    assert costs is not None
    assert costs.measured_batches == 0


def test_directories_cost_nothing(tmp_path: Path) -> None:
    text = STORES.replace("s3://bucket/a", "./a").replace("az://bucket@account/b", "./b")
    assert costs_of_pipeline(pipeline_in(tmp_path, (None, None), text=text)) is None


def test_pieces_are_counted_by_the_way_they_went() -> None:
    first = opened_entry()
    small = decided_entry(after=first)
    large = decided_entry(after=small, inline=None)
    rows = list(history([large, small, first]))
    assert [row.pieces.get(SinkName("lake"), {}) for row in rows] == [
        {"EWR": PieceCounts(staged=1)},
        {"EWR": PieceCounts(in_decision=1)},
        {},
    ]
    assert PieceCounts(staged=1) + PieceCounts(in_decision=2, staged=3) == PieceCounts(in_decision=2, staged=4)


@pytest.mark.parametrize(
    ("page", "url", "small", "uploaded", "append"),
    [
        ("s3", "s3://bucket/x", 4, 5, "takes 2 for each batch and 1 for every eighth"),
        ("azure", "az://container@account/x", 4, 4, "takes 2 for each batch and 1 for every eighth"),
        ("gcs", "gs://bucket/x", 5, 5, "takes 2 for each batch and 1 for every eighth"),
        ("hdfs", "hdfs://namenode/x", 12, 12, "takes 6 for each batch and 5 for every eighth"),
    ],
)
def test_the_pages_tell_what_is_estimated(page: str, url: str, small: int, uploaded: int, append: str) -> None:
    text = " ".join((ROOT / "docs" / "howto" / f"{page}.md").read_text().split())
    account, ledger = object_account(url), open_ledger(url, pipeline=SHOP)
    assert isinstance(ledger, LogLedger)
    assert account.estimated_requests() == {url: RequestEstimate(small=small, uploaded=uploaded)}
    each = BlobLedgerStore(open_store(url)).requests_each
    appended = each.put + each.list
    assert ledger.estimated_requests() == {
        url: RequestEstimate(small=appended + each.put / 8, uploaded=appended + each.put / 8, look=2 * each.list + 1)
    }
    told = f"{small} requests for an account with one small file and {uploaded} for an account with one uploaded file"
    assert (told if page in {"s3", "azure"} else f"takes {small} requests for an account with one file:") in text
    assert append == f"takes {appended} for each batch and {each.put} for every eighth"
    assert append in text
    assert f"every {FENCE_LOOK_S:g} seconds, with {2 * each.list + 1} requests" in text
