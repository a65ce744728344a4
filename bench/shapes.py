"""Rows of other shapes, and other divisions: one account, nested and many columns, skew, many accounts and partitions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.content import fingerprint
from bench.inputs import expressions, write_input
from bench.lakes import SPARKS, Lake, seconds
from bench.measuring import Bench
from bench.result import Case, Table

FILES = 4

_NESTED = (
    "id",
    "concat('account', CAST(xxhash64(id) & 65535 AS INT) % 3) AS account",
    "named_struct('name', concat('name-', id % 1000), 'at', timestamp_micros(1700000000000000 + id * 1000)) AS person",
    "transform(sequence(1, CAST(id % 4 AS INT) + 1), n -> id * n) AS readings",
    "array(named_struct('code', id % 97, 'price', id * 0.5D), named_struct('code', id % 89, 'price', id * 2.5D)) AS items",
    "CAST(id % 97 AS INT) AS k",
)
_SKEWED = ["id", "IF(id % 10 = 0, concat('account', id % 3), 'account0') AS account", *expressions()[2:]]
_MANY_COLUMNS = [*expressions(), *(f"id * {number} AS c{number}" for number in range(126 - len(expressions())))]
_PARTITIONED = [*expressions()[:-1], "CAST(id % 200 AS INT) AS part", "CAST(id % 97 AS INT) AS k"]


@dataclass(frozen=True)
class _Shape:
    """So many rows of these columns, and how they are divided."""

    name: str
    rows: int
    columns: Sequence[str]
    accounts: int = 1
    partition_by: tuple[str, ...] = ()


SHAPES = (
    _Shape("one account", 1_000_000, expressions()),
    _Shape("nested columns", 500_000, _NESTED, accounts=3),
    _Shape("skew", 1_000_000, _SKEWED, accounts=3),
    _Shape("126 columns", 100_000, _MANY_COLUMNS, accounts=3),
    _Shape("64 accounts", 1_000_000, expressions(accounts=64), accounts=64),
    _Shape("200 partitions", 1_000_000, _PARTITIONED, partition_by=("part",)),
    _Shape("3 accounts x 200 partitions", 1_000_000, _PARTITIONED, accounts=3, partition_by=("part",)),
)


def measure(bench: Bench) -> Iterator[Table]:
    """All of them in one table."""
    yield Table(
        name="shapes",
        title="Other rows and divisions, one batch",
        unit="s",
        cases=tuple(_case(bench, shape, first=shape is SHAPES[0]) for shape in SHAPES),
        amounts="rows",
        note="Three accounts where nothing else is said. Nested: structs, an array, and an array of structs. Skew: 93 % of the "
        "rows go to one of three accounts. The whole query from start to end, as above.",
    )


def _case(bench: Bench, shape: _Shape, *, first: bool) -> Case:
    rows = bench.sized(shape.rows, 20)
    lake = Lake(root=bench.scratch / shape.name.replace(" ", "-"), accounts=shape.accounts, partition_by=shape.partition_by)
    write_input(bench.spark, lake.root / "input", rows=rows, columns=shape.columns, files=bench.sized(FILES, 1))
    read = bench.spark.read.parquet(str(lake.root / "input"))
    columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in read.schema.fields)
    expected = fingerprint(read)
    figures = bench.in_rounds(
        SPARKS,
        lambda name, way: seconds(bench, lake, name, way, expected=expected, columns=columns),
        warm_up=first,
    )
    return Case(name=shape.name, figures=figures, amount=rows)
