"""A reader of a sink that is given earlier batches by a backfill, and of a pipeline whose checkpoint was replaced."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.killed import KilledError
from tests.unit.chained_world import batches, ids
from tests.unit.lake import Lake
from tests.unit.parquet_target import SCHEMA
from tests.unit.test_commit_backfill import World

from penstock.errors import Refused
from penstock.run.assembly import DeliveryPlan
from penstock.run.chain.stream import TableStream
from penstock.run.chain.table import chained_table
from penstock.source.chain.settings import ChainSettings

OTHER_QUERY = "5f0c9f0e-0000-4000-8000-000000000002"


def reader(plan: DeliveryPlan, sink: str, **more: Any) -> TableStream:
    given = ChainSettings(name="later", path=Path("/none"), sink=sink, **more)
    table = chained_table(plan, given)
    columns = table.columns()
    return TableStream(ChainSettings(name="later", path=Path("/none"), sink=sink, columns=columns, **more), lambda _: table)


def test_batches_of_a_backfill_are_read_as_they_come(tmp_path: Path) -> None:
    world = World(tmp_path)
    with pytest.raises(KilledError):
        world.backfill(stop_after=2)
    world.backfill()
    found = reader(world.both, "later", max_batches=2)
    begin = found.begin()
    assert list(batches(found, begin)) == [[0, 1], [2]]
    lake = reader(world.both, "lake")
    assert list(batches(lake, lake.begin())) == [[0, 1, 2]], "another sink got none of it"


def test_the_newest_batch_that_a_backfill_gives_waits_until_it_has_ended(tmp_path: Path) -> None:
    world = World(tmp_path)
    with pytest.raises(KilledError):
        world.backfill(stop_after=2)
    given = ChainSettings(name="later", path=Path("/none"), sink="later", columns=SCHEMA)
    found = TableStream(given, lambda settings: chained_table(world.both, settings))
    begin = found.begin()
    assert ids(found, begin, found.advance(begin)) == [0], "whether batch 1 is published the ledger does not tell yet"
    latest = TableStream(replace(given, start="latest"), lambda settings: chained_table(world.both, settings))
    at = latest.begin()
    world.backfill()
    assert list(batches(latest, at)) == [[1, 2]]


def test_numbers_that_begin_again_are_other_batches(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.run([0, 1])
    found = reader(lake.pipeline.plan, "lake", max_batches=1)
    read = list(batches(found, found.begin()))
    at = found.begin()
    for _ in range(2):
        at = found.advance(at)
    assert lake.pipeline.adopt(reason="a test", yes=True).done
    lake.run([0, 1], query=OTHER_QUERY)
    again = list(batches(found, at))
    assert len(again) == 2
    assert sorted(row for batch in again for row in batch) == sorted(row for batch in read for row in batch)
    second = reader(lake.pipeline.plan, "lake", start=1)
    assert list(batches(second, second.begin())) == [again[1]], "of two batches 1 it is that of the present checkpoint"


def test_a_number_of_an_older_checkpoint_names_no_batch(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.run([0, 1, 2])
    assert lake.pipeline.adopt(reason="a test", yes=True).done
    lake.run([3], query=OTHER_QUERY, first=3)
    found = reader(lake.pipeline.plan, "lake", start=2)
    with pytest.raises(Refused, match=r"is to begin with batch 2, which the ledger .* does not tell: its next batch is 1\."):
        found.begin()
