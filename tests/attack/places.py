"""An empty place for a pipeline's rows: a table, or directories, of each kind of sink."""

from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.attack.pipeline import Pipeline

from penstock.core.model import AccountName, SinkName
from penstock.sink.parquet import ParquetSink, directory_account
from penstock.testing.conformance import PIPELINE, SinkRig

TABLES = ("sqlite", "duckdb", "postgres", "mysql")
KINDS = ("parquet", *TABLES)
COLUMNS = {"id": "long", "name": "string"}


class LakeRig(SinkRig):
    """Accounts that are directories: one, or some, to which rows go by their id."""

    def __init__(self, directory: Path, **options: Any) -> None:
        super().__init__(directory)
        self.place, self.options = directory, options

    def root(self, account: str) -> Path:
        return self.place / "lake" / account

    def make(self, **changed: Any) -> ParquetSink:
        settings = {"accounts": ("only",), "name": "lake", **self.options, **changed}
        names = settings.pop("accounts")
        return ParquetSink(
            **{**settings, "name": SinkName(settings["name"])},
            pipeline=PIPELINE,
            accounts={AccountName(name): directory_account(self.root(name)) for name in names},
            route_sql="account" if len(names) > 1 else None,
        )

    def parquet_files(self) -> list[Path]:
        return sorted(path for path in (self.place / "lake").glob("[!.]*/**/*.parquet"))

    def read_back(self) -> Any:
        raise NotImplementedError


def rig_of(kind: str, directory: Path, **options: Any) -> Any:
    directory.mkdir()
    if kind == "parquet":
        return LakeRig(directory, **options)
    module = import_module(f"tests.unit.{kind}_target")
    return (module.TopicRig if kind == "kafka" else module.TableRig)(directory, **options)


@pytest.fixture
def pipelines(tmp_path):
    """Makes pipelines, each with a place and a home of its own."""
    numbers = count()

    def make(kind: str, *, columns=COLUMNS, options=None, **settings):
        number = next(numbers)
        rig = rig_of(kind, tmp_path / f"place{number}", **(options or {}))
        return Pipeline(rig, tmp_path / f"home{number}", columns=columns, **settings)

    return make
