"""DuckDB's own readers of Delta and Iceberg tables: another engine's view of a table, which shares no code with the product.

DuckDB loads an extension of its own version only, and their packages lag behind: both are fetched into a folder of their own.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.servers.server import HOME, NotInstalledError

VERSION = "1.5.5"
FOLDER = HOME / "duckdb" / VERSION
READY = FOLDER.parent / f"{VERSION}.ready"
_EXTENSIONS = ("avro", "delta", "httpfs", "iceberg")
_READING = """
import duckdb, json, pathlib, sys
folder, extensions, query, target = json.load(sys.stdin)
connection = duckdb.connect()
connection.execute("SET TimeZone = 'UTC'")
for name in extensions:
    [path] = pathlib.Path(folder).glob(f"duckdb_extension_{name}/extensions/*/{name}.duckdb_extension")
    connection.execute(f"LOAD '{path}'")
connection.execute(f"COPY ({query}) TO '{target}' (FORMAT parquet)")
"""


def install() -> None:
    """Fetch them, unless they are there."""
    if not READY.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        packages = [f"duckdb=={VERSION}", *(f"duckdb-extension-{name}=={VERSION}" for name in _EXTENSIONS)]
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(FOLDER), *packages]
        subprocess.run(command, check=True)
        READY.touch()


def delta_rows(copy: Path) -> "pa.Table":
    """What DuckDB sees in a Delta table that was copied to that directory, whose path is plain ASCII."""
    return _read(f"SELECT * FROM delta_scan('{copy}')", copy.parent)


def iceberg_rows(copy: Path, metadata: str) -> "pa.Table":
    """What DuckDB sees in an Iceberg table that was copied to that directory, by the metadata file of that name."""
    version = metadata.removesuffix(".metadata.json")
    return _read(f"SELECT * FROM iceberg_scan('{copy}', version = '{version}', allow_moved_paths = true)", copy.parent)


def _read(query: str, scratch: Path) -> "pa.Table":
    if not READY.exists():
        raise NotInstalledError("DuckDB's readers of tables are not there: run `make servers`")
    target = scratch / "by-duckdb.parquet"
    told = json.dumps([str(FOLDER), _EXTENSIONS, query, str(target)])
    env = {**os.environ, "PYTHONPATH": str(FOLDER)}
    done = subprocess.run([sys.executable, "-c", _READING], input=told, env=env, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = pq.ParquetFile(target).read()
    target.unlink()
    return rows
