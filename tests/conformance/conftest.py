"""Directories are in memory in this layer.

A run draws an eighth of each sink's crashes, and half of the cases of what each contract says of a sink, as it may be set up; a
quarter where the engine behind it passes elsewhere; two campaigns of kills of each table format, and one of random changes. All
run with PENSTOCK_SOAK_FAULTS=all, and where a file is named.
"""

from functools import partial
from pathlib import Path

import pytest
from tests.conformance.lake_rig import FormatContract
from tests.conformance.table_rig import DialectContract
from tests.drawing import keep_some
from tests.memory import tmp_path

from penstock.testing.conformance import CrashContract, VerifyBesideDriverContract
from penstock.testing.conformance.staging import Examined
from penstock.testing.conformance.story import preload

__all__ = ["tmp_path"]

CRASHES_ONE_IN = 8
CASES_ONE_IN = 2
CASES_OF_DIALECTS_ONE_IN = 4
KILLS_ONE_IN, CHANGES_ONE_IN = 4, 24

SINKS = (
    *("cassandra", "dbapi", "delta", "duckdb", "http", "iceberg", "kafka", "many", "mysql"),
    *("object", "parquet", "postgres", "redshift", "sqlite", "sqlserver"),
)
CLIENTS = (
    *("azure.storage.blob", "boto3", "requests", "cassandra.cluster", "confluent_kafka", "duckdb", "kafka"),
    *("psycopg", "pymysql", "pytds", "redshift_connector"),
)

# Importing these takes most of a process that delivers one batch and is killed.
preload(["pytest", *CLIENTS, *(f"tests.conformance.test_{sink}_conformance" for sink in SINKS)])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if _of_crashes(item) is not None or _is_beside_driver(item):
            item.add_marker(pytest.mark.campaign)
    keep_some(config, items, one_in=CRASHES_ONE_IN, of=_of_crashes)
    keep_some(config, items, one_in=CASES_ONE_IN, of=partial(_of_contract, of_dialects=False))
    keep_some(config, items, one_in=CASES_OF_DIALECTS_ONE_IN, of=partial(_of_contract, of_dialects=True))
    keep_some(config, items, one_in=KILLS_ONE_IN, of=_of_kills)
    keep_some(config, items, one_in=CHANGES_ONE_IN, of=_of_changes)


def _of_crashes(item: pytest.Item) -> type | None:
    cls = getattr(item, "cls", None)
    return cls if isinstance(cls, type) and issubclass(cls, CrashContract) else None


def _is_beside_driver(item: pytest.Item) -> bool:
    """Whether it is one whose looks `make soak` has all of; see `tests.conformance.beside_driver`."""
    cls = getattr(item, "cls", None)
    return isinstance(cls, type) and issubclass(cls, VerifyBesideDriverContract)


def _of_contract(item: pytest.Item, *, of_dialects: bool) -> tuple[Path, str] | None:
    """The sentence of a contract that it tests for the sink of its file."""
    cls = getattr(item, "cls", None)
    if not isinstance(cls, type) or not issubclass(cls, Examined) or issubclass(cls, CrashContract):
        return None
    if issubclass(cls, (DialectContract, FormatContract)) is not of_dialects:
        return None
    return item.path, getattr(item, "originalname", item.name)


def _of_kills(item: pytest.Item) -> Path | None:
    """The file of a campaign of kills of one table format."""
    return item.path if item.path.stem in {"test_delta_kills", "test_iceberg_kills"} else None


def _of_changes(item: pytest.Item) -> Path | None:
    return item.path if item.path.stem == "test_change_kills" else None
