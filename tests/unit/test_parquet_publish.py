"""Publishing: zombies, crashes between any two steps, markers, foreign files, and readers that look all the time."""

import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.unit.parquet_target import LEDGER_ID, PIPELINE, SINK, Target, decide, rows, stage

from penstock.core.faults import arm
from penstock.core.high_water_mark import MarkedFile
from penstock.core.model import AccountName, BatchId, Generation, Position, Publication, QueryId, SweepCut
from penstock.errors import ContentConflict, LedgerMismatch, PublishFailed, Retryable, StagedDataLost
from penstock.sink.parquet import ParquetSink, directory_account


@pytest.fixture(params=["rename", "link"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    return Target(tmp_path, "a", "b", partition_by=["place"], options={"publish_by": request.param})


def decided(sink: ParquetSink, start: int = 0, *, position: int = 2, batch_id: int = 0) -> Publication:
    staged = stage(sink, rows(start, start + 1, start + 2), routes=["a", "b", "a"], batch_id=batch_id)
    return decide(staged, position=position, batch_id=batch_id)


def markers(target: Target) -> list[str]:
    return sorted(path.name for path in target.directory.rglob("marker-*"))


def stalled(sink: ParquetSink, publication: Publication, point: str, meanwhile: Callable[[], object]) -> BaseException | None:
    """Publish, but stop at `point` until `meanwhile` is done, as a driver that was stopped and goes on."""
    reached, go_on = threading.Event(), threading.Event()

    class Stopped:
        def __init__(self, operation: Callable[..., object]) -> None:
            self.operation = operation

        def __call__(self, *arguments: object, **named: object) -> object:
            reached.set()
            go_on.wait()
            return self.operation(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as pool:
        module, _, name = point.rpartition(".")
        original = getattr(__import__(module, fromlist=["_"]), name)
        patch.setattr(point, Stopped(original))
        zombie = pool.submit(sink.publish, publication)
        zombie.add_done_callback(lambda _: reached.set())
        reached.wait()
        patch.setattr(point, original)
        try:
            meanwhile()
        finally:
            go_on.set()
        return zombie.exception()


def test_files_move_from_staging_into_the_table(target: Target) -> None:
    sink = target.sink()
    publication = decided(sink)
    inodes = Counter(path.stat().st_ino for path in target.staged())
    published = sink.publish(publication)
    assert not published.already
    assert published.totals == publication.totals
    assert Counter(path.stat().st_ino for path in target.files()) == inodes
    assert target.staged() == []
    assert [path.relative_to(target.root("a")).parts[0] for path in target.files()[:1]] == ["place=here"]
    assert markers(target) == ["marker-00000000000000000002.json"] * 2


def test_a_marker_rises_and_those_of_long_ago_go(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.sink.parquet.directory.marker.KEPT_MARKS", 2)
    sink = target.sink()
    for position, batch_id in ((2, 0), (3, 1), (7, 2)):
        sink.publish(decided(sink, batch_id * 10, position=position, batch_id=batch_id))
    assert markers(target) == ["marker-00000000000000000003.json"] * 2 + ["marker-00000000000000000007.json"] * 2
    for account in ("a", "b"):
        mark = sink.high_water_mark(AccountName(account), pipeline=PIPELINE)
        assert mark is not None
        assert mark.position == 7


def test_a_mark_is_the_manifest_of_its_publication(target: Target) -> None:
    sink = target.sink()
    publications = [decided(sink, number * 10, position=number + 2, batch_id=number) for number in range(3)]
    for publication in publications:
        sink.publish(publication)
    for account in ("a", "b"):
        area = directory_account(target.root(account)).area(pipeline=PIPELINE, sink=SINK, account=AccountName(account))
        assert [marker.position for marker in area.manifests()] == [2, 3, 4]
        for publication in publications:
            marker = area.marker_of(publication.position)
            assert marker is not None
            assert marker.files == tuple(
                MarkedFile(name=piece.name, rows=piece.totals.rows, size_bytes=piece.totals.size_bytes)
                for piece in publication.staged
                if piece.account == account
            )


def test_an_account_without_rows_is_not_touched(target: Target) -> None:
    sink = target.sink()
    sink.publish(decide(stage(sink, rows(1), routes=["a"])))
    assert len(markers(target)) == 1
    assert not sink.publish(decide([], position=3, batch_id=1)).already


LOOKING = "penstock.sink.parquet.directory.area.state_of"
RENAMING = "penstock.sink.parquet.directory.rename.rename_or_refuse"
LINKING = "os.link"
MARKING = "penstock.sink.parquet.directory.marker.encode_marker"


@pytest.mark.parametrize(
    ("publish_by", "point"), [("rename", LOOKING), ("rename", RENAMING), ("link", LOOKING), ("link", LINKING)]
)
def test_a_zombie_resurrects_nothing_that_maintenance_removed(tmp_path: Path, publish_by: str, point: str) -> None:
    """It stops before it moves; meanwhile another driver publishes and maintenance removes the files."""
    target = Target(tmp_path, "a", "b", options={"publish_by": publish_by})
    zombie, driver = target.sink(), target.sink()
    publication = decided(zombie)

    def meanwhile() -> None:
        driver.publish(publication)
        for path in target.files():
            path.unlink()

    assert stalled(zombie, publication, point, meanwhile) is None
    assert target.files() == []


def test_a_zombie_resurrects_nothing_though_the_driver_died_before_it_tidied_up(target: Target) -> None:
    """The mark is written, lower marks and staged names may still be there, and maintenance has removed the files."""
    zombie, driver = target.sink(), target.sink()
    publication = decided(zombie)

    def meanwhile() -> None:
        arm("parquet.marker.seal=error")
        try:
            with pytest.raises(PublishFailed):
                driver.publish(publication)
        finally:
            arm("")
        target.sink().publish(publication)
        for path in target.files():
            path.unlink()

    assert stalled(zombie, publication, LOOKING, meanwhile) is None
    assert target.files() == []


def test_a_zombie_does_not_lower_the_mark(target: Target) -> None:
    zombie, driver = target.sink(), target.sink()
    first = decided(zombie)
    newer: list[Publication] = []

    def meanwhile() -> None:
        driver.publish(first)
        newer.append(decided(driver, 10, position=3, batch_id=1))
        driver.publish(newer[0])

    assert stalled(zombie, first, MARKING, meanwhile) is None
    assert "marker-00000000000000000003.json" in markers(target)
    for path in target.files():
        path.unlink()
    assert driver.publish(newer[0]).already
    assert target.files() == []


def test_a_crash_after_any_number_of_moves_is_rolled_forward(target: Target) -> None:
    sink = target.sink()
    publication = decided(sink)
    everything = target.content()
    for moved in range(len(publication.staged) + 1):
        half = replace(publication, staged=publication.staged[:moved])
        for piece in half.staged:
            area = dict(sink._areas(PIPELINE))[piece.account]
            assert area.show([piece]) == []
        fresh = target.sink()
        assert not fresh.publish(publication).already
        everything = target.content()
        assert fresh.publish(publication).already
        assert target.content() == everything
        assert everything == Counter({"{'id': 0, 'day': None}": 1, "{'id': 1, 'day': None}": 1, "{'id': 2, 'day': None}": 1})
        shutil.rmtree(target.directory)
        sink = target.sink()
        publication = decided(sink)


def test_lost_staging_shows_nothing_of_the_batch_in_any_account(target: Target) -> None:
    sink = target.sink()
    publication = decided(sink)
    target.staged()[-1].unlink()
    with pytest.raises(StagedDataLost, match="Batch 0 is decided, but 1 of its files for account 'b'"):
        sink.publish(publication)
    assert target.files() == []
    assert markers(target) == []


def test_another_ledger_is_not_taken_for_this_one(target: Target) -> None:
    sink = target.sink()
    sink.publish(decided(sink, position=9, batch_id=4))
    with pytest.raises(LedgerMismatch, match="marker stands at position 9"):
        sink.publish(decided(sink, 100, position=3, batch_id=0))
    same_place = decided(sink, 100, position=9, batch_id=4)
    other_query = replace(same_place, batch=replace(same_place.batch, query_id=QueryId("another")), staged=())
    assert not sink.publish(other_query).already
    with pytest.raises(LedgerMismatch):
        sink.publish(replace(other_query, staged=same_place.staged))


def test_a_foreign_file_under_a_decided_name_is_told_and_left_alone(target: Target) -> None:
    sink = target.sink()
    publication = decided(sink)
    piece = publication.staged[0]
    path = target.root(piece.account) / piece.name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x" * piece.totals.size_bytes)
    with pytest.raises(ContentConflict, match="are not the"):
        sink.publish(publication)
    assert path.read_bytes() == b"x" * piece.totals.size_bytes


@pytest.mark.parametrize(("publish_by", "point"), [("rename", RENAMING), ("link", LINKING)])
def test_a_foreign_file_that_comes_in_the_last_moment_is_not_replaced(tmp_path: Path, publish_by: str, point: str) -> None:
    target = Target(tmp_path, options={"publish_by": publish_by})
    sink = target.sink()
    publication = decide(stage(sink, rows(1, 2, 3)))
    path = target.root() / publication.staged[0].name
    stopped = stalled(sink, publication, point, lambda: path.write_bytes(b"foreign"))
    assert isinstance(stopped, ContentConflict)
    assert path.read_bytes() == b"foreign"
    assert len(target.staged()) == 1


def test_a_table_that_was_copied_back_with_its_staging_is_recognised(target: Target) -> None:
    """The same bytes under both names, but two files: a backup does not keep inodes."""
    sink = target.sink()
    publication = decided(sink)
    for piece in publication.staged:
        path = target.root(piece.account) / piece.name
        path.parent.mkdir(parents=True, exist_ok=True)
        (staged,) = [one for one in target.staged() if one.name.startswith(Path(piece.name).name)]
        shutil.copy(staged, path)
    sink.publish(publication)
    assert sum(target.content().values()) == 3
    assert target.staged() == []


def test_a_link_that_was_made_and_not_tidied_up_is_recognised(target: Target) -> None:
    sink = target.sink()
    publication = decided(sink)
    piece = publication.staged[0]
    path = target.root(piece.account) / piece.name
    path.parent.mkdir(parents=True)
    (staged,) = [one for one in target.staged() if one.name.startswith(path.name)]
    os.link(staged, path)
    sink.publish(publication)
    assert sum(target.content().values()) == 3
    assert target.staged() == []


def test_a_torn_mark_counts_for_nothing_and_is_swept(target: Target) -> None:
    sink = target.sink()
    publication = decided(sink)
    area = next(target.directory.rglob("pieces")).parent
    torn = area / "marker-00000000000000000002.json.0123456789abcdef"
    torn.write_bytes(b'{"format')
    cut = SweepCut(pipeline=PIPELINE, ledger_id=LEDGER_ID, generation=Generation(1), batch_id=BatchId(0), kept=frozenset())
    assert str(torn) not in sink.sweep(replace(cut, batch_id=None), dry_run=False)
    assert not sink.publish(publication).already
    assert sink.sweep(cut, dry_run=False) == [str(torn)]
    assert not torn.exists()


def test_a_damaged_mark_is_told(target: Target) -> None:
    sink = target.sink()
    publication = decided(sink)
    sink.publish(publication)
    for path in target.directory.rglob("marker-*"):
        path.write_bytes(b"{}")
    with pytest.raises(LedgerMismatch, match=r"The marker .* is damaged"):
        sink.publish(publication)


@pytest.mark.parametrize(
    "point",
    [
        "publish.directory",
        "publish.sync",
        "marker.read",
        "marker.write",
        "marker.sync",
        "marker.place",
        "marker.seal",
        "marker.forget",
    ],
)
@pytest.mark.parametrize("kind", ["error", "lost"])
def test_a_broken_disk_is_told_and_the_next_try_finishes(target: Target, point: str, kind: str) -> None:
    sink = target.sink()
    sink.publish(decided(sink))
    publication = decided(sink, 10, position=3, batch_id=1)
    arm(f"parquet.{point}={kind}")
    try:
        with pytest.raises(PublishFailed, match="the disk reports an input/output error"):
            sink.publish(publication)
    finally:
        arm("")
    target.sink().publish(publication)
    assert sum(target.content().values()) == 6
    assert target.sink().publish(publication).already


@pytest.mark.parametrize(("publish_by", "point"), [("rename", RENAMING), ("link", LINKING)])
def test_a_partition_directory_that_vanishes_meanwhile_is_made_again(tmp_path: Path, publish_by: str, point: str) -> None:
    target = Target(tmp_path, partition_by=["place"], options={"publish_by": publish_by})
    sink = target.sink()
    publication = decide(stage(sink, rows(1, 2, 3)))
    assert isinstance(stalled(sink, publication, point, (target.root() / "place=here").rmdir), Retryable)
    assert markers(target) == []
    assert not sink.publish(publication).already
    assert sum(target.content().values()) == 3


def test_a_file_that_was_cut_off_before_the_mark_came_is_told(target: Target) -> None:
    sink = target.sink()
    publication = decided(sink)
    piece = publication.staged[0]
    area = dict(sink._areas(PIPELINE))[piece.account]
    assert area.show([piece]) == []
    os.truncate(target.root(piece.account) / piece.name, 10)
    with pytest.raises(ContentConflict, match="holds 10 bytes that are not the"):
        sink.publish(publication)


def test_a_reader_that_only_lists_sees_whole_files_of_decided_batches(target: Target) -> None:
    sink, stop = target.sink(), threading.Event()
    sizes: dict[str, int] = {}
    seen: list[dict[str, int]] = []

    def look() -> None:
        while not stop.is_set():
            found: dict[str, int] = {}
            for path in target.files():
                found[path.name] = pq.ParquetFile(path).metadata.num_rows
            seen.append(found)

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(look)
        for batch_id in range(30):
            stage(sink, rows(5000 + batch_id), routes=["a"], batch_id=batch_id)
            publication = decided(sink, batch_id * 10, position=batch_id + 2, batch_id=batch_id)
            sizes |= {Path(piece.name).name: piece.totals.rows for piece in publication.staged}
            sink.publish(publication)
        stop.set()
        reader.result()
    assert len(sizes) == 60
    before: dict[str, int] = {}
    for found in seen:
        assert found.items() <= sizes.items()
        assert before.keys() <= found.keys()
        before = found


def test_many_files_at_once(tmp_path: Path) -> None:
    target = Target(tmp_path, partition_by=["place"])
    sink = target.sink()
    staged = [piece for number in range(60) for piece in stage(sink, rows(number, place=f"p{number}"))]
    publication = decide(staged)
    assert sink.publish(publication).totals.files == 60
    assert sum(target.content().values()) == 60


def test_an_account_that_was_taken_out_is_asked_for(target: Target) -> None:
    sink = target.sink()
    publication = decided(sink)
    strange = replace(publication, staged=(replace(publication.staged[0], account=AccountName("gone")),))
    with pytest.raises(LedgerMismatch, match="holds rows for account 'gone'"):
        sink.publish(strange)


def test_positions_compare_as_numbers(target: Target) -> None:
    sink = target.sink()
    sink.publish(decided(sink, position=9))
    far = decided(sink, 10, position=Position(10**19), batch_id=1)
    sink.publish(far)
    assert sink.publish(far).already
