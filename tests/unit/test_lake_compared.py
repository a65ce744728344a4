"""`history` and `update_when` in tables of open formats: random changes against a replay in memory, beside other writers."""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.conformance import delta_rig, iceberg_rig
from tests.unit.compared_target import CHANGES, CONDITION, kept, replaces, versions
from tests.unit.table_target import GONE, spark_schema, taken_from

from penstock.core import faults
from penstock.errors import ContentConflict, PenstockError, Refused, Usage
from penstock.sink.lake.write_mode import WriteMode
from penstock.sink.table.history import json_with_history
from penstock.spark.schema import arrow_schema
from penstock.testing.conformance import PIPELINE, Bench
from penstock.testing.conformance.bench import publish

FORMATS = pytest.mark.parametrize("rigs", [delta_rig, iceberg_rig], ids=["delta", "iceberg"])
NAMES = ("id", "name", "version")


def table_of(rigs: ModuleType, directory: Path, **settings: Any) -> Bench:
    """A bench of a table with rows of `CHANGES`, whose rig has these settings."""
    rig = rigs.ChangingRig(directory)
    rig.schema, rig.key = CHANGES, ("id",)
    rig.deletes = lambda row: row["name"] == GONE
    for name, value in settings.items():
        setattr(rig, name, value)
    return Bench(rig)


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[Any]:
    made: list[Bench] = []

    def make(rigs: ModuleType = delta_rig, **settings: Any) -> Bench:
        made.append(table_of(rigs, tmp_path, **settings))
        return made[-1]

    yield make
    faults.arm("")
    for bench in made:
        bench.close()


def put(bench: Bench, sink: Any, *rows: tuple[Any, ...], batch_id: int) -> Any:
    return bench.deliver(sink, [dict(zip(NAMES, row, strict=True)) for row in rows], batch_id=batch_id)


def found(bench: Bench) -> "Counter[Any]":
    columns = (*NAMES, "valid_from", "valid_to", "is_current")
    return Counter(tuple(row[name] for name in columns) for row in bench.rig.read_back())


def changes(chance: random.Random, names: list[str], *, most: int) -> list[tuple[Any, ...]]:
    return [(chance.randrange(8), chance.choice(names), chance.randrange(12)) for _ in range(chance.randrange(1, most))]


@pytest.mark.parametrize(
    ("rigs", "settings"),
    [
        (delta_rig, {}),
        (delta_rig, {"sequence_by": "version", "has_deletes": True}),
        (delta_rig, {"has_deletes": True, "partition_by": ("is_current",)}),
        (delta_rig, {"sequence_by": "version", "partition_by": ("name",)}),
        (iceberg_rig, {"sequence_by": "version", "has_deletes": True}),
    ],
    ids=["stream", "time-deletes", "stream-deletes-by-current", "time-by-name", "iceberg"],
)
def test_history_equals_a_replay_in_memory(tables: Any, rigs: ModuleType, settings: dict[str, Any]) -> None:
    """Batches are published twice, by other objects, after a failure, and beside a compaction."""
    chance, there = random.Random(len(str(settings))), dict[Any, Any]()
    bench = tables(rigs, write="history", **settings)
    sink = bench.sink()
    names = ["a", "b", *([GONE] if bench.rig.has_deletes else [])]
    for batch_id in range(8):
        rows = changes(chance, names, most=15)
        named = [dict(zip(NAMES, row, strict=True)) for row in rows]
        shown = bench.decide((named, bench.stage(sink, named, batch_id=batch_id)), batch_id=batch_id)
        if batch_id % 3 == 1:
            faults.arm(chance.choice(["lakehistory.versions=error", "lakekeys.rewrite=error", f"{_commit(rigs)}=lost"]))
            try:
                sink.publish(shown.publication)
            except PenstockError:
                sink.close()
                sink = bench.sink()
            faults.arm("")
        publish(sink, shown.publication)
        assert sink.publish(shown.publication).already
        sequence_by, deletes = bench.rig.sequence_by, bench.rig.has_deletes
        kept(there, rows, shown.publication.position, sequence_by=sequence_by, deletes=deletes)
        assert found(bench) == versions(there)
        assert bench.verify(sink).ok
        if batch_id == 4:
            bench.rig.compact()
    assert not bench.rig.leftovers()


def _commit(rigs: ModuleType) -> str:
    return "delta.commit" if rigs is delta_rig else "iceberg.commit"


@FORMATS
@pytest.mark.parametrize("settings", [{}, {"has_deletes": True}, {"sequence_by": "version"}], ids=["plain", "deletes", "newest"])
def test_updates_equal_a_replay_in_memory(tables: Any, rigs: ModuleType, settings: dict[str, Any]) -> None:
    chance, present = random.Random(len(str(settings))), dict[int, tuple[Any, ...]]()
    bench = tables(rigs, update_when=CONDITION, **settings)
    sink, in_sequence = bench.sink(), bench.rig.sequence_by is not None
    for batch_id in range(5):
        rows = changes(chance, ["a", "final", *([GONE] if bench.rig.has_deletes else [])], most=12)
        shown = put(bench, sink, *rows, batch_id=batch_id)
        assert sink.publish(shown.publication).already
        counted: dict[int, tuple[Any, ...]] = {}
        for row in rows:
            if row[0] not in counted or not in_sequence or row[2] >= counted[row[0]][2]:
                counted[row[0]] = row
        for number, row in counted.items():
            old = present.get(number)
            if bench.rig.has_deletes and row[1] == GONE:
                present.pop(number, None)
            elif old is None or replaces(row, old):
                present[number] = row
        assert Counter(tuple(row[name] for name in NAMES) for row in bench.rig.read_back()) == Counter(present.values())
        assert bench.verify(sink).ok


