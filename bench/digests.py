"""What the content digest costs in the pass: the hash that covers NULLs against the older one, and against no hash."""

import time
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame

from bench.inputs import expressions
from bench.measuring import Bench, require_content
from bench.result import Case, Table
from penstock.core.model import DIGEST_MODULUS, RowDigest
from penstock.core.row_hash import digest, row_hashes
from penstock.stage.row_hash_sql import rowhash_sql

ROWS = 500_000
NO_HASH = "no hash"
FIRST = "id < 1000"
"""Rows whose hashes are compared with those that Python computes."""

_NESTED = (
    "id",
    "transform(sequence(1, id % 5), x -> x * id) AS list",
    "named_struct('a', id, 'b', concat('n', id % 100)) AS pair",
    "map('k', id, 'v', id + 1) AS lookup",
    "array(named_struct('x', id, 'y', id % 7), named_struct('x', 1L, 'y', id)) AS items",
)
_NESTED_WITH_NULLS = (
    "id",
    "IF(id % 3 = 0, NULL, transform(sequence(1, id % 5), x -> IF(x % 2 = 0, NULL, x * id))) AS list",
    "IF(id % 4 = 0, NULL, named_struct('a', IF(id % 3 = 0, NULL, id), 'b', concat('n', id % 100))) AS pair",
    "map('k', IF(id % 2 = 0, NULL, id), 'v', id + 1) AS lookup",
    "array(named_struct('x', IF(id % 3 = 0, NULL, id), 'y', id % 7), NULL) AS items",
)


def _with_nulls(columns: Sequence[str]) -> list[str]:
    """Every column but the first is NULL in a third to a ninth of the rows."""
    parts = [column.rpartition(" AS ") for column in columns[1:]]
    return [columns[0], *(f"IF(id % {at} = 0, NULL, {sql}) AS {name}" for at, (sql, _, name) in enumerate(parts, 3))]


SHAPES = {
    "flat": expressions(),
    "flat, with NULLs": _with_nulls(expressions()),
    "nested": _NESTED,
    "nested, with NULLs": _NESTED_WITH_NULLS,
}


def measure(bench: Bench) -> Iterator[Table]:
    """One table, of all shapes of rows."""
    yield Table(
        name="digests",
        title="What the hash of a row costs in the pass",
        unit="s",
        cases=tuple(_case(bench, name, columns) for name, columns in SHAPES.items()),
        ours=(RowDigest.XXHASH64_NULLS.value,),
        comparison="added",
        amounts="rows",
        note="Rows from Spark's cache into its noop sink, with the hash of new ledgers, with that of older ones, which does not "
        "cover NULLs, and without. Flat: the seven columns of the other parts. Nested: an array, a struct, a map and an array "
        "of structs.",
    )


def _case(bench: Bench, name: str, columns: Sequence[str]) -> Case:
    count = bench.sized(ROWS, 1_000)
    plain = bench.spark.range(0, count, 1, 2).selectExpr(*columns)
    rows = bench.on_its_way(plain).persist()
    hashed = {kind.value: rows.selectExpr("*", f"{rowhash_sql(plain.schema, kind)} AS penstock_hash") for kind in RowDigest}
    figures = bench.in_rounds({**hashed, NO_HASH: rows}, lambda _, frame: _seconds(frame), warm_up=True)
    first = pa.Table.from_batches(plain.where(FIRST)._collect_as_arrow())  # toArrow() fails on nulls inside of nulls
    for kind in RowDigest:
        found = _digest(hashed[kind.value].where(FIRST))
        require_content(found, digest(row_hashes(first, kind)), writer=f"The hash {kind.value} of {name} rows")
    rows.unpersist()
    return Case(name=name, figures=figures, amount=count)


def _seconds(frame: DataFrame) -> float:
    started = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - started


def _digest(hashed: DataFrame) -> int:
    found = hashed.selectExpr("sum(CAST(penstock_hash AS DECIMAL(38, 0))) AS total").first()
    assert found is not None
    return int(found["total"]) % DIGEST_MODULUS
