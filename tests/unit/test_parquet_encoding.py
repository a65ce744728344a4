"""Encodings of Parquet columns: what is chosen, that it is never larger than a dictionary for all, that everyone reads it."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.architecture.reading import ROOT
from tests.unit.parquet_target import PIPELINE, Target, stage

import penstock
from penstock.errors import Usage
from penstock.sink.parquet.encoding import Encodings, choose_encodings

ROWS = 20_000
NUMBERS = np.arange(ROWS)
RANDOM = np.random.default_rng(7)
DELTA, DICTIONARY, PLAIN = "delta_binary_packed", "dictionary", "plain"
PAGE = ROOT / "docs" / "howto" / "encodings.md"


def texts(numbers: Any, prefix: str = "customer-") -> pa.Array:
    return pa.array([f"{prefix}{number:x}" for number in numbers])


def drawn(values: int) -> Any:
    """Large numbers of which there are so many different ones."""
    return RANDOM.integers(-(2**63), 2**63 - 1, values)[RANDOM.integers(0, values, ROWS)]


SHAPES: Mapping[str, tuple[pa.Array, str]] = {
    "numbers that follow one another": (pa.array(NUMBERS), DELTA),
    "so as INT": (pa.array(NUMBERS.astype("int32")), DELTA),
    "so as SMALLINT": (pa.array((NUMBERS // 2).astype("int16")), DELTA),
    "so with nulls": (pa.array([None if n % 3 else n for n in range(ROWS)], pa.int64()), DELTA),
    "times with jitter": (pa.array(NUMBERS * 1000 + RANDOM.integers(0, 500, ROWS)).cast(pa.timestamp("us", "UTC")), DELTA),
    "any numbers": (pa.array(RANDOM.integers(-(2**63), 2**63 - 1, ROWS)), PLAIN),
    "numbers whose bytes compress": (pa.array(RANDOM.integers(0, 2**20, ROWS) << 40), PLAIN),
    "few numbers": (pa.array(drawn(97)), DICTIONARY),
    "some numbers": (pa.array(drawn(4000)), DICTIONARY),
    "some numbers, again and again": (pa.array(RANDOM.integers(-(2**63), 2**63 - 1, 4000)[NUMBERS % 4000]), DICTIONARY),
    "few texts": (texts(NUMBERS % 1000), DICTIONARY),
    "texts of which half repeat": (texts(RANDOM.integers(0, ROWS // 2, ROWS) * 7919), DICTIONARY),
    "texts once each": (texts(NUMBERS * 7919), PLAIN),
    "doubles once each": (pa.array(RANDOM.random(ROWS)), PLAIN),
    "few doubles": (pa.array(NUMBERS % 50 / 4), DICTIONARY),
    "decimals once each": (pa.array(NUMBERS / 100).cast(pa.decimal128(12, 2)), PLAIN),
    "truth": (pa.array(NUMBERS % 2 == 0), PLAIN),
    "nulls only": (pa.nulls(ROWS, pa.int64()), DICTIONARY),
    "bytes once each": (texts(NUMBERS * 7919).cast(pa.binary()), PLAIN),
    "dates": (pa.array((NUMBERS // 1000).astype("int32")).cast(pa.date32()), DICTIONARY),
}


def written(columns: Mapping[str, pa.Array], **options: Any) -> int:
    target = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), target, compression="zstd", store_schema=False, **options)
    return int(target.getvalue().size)


@pytest.mark.parametrize(("values", "expected"), SHAPES.values(), ids=SHAPES)
def test_each_column_has_what_fits_it_and_is_never_larger_for_it(values: pa.Array, expected: str) -> None:
    encodings = choose_encodings(pa.table({"x": values}), Encodings())
    assert encodings.columns == {"x": expected}
    assert written({"x": values}, **encodings.writer_options()) <= 1.05 * written({"x": values})


def test_few_rows_of_many_columns_are_not_looked_at() -> None:
    wide = pa.table({f"c{number}": NUMBERS[:500] for number in range(200)})
    assert choose_encodings(wide, Encodings()).writer_options()["use_dictionary"] is True


def test_an_account_of_few_rows_has_plain_columns_where_values_do_not_repeat() -> None:
    small = pa.table({"id": NUMBERS[:300], "k": NUMBERS[:300] % 7})
    assert choose_encodings(small, Encodings()).columns == {"id": PLAIN, "k": DICTIONARY}


def test_two_columns_of_one_path_have_a_dictionary() -> None:
    """Parquet cannot tell `a.b` from `b` inside of `a`, and neither can whoever sets an encoding."""
    both = pa.table({"a.b": NUMBERS, "a": pa.array([{"b": str(number)} for number in range(ROWS)])})
    assert choose_encodings(both, Encodings()).columns == {"a.b": DICTIONARY}


@cache
def nested() -> Mapping[str, pa.Array]:
    """Made for the test that needs them, not whenever tests are collected."""
    return {
        "list": pa.array([None if n % 5 == 0 else [n, None, n + 1] for n in range(ROWS)], pa.list_(pa.int64())),
        "texts": pa.array([[f"t{n % 9}"] * (n % 3) for n in range(ROWS)], pa.list_(pa.string())),
        "struct": pa.array([None if n % 7 == 0 else {"i": n, "deep": {"x": n / 7, "s": f"v{n % 5}"}} for n in range(ROWS)]),
        "map": pa.array([[(n, f"m{n}")] for n in range(ROWS)], pa.map_(pa.int64(), pa.string())),
        "structs": pa.array([[{"at": n}, None] for n in range(ROWS)]),
    }


def test_nested_columns_are_chosen_for_by_the_paths_that_parquet_has() -> None:
    chosen = choose_encodings(pa.table(nested()), Encodings()).columns
    made = pa.BufferOutputStream()
    pq.write_table(pa.table(nested()), made)
    schema = pq.ParquetFile(pa.BufferReader(made.getvalue())).schema
    assert list(chosen) == [schema.column(index).path for index in range(len(schema))]
    assert (chosen["list.list.element"], chosen["texts.list.element"]) == (DELTA, DICTIONARY)
    assert (chosen["struct.i"], chosen["struct.deep.x"], chosen["struct.deep.s"]) == (DELTA, PLAIN, DICTIONARY)
    assert (chosen["map.key_value.key"], chosen["map.key_value.value"]) == (DELTA, PLAIN)


EVERY_OPTION: Mapping[str, Any] = {
    "auto": "auto",
    "dictionary": "dictionary",
    "plain": "plain",
    "each": {
        "flat 0": DELTA,
        "flat 4": DELTA,
        "flat 10": "delta_byte_array",
        "flat 13": "byte_stream_split",
        "flat 15": DICTIONARY,
        "flat 18": "delta_length_byte_array",
        "flat 19": DELTA,
        "struct.deep.x": "byte_stream_split",
        "struct.deep.s": PLAIN,
    },
}


@pytest.mark.parametrize("given", EVERY_OPTION.values(), ids=EVERY_OPTION)
def test_staged_files_are_read_as_they_were_by_arrow_duckdb_and_pandas(tmp_path: Path, given: Any) -> None:
    target = Target(tmp_path, column_encoding=given, dictionary_pagesize_limit_bytes=50_000)
    flat = {f"flat {number}": values for number, (values, _) in enumerate(SHAPES.values())}
    table = pa.table({**flat, **nested()})[:5000]
    stage(target.sink(schema=None), table.combine_chunks().to_batches()[0])
    (file,) = target.staged()
    if isinstance(given, dict):
        found = encodings_of(file)
        for path, name in given.items():
            assert ("RLE_DICTIONARY" if name == DICTIONARY else name.upper()) in found[path], path
    assert pq.read_table(file).equals(table)
    pq.write_table(table, tmp_path / "plain.parquet", use_dictionary=False)
    query = "SELECT * FROM read_parquet(?)"
    with duckdb.connect() as connection:
        ours, other = (connection.execute(query, [str(path)]).fetchall() for path in (file, tmp_path / "plain.parquet"))
    assert ours == other
    assert pd.read_parquet(file).equals(pd.read_parquet(tmp_path / "plain.parquet"))


def encodings_of(file: Path) -> dict[str, set[str]]:
    group = pq.ParquetFile(file).metadata.row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    return {column.path_in_schema: set(column.encodings) for column in columns}


SCHEMA = (
    '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}},'
    '{"name":"tags","type":{"type":"array","elementType":"string","containsNull":true},"nullable":true,"metadata":{}},'
    '{"name":"good","type":"boolean","nullable":true,"metadata":{}},'
    '{"name":"price","type":"decimal(9,2)","nullable":true,"metadata":{}},'
    '{"name":"day","type":"date","nullable":true,"metadata":{}}]}'
)
REFUSED = [
    ({"idd": PLAIN}, "'idd', which is no column", "Name a column that is no partition: id, tags.list.element, good, price."),
    ({"tags": PLAIN}, "'tags', which is no column", "Name what it consists of: tags.list.element."),
    ({"day": PLAIN}, "'day', which is no column", "Name a column that is no partition"),
    (
        {"tags.list.element": DELTA},
        "is delta_binary_packed, but the column has the type string",
        "Use one of dictionary, plain, de",
    ),
    (
        {"id": "byte_stream_split"},
        "column_encoding.id is byte_stream_split, but the column has the type int64",
        "Use one of dict",
    ),
    ({"good": DICTIONARY}, "column_encoding.good is dictionary, but the column has the type bool", "Use one of plain"),
    ({"price": DELTA}, r"has the type decimal128\(9, 2\)", "Use one of dictionary, plain"),
]


@pytest.mark.parametrize(("given", "message", "remedy"), REFUSED, ids=[next(iter(given)) for given, _, _ in REFUSED])
def test_wrong_encodings_are_refused_before_anything_is_staged(
    tmp_path: Path, given: dict[str, str], message: str, remedy: str
) -> None:
    target = Target(tmp_path, column_encoding=given, partition_by=["day"])
    with pytest.raises(Usage, match=rf"Sink 'lake': .*{message}") as refused:
        target.sink(schema=None).require_schema_accepted(pipeline=PIPELINE, schema=SCHEMA)
    assert refused.value.remedy is not None
    assert refused.value.remedy.startswith(remedy)


def test_the_page_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = PAGE.read_text()
    (tmp_path / "readings.yaml").write_text(re.findall(r"^```yaml\n(.*?)^```", page, re.M | re.S)[0])
    lake = penstock.Pipeline.from_file(tmp_path / "readings.yaml").settings.sinks["lake"]
    limit = lake.dictionary_pagesize_limit
    target = Target(tmp_path, column_encoding=lake.column_encoding, dictionary_pagesize_limit_bytes=limit)
    columns = {"id": NUMBERS, "sensor": texts(NUMBERS % 9), "value": RANDOM.random(ROWS), "tags": nested()["texts"]}
    stage(target.sink(schema=None), pa.table(columns).to_batches()[0])
    (tmp_path / "lake").mkdir(exist_ok=True)
    target.staged()[0].rename(tmp_path / "lake" / "part.parquet")
    monkeypatch.chdir(tmp_path)
    with duckdb.connect() as connection:
        found = connection.execute(re.findall(r"^```sql\n(.*?)^```", page, re.M | re.S)[0]).fetchall()
    assert [(path, name) for path, names in found for name in names.split(", ") if name not in {"RLE", "PLAIN"}] == [
        ("id", "DELTA_BINARY_PACKED"),
        ("sensor", "RLE_DICTIONARY"),
        ("tags, list, element", "RLE_DICTIONARY"),
        ("value", "BYTE_STREAM_SPLIT"),
    ]
