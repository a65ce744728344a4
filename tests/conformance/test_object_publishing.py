"""Publishing into stores, step by step: late drivers, foreign objects, lost uploads, and what may travel in a decision."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest
from tests.servers.fixtures import accounts_on
from tests.servers.proxy import before
from tests.servers.server import Outside, Place
from tests.unit.parquet_target import PIPELINE, SCHEMA, SINK, attempt, decide, expected, rows, stage

from penstock.blob import open_store
from penstock.core.faults import arm
from penstock.core.model import AccountName, Position, Publication
from penstock.core.taken_back import TakenBack
from penstock.errors import ContentConflict, LedgerMismatch, Refused, Retryable, StagedDataLost
from penstock.sink.parquet import ParquetSink, object_account
from penstock.sink.parquet.object.upload import tag_of
from penstock.testing.conformance.bench import DecidedBatches

KINDS = ("az", "gs", "hdfs", "s3")
DATING = ("az", "s3")
ONLY = AccountName("only")

Account = tuple[Place, Outside]


@pytest.fixture
def account(request: pytest.FixtureRequest) -> Account:
    """Empty, on a store of the kind that is asked for."""
    return accounts_on(only=request.param)["only"]


def sink_of(account: Account, *, inline_limit_bytes: int = 0) -> ParquetSink:
    place, _ = account
    accounts = {ONLY: object_account(place.url, options=place.options)}
    sink = ParquetSink(name=SINK, pipeline=PIPELINE, accounts=accounts, inline_limit_bytes=inline_limit_bytes)
    sink.prepare(pipeline=PIPELINE, schema=SCHEMA)
    return sink


def decided(sink: ParquetSink, *, position: int = 2, batch_id: int = 0) -> Publication:
    return decide(stage(sink, rows(batch_id), batch_id=batch_id), position=position, batch_id=batch_id)


def shown(account: Account) -> list[str]:
    return [name for name in account[1].listing() if not name.startswith("_penstock/")]


def settled(account: Account, *, inline_limit_bytes: int = 0) -> ParquetSink:
    """A sink that has just published a batch, so that it looks at nothing before it publishes the next one."""
    sink = sink_of(account, inline_limit_bytes=inline_limit_bytes)
    assert not sink.publish(decided(sink)).already
    return sink


def removed(account: Account) -> None:
    for name in shown(account):
        account[1].delete(name)


@pytest.mark.parametrize("account", KINDS, indirect=True)
def test_a_driver_that_comes_late_completes_nothing_that_maintenance_removed(account: Account) -> None:
    late = settled(account)
    publication = decided(late, position=3, batch_id=1)
    assert not sink_of(account).publish(publication).already
    removed(account)
    late.publish(publication)
    assert shown(account) == []


@pytest.mark.parametrize("account", DATING, indirect=True)
def test_a_driver_that_stood_still_puts_nothing_that_maintenance_removed(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has looked at the mark already."""
    place, _ = account
    late = settled(account, inline_limit_bytes=100_000)
    publication = decided(late, position=3, batch_id=1)
    area = object_account(place.url, options=place.options).area(pipeline=PIPELINE, sink=SINK, account=ONLY)
    area.marker()
    assert not sink_of(account).publish(publication).already
    removed(account)
    monkeypatch.setattr("penstock.sink.parquet.object.area.LOOKED_FOR_S", -1.0)
    with pytest.raises(Retryable, match="Another driver published"):
        area.show(publication.staged)
    assert shown(account) == []
    assert late.publish(publication).already
    assert shown(account) == []


@pytest.mark.parametrize("account", ["gs", "hdfs"], indirect=True)
def test_nothing_travels_in_a_decision_where_a_put_is_taken_however_late(account: Account) -> None:
    sink = sink_of(account, inline_limit_bytes=100_000)
    assert [piece.inline for piece in decided(sink).staged] == [None]


@pytest.mark.parametrize("account", DATING, indirect=True)
def test_small_files_travel_in_a_decision_up_to_the_limit(account: Account) -> None:
    assert [piece.inline is None for piece in decided(sink_of(account, inline_limit_bytes=100_000)).staged] == [False]
    assert [piece.inline is None for piece in decided(sink_of(account, inline_limit_bytes=100)).staged] == [True]


