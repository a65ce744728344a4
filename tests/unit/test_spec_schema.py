"""What is made from the settings is current, and editors accept what `load` accepts."""

import json
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from docs.pipeline_file import REFERENCE, SCHEMA_FILE, reference_text, schema
from ruamel.yaml import YAML

from penstock.errors import Usage
from penstock.spec.load import load
from penstock.spec.sink import SUPPORTED

PROJECT = Path(__file__).parents[2]
EXAMPLE = """\
pipeline: flights
home: ./state/flights
guarantee: exactly_once
spark:
  master: local[*]
  conf: {spark.sql.shuffle.partitions: 8}
sources:
  flights:
    format: csv
    path: ./incoming
    schema: "year INT, month INT"
    options: {header: true, maxFilesPerTrigger: 2}
transform:
  sql: SELECT * FROM flights WHERE dep_time IS NOT NULL
sinks:
  lake:
    type: parquet
    accounts:
      EWR: file:///data/ewr
      JFK: /data/jfk
      LGA: {url: file:///data/lga, options: {region: eu-west-1}}
    route: {column: origin}
    unrouted: fail
    partition_by: [month]
    compression: zstd
    target_file_size: 128MB
  warehouse:
    type: sqlite
    url: ${WAREHOUSE_URL:-sqlite:///warehouse.db}
    table: public.flights
    write: append
    key: []
    create: true
output_mode: append
trigger: {available_now: true}
checkpoint: ./state/flights/checkpoint
ledger: sqlite:///state/flights/ledger.db
spool: ./state/flights/spool
"""


def content(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


def accepts(text: str) -> bool:
    return bool(jsonschema.Draft202012Validator(schema()).is_valid(content(text)))


def test_the_shipped_schema_is_current() -> None:
    shipped = resources.files("penstock.spec").joinpath(SCHEMA_FILE).read_text(encoding="utf-8")
    assert json.loads(shipped) == schema(), "run `make docs`"


def test_the_reference_page_is_current() -> None:
    assert (PROJECT / REFERENCE).read_text() == reference_text(), "run `make docs`"


def test_the_schema_asks_every_sink_for_its_type() -> None:
    sinks = [part for part in schema()["$defs"].values() if "const" in part.get("properties", {}).get("type", {})]
    assert {part["properties"]["type"]["const"] for part in sinks} == set(SUPPORTED)
    assert [part["title"] for part in sinks if "type" not in part["required"]] == []


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


def test_the_example_of_the_interface_is_valid(tmp_path: Path) -> None:
    assert accepts(EXAMPLE)
    (tmp_path / "f.yaml").write_text(EXAMPLE)
    assert load(tmp_path / "f.yaml").pipeline == "flights"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("unrouted: fail", "unrouted: ${ACCOUNT}"),
        ("create: true", "create: ${CREATE}"),
        ("target_file_size: 128MB", "target_file_size: ${SIZE}"),
        ("compression: zstd", "compression: ${COMPRESSION}"),
        ("available_now: true", "processing_time: '${EVERY}'"),
        ("available_now: true", "processing_time: 10s"),
        ("  warehouse:", "  mine: {python: 'a.b:C', anything: [1]}\n  warehouse:"),
    ],
)
def test_the_schema_accepts_what_load_accepts(old: str, new: str) -> None:
    assert accepts(EXAMPLE.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("partition_by: [month]", "partiton_by: [month]"),
        ("partition_by: [month]", "partition_by: month"),
        ("    type: parquet\n", ""),
        ("type: parquet", "type: sqlite"),
        ("type: sqlite", "type: oracle"),
        ("compression: zstd", "compression: zst"),
        ("create: true", "create: 'yes'"),
        ("home: ./state/flights\n", ""),
        ("pipeline: flights", "pipeline: fli/ghts"),
        ("  flights:\n", "  fli ghts:\n"),
        ("available_now: true", "available_now: true, once: true"),
        ("available_now: true", "available_now: false"),
        ("route: {column: origin}", "route: {}"),
        ("target_file_size: 128MB", "target_file_size: big"),
    ],
)
def test_the_schema_refuses_what_load_refuses(tmp_path: Path, old: str, new: str) -> None:
    changed = EXAMPLE.replace(old, new)
    assert changed != EXAMPLE
    assert not accepts(changed)
    (tmp_path / "f.yaml").write_text(changed)
    with pytest.raises(Usage):
        load(tmp_path / "f.yaml")
