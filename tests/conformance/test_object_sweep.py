"""What a sweep takes of an account in a store, and what it leaves to whom it belongs to, on real servers."""

from collections.abc import Sequence

import pytest
from tests.servers.fixtures import accounts_on
from tests.servers.server import Place

from penstock.blob import open_store
from penstock.core.model import AccountName, Attempt, BatchId, Generation, PipelineName, SinkName, SweepCut, new_nonce
from penstock.ledger.store import BlobLedgerStore
from penstock.sink.parquet import object_account
from penstock.sink.parquet.account import Allowance
from penstock.sink.parquet.layout import file_name, owner_of
from penstock.sink.parquet.object.area import ObjectArea
from penstock.testing.conformance.rig import LEDGER_ID

ENDED_BY_US = ("gs", "hdfs", "s3")
SINK, FLIGHTS, SHOPS = SinkName("lake"), PipelineName("flights"), PipelineName("shops")


def area_of(place: Place, pipeline: PipelineName, *, below: str = "") -> ObjectArea:
    account = object_account(place.url + below, options=place.options)
    return account.area(pipeline=pipeline, sink=SINK, account=AccountName("only"))


def upload(
    area: ObjectArea,
    pipeline: PipelineName,
    *,
    generation: int = 1,
    batch_id: int = 0,
    task: int = 0,
    directories: str = "month=3",
) -> tuple[str, str]:
    """The key and the upload of a file that a task has sent, parts and all."""
    attempt = Attempt(
        generation=Generation(generation), batch_id=BatchId(batch_id), partition=0, task_attempt=task, nonce=new_nonce()
    )
    owner = owner_of(pipeline, SINK)
    key = file_name(attempt, number=0, owner=owner, compression="none", directories=directories)
    file = area.prepare().open(key, allowance=Allowance(0))
    file.write(b"rows")
    return key, str(file.finish().ref["upload"])


def cut(pipeline: PipelineName, *, generation: int, batch_id: int | None = None, kept: Sequence[str] = ()) -> SweepCut:
    decided = None if batch_id is None else BatchId(batch_id)
    return SweepCut(
        pipeline=pipeline, ledger_id=LEDGER_ID, generation=Generation(generation), batch_id=decided, kept=frozenset(kept)
    )


@pytest.mark.parametrize("kind", ENDED_BY_US)
@pytest.mark.parametrize("below", ["", "/other"])
def test_what_another_pipeline_has_under_way_is_none_of_our_business(kind: str, below: str) -> None:
    """Its generation 1 may be running while ours is the ninth."""
    (place, _) = accounts_on(shared=kind)["shared"]
    ours, theirs = area_of(place, FLIGHTS), area_of(place, SHOPS, below=below)
    dead, decided = upload(ours, FLIGHTS), upload(theirs, SHOPS)
    (swept,) = ours.sweep(cut(FLIGHTS, generation=9), dry_run=False)
    assert swept.endswith(dead[0])
    assert not ours.store.is_pending(*dead)
    assert theirs.store.is_pending(*decided)


def test_a_ledger_leaves_uploads_below_it_alone() -> None:
    """On S3 every upload below its root is listed, whoever began it."""
    (place, _) = accounts_on(ledger="s3")["ledger"]
    ledger = BlobLedgerStore(open_store(place.url.rpartition("/")[0], options=place.options))
    table, backup = area_of(place, FLIGHTS), open_store(place.url, options=place.options)
    decided, foreign = upload(table, FLIGHTS), backup.begin("backup.tar", tag="")
    ledger.sweep()
    assert table.store.is_pending(*decided)
    assert backup.is_pending("backup.tar", foreign)


def test_a_ledger_collects_what_it_wrote_aside_itself() -> None:
    """On HDFS, where an entry is written beside the ledger and renamed."""
    (place, _) = accounts_on(ledger="hdfs")["ledger"]
    store = open_store(place.url, options=place.options)
    for key in ("entries/000000000/000000000001", "floor/000000000001", "prove/1/key", "hint"):
        store.put_part(key, store.begin(key, tag=""), 0, b"{}")
    assert len(list(store.pending(""))) == 4
    BlobLedgerStore(store).sweep()
    assert list(store.pending("")) == []


@pytest.mark.parametrize("kind", ENDED_BY_US)
def test_what_a_fenced_run_sends_late_is_collected_by_the_next_sweep(kind: str) -> None:
    """Also a part that arrives after its upload was ended."""
    (place, _) = accounts_on(late=kind)["late"]
    area = area_of(place, FLIGHTS)
    early = upload(area, FLIGHTS, generation=1)
    assert len(area.sweep(cut(FLIGHTS, generation=2), dry_run=False)) == 1
    late = upload(area, FLIGHTS, generation=1)
    if kind == "gs":  # parts are objects: this one comes to life again
        area.store.put_part(*early, 0, b"rows")
    live = upload(area, FLIGHTS, generation=3)
    assert len(area.sweep(cut(FLIGHTS, generation=3), dry_run=False)) == (2 if kind == "gs" else 1)
    assert not area.store.is_pending(*late)
    assert not area.store.is_pending(*early)
    assert area.store.is_pending(*live)


@pytest.mark.parametrize("kind", ENDED_BY_US)
def test_of_a_batch_in_the_making_every_attempt_is_kept_and_of_a_decided_one_just_what_it_names(kind: str) -> None:
    """Retries, speculative tasks and an attempt that failed are of the same generation and batch as the one that counts."""
    (place, _) = accounts_on(retried=kind)["retried"]
    area = area_of(place, FLIGHTS)
    tries = [upload(area, FLIGHTS, batch_id=7, task=task) for task in range(3)]
    following = upload(area, FLIGHTS, batch_id=8)
    assert area.sweep(cut(FLIGHTS, generation=1, batch_id=6), dry_run=False) == []
    chosen = Attempt.find(tries[1][0])
    assert chosen is not None
    assert len(area.sweep(cut(FLIGHTS, generation=1, batch_id=7, kept=[chosen.token]), dry_run=False)) == 2
    assert [area.store.is_pending(*one) for one in (*tries, following)] == [False, True, False, True]


@pytest.mark.parametrize("kind", ENDED_BY_US)
def test_a_partition_value_that_reads_like_a_dead_attempt_condemns_nothing(kind: str) -> None:
    """Values come from the data: a batch in the making must not be swept for what its rows say."""
    (place, _) = accounts_on(hostile=kind)["hostile"]
    area = area_of(place, FLIGHTS)
    live = upload(area, FLIGHTS, generation=9, directories=f"month=part-g1-b0-p0-t0-{new_nonce()}")
    assert area.sweep(cut(FLIGHTS, generation=9), dry_run=False) == []
    assert area.store.is_pending(*live)
    (waiting,) = area.waiting()
    assert waiting.attempt is not None
    assert waiting.attempt.generation == 9
