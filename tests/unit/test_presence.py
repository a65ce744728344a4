"""What a start finds out about places and ledger together, without Spark."""

import shutil
from pathlib import Path

import pytest
from tests.unit.lake import Lake

from penstock.errors import LedgerMismatch
from penstock.model import Entry
from penstock.protocols import Ledger
from penstock.run.operations import acting
from penstock.run.presence import require_decided


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
        LedgerMismatch, match=f"shows batches up to position 5 of the ledger, but the ledger at .* ends at position {end}:"
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


def test_what_another_driver_publishes_meanwhile_is_not_taken_for_a_loss(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "shop")
    lake.run([0])
    with acting(lake.pipeline.plan) as parts:
        require_decided(Behind(parts.ledger), parts.sinks, pipeline=parts.pipeline, markers={})  # type: ignore[arg-type]
