"""Partition directories: every value comes back as it was, or is refused."""

import datetime as dt
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyarrow import dataset, parquet

from penstock.errors import StageFailed, Usage
from penstock.sink.parquet.layout import NULL, PartitionColumn, escape, is_lost_as_directory, partition_columns, unescape
from penstock.testing.conformance.rig import HOSTILE

HERE = PartitionColumn(name="place", index=0, kind=pa.string())


@pytest.mark.parametrize(
    "text", [*HOSTILE, "a._COPYING_", "._COPYING_", "+", "a b", "a&b=c;d,e", "\x7f", "%25", "%zz", "{x}[y]^"]
)
def test_texts_come_back(text: str) -> None:
    directory = HERE.directory(text)
    assert directory.startswith("place=")
    assert not set(directory.removeprefix("place=")) & set("/=\0\n\r\t\\:*?\"#'[{^")
    if not is_lost_as_directory(text):
        assert HERE.value_in(directory.removeprefix("place=")) == text


@pytest.mark.parametrize(
    "text", ["null", "NULL", "Null", "nULL", "nan", "NaN", "none", "nulls", "null ", "%6Eull", "true", "a\x9b\u202e"]
)
def test_duckdb_and_pyarrow_read_the_same_text(tmp_path: Path, text: str) -> None:
    for number, value in enumerate((text, "plain", None)):
        (tmp_path / HERE.directory(value)).mkdir()
        parquet.write_table(pa.table({"id": [number]}), tmp_path / HERE.directory(value) / "part.parquet")
    found = duckdb.sql(f"SELECT id, place FROM read_parquet('{tmp_path}/*/*.parquet', hive_partitioning = true) ORDER BY id")
    assert found.fetchall() == [(0, text), (1, "plain"), (2, None)]
    read = dataset.dataset(tmp_path, partitioning="hive").to_table().sort_by("id")
    assert read.column("place").to_pylist() == [text, "plain", None]
    assert HERE.value_in(HERE.directory(text).removeprefix("place=")) == text


def test_escapes_as_spark_does() -> None:
    printable = "".join(map(chr, range(1, 128)))
    escaped = {character for character in printable if escape(character) != character}
    assert escaped == {*map(chr, range(1, 32)), "\x7f", *"\"#%'*/:=?\\{[]^"}
    assert escape("a/b=\x01é") == "a%2Fb%3D%01é"
    assert unescape("a%2fb%3D%zz%") == "a/b=%zz%"


def test_a_directory_that_spark_would_hide_is_not_made() -> None:
    assert HERE.directory("a._COPYING_") == "place=a._COPYING%5F"


@pytest.mark.parametrize(
    ("kind", "value", "directory"),
    [
        (pa.int8(), -128, "-128"),
        (pa.int64(), 2**63 - 1, "9223372036854775807"),
        (pa.bool_(), True, "true"),
        (pa.bool_(), False, "false"),
        (pa.date32(), dt.date(1, 1, 1), "0001-01-01"),
        (pa.date32(), dt.date(2024, 2, 29), "2024-02-29"),
        (pa.large_string(), "x", "x"),
        (pa.string(), None, NULL),
        (pa.int32(), None, NULL),
    ],
)
def test_values_of_other_types(kind: pa.DataType, value: Any, directory: str) -> None:
    column = PartitionColumn(name="c", index=0, kind=kind)
    assert column.directory(value) == f"c={directory}"
    assert column.value_in(directory) == value


@pytest.mark.parametrize(("kind", "directory"), [(pa.int32(), "x"), (pa.bool_(), "1"), (pa.date32(), "yesterday")])
def test_a_directory_of_another_type_is_told(kind: pa.DataType, directory: str) -> None:
    with pytest.raises(ValueError, match=directory):
        PartitionColumn(name="c", index=0, kind=kind).value_in(directory)


def test_a_name_may_be_as_long_as_file_systems_take() -> None:
    assert HERE.directory("z" * 249) == "place=" + "z" * 249
    for text in ("z" * 250, "é" * 125, "/" * 84):
        with pytest.raises(StageFailed, match=r"'place' makes a directory name of 25\d bytes"):
            HERE.directory(text)


def test_the_name_of_a_column_is_escaped_too() -> None:
    assert PartitionColumn(name="a=b", index=0, kind=pa.string()).directory("c") == "a%3Db=c"


def test_what_cannot_be_partitioned_by_is_refused() -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us")), ("_x", pa.string()), ("u", pa.float64())])
    for name, told in (("nope", "names the column 'nope'"), ("at", "timestamp"), ("_x", "hidden"), ("u", "double")):
        with pytest.raises(Usage, match=told):
            partition_columns(schema, (name,))
    with pytest.raises(Usage, match="Every column"):
        partition_columns(pa.schema([("id", pa.int64())]), ("id",))
    assert [column.index for column in partition_columns(schema, ("id",))] == [0]