@pytest.mark.parametrize("account", DATING, indirect=True)
def test_small_files_of_several_tasks_are_one_object_which_is_verified(account: Account) -> None:
    sink = sink_of(account, inline_limit_bytes=100_000)
    pieces = [piece for task in range(3) for piece in stage(sink, rows(task, task + 10), batch_id=0)]
    stager = sink.stager()
    before = stager.requests_sent()
    publication = decide(stager.combine(pieces, attempt()))
    assert stager.requests_sent() == before
    assert not sink.publish(publication).already
    assert sink.publish(publication).already
    [name] = shown(account)
    assert pq.ParquetFile(io.BytesIO(account[1].get(name))).read()["id"].to_pylist() == [0, 10, 1, 11, 2, 12]
    report = sink.verify(DecidedBatches([publication], totals=expected(publication)))
    assert report.ok, report.problems
    assert not report.unread


@pytest.mark.parametrize("account", KINDS, indirect=True)
@pytest.mark.parametrize("lost_before_the_start", [True, False])
def test_a_lost_upload_is_told_and_marks_nothing(account: Account, *, lost_before_the_start: bool) -> None:
    sink = settled(account)
    before = shown(account)
    publication = decided(sink, position=3, batch_id=1)
    account[1].lose_uploads()
    with pytest.raises(StagedDataLost, match="Batch 1 is decided, but 1 of its files for account 'only'"):
        (sink_of(account) if lost_before_the_start else sink).publish(publication)
    assert shown(account) == before
    area = object_account(account[0].url, options=account[0].options).area(pipeline=PIPELINE, sink=SINK, account=ONLY)
    marker = area.marker()
    assert marker is not None
    assert marker.position == 2


@pytest.mark.parametrize("account", KINDS, indirect=True)
@pytest.mark.parametrize("inline_limit_bytes", [0, 100_000])
def test_a_foreign_object_under_a_decided_name_is_told(account: Account, inline_limit_bytes: int) -> None:
    """Where the store itself refuses to replace it is left alone; a completion replaces what nobody else ever has a right to."""
    sink = sink_of(account, inline_limit_bytes=inline_limit_bytes)
    publication = decided(sink)
    (piece,) = publication.staged
    account[1].put(piece.name, b"x" * piece.totals.size_bytes)
    with pytest.raises(ContentConflict, match="bytes tagged"):
        sink.publish(publication)
    assert account[1].get(piece.name) == b"x" * piece.totals.size_bytes


@pytest.mark.parametrize("account", KINDS, indirect=True)
def test_another_ledger_is_not_taken_for_this_one(account: Account) -> None:
    sink = sink_of(account)
    sink.publish(decided(sink, position=9, batch_id=4))
    with pytest.raises(LedgerMismatch, match="marker stands at position 9"):
        sink_of(account).publish(decided(sink, position=3, batch_id=0))


@pytest.mark.parametrize("account", DATING, indirect=True)
def test_what_travels_in_the_decision_of_another_ledger_is_not_taken_for_published(account: Account) -> None:
    """At a position of which the account keeps no mark, since nothing was published there or it was long ago."""
    sink = sink_of(account, inline_limit_bytes=100_000)
    sink.publish(decided(sink, position=3))
    publication = decided(sink)
    with pytest.raises(LedgerMismatch, match="marker stands at position 3"):
        sink_of(account).publish(publication)


@pytest.mark.parametrize("account", DATING, indirect=True)
def test_what_travels_for_one_account_is_not_taken_for_published_in_another(account: Account) -> None:
    """Accounts that changed places while their first batch was published in one of them only."""
    place, _ = account
    publication = decided(sink_of(account, inline_limit_bytes=100_000))
    other = AccountName("other")
    swapped = ParquetSink(name=SINK, pipeline=PIPELINE, accounts={other: object_account(place.url, options=place.options)})
    sink_of(account).publish(publication)
    theirs = replace(publication, staged=tuple(replace(piece, account=other) for piece in publication.staged))
    with pytest.raises(Refused, match=r"belongs to account .*, expected account 'other'"):
        swapped.publish(theirs)