def test_a_batch_is_written_as_it_was_decided(tables: Any) -> None:
    bench = tables(update_when="new.version > old.version")
    put(bench, bench.sink(), (1, "new", 7), batch_id=0)
    late = [{"id": 1, "name": "late", "version": 3}]
    shown = bench.decide((late, bench.stage(bench.sink(), late, batch_id=1)), batch_id=1)
    bench.rig.update_when = None
    publish(bench.sink(), shown.publication)
    assert [row["name"] for row in bench.rig.read_back()] == ["new"]
    assert bench.verify(bench.sink()).ok


@FORMATS
def test_history_begins_with_the_table(tables: Any, rigs: ModuleType) -> None:
    bench = tables(rigs, write="history")
    put(bench, bench.sink(), (1, "a", 1), batch_id=0)
    bench.rig.write = "upsert"
    with pytest.raises(Refused, match="was filled with `history: true` so far"):
        bench.sink()
    bench.rig.write = "history"
    bench.rig.make().require_schema_accepted(pipeline=PIPELINE, schema=CHANGES)


def test_a_table_without_history_gets_none(tables: Any) -> None:
    bench = tables(write="upsert")
    put(bench, bench.sink(), (1, "a", 1), batch_id=0)
    bench.rig.write = "history"
    with pytest.raises(Refused, match=r"has no column 'valid_from'|was filled without `history: true`"):
        bench.sink()


def test_batches_of_a_history_cannot_be_taken_back(tables: Any) -> None:
    bench = tables(write="history")
    sink = bench.sink()
    shown = [put(bench, sink, (1, str(number), 1), batch_id=number) for number in range(2)]
    with pytest.raises(Refused, match="have replaced others"):
        sink.require_taken_back_exactly(taken_from(shown, after=1, before=99))


def test_a_column_of_the_rows_with_a_name_of_the_history(tables: Any) -> None:
    bench = tables(write="history")
    bench.rig.schema = spark_schema(id="long", IS_current="boolean")
    with pytest.raises(Usage, match="column 'IS_current', which `history` adds"):
        bench.sink()


def test_rows_that_the_spool_lost_are_missed(tables: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = tables(write="history")
    sink = bench.sink()
    rows = [dict(zip(NAMES, (number, "a", 1), strict=True)) for number in range(2)]
    shown = bench.decide((rows, bench.stage(sink, rows, batch_id=0)), batch_id=0)
    monkeypatch.setattr("penstock.sink.spool.Spool.read", lambda *_, **__: iter(()))
    with pytest.raises(ContentConflict, match="has 2 rows, but 0 are staged"):
        sink.publish(shown.publication)


def test_a_history_of_before_goes_on(tables: Any) -> None:
    """One that another program kept in the same columns, with `existing_rows: keep`."""
    bench = tables(write="history", sequence_by="version", keeps_rows=True)
    there = [{"id": 1, "name": "a", "version": 3, "valid_from": 3, "valid_to": None, "is_current": True}]
    schema = arrow_schema(json_with_history(CHANGES, "version"))
    write_deltalake(str(bench.rig.root), pa.Table.from_pylist(there, schema=schema))
    sink = bench.sink()
    put(bench, sink, (1, "b", 5), (2, "c", 1), batch_id=0)
    assert found(bench) == Counter([(1, "a", 3, 3, 5, False), (1, "b", 5, 5, None, True), (2, "c", 1, 1, None, True)])
    assert bench.verify(sink).ok
    DeltaTable(str(bench.rig.root)).update({"valid_to": "6"}, predicate="id = 1 AND NOT is_current")
    assert not bench.verify(sink).ok


@pytest.mark.parametrize("rigs", [iceberg_rig], ids=["iceberg"])
@pytest.mark.parametrize("write", ["append", "upsert"])
def test_rows_of_others_stay_in_an_iceberg_table(tables: Any, rigs: ModuleType, write: str) -> None:
    bench = tables(rigs, write=write, keeps_rows=True)
    bench.rig.log().prepare(CHANGES, ())
    theirs = [{"id": number, "name": "theirs", "version": number} for number in range(4)]
    bench.rig.table().append(pa.Table.from_pylist(theirs, schema=arrow_schema(CHANGES)))
    bench.rig.keeps_rows = False
    with pytest.raises(Refused, match="did not deliver") as refused:
        bench.sink()
    assert "set existing_rows: keep" in refused.value.remedy
    bench.rig.keeps_rows = True
    assert bench.verify(bench.sink()).ok
    for batch_id in range(2):
        put(bench, bench.sink(), (1, f"ours {batch_id}", 1), batch_id=batch_id)
        assert bench.verify(bench.sink()).ok
    expected = {"append": 6, "upsert": 4}[write]
    assert len(list(bench.rig.read_back())) == expected
    bench.rig.table().append(pa.Table.from_pylist(theirs[:1], schema=arrow_schema(CHANGES)))
    assert any("1 rows more" in problem.message for problem in bench.verify(bench.sink()).problems)


def test_history_needs_a_key(tables: Any) -> None:
    with pytest.raises(Usage, match="needs a key"):
        delta_rig.sink_into(tables().rig.account(), mode=WriteMode(write="history"))
