"""An account belongs to one ledger, and to one account of one sink of one pipeline, whoever comes first."""

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Thread

import pytest
from tests.servers.fixtures import accounts_on
from tests.servers.server import Place
from tests.unit.lake import Lake
from tests.unit.parquet_target import QUERY, SCHEMA

from penstock.blob import open_store
from penstock.commit.coordinator import Coordinator
from penstock.core import faults
from penstock.core.high_water_mark import AccountOwner
from penstock.core.model import AccountName, LedgerId, PipelineName, SinkName
from penstock.errors import LedgerMismatch, PenstockError, Refused
from penstock.run.assembly import assemble
from penstock.run.operations import recover, sweep, verify
from penstock.run.runtime import Runtime, coordinator_of, opened_by_this_process, prepare
from penstock.sink.parquet.directory import directory_account, marker

A, B = "sqlite:///a.db", "sqlite:///b.db"


def in_stores() -> "dict[str, Place]":
    return dict(zip("ab", (place for place, _ in accounts_on(first="gs", second="gs").values()), strict=True))


@pytest.fixture(params=["directories", "gs"])
def places(request: pytest.FixtureRequest) -> "dict[str, Place] | None":
    return None if request.param == "directories" else in_stores()


@contextmanager
def opened(lake: Lake) -> Iterator[tuple[Runtime, Coordinator]]:
    """A driver that has nothing to deliver yet."""
    with closing(assemble(lake.pipeline.plan)) as parts:
        prepare(parts, schema=SCHEMA)
        coordinator = coordinator_of(parts)
        coordinator.open(opened_by_this_process(parts))
        yield parts, coordinator


def shown(lake: Lake) -> list[int]:
    return sorted(row["id"] for row in lake.pipeline.read().arrow().to_pylist())


def test_of_two_homes_that_start_at_the_same_moment_one_delivers(tmp_path: Path, places: "dict[str, Place] | None") -> None:
    """Both are prepared and fenced; batch 0 is the same for both."""
    first, second = (Lake(tmp_path / "shop", ledger=ledger, places=places) for ledger in (A, B))
    with opened(first) as (parts, coordinator), opened(second) as (others, other):
        first.deliver(parts, coordinator, 0, query=QUERY)
        with pytest.raises(LedgerMismatch, match=r"is filled by ledger \w{32} of pipeline 'shop', but this is ledger \w{32}"):
            second.deliver(others, other, 0, query=QUERY)
    assert verify(first.pipeline.plan).ok
    with pytest.raises(LedgerMismatch, match=r"shows what ledger \w{32} decided"):
        recover(second.pipeline.plan)
    first.run([1])
    assert shown(first) == first.ids(2)


def test_a_home_that_had_nothing_to_deliver_keeps_nobody_out(tmp_path: Path) -> None:
    first, second = (Lake(tmp_path / "shop", ledger=ledger) for ledger in (A, B))
    for _ in range(3):
        second.run([])
    first.run([0])
    with pytest.raises(LedgerMismatch):
        second.run([0])
    assert shown(first) == first.ids(1)


def test_another_ledger_sweeps_nothing_of_an_account(tmp_path: Path, places: "dict[str, Place] | None") -> None:
    """Its generations say nothing of what is staged there: by its own count all of it is dead."""
    first, second = (Lake(tmp_path / "shop", ledger=ledger, places=places) for ledger in (A, B))
    for _ in range(3):
        second.run([])
    with opened(first) as (parts, coordinator), pytest.MonkeyPatch.context() as died:
        died.setattr(type(parts.sinks[0]), "publish", publishing_stops)
        with pytest.raises(PenstockError, match="stopped"):
            first.deliver(parts, coordinator, 0, query=QUERY)
    assert sweep(second.pipeline.plan, dry_run=True) == []
    assert sweep(second.pipeline.plan, dry_run=False) == []
    second.run([])
    assert recover(first.pipeline.plan).rolled_forward
    assert shown(first) == first.ids(1)


def publishing_stops(*_: object) -> None:
    raise LedgerMismatch("It stopped.", remedy="None.")


