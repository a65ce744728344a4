"""What a start finds out about places and ledger together, without Spark."""

import shutil
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.lake import Lake

from penstock.core.model import Entry, LedgerId, Position, RowDigest, Summary
from penstock.errors import LedgerMismatch
from penstock.protocols import Ledger
from penstock.run.assembly import assemble
from penstock.run.ledger_match import require_decided
from penstock.run.operations import verify


def restored(lake: Lake, copy: Path) -> None:
    ledger = lake.directory / "ledger"
    shutil.rmtree(ledger)
    if copy.exists():
        copy.rename(ledger)


@pytest.mark.parametrize("kind", ["sqlite:///ledger/ledger.db", "./ledger/entries"])
@pytest.mark.parametrize(("left", "end"), [("an older copy", 3), ("nothing", 0)])
def test_a_ledger_behind_what_an_account_shows_is_refused(tmp_path: Path, kind: str, left: str, end: int) -> None:
    """Restored from a copy, or taken over by a standby that lacked the entry: the batch would be decided and published again."""
    lake = Lake(tmp_path / "shop", ledger=kind)
    lake.run([0, 1])
    if left == "an older copy":
        shutil.copytree(lake.directory / "ledger", tmp_path / "copy")
    lake.run([2])
    shown = lake.listed("a") + lake.listed("b")
    restored(lake, tmp_path / "copy")
    with pytest.raises(
        LedgerMismatch,
        match=f"shows batches up to position 5 of the ledger, but the ledger at .* ends at position {end}:"
        if end
        else r"shows what ledger \w{32} decided, up to its position 5, but the ledger at .* is empty:",
    ):
        lake.run([2])
    assert lake.listed("a") + lake.listed("b") == shown


class Behind:
    """A ledger as it was, once: another driver appended between two looks."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._first = ledger, True
        self.location = ledger.location

    def tail(self) -> Entry | None:
        first, self._first = self._first, False
        return None if first else self._ledger.tail()

    def read(self, position: Position) -> Entry | None:
        return self._ledger.read(position)


def test_what_another_driver_publishes_meanwhile_is_not_taken_for_a_loss(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "shop")
    lake.run([0])
    with closing(assemble(lake.pipeline.plan)) as parts:
        require_decided(Behind(parts.ledger), parts.sinks, pipeline=parts.pipeline, markers={})  # type: ignore[arg-type]


def test_a_ledger_that_is_longer_does_not_deliver_what_another_one_delivered(tmp_path: Path) -> None:
    """B was started three times with nothing to do, so that A's marker, at position 2, is not beyond its end."""
    lake = Lake(tmp_path, ledger="sqlite:///b.db")
    for _ in range(3):
        lake.run([])
    Lake(tmp_path, ledger="sqlite:///a.db").run([0])
    shown = lake.listed("a") + lake.listed("b")
    with pytest.raises(LedgerMismatch, match=r"shows what ledger \w{32} decided, up to its position 2, but .*b\.db is \w{32}:"):
        Lake(tmp_path, ledger="sqlite:///b.db").run([0])
    assert lake.listed("a") + lake.listed("b") == shown


