"""A key at the wrong place of a pipeline file: the message says where it belongs, and there it is taken."""

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from penstock.errors import Usage
from penstock.spec.load import load

FILE = """\
pipeline: flights
home: ./state
sources:
  flights: {format: csv, path: ./incoming, schema: id INT}
sinks:
  lake: {type: parquet, accounts: {all: ./lake}}
  warehouse: {type: sqlite, url: 'sqlite:///w.db', table: t}
"""
TWO = FILE.replace("sinks:", "  other: {format: kafka, options: {}}\nsinks:")


def mistake(directory: Path, place: str, key: str, value: object = 1, *, file: str = FILE) -> Usage:
    """Return what is said of a file that has `key` below `place`."""
    content = YAML(typ="safe").load(file)
    below = content
    for step in filter(None, place.split("/")):
        below = below.setdefault(step, {})
    below[key] = value
    path = directory / "f.yaml"
    with path.open("w") as written:
        YAML(typ="safe").dump(content, written)
    with pytest.raises(Usage) as raised:
        load(path)
    return raised.value


@pytest.mark.parametrize(
    ("place", "key", "remedy"),
    [
        ("sinks/warehouse", "trigger", "It belongs at the top of the file."),
        ("sinks/lake", "output_mode", "It belongs at the top of the file."),
        ("sources/flights", "transform", "It belongs at the top of the file."),
        ("", "partition_by", "It belongs below sinks.lake."),
        ("", "url", "It belongs below sources.flights or below sinks.warehouse."),
        ("", "watermark", "It belongs below sources.flights."),
        ("", "available_now", "It belongs below trigger."),
        ("sinks/lake", "processing_time", "It belongs below trigger."),
        ("", "sql", "It belongs below transform."),
        ("", "master", "It belongs below spark."),
        ("spark", "spark.sql.shuffle.partitions", "It belongs below spark.conf."),
        ("", "maxFilesPerTrigger", "It belongs below sources.flights.options."),
        ("sources/flights", "header", "It belongs below sources.flights.options."),
        ("sources/flights/options", "watermark", "It belongs below sources.flights."),
        ("sources/flights", "key", "It belongs below sinks.warehouse."),
        ("sources/flights", "type", "A source has the key format in its place."),
    ],
)
def test_where_a_key_belongs_is_said(tmp_path: Path, place: str, key: str, remedy: str) -> None:
    error = mistake(tmp_path, place, key)
    assert error.message.endswith("is not a known key.")
    assert error.remedy == remedy


def test_a_key_of_other_sinks_is_not_sent_to_the_sources(tmp_path: Path) -> None:
    remedy = mistake(tmp_path, "sinks/lake", "url").remedy
    assert remedy.startswith("It is a key of sinks of type ")
    assert "sqlite" in remedy
    assert "The keys here are: type, accounts," in remedy


def test_of_several_sources_those_that_take_the_key_are_named(tmp_path: Path) -> None:
    said = str(mistake(tmp_path, "", "startingOffsets", file=TWO))
    assert "startingOffsets is not a known key. It belongs below sources.other.options." in said
    assert "failOnDataLoss is not a known key" in str(mistake(tmp_path, "sources/flights/options", "failOnDataLoss", file=TWO))


def test_a_key_of_other_types_of_sinks_is_named_as_that(tmp_path: Path) -> None:
    remedy = mistake(tmp_path, "sinks/warehouse", "partition_by").remedy
    assert remedy.startswith("It is a key of sinks of type parquet, delta, iceberg, cassandra. The keys here are: ")
    assert mistake(tmp_path, "sinks/warehouse", "tabel").remedy.startswith("Did you mean table? The keys here are: ")


def test_what_is_nowhere_is_said_as_before(tmp_path: Path) -> None:
    assert mistake(tmp_path, "", "parallelism").remedy.startswith("The keys here are: pipeline, home, ")


def test_a_sink_with_a_format(tmp_path: Path) -> None:
    error = mistake(tmp_path, "sinks", "third", {"format": "sqlite"})
    assert error.message.endswith("sinks.third.format is a key of sources.")
    assert error.remedy == "Write it as type: sqlite, as sinks have it."
    assert mistake(tmp_path, "sinks", "third", {"format": "x"}).message.endswith("sinks.third.type is missing.")