@pytest.mark.parametrize("kept", ["whose it is is noted", "an older Penstock noted nothing"])
@pytest.mark.parametrize(("text", "instead"), [("pipeline: shop", "pipeline: store"), ("  lake: ", "  pond: ")])
def test_a_place_that_another_sink_or_pipeline_filled_is_refused(tmp_path: Path, text: str, instead: str, kept: str) -> None:
    """The same rows under another name would be there twice, and neither could be proved."""
    lake = Lake(tmp_path / "shop")
    lake.run([0])
    before = lake.listed("a") + lake.listed("b")
    if kept == "an older Penstock noted nothing":
        for path in (tmp_path / "shop").rglob(".owner.json"):
            path.unlink()
    other = Lake(tmp_path / "shop", ledger=B)
    other.replace(text, instead)
    with pytest.raises(Refused, match=r"belongs to account 'a' of sink 'lake' of pipeline 'shop'|which another sink or pipeline"):
        other.run([0])
    assert lake.listed("a") + lake.listed("b") == before
    lake.run([1])
    assert shown(lake) == lake.ids(2)


def test_an_account_within_that_of_another_sink_is_refused(tmp_path: Path) -> None:
    """Its files would be among the other one's, whose every start would be refused then."""
    lake = Lake(tmp_path / "shop", ledger=A)
    lake.run([0])
    (tmp_path / "shop" / "link").symlink_to(tmp_path / "shop" / "a")
    for inner in ("./a/in", "./a/deep/in", "./link/in"):
        other = Lake(tmp_path / "shop", ledger=B)
        other.replace("  lake: ", "  pond: ")
        other.replace('"a": "./a", "b": "./b"', f'"a": "{inner}", "b": "./elsewhere"')
        with pytest.raises(Refused, match=r"in lies within file://\S*/shop/a, which belongs to account 'a' of sink 'lake'"):
            other.run([0])
    lake = Lake(tmp_path / "shop", ledger=A)
    lake.run([1])
    assert shown(lake) == lake.ids(2)
    assert verify(lake.pipeline.plan).ok


def test_an_account_within_one_that_is_named_by_a_link_is_refused(tmp_path: Path) -> None:
    """Whose that one is, is noted beside the link, not beside the directory that it leads to."""
    lake = Lake(tmp_path / "shop", ledger=A)
    (tmp_path / "disk").mkdir()
    (tmp_path / "shop" / "a").symlink_to(tmp_path / "disk")
    lake.run([0])
    other = Lake(tmp_path / "shop", ledger=B)
    other.replace("  lake: ", "  pond: ")
    other.replace('"a": "./a", "b": "./b"', '"a": "./a/in", "b": "./elsewhere"')
    with pytest.raises(Refused, match=r"in lies within file://\S*/shop/a, which belongs to account 'a' of sink 'lake'"):
        other.run([0])
    lake = Lake(tmp_path / "shop", ledger=A)
    lake.run([1])
    assert shown(lake) == lake.ids(2)


def test_an_account_within_that_of_another_sink_is_refused_in_a_store(tmp_path: Path) -> None:
    stores = in_stores()
    Lake(tmp_path / "shop", ledger=A, places=stores).run([0])
    within = {name: replace(place, url=f"{place.url}/in") for name, place in stores.items()}
    other = Lake(tmp_path / "shop", ledger=B, places=within)
    other.replace("  lake: ", "  pond: ")
    with pytest.raises(Refused, match=r"/in lies within gs://\S*, which belongs to account 'a' of sink 'lake'"):
        other.run([0])


def test_an_account_in_the_place_of_another_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "shop")
    lake.run([0])
    lake.replace('"a": "./a", "b": "./b"', '"a": "./b", "b": "./a"')
    with pytest.raises(Refused):
        lake.run([1])


def test_where_the_ledger_is_lost_the_remedy_delivers_every_row_once(tmp_path: Path) -> None:
    """As the error says: another name of the sink, and empty accounts."""
    lake = Lake(tmp_path / "shop", ledger=A)
    lake.run([0, 1])
    for path in (tmp_path / "shop").glob("a.db*"):
        path.unlink()
    shutil.rmtree(tmp_path / "shop" / "state", ignore_errors=True)
    with pytest.raises(LedgerMismatch) as told:
        lake.run([0])
    assert "give the sink another name and an empty place: new accounts" in told.value.remedy
    lake.replace("  lake: ", "  pond: ")
    with pytest.raises(Refused, match="belongs to account 'a' of sink 'lake'") as half:
        lake.run([0])
    assert "accounts of its own" in half.value.remedy
    lake.replace('"a": "./a", "b": "./b"', '"a": "./new-a", "b": "./new-b"')
    lake.run([0, 1])
    assert shown(lake) == lake.ids(2)
    assert verify(lake.pipeline.plan).ok