def test_a_ledger_that_decided_the_same_batch_in_another_generation_is_refused(tmp_path: Path) -> None:
    """As a copy of the ledger that went on by itself: identity and positions are the same, the decisions are not."""
    lake = Lake(tmp_path, ledger="sqlite:///a.db")
    lake.run([0])
    shutil.copytree(tmp_path, tmp_path / "copy")
    lake.run([1])
    other = Lake(tmp_path / "copy", ledger="sqlite:///a.db")
    other.run([])
    other.run([])
    for name in ("a.db", "a.db-wal", "a.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    shutil.copy(tmp_path / "copy" / "a.db", tmp_path / "a.db")
    shown = lake.listed("a") + lake.listed("b")
    with pytest.raises(LedgerMismatch, match=r"shows batch 1 of query .*, but the ledger at .*a\.db decided no batch there:"):
        Lake(tmp_path, ledger="sqlite:///a.db").run([1])
    assert lake.listed("a") + lake.listed("b") == shown


MINE, OTHERS = LedgerId("11" * 16), LedgerId("22" * 16)


@pytest.mark.parametrize(
    ("mine", "marked", "is_refused"),
    [(MINE, MINE, False), (MINE, None, False), (MINE, OTHERS, True), (None, OTHERS, True), (None, None, False)],
)
def test_a_marker_that_names_another_ledger_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mine: LedgerId | None, marked: LedgerId | None, *, is_refused: bool
) -> None:
    """An older Penstock named none, neither in its ledger nor in its markers."""
    lake = Lake(tmp_path)
    lake.run([0])
    with closing(assemble(lake.pipeline.plan)) as parts:
        tail, [sink] = parts.ledger.tail(), parts.sinks
        assert tail is not None
        markers = {
            (sink.name, account): replace(mark, ledger_id=marked)
            for account in sink.accounts
            if (mark := sink.high_water_mark(account, pipeline=parts.pipeline)) is not None  # type: ignore[attr-defined]
        }
        assert len(markers) == 2
        named = replace(tail, summary=replace(tail.summary, ledger_id=mine))
        monkeypatch.setattr(type(parts.ledger), "tail", lambda _: named)
        with pytest.raises(LedgerMismatch, match=f"what ledger {OTHERS} decided") if is_refused else nullcontext():
            require_decided(parts.ledger, parts.sinks, pipeline=parts.pipeline, markers=markers)


def test_a_marker_that_names_no_ledger_belongs_to_the_one_that_decided_its_batch(tmp_path: Path) -> None:
    """As an older Penstock wrote it; another home of that pipeline has another batch, or none, at its position."""
    lake = Lake(tmp_path)
    lake.run([0])
    with closing(assemble(lake.pipeline.plan)) as parts:
        [sink] = parts.sinks
        mark = replace(sink.high_water_mark("a", pipeline=parts.pipeline), ledger_id=None)  # type: ignore[attr-defined]
        both = {(sink.name, account): mark for account in sink.accounts}
        require_decided(parts.ledger, parts.sinks, pipeline=parts.pipeline, markers=both)
        for other in (replace(mark, batch_id=1), replace(mark, generation=2), replace(mark, query_id="another")):
            with pytest.raises(LedgerMismatch, match=r"decided batch 0 of query .* there, in generation 1: another ledger"):
                require_decided(parts.ledger, parts.sinks, pipeline=parts.pipeline, markers={**both, (sink.name, "b"): other})
        higher = {(sink.name, account): replace(mark, position=1) for account in sink.accounts}
        with pytest.raises(LedgerMismatch, match="decided no batch there: another ledger"):
            require_decided(parts.ledger, parts.sinks, pipeline=parts.pipeline, markers=higher)


def test_a_ledger_gets_its_identity_at_its_beginning_and_keeps_it(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.run([0])
    lake.run([1])
    with closing(assemble(lake.pipeline.plan)) as parts:
        summaries = [entry.summary for entry in parts.ledger.newest_first()]
    assert len(summaries) == 4
    assert len({(summary.ledger_id, summary.row_digest) for summary in summaries}) == 1
    assert summaries[0].ledger_id is not None


def test_a_ledger_of_an_older_penstock_gets_its_identity_by_the_next_opening(tmp_path: Path) -> None:
    """And keeps its kind of digest, since its totals are of that kind."""
    lake = Lake(tmp_path)
    with pytest.MonkeyPatch.context() as older:
        older.setattr("penstock.commit.coordinator.after_opening", lambda summary: summary or Summary())
        lake.run([0])
    lake.run([1])
    with closing(assemble(lake.pipeline.plan)) as parts:
        *newer, decided, opened = [entry.summary for entry in parts.ledger.newest_first()]
    assert (opened.ledger_id, decided.ledger_id) == (None, None)
    assert len({summary.ledger_id for summary in newer} - {None}) == 1
    assert {summary.row_digest for summary in newer} == {RowDigest.XXHASH64}
    found = verify(lake.pipeline.plan)
    assert found.ok
    assert found.row_digest is RowDigest.XXHASH64
