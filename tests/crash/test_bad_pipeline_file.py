"""A pipeline file with a mistake in it: the run says where and what, has touched nothing, and goes on once it is corrected."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.crash.errors import assert_continues, assert_told, assert_unchanged, begun, content, new_world, run

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.timeout(120)]


@dataclass(frozen=True)
class Mistake:
    """A change of the file; `line` is a text in the line that must be named, empty where Spark alone can see the mistake."""

    old: str
    new: str
    said: str
    remedy: str
    line: str = ""


def _sink(text: str) -> str:
    return f"  second:\n{text}  warehouse:\n"


SECOND_LAKE = _sink("    type: parquet\n    accounts: {only: ./lake/ewr}\n")
SECOND_TABLE = _sink("    type: sqlite\n    url: sqlite:///warehouse.db\n    table: flights\n")

IN_THE_FILE = {
    "an unknown key": Mistake("partition_by:", "partiton_by:", "sinks.lake.partiton_by is not a known key", "partition_by?"),
    "a wrong type": Mistake("[month]", "7", "sinks.lake.partition_by should be a list, found the number 7", "[a, b]", "by: 7"),
    "a wrong value": Mistake("available_now: true", "available_now: soon", "should be true, found the text 'soon'", "Write true"),
    "an unset variable": Mistake(
        "sqlite:///warehouse.db", "${PENSTOCK_NOT_SET}", "PENSTOCK_NOT_SET, which is not set", "Set PENSTOCK_NOT_SET", "url:"
    ),
    "an unknown type of sink": Mistake("type: sqlite", "type: sqllite", "sinks.warehouse.type", "Did you mean sqlite?"),
    "a key given twice": Mistake("  warehouse:\n", "  lake:\n", "sinks.lake is given twice, first in line 13", "Keep one", ""),
    "an unclosed bracket": Mistake("sinks:\n", "sinks: [\n", "not valid YAML", "Check the indentation, quotes", "type: parquet"),
    "a tab": Mistake("  lake:\n", "\tlake:\n", "not valid YAML", "Check the indentation, quotes", "\tlake:"),
    "accounts in one directory": Mistake(
        "JFK: ./lake/jfk", "JFK: ./lake/ewr", "is the same place as sinks.lake.accounts.EWR", "a directory of its own", "JFK:"
    ),
    "sinks in one directory": Mistake(
        "  warehouse:\n", SECOND_LAKE, "sinks.second.accounts.only", "a directory of its own", "{only:"
    ),
    "sinks in one table": Mistake("  warehouse:\n", SECOND_TABLE, "is also the table of", "a table of its own", ""),
}

IN_SPARKS_EYES = {
    "a missing route column": Mistake("column: origin", "column: airport", "sinks.lake.route", "The rows have id, origin, month"),
    "a type that Spark has not": Mistake("id INT,", "id INTT,", "sources.flights.schema cannot be read", "name TYPE"),
    "a missing source directory": Mistake("./incoming", "./incomming", "/incomming does not exist", "correct the path"),
    "an unknown format": Mistake("format: csv", "format: cvs", "sources.flights", "csv"),
    "a column that the query lacks": Mistake(
        "sinks:\n", "transform: {sql: 'SELECT *, nme FROM flights'}\nsinks:\n", "transform.sql line 1, column 11", "Correct"
    ),
    "no query": Mistake("sinks:\n", "transform: {sql: SELEC 1}\nsinks:\n", "transform.sql line 1, column 1", "Correct"),
    "a missing module": Mistake(
        "sinks:\n", "transform: {python: 'nomod:clean'}\nsinks:\n", "there is no module nomod", "nomod.py"
    ),
}


@pytest.mark.parametrize("mistake", [pytest.param(value, id=key) for key, value in {**IN_THE_FILE, **IN_SPARKS_EYES}.items()])
def test_a_mistake(spark: SparkSession, tmp_path: Path, mistake: Mistake) -> None:
    world = begun(new_world(tmp_path))
    before, right = content(world), world.file.read_text()
    world.rewrite((mistake.old, mistake.new))
    said = [mistake.said] if mistake in IN_SPARKS_EYES.values() else [mistake.said, _place(world.file, mistake)]
    assert_told(run(world), "Usage", code=2, said=said, remedy=mistake.remedy)
    assert_unchanged(world, before)
    world.file.write_text(right)
    assert_continues(world)


def test_a_missing_partition_column(spark: SparkSession, tmp_path: Path) -> None:
    """Once rows are there, other partitions are refused whatever they are named."""
    world = new_world(tmp_path)
    right = world.file.read_text()
    world.rewrite(("[month]", "[monat]"))
    assert_told(
        run(world), "Usage", code=2, said=["Sink 'lake': partition_by names the column 'monat'"], remedy="Correct partition_by"
    )
    world.file.write_text(right)
    before = content(begun(world))
    world.rewrite(("[month]", "[monat]"))
    assert_told(
        run(world),
        "PipelineChanged",
        code=3,
        said=["sinks.lake.partition_by changed", "the start is refused"],
        remedy="Set it back",
    )
    assert_unchanged(world, before)
    world.file.write_text(right)
    assert_continues(world)


def _place(file: Path, mistake: Mistake) -> str:
    """`file:line:` of the mistake, only `file:` where the line is for the reader of YAML to say."""
    text = mistake.line or mistake.new.strip()
    numbers = [number for number, line in enumerate(file.read_text().splitlines(), start=1) if text in line]
    return f"{file}:{numbers[0]}: " if len(numbers) == 1 else f"{file}:"


@pytest.mark.parametrize(
    ("option", "remedy"),
    [("sinks.lake.compresion=zstd", "Did you mean compression?"), ("sinks.lake.compression=zip", "Use one of zstd")],
)
def test_a_mistake_in_an_option(spark: SparkSession, tmp_path: Path, option: str, remedy: str) -> None:
    world = begun(new_world(tmp_path))
    before = content(world)
    key = option.partition("=")[0]
    assert_told(run(world, "--set", option), "Usage", code=2, said=[f"--set {key}: {key}"], remedy=remedy)
    assert_unchanged(world, before)
    assert_continues(world)


def test_an_account_that_the_file_has_lost(spark: SparkSession, tmp_path: Path) -> None:
    """The batch that was decided for it comes first."""
    world = begun(new_world(tmp_path))
    before, right = content(world), world.file.read_text()
    world.rewrite(("LGA: ./lake/lga", "SFO: ./lake/sfo"))
    said = ["Batch 0 holds rows for account 'LGA'", "sink 'lake' lacks"]
    assert_told(run(world), "LedgerMismatch", code=3, said=said, remedy="penstock recover")
    assert_unchanged(world, before)
    world.file.write_text(right)
    assert_continues(world)