def test_an_account_that_an_older_penstock_filled_is_claimed_by_its_own_ledger(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "shop")
    lake.run([0])
    for path in (tmp_path / "shop").rglob(".owner.json"):
        path.unlink()
    lake.run([1])
    assert len(list((tmp_path / "shop").rglob(".owner.json"))) == 2
    assert shown(lake) == lake.ids(2)


def test_an_account_whose_home_is_lost_before_its_first_batch_is_claimed_once_the_remedy_is_carried_out(
    tmp_path: Path, places: "dict[str, Place] | None"
) -> None:
    """It holds nothing but the claim, and was refused as one that is filled: only empty accounts of another name helped."""
    first, second = (Lake(tmp_path / "shop", ledger=ledger, places=places) for ledger in (A, B))
    with opened(first) as (parts, _):
        tail = parts.ledger.tail()
        assert tail is not None
        parts.sinks[0].claim(tail.summary.ledger_id)  # type: ignore[attr-defined]
    for path in (tmp_path / "shop").glob("a.db*"):
        path.unlink()
    for name in "ab":
        with pytest.raises(LedgerMismatch, match="is filled by ledger") as told:
            second.run([0])
        [claim] = re.findall(r"nothing was delivered here yet, so remove (\S+) and start again", told.value.remedy)
        if places is None:
            Path(claim).unlink()
        else:
            remove_object(places[name], claim)
    second.run([0])
    assert shown(second) == second.ids(1)
    assert verify(second.pipeline.plan).ok


def remove_object(place: Place, url: str) -> None:
    store = open_store(place.url, options=place.options)
    store.delete(url.removeprefix(f"{store.url}/"))


def by_a_link(lake: Lake) -> None:
    for name in "ab":
        (lake.directory / f"link-{name}").symlink_to(lake.directory / name)
    lake.replace('"a": "./a", "b": "./b"', '"a": "./link-a", "b": "./link-b"')


def with_its_own_staging(lake: Lake) -> None:
    staging = f'"options": {{"staging": "{lake.directory / "waiting"}"}}'
    lake.replace('"a": "./a", "b": "./b"', f'"a": {{"url": "./a", {staging}}}, "b": {{"url": "./b", {staging}}}')


def without_its_staging(lake: Lake) -> None:
    shutil.rmtree(lake.directory / ".penstock-staging")


@pytest.mark.parametrize("elsewhere", [by_a_link, with_its_own_staging, without_its_staging])
def test_files_in_an_account_whose_owner_is_noted_elsewhere_are_not_delivered_twice(
    tmp_path: Path, elsewhere: Callable[[Lake], None]
) -> None:
    """A new home sees neither owner nor marker, but the files. What the error says delivers every row once."""
    Lake(tmp_path / "shop", ledger=A).run([0])
    other = Lake(tmp_path / "shop", ledger=B)
    elsewhere(other)
    before = other.listed("a") + other.listed("b")
    for _ in range(2):
        with pytest.raises(LedgerMismatch, match="neither an owner nor a marker that says which ledger decided it") as told:
            other.run([0])
    assert other.listed("a") + other.listed("b") == before
    assert "give the sink another name and empty accounts" in told.value.remedy
    lake = Lake(tmp_path / "shop", ledger=B)
    lake.replace("  lake: ", "  pond: ")
    lake.replace('"a": "./a", "b": "./b"', '"a": "./new-a", "b": "./new-b"')
    lake.run([0, 1])
    assert shown(lake) == lake.ids(2)
    assert verify(lake.pipeline.plan).ok


