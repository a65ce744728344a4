"""Source files and rows that cannot be delivered: the run names the file or the account, decides nothing, and goes on once they
are mended under the same name.
"""

import csv
import gzip
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.crash.errors import (
    assert_continues,
    assert_told,
    assert_unchanged,
    begun,
    content,
    feed,
    new_world,
    newest_input,
    run,
)
from tests.crash.world import World

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.timeout(120)]

KINDS = (pa.int32(), pa.string(), pa.int32(), pa.string(), pa.float64())


@dataclass(frozen=True)
class Damage:
    """What is done to the good bytes of the file that waits; `option` is one of the source that makes Spark look closely."""

    done: Callable[[bytes], bytes]
    said: str
    option: str = "header: true"


CSV = {
    "no number": Damage(lambda good: good + b'"x","EWR","1","x","1"\n', 'For input string: "x"', "header: true, mode: FAILFAST"),
    "another header": Damage(
        lambda good: good.replace(b'"origin"', b'"depart"', 1),
        "CSV header does not conform",
        "header: true, enforceSchema: false",
    ),
    "a column too few": Damage(
        lambda good: b"\n".join(line.rpartition(b",")[0] for line in good.splitlines()),
        "FAILED_READ_FILE",
        "header: true, mode: FAILFAST",
    ),
}
GZIP = {
    "cut": Damage(lambda good: gzip.compress(good)[:100], "Unexpected end of input stream"),
    "not compressed": Damage(lambda good: good, "not a gzip file"),
    "garbage": Damage(lambda good: gzip.compress(good)[:10] + bytes(range(255)), "FAILED_READ_FILE"),
}


def rewritten(change: Callable[[pa.Table], pa.Table]) -> Callable[[bytes], bytes]:
    """The bytes of the Parquet file with another table in it."""

    def bytes_of(good: bytes) -> bytes:
        sink = pa.BufferOutputStream()
        pq.write_table(change(pq.read_table(pa.BufferReader(good))), sink)
        return bytes(sink.getvalue())

    return bytes_of


