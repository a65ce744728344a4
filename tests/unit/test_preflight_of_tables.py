"""What changes of sinks into many tables, and into tables with history, mean: which of them a start refuses."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.unit.many_target import World
from tests.unit.preflight_world import said
from tests.unit.table_target import spark_schema

from penstock.errors import PenstockError
from penstock.run.assembly import ledger_of
from penstock.run.operations import recover
from penstock.run.preflight.change import PipelineChange, Verdict
from penstock.run.preflight.compare import compare, versions_of
from penstock.run.preflight.description import RecordedRun, describe, record_run
from penstock.run.replay import out_of_order_warning
from penstock.spec.table import SQLite

SCHEMA = spark_schema(id="long", region="string", name="string", version="long")
ROWS: Any = [[(1, "eu", "a", 10), (2, "us", "b", 11)]]
SAFE, BREAKS = Verdict.SAFE, Verdict.BREAKS


def change(world: World, **given: Any) -> dict[str, PipelineChange]:
    """Change the sink, after its run is described as a run describes it, and return what preflight says."""
    recover(world.pipeline.plan)  # so that the ledger says that the batch is published
    with closing(ledger_of(world.pipeline.plan)) as ledger:
        tail = ledger.tail()
        assert tail is not None
        assert tail.summary.decided_at is not None
        newest = ledger.read(tail.summary.decided_at)
        assert newest is not None
        record_run(
            str(world.directory / "state"),
            RecordedRun(
                pipeline=world.pipeline.plan.pipeline,
                ledger_id=tail.summary.ledger_id,
                generation=newest.generation,
                description=describe(world.pipeline.settings, modules=world.directory, versions=versions_of(None)),
            ),
            keep=(),
        )
        world.configure(**given)
        return said(compare(world.pipeline.settings, world.pipeline.plan, ledger, summary=tail.summary))


HISTORY: dict[str, Any] = {"write": "upsert", "key": ["id"], "history": True}
UPDATES: dict[str, Any] = {"write": "upsert", "key": ["id"], "update_when": "new.version > old.version"}


@pytest.mark.parametrize(
    ("before", "now", "key", "verdict"),
    [
        (HISTORY, {**HISTORY, "sequence_by": "version"}, "sequence_by", BREAKS),
        ({**HISTORY, "sequence_by": "version"}, HISTORY, "sequence_by", BREAKS),
        ({**HISTORY, "sequence_by": "version"}, {**HISTORY, "sequence_by": "id"}, "sequence_by", BREAKS),
        (HISTORY, {**HISTORY, "key": ["id", "name"]}, "key", BREAKS),
        (HISTORY, {**HISTORY, "history": False}, "history", BREAKS),
        (UPDATES, {**UPDATES, "update_when": "new.version >= old.version"}, "update_when", SAFE),
        (UPDATES, {**UPDATES, "sequence_by": "version"}, "sequence_by", SAFE),
    ],
)
def test_a_table_keeps_how_its_versions_are_told_apart(
    tmp_path: Path, before: dict[str, Any], now: dict[str, Any], key: str, verdict: Verdict
) -> None:
    if now.get("sequence_by") == "id":
        before, now = {**before, "key": ["name"]}, {**now, "key": ["name"]}
    world = World(tmp_path, "sqlite", **before)
    world.run({0: ROWS}, schema=SCHEMA)
    assert change(world, **now)[f"sinks.orders.{key}"].verdict is verdict


OTHER_TABLES: dict[str, list[dict[str, Any]]] = {
    "sqlite": [{"table": "{region}_sales", "tables": ["eu_sales"]}, {"table": "eu_orders", "tables": None}],
    "delta": [
        {"path": "./lake/{region}_sales", "tables": ["eu_sales"]},
        {"path": "./other/{region}_orders"},
        {"path": "./lake/all", "tables": None},
    ],
    "iceberg": [
        {"table": "shop.{region}_sales", "tables": ["eu_sales"]},
        {"table": "other.{region}_orders"},
        {"table": "shop.all", "tables": None},
    ],
}


@pytest.mark.parametrize(("kind", "now"), [(kind, now) for kind, each in OTHER_TABLES.items() for now in each])
def test_what_is_filled_cannot_be_elsewhere(tmp_path: Path, kind: str, now: dict[str, Any]) -> None:
    world = World(tmp_path, kind)
    world.run({0: ROWS}, schema=SCHEMA)
    found = change(world, **now)
    assert BREAKS in {each.verdict for each in found.values()}, found
    if not (kind != "sqlite" and now.get("tables", "some") is None):  # only the comparison tells that such a table is another one
        with pytest.raises(PenstockError):
            world.run({1: ROWS}, schema=SCHEMA)


@pytest.mark.parametrize("kind", ["sqlite", "delta", "iceberg"])
def test_a_sink_into_one_table_cannot_go_on_into_many(tmp_path: Path, kind: str) -> None:
    one = {"path": "./lake/all"} if kind == "delta" else {"table": "shop.all" if kind == "iceberg" else "orders"}
    world = World(tmp_path, kind, **one, tables=None)
    world.run({0: ROWS}, schema=SCHEMA)
    found = change(world)
    with pytest.raises(PenstockError):
        world.run({1: ROWS}, schema=SCHEMA)
    assert BREAKS in {each.verdict for each in found.values()}, found


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"write": "append", "key": []}, None),
        ({"write": "upsert"}, "replaces a newer one"),
        ({"write": "upsert", "sequence_by": "version"}, None),
        (HISTORY, "becomes the current version"),
        ({**HISTORY, "sequence_by": "version"}, None),
        ({**HISTORY, "sequence_by": "version", "delete_when": "name = 'gone'"}, "stays open if its key was deleted"),
    ],
)
def test_a_replay_warns_of_what_older_rows_do(given: dict[str, Any], said: str | None) -> None:
    settings = SQLite(**{"url": "sqlite:///shop.db", "table": "{region}_orders", "tables": ["eu_orders"], "key": ["id"], **given})
    warning = out_of_order_warning("orders", settings)
    assert (warning is None) if said is None else said in str(warning)
