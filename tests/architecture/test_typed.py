"""As it is installed: code that uses Penstock passes mypy's strict mode, and what is wrong in it is found; the simulator runs."""

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import mypy
import pytest
from packaging.requirements import Requirement

from tests.architecture.reading import ROOT
from tests.spark.page import Page

DROP_IN, _, PIPELINE, _ = Page("python").blocks("python")
OWN = """
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import penstock
import pyarrow as pa  # type: ignore[import-untyped]


class Lines(penstock.OwnSink[None]):
    where = "nowhere"

    def __init__(self, directory: str, **given: Any) -> None:
        super().__init__(**given)
        self.directory = directory

    def exists(self) -> bool:
        return True

    def create(self, schema: pa.Schema) -> None: ...

    @contextmanager
    def transaction(self) -> Iterator[None]:
        yield

    def write_rows(self, transaction: None, batch: penstock.OwnBatch) -> None:
        print(batch.key, [penstock.to_json_lines(rows) for rows in batch.rows])

    def write_mark(self, transaction: None, key: str, mark: str) -> None: ...

    def read_mark(self, transaction: None, key: str) -> str | None:
        return None

    def read_rows(self, transaction: None, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        yield from ()


columns = ["id"]
encode = penstock.Encode(registry={"url": "http://registry:8081"}, value="avro")
registry = penstock.Registry(url="http://registry:8081", timeout="5s")
decode = penstock.Decode(registry=registry, value=penstock.Coded(format="json"))
penstock.PostgreSQL(url="postgresql://db/shop", table="flights", write="upsert", key=columns)
penstock.MySQL(url="mysql://db/shop", table="flights", write="merge", key=columns, merge={"file": "merge.sql"})
penstock.SQLServer(url="sqlserver://db/shop", table="flights", key=columns)
penstock.Redshift(url="redshift://db/shop", table="flights", key=columns)
penstock.DuckDB(url="duckdb:///shop.db", table="flights", key=columns)
penstock.Cassandra(url="cassandra://db/shop", table="flights", key=columns, wait="1m")
penstock.DBAPI(driver="sqlite3", connect={"database": "shop.db"}, table="flights", key=columns)
penstock.Kafka(bootstrap="broker:9092", topic="flights", encode=encode, transaction_timeout="2m")
penstock.Kafka(bootstrap="broker:9092", topic="flights", value=penstock.RecordValue(json=columns))
penstock.Source(format="kafka", options={"subscribe": "flights", "maxOffsetsPerTrigger": 10}, decode=decode)
penstock.Source(format="rate", watermark=penstock.Watermark(column="timestamp", delay="10m"))
penstock.Parquet(accounts={"all": penstock.Account(url="lake")}, route=penstock.Route(hash=columns), target_file_size="1GB")
penstock.Delta(path="lake", maintenance={"every": 10, "compact": True, "vacuum_after": "7d"})
by_name = penstock.PythonSink(python="lines:Lines", directory="lines")
by_class = penstock.PythonSink(python=Lines, directory="lines")
penstock.Delivery("lines", home="state", sinks={"object": Lines("lines"), "class": by_class, "name": by_name})
penstock.Delivery("lines", home="state", sinks={"one": {"type": "memory"}, "other": penstock.Memory()}, guarantee="at_least_once")
"""
WRONG = """
import penstock

penstock.Parquet(acounts={})  # type: ignore[call-arg]
penstock.PostgreSQL(url="postgresql://db/shop", table=3)  # type: ignore[arg-type]
penstock.Source(format="csv", path="incoming", header=True)  # type: ignore[call-arg]
penstock.Trigger(available_now=False)  # type: ignore[arg-type]
penstock.PythonSink(python=3)  # type: ignore[arg-type]
penstock.Delivery("flights", home="state", sinks={"lake": 3})  # type: ignore[dict-item]
penstock.read("flights.yaml", "lake", None, 3, True)  # type: ignore[call-arg]
penstock.SQLite(url="sqlite:///shop.db", table="flights", key=3)  # type: ignore[arg-type]
penstock.Postgress  # type: ignore[attr-defined]
"""
"""Strict mode also tells of a `type: ignore` that nothing needs: each must be an error, so no name is `Any`."""


def install(site: Path) -> None:
    """The wheel, built without network where what builds it is there (`dev` has it), else what would be in it."""
    if find_spec("hatchling") is None:
        shutil.copytree(ROOT / "src" / "penstock", site / "penstock")
        return
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--target", str(site), str(ROOT)], check=True, capture_output=True)


def environment(directory: Path) -> tuple[Path, Path]:
    """The Python of a new environment, and where its packages are."""
    venv.create(directory, with_pip=False, symlinks=True)
    [site] = directory.glob("lib/python*/site-packages")
    return directory / "bin" / "python", site


@pytest.fixture(scope="module", name="installed")
def _installed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An environment that has Penstock installed, and else what this one has."""
    python, site = environment(tmp_path_factory.mktemp("installed"))
    install(site)
    (site / "besides.pth").write_text(f"{Path(mypy.__file__).parents[1]}\n")
    return python, site


def test_users_code_type_checks_against_the_installed_package(tmp_path: Path, installed: tuple[Path, Path]) -> None:
    python, _ = installed
    for name, text in {"drop_in": DROP_IN, "pipeline": PIPELINE, "own": OWN, "wrong": WRONG}.items():
        (tmp_path / f"{name}.py").write_text(text)
    strict = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--python-executable",
        str(python),
        "--cache-dir",
        str(tmp_path / "cache"),
    ]
    env = {key: value for key, value in os.environ.items() if key not in {"MYPYPATH", "PYTHONPATH"}}
    files = ["drop_in.py", "pipeline.py", "own.py", "wrong.py"]
    done = subprocess.run([*strict, *files], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def required(by: str) -> Iterator[Path]:
    """What pip would install for that requirement, besides it: files and folders of this environment."""
    waiting, seen = [Requirement(by)], set[str]()
    while waiting:
        wanted = waiting.pop()
        for each in map(Requirement, distribution(wanted.name).requires or ()):
            is_wanted = each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in ("", *wanted.extras))
            if is_wanted and each.name not in seen:
                waiting.append(each)
                seen.add(each.name)
    for name in seen:
        of = distribution(name)
        for top in {file.parts[0] for file in of.files or ()} - {"..", "__pycache__"}:
            yield Path(str(of.locate_file(top)))


def test_the_simulator_runs_from_the_installed_package_with_its_extra(tmp_path: Path, installed: tuple[Path, Path]) -> None:
    """In an environment that has nothing but what `pip install 'penstock[testing]'` would bring."""
    python, site = environment(tmp_path / "environment")
    for path in {installed[1] / "penstock", *required("penstock[testing]")}:
        (site / path.name).symlink_to(path)
    assert not (site / "pyspark").exists()
    command = [str(python), "-I", "-m", "penstock.testing.simulator"]
    for options in (["--seed", "7"], ["--schedules", "4", "--processes", "2"]):
        done = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "every invariant holds" in done.stdout or "random schedules: 4 passed" in done.stdout