def test_files_in_a_store_that_lost_its_owner_are_not_delivered_twice(tmp_path: Path) -> None:
    first, second = accounts_on(first="gs", second="gs").values()
    stores = {"a": first[0], "b": second[0]}
    Lake(tmp_path / "shop", ledger=A, places=stores).run([0])
    for _, outside in (first, second):
        for key in outside.listing():
            if key.startswith("_penstock/"):
                outside.delete(key)
    files = first[1].listing()
    with pytest.raises(LedgerMismatch, match="neither an owner nor a marker"):
        Lake(tmp_path / "shop", ledger=B, places=stores).run([0])
    assert {key for key in first[1].listing() if not key.startswith("_penstock/")} == set(files)


def test_all_files_of_an_account_that_nobody_has_claimed_are_looked_at(tmp_path: Path) -> None:
    """The first 10,000 only were, and the rows of one whose owner is noted elsewhere came twice."""
    Lake(tmp_path / "shop", ledger=A).run([0])
    other = Lake(tmp_path / "shop", ledger=B)
    other.replace("type: parquet", "type: parquet, existing_rows: keep")
    without_its_staging(other)
    for name in "ab":
        for number in range(10_001):
            (tmp_path / "shop" / name / f"note{number}.txt").touch()
    with pytest.raises(LedgerMismatch, match="neither an owner nor a marker that says which ledger decided it"):
        other.run([0])


def owners(count: int) -> list[AccountOwner]:
    return [
        AccountOwner(
            pipeline=PipelineName("shop"), sink=SinkName("lake"), account=AccountName("a"), ledger_id=LedgerId(f"{number:032x}")
        )
        for number in range(count)
    ]


def test_of_many_that_claim_an_account_at_once_one_is_noted_whole(tmp_path: Path) -> None:
    claims, start = owners(8), Barrier(8)
    areas = [directory_account(tmp_path / "a").area(pipeline=one.pipeline, sink=one.sink, account=one.account) for one in claims]
    areas[0].prepare()

    def claim(number: int) -> None:
        start.wait()
        areas[number].claim(claims[number])

    threads = [Thread(target=claim, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = areas[0].claimed_by()
    assert found in claims
    areas[0].claim(next(one for one in claims if one != found))
    assert {area.claimed_by() for area in areas} == {found}
    assert list((tmp_path / ".penstock-staging").rglob(".owner.json.*")) == []


@pytest.mark.parametrize("point", ["claim.write", "claim.place"])
@pytest.mark.parametrize("kind", ["error", "lost"])
def test_a_claim_that_a_disk_interrupts_is_made_again(tmp_path: Path, point: str, kind: str) -> None:
    lake = Lake(tmp_path / "shop")
    faults.arm(f"{point}={kind}")
    try:
        with pytest.raises(PenstockError, match="Claiming the account"):
            lake.run([0])
    finally:
        faults.arm("")
    lake.run([0])
    assert shown(lake) == lake.ids(1)
    lake.run([])
    assert list((tmp_path / "shop").rglob(".owner.json.*")) == []


def test_a_claim_whose_file_a_sweep_of_the_owner_removed_is_told_as_a_second_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No directory is missing, and nothing is to be created or mounted."""
    first, second = (Lake(tmp_path / "shop", ledger=ledger) for ledger in (A, B))
    place = marker.place_or_leave

    def place_late(unplaced: Path, target: Path) -> bool:
        monkeypatch.undo()
        first.run([0])
        assert str(unplaced) in sweep(first.pipeline.plan, dry_run=False)
        return place(unplaced, target)

    monkeypatch.setattr(marker, "place_or_leave", place_late)
    with pytest.raises(LedgerMismatch, match=r"is filled by ledger \w{32} of pipeline 'shop', but this is ledger") as told:
        second.run([0])
    assert "empty accounts" in told.value.remedy
    assert shown(first) == first.ids(1)
    assert verify(first.pipeline.plan).ok


@pytest.mark.parametrize("kind", ["error", "lost"])
def test_a_claim_in_a_store_whose_answer_is_lost_is_read(tmp_path: Path, kind: str) -> None:
    lake = Lake(tmp_path / "shop", places=in_stores())
    faults.arm(f"claim.put={kind}")
    try:
        lake.run([0])
    finally:
        faults.arm("")
    assert shown(lake) == lake.ids(1)