@pytest.mark.parametrize("account", DATING, indirect=True)
def test_a_client_puts_nothing_a_second_time_without_a_look_at_the_mark(account: Account) -> None:
    """It may have stood still in its first request, which the store would refuse for its age, and not the next one."""
    place, outside = account
    publication = decided(sink_of(account, inline_limit_bytes=100_000), position=3, batch_id=1)

    def overtaken(method: str, path: str) -> bool:
        if method != "PUT" or "/part-" not in path:
            return False
        assert not sink_of(account).publish(publication).already
        removed(account)
        return True

    with before(place.options["endpoint"]) as proxy:
        path = urlsplit(place.options["endpoint"]).path
        late = sink_of((replace(place, options={**place.options, "endpoint": proxy.endpoint + path}), outside))
        proxy.arm("reset", overtaken, times=1)
        with pytest.raises(Retryable):
            late.publish(publication)
        assert proxy.hits == 1
        assert late.publish(publication).already
    assert shown(account) == []


@pytest.mark.parametrize("account", ["hdfs"], indirect=True)
def test_no_file_appears_without_its_tag(account: Account) -> None:
    """It would be taken for a foreign one for ever, and the decided batch could not be published any more."""
    place, outside = account
    with before(place.options["webhdfs"]) as proxy:
        sink = sink_of((replace(place, options={**place.options, "webhdfs": proxy.endpoint}), outside))
        publication = decided(sink)
        proxy.arm("slow down", lambda _, path: "op=SETXATTR" in path and "/part-" in path, times=1)
        with pytest.raises(Retryable):
            sink.publish(publication)
        assert proxy.hits == 1
        assert shown(account) == []
        assert not sink.publish(publication).already
    assert shown(account) == [piece.name for piece in publication.staged]


@pytest.mark.parametrize("account", KINDS, indirect=True)
def test_a_late_mark_lowers_nothing(account: Account) -> None:
    sink = sink_of(account)
    older, newer = decided(sink), decided(sink, position=3, batch_id=1)
    sink.publish(older)
    sink.publish(newer)
    late = dict(sink_of(account)._areas(PIPELINE))[ONLY]
    mark = late.marker_of(older.position)
    assert mark is not None
    late.advance(mark)
    removed(account)
    assert sink_of(account).publish(newer).already
    assert shown(account) == []


@pytest.mark.parametrize("account", KINDS, indirect=True)
@pytest.mark.parametrize("inline_limit_bytes", [0, 100_000])
def test_a_batch_is_taken_back_and_nobody_brings_it_again(account: Account, inline_limit_bytes: int) -> None:
    sink = settled(account, inline_limit_bytes=inline_limit_bytes)
    before = shown(account)
    late = sink_of(account, inline_limit_bytes=inline_limit_bytes)
    publication = decided(sink, position=3, batch_id=1)
    assert not sink.publish(publication).already
    taken = taken_back(publication)
    sink.require_taken_back_exactly(taken)
    (own,) = set(shown(account)) - set(before)
    with without(account, own), pytest.raises(Refused, match=r"1 of 1 files to take back are not in account 'only'"):
        sink.require_taken_back_exactly(taken)
    arm("rewind.object_delete=error")
    with pytest.raises(Retryable):
        sink.take_back(taken)
    arm("")
    for _ in range(2):
        sink.take_back(taken)
        assert shown(account) == before
    assert late.publish(publication).already
    assert shown(account) == before


def taken_back(publication: Publication) -> TakenBack:
    return TakenBack(
        pipeline=PIPELINE,
        sink=SINK,
        ledger_id=publication.ledger_id,
        generation=publication.generation,
        after=Position(publication.position - 1),
        position=Position(publication.position + 1),
        publications=(publication,),
    )


@contextmanager
def without(account: Account, name: str) -> Iterator[None]:
    """Without that object."""
    data, outside = account[1].get(name), account[1]
    outside.delete(name)
    try:
        yield
    finally:
        place = object_account(account[0].url, options=account[0].options)
        open_store(place.url, options=account[0].options).put(name, data, tag=tag_of(name))
