"""Values of every type in a Delta table: read by the library's engine and by DuckDB, and still verified after a compaction."""

import datetime as dt
import json
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conformance.delta_rig import ChangingRig, DeltaRig

from penstock.spark.schema import arrow_schema
from penstock.testing.conformance import Bench, Row, content

STRUCT = {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": False, "metadata": {}}]}
KINDS: dict[str, Any] = {
    "id": "long",
    "tiny": "byte",
    "small": "short",
    "plain": "integer",
    "ratio": "float",
    "exact": "decimal(38,18)",
    "local": "timestamp_ntz",
    "seen": "timestamp",
    "day": "date",
    "texts": {"type": "array", "elementType": "string", "containsNull": True},
    "counts": {"type": "map", "keyType": "string", "valueType": "integer", "valueContainsNull": True},
    "inside": STRUCT,
    "deep": {"type": "array", "elementType": STRUCT, "containsNull": True},
}
LOCAL = dt.datetime(2026, 3, 29, 2, 30, 0, 123456, tzinfo=dt.timezone.utc).replace(tzinfo=None)
ROWS: list[Row] = [
    {
        "id": 0,
        "tiny": -128,
        "small": 32767,
        "plain": -(2**31),
        "ratio": 1.5,
        "exact": Decimal("12345678901234567890.123456789012345678"),
        "local": LOCAL,
        "seen": LOCAL.replace(tzinfo=dt.timezone.utc),
        "day": dt.date(1582, 10, 14),
        "texts": ["", None, "x"],
        "counts": [("a", 1), ("b", None)],
        "inside": {"x": 1},
        "deep": [{"x": 2}, None],
    },
    dict.fromkeys(KINDS) | {"id": 1},
    dict.fromkeys(KINDS) | {"id": 2, "texts": [], "counts": [], "deep": []},
]
FARTHEST = {"day": ((1 << 31) - 1, -(1 << 31)), "seen": (2**63 - 1, -(2**63)), "local": (2**63 - 1, -(2**63))}


class TypesRig(DeltaRig):
    """Of every type that Delta has."""

    schema = json.dumps(
        {
            "type": "struct",
            "fields": [{"name": name, "type": kind, "nullable": name != "id", "metadata": {}} for name, kind in KINDS.items()],
        }
    )

    def rows(self, ids: Iterable[int]) -> list[Row]:
        return [dict(ROWS[number % len(ROWS)]) | {"id": number} for number in ids]


class TypesByKeyRig(TypesRig, ChangingRig):
    """Rows are written anew by the driver when others of their file are replaced."""

    key = ("id",)


def test_values_of_every_type_stay_where_others_are_replaced(tmp_path: Path) -> None:
    """In files of this sink, and in files of a compaction."""
    rig = TypesByKeyRig(tmp_path)
    bench = Bench(rig)
    sink = bench.sink()
    bench.deliver(sink, bench.rows(range(9)), batch_id=0)
    for number in (4, 7):
        bench.deliver(sink, [{**row, "plain": number} for row in bench.rows([number, number + 20])], batch_id=number)
        expected = content(rig.settle([one.rows for one in bench.decided]))
        assert content(rig.read_back()) == expected
        assert content(_of_duckdb([str(rig.root / path) for path, _ in rig.active()])) == expected
        report = bench.verify(sink)
        assert report.ok, report
        rig.table().optimize.z_order(["plain"])
    bench.close()


def test_values_of_every_type(tmp_path: Path) -> None:
    rig = TypesRig(tmp_path)
    bench = Bench(rig)
    sink = bench.sink()
    shown = [bench.deliver(sink, bench.rows(range(at, at + 6)), batch_id=at) for at in (0, 10, 20)]
    expected = content(row for one in shown for row in one.rows)
    assert content(rig.read_back()) == expected
    files = [str(rig.root / path) for path, _ in rig.active()]
    assert content(_of_duckdb(files)) == expected
    assert bench.verify(sink).ok
    rig.table().optimize.compact()
    assert len(rig.active()) == 1
    report = bench.verify(sink)
    assert report.ok, report
    assert content(rig.read_back()) == expected
    bench.close()


@pytest.mark.parametrize("rig_type", [TypesRig, TypesByKeyRig])
def test_the_ends_of_sparks_calendar(tmp_path: Path, rig_type: type[DeltaRig]) -> None:
    """No year of Python's; the statistics leave such bounds out."""
    rig = rig_type(tmp_path)
    bench = Bench(rig)
    sink, schema = bench.sink(), arrow_schema(rig.schema)
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([0, 1], field.type)
            if field.name == "id"
            else pa.array(FARTHEST[field.name], pa.int32() if field.name == "day" else pa.int64()).cast(field.type)
            if field.name in FARTHEST
            else pa.nulls(2, field.type)
            for field in schema
        ],
        schema=schema,
    )
    staged = stage(sink, batch)
    bench.decide(([{"id": 0}, {"id": 1}], staged), batch_id=0)
    sink.publish(bench.decided[0].publication)
    if rig_type is TypesByKeyRig:  # which writes both rows anew
        bench.deliver(sink, [dict.fromkeys(KINDS) | {"id": number} for number in (0, 2)], batch_id=1)
        sink.publish(bench.decide(([{"id": 0}, {"id": 1}], stage(sink, batch.slice(0, 1), batch_id=2)), batch_id=2).publication)
    for statistics in statistics_in(rig):
        assert statistics["maxValues"].keys() == statistics["minValues"].keys() == {"id"}
    found = pa.table(rig.table().scan()).select(list(FARTHEST)).combine_chunks()
    for name, values in FARTHEST.items():
        assert sorted(found[name].cast(pa.int32() if name == "day" else pa.int64()).drop_null().to_pylist()) == sorted(values)
    assert bench.verify(sink).ok
    bench.close()


def statistics_in(rig: DeltaRig) -> list[dict[str, Any]]:
    """What the log's commits tell of files, in their order."""
    lines = [line for path in sorted((rig.root / "_delta_log").glob("*.json")) for line in path.read_text().splitlines()]
    return [json.loads(entry["add"]["stats"]) for entry in map(json.loads, lines) if "add" in entry]


def stage(sink: Any, batch: "pa.RecordBatch", *, batch_id: int = 0) -> tuple[Any, ...]:
    from penstock.core.row_hash import row_hashes
    from penstock.testing.conformance.bench import attempt

    writer = sink.stager().open(attempt(batch_id, 1, 0, 0), batch.schema)
    writer.write(batch, hashes=row_hashes(batch), accounts=None)
    return tuple(writer.finish())


def _of_duckdb(files: list[str]) -> list[Row]:
    """Of the types that both give alike: maps and zoned times come from the file itself."""
    plain = [name for name in KINDS if name not in {"counts", "seen"}]
    found = duckdb.sql(f"SELECT {', '.join(plain)} FROM read_parquet({files})")
    rows = [dict(zip(plain, row, strict=True)) for row in found.fetchall()]
    rest = {
        row["id"]: {"counts": row["counts"], "seen": row["seen"]}
        for path in files
        for row in pq.ParquetFile(path).read(["id", "counts", "seen"]).to_pylist()
    }
    return [{**row, **rest[row["id"]]} for row in rows]
