"""The lag behind a table that another pipeline fills: in rows and time, until its ledger forgets, and as `status` tells it."""

import json
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.unit.chained_world import ChainedWorld

import penstock
from penstock.cli.status import text_of
from penstock.commit.upkeep import RETAINED_ENTRIES
from penstock.core.model import OffsetRange, Position, SourceName
from penstock.errors import InputLost
from penstock.observe.condition import State, condition_of
from penstock.observe.look import Look
from penstock.observe.page.views import _inputs as inputs_of
from penstock.run.assembly import ledger_of
from penstock.run.chain.lag import lag_of_table, missing_of_table
from penstock.source.chain.lag import TableLag, describe_lag
from penstock.spec.load import load

FLIGHTS = SourceName("flights")
SECOND = """\
pipeline: delays
home: ./second
sources:
  flights: {format: penstock, path: ./flights.yaml}
sinks:
  lake: {type: sqlite, url: "sqlite:///delays.db", table: delays}
"""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ChainedWorld(tmp_path_factory.mktemp("filled")).go_on(*range(4)).root


@pytest.fixture
def world(tmp_path: Path, filled: Path) -> ChainedWorld:
    return ChainedWorld(shutil.copytree(filled, tmp_path / "world"))


def lag(world: ChainedWorld, at: dict[str, Any] | None, *, later_ms: int = 0) -> TableLag:
    written = max(entry.written_at_ms for entry in world.entries())
    return lag_of_table(FLIGHTS, world.settings(), None if at is None else json.dumps(at), now_ms=written + later_ms)


def read(world: ChainedWorld, batches: int) -> dict[str, Any]:
    reader = world.reader(maxBatchesPerTrigger=batches)
    return reader.advance(reader.begin())


def test_lag_is_in_rows_and_time(world: ChainedWorld) -> None:
    none = lag(world, None, later_ms=5_000)
    assert (none.table, none.records, none.lost, none.forgotten) == ("flights/lake", 20, 0, 0)
    assert none.behind_ms is not None
    assert none.behind_ms >= 5_000
    assert none.entries_left == RETAINED_ENTRIES - 3
    two = lag(world, read(world, 2))
    assert two.records == 10
    done = lag(world, read(world, 9))
    assert (done.records, done.behind_ms, done.entries_left, done.loss_in_ms) == (0, None, None, None)
    assert describe_lag(done) == "table flights/lake: everything is delivered"


def test_what_the_ledger_has_forgotten_is_lost(world: ChainedWorld) -> None:
    at = read(world, 1)
    with closing(ledger_of(world.plan)) as ledger:
        ledger.prune(below=Position(4))
    found = lag(world, at)
    assert (found.lost, found.forgotten, found.records) == (5, 1, 10)
    assert describe_lag(found).endswith("5 rows of 1 entries that the ledger has forgotten were not delivered")


def test_a_reader_of_what_was_taken_back_is_told(world: ChainedWorld) -> None:
    at = read(world, 9)
    world.rewind(1)
    with pytest.raises(InputLost, match=r"has read batches 2 to 3 \(10 rows\)"):
        lag(world, at)


def test_status_check_and_the_page_tell_the_lag(world: ChainedWorld) -> None:
    file = world.root / "delays.yaml"
    file.write_text(SECOND)
    found = penstock.Pipeline(load(file)).status()
    assert [(each.table, each.records) for each in found.tables] == [("flights/lake", 20)]
    console = Console(width=200)
    with console.capture() as captured:
        console.print(text_of(found))
    assert "flights: 20 rows of flights/lake" in captured.get()
    [row] = inputs_of(found, now_ms=0)
    assert (row.input, row.waits) == ("flights/lake", "20 rows")
    near, gone = (replace(found.tables[0], **change) for change in ({"is_near_loss": True}, {"lost": 5, "forgotten": 1}))
    looks = [Look(pipeline="delays", status=replace(found, tables=(each,), waiting=())) for each in (near, gone)]
    conditions = [condition_of(look, now_ms=0) for look in looks]
    assert [each.state for each in conditions] == [State.BEHIND, State.FAILED]
    world.file.unlink()
    broken = penstock.Pipeline(load(file)).status()
    assert (broken.tables, len(broken.lag_unknown)) == ((), 1)


def test_what_a_batch_cannot_be_read_again_for_is_told(world: ChainedWorld) -> None:
    first = read(world, 2)
    end = world.reader().advance(first)

    def missing(start: dict[str, Any] | None, end: dict[str, Any]) -> str | None:
        begin = None if start is None else json.dumps(start)
        return missing_of_table(world.settings(), OffsetRange(source=FLIGHTS, start=begin, end=json.dumps(end)))

    assert (missing(None, first), missing(first, end)) == (None, None)
    with closing(ledger_of(world.plan)) as ledger:
        ledger.prune(below=Position(4))
    assert missing(first, end) is None
    assert "has forgotten the entries 1 to 3, which were not read" in str(missing(None, first))