def with_id(kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.set_column(0, "id", table["id"].cast(kind))


MISMATCH = "Data type mismatches when reading Parquet column [id]. Expected Spark type int"
PARQUET = {
    "cut": Damage(lambda good: good[: len(good) // 2], "is not a Parquet file"),
    "garbage": Damage(lambda good: bytes(len(good)), "is not a Parquet file"),
    "a page torn": Damage(lambda good: good[:4] + bytes(200) + good[204:], "FAILED_READ_FILE"),
    "text for a number": Damage(rewritten(with_id(pa.string())), MISMATCH),
    "a wider number": Damage(rewritten(with_id(pa.int64())), MISMATCH),
}


def assert_corrupt(world: World, bad: Path, damage: Damage) -> None:
    """Refused twice in the same words, since a replay meets the same file; mended, it is delivered."""
    before = content(world)
    for _ in range(2):
        said = ["Spark could not compute the batch: Encountered error while reading file", bad.name, damage.said]
        assert_told(run(world), "StageFailed", code=1, said=said, remedy="Put a good file of that name in its place")
    assert_unchanged(world, before)


def mend(bad: Path, good: bytes) -> None:
    """As the remedies say: with the modification time that Spark planned the file with."""
    planned = bad.stat()
    bad.write_bytes(good)
    os.utime(bad, ns=(planned.st_atime_ns, planned.st_mtime_ns))


@pytest.mark.parametrize("damage", [pytest.param(damage, id=name) for name, damage in CSV.items()])
def test_a_corrupt_csv_file(spark: SparkSession, tmp_path: Path, damage: Damage) -> None:
    world = new_world(tmp_path)
    world.rewrite(("header: true", damage.option))
    bad = newest_input(begun(world))
    good = bad.read_bytes()
    bad.write_bytes(damage.done(good))
    assert_corrupt(world, bad, damage)
    mend(bad, good)
    assert_continues(world)


@pytest.mark.parametrize("damage", [pytest.param(damage, id=name) for name, damage in GZIP.items()])
def test_a_badly_compressed_file(spark: SparkSession, tmp_path: Path, damage: Damage) -> None:
    world = begun(new_world(tmp_path))
    plain = newest_input(world)
    good = plain.read_bytes()
    bad = plain.rename(plain.with_suffix(".csv.gz"))
    bad.write_bytes(damage.done(good))
    assert_corrupt(world, bad, damage)
    mend(bad, gzip.compress(good))
    assert_continues(world)


@pytest.mark.parametrize("damage", [pytest.param(damage, id=name) for name, damage in PARQUET.items()])
def test_a_corrupt_parquet_file(spark: SparkSession, tmp_path: Path, damage: Damage) -> None:
    world = new_world(tmp_path)
    world.rewrite(("format: csv", "format: parquet"), ("header: true, ", ""))
    (first,) = as_parquet(world)
    assert run(world).code == 0, first
    feed(world)
    (bad,) = as_parquet(world)
    good = bad.read_bytes()
    bad.write_bytes(damage.done(good))
    assert_corrupt(world, bad, damage)
    mend(bad, good)
    assert run(world).code == 0
    world.assert_exact()


def as_parquet(world: World) -> list[Path]:
    """Every CSV file of the source becomes a Parquet file; which ones."""
    made = []
    for file in sorted((world.root / "incoming").glob("*.csv")):
        with file.open(newline="") as text:
            header, *lines = csv.reader(text, escapechar="\\", doublequote=False)
        columns = [pa.array(values).cast(kind) for values, kind in zip(zip(*lines, strict=True), KINDS, strict=True)]
        made.append(file.with_suffix(".parquet"))
        pq.write_table(pa.table(columns, names=header), made[-1])
        file.unlink()
    return made


ROUTES: Mapping[str, tuple[bytes, str]] = {
    "an unknown account": (b'"SFO"', "rows route to the account 'SFO'"),
    "no account": (b"", "rows route to the account null"),
}


@pytest.mark.parametrize(("origin", "said"), ROUTES.values(), ids=ROUTES)
def test_a_row_that_no_account_takes(spark: SparkSession, tmp_path: Path, origin: bytes, said: str) -> None:
    world = begun(new_world(tmp_path))
    before, bad = content(world), newest_input(world)
    good = bad.read_bytes()
    bad.write_bytes(good.replace(b'"LGA"', origin))
    for _ in range(2):
        told = [said, "sink 'lake' has EWR, JFK, LGA"]
        assert_told(run(world), "StageFailed", code=1, said=told, remedy="let `unrouted` name an account")
    assert_unchanged(world, before)
    mend(bad, good)
    assert_continues(world)


def test_a_row_that_the_query_cannot_compute(spark: SparkSession, tmp_path: Path) -> None:
    world = begun(new_world(tmp_path))
    before, right = content(world), world.file.read_text()
    query = "SELECT id, origin, month, payload, amount + CAST(payload AS INT) AS amount FROM flights"
    world.rewrite(("sinks:\n", f"transform: {{sql: '{query}'}}\nsinks:\n"))
    said = ["""The value 'row """, 'cannot be cast to "INT"']
    assert_told(run(world), "StageFailed", code=1, said=said, remedy="Mend the cause (in the transform, or in the data)")
    assert_unchanged(world, before)
    world.file.write_text(right)
    assert_continues(world)


def test_the_source_directory_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    """A volume that is not mounted, say."""
    world = begun(new_world(tmp_path))
    before, incoming = content(world), world.root / "incoming"
    incoming.rename(world.root / "elsewhere")
    assert_told(run(world), "Usage", code=2, said=[f"sources.flights.path {incoming}"], remedy="Create the directory")
    assert_unchanged(world, before)
    (world.root / "elsewhere").rename(incoming)
    assert_continues(world)
