"""Pages of a ledger and the search in it: at the cost of a page, beside pruning, and across adoptions."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.commit.summary import after_adoption, after_rewind
from penstock.core.model import Adopted, BatchId, Entry, PipelineName, Position, Rewound
from penstock.ledger.open import open_ledger
from penstock.observe.history_page import PAGE_ROWS, entry_page, history_page
from penstock.protocols import Ledger
from penstock.testing.entries import decided_entry, opened_entry

STEP_MS = 60_000
BEFORE, AFTER = 300, 60
"""Batches before another checkpoint is adopted, with batch 0, and after that."""


def adopted_entry(after: Entry) -> Entry:
    adopted = Adopted(query_id=None, next_batch_id=BatchId(0), reason="lost", operator="ann")
    position = Position(after.position + 1)
    summary = after_adoption(after.summary, adopted, position=position)
    return replace(after, position=position, body=adopted, summary=summary)


@pytest.fixture(name="ledger", scope="module")
def _ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """Position 1 opens, 2 to 301 decide batches 0 to 299, 302 adopts, 303 to 362 decide batches 0 to 59."""
    ledger = open_ledger(f"sqlite:///{tmp_path_factory.mktemp('l')}/ledger.db", pipeline=PipelineName("example"))
    entry = opened_entry()
    ledger.append(entry)
    for number in range(BEFORE + AFTER):
        if number == BEFORE:
            entry = adopted_entry(entry)
            ledger.append(entry)
        entry = replace(decided_entry(after=entry), written_at_ms=STEP_MS * (number + 1))
        ledger.append(entry)
    yield ledger
    ledger.close()


class Counting:
    """A ledger that counts what is read of it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self.reads = ledger, 0

    def tail(self) -> Entry | None:
        return self._ledger.tail()

    def read(self, position: Position) -> Entry | None:
        self.reads += 1
        return self._ledger.read(position)


def test_pages_follow_each_other_from_the_newest_to_the_oldest_entry(ledger: Ledger) -> None:
    seen, page = list[int](), history_page(ledger)
    assert page.newer is None
    while True:
        seen += [row.position for row in page.rows]
        if page.older is None:
            break
        older = history_page(ledger, up_to=page.older)
        assert older.newer == page.rows[0].position
        page = older
    assert seen == list(range(362, 0, -1))


def test_a_page_costs_the_same_wherever_it_is(ledger: Ledger) -> None:
    for up_to in (362, 200, 60):
        counting = Counting(ledger)
        history_page(counting, up_to=up_to)  # type: ignore[arg-type]
        assert counting.reads <= PAGE_ROWS + 15
    counting = Counting(ledger)
    history_page(counting, wanted="250")  # type: ignore[arg-type]
    assert counting.reads <= PAGE_ROWS + 50


@pytest.mark.parametrize(
    ("wanted", "position"),
    [
        ("59", 362),
        ("0", 303),
        ("60", 62),
        ("299", 301),
        ("batch 123", 125),
        ("1970-01-01T00:10:30+00:00", 11),
        ("1970-01-02T00:00:00+00:00", 362),
    ],
)
def test_the_newest_of_its_kind_is_found(ledger: Ledger, wanted: str, position: int) -> None:
    page = history_page(ledger, wanted=wanted)
    assert (page.rows[0].position, page.missing) == (position, None)


def test_a_batch_that_was_taken_back_is_not_what_is_found(tmp_path: Path) -> None:
    """Positions 2 to 11 decide batches 0 to 9, 12 goes back to 3, 13 to 15 decide batches 4 to 6, 16 goes back to 5."""
    with closing(open_ledger(str(tmp_path / "ledger"), pipeline=PipelineName("example"))) as ledger:
        entry = opened_entry()
        ledger.append(entry)
        for number in range(15):
            back_to = {10: 3, 14: 5}.get(number)
            entry = decided_entry(after=entry) if back_to is None else rewound_entry(ledger, entry, back_to)
            ledger.append(entry)
        found = {wanted: history_page(ledger, wanted=str(wanted)) for wanted in (2, 3, 4, 5, 6, 9, 10)}
    shown = {wanted: (page.rows[0].position, page.missing) for wanted, page in found.items()}
    assert shown == {
        2: (4, None),
        3: (5, None),
        4: (13, None),
        5: (14, None),
        6: (16, "Batch 6 was taken back by the rewind there."),
        9: (12, "Batch 9 was taken back by the rewind there."),
        10: (16, "The ledger retains no decision of batch 10."),
    }


def rewound_entry(ledger: Ledger, after: Entry, batch_id: int) -> Entry:
    to = {3: 5, 5: 14}[batch_id]
    body = Rewound(batch_id=BatchId(batch_id), to=Position(to), kept=(), reason="", operator="ann")
    position, target = Position(after.position + 1), ledger.read(Position(to))
    assert target is not None
    summary = after_rewind(after.summary, body, target=target.summary, unremoved={}, position=position)
    return replace(after, position=position, body=body, summary=summary)


@pytest.mark.parametrize("wanted", ["300", "99999999999999999999", "-1", "soon", "2026-13-01", "1969-01-01"])
def test_what_is_not_there_is_said_and_the_newest_page_shown(ledger: Ledger, wanted: str) -> None:
    page = history_page(ledger, wanted=wanted)
    assert page.rows[0].position == 362
    assert page.missing is not None


def test_positions_beyond_the_ledger_are_its_ends(ledger: Ledger) -> None:
    assert history_page(ledger, up_to=10**14).rows[0].position == 362
    assert [row.position for row in history_page(ledger, up_to=-5).rows] == [1]
    assert entry_page(ledger, 0) is None
    assert entry_page(ledger, 363) is None
    found = entry_page(ledger, 301)
    assert found is not None
    assert found[1].batch_id == 299


def test_of_a_pruned_ledger_the_retained_entries_are_shown(tmp_path: Path) -> None:
    ledger = open_ledger(f"sqlite:///{tmp_path}/ledger.db", pipeline=PipelineName("example"))
    assert history_page(ledger).rows == ()
    entry = opened_entry()
    ledger.append(entry)
    for _ in range(40):
        entry = decided_entry(after=entry)
        ledger.append(entry)
    ledger.prune(below=Position(30))
    page = history_page(ledger)
    assert (page.oldest, page.newest, len(page.rows), page.older) == (30, 41, 12, None)
    assert history_page(ledger, wanted="3").missing == "The ledger retains no decision of batch 3."
    assert history_page(ledger, wanted="35").rows[0].batch_id == 35
    ledger.close()
