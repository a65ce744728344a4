"""What `verify` takes of the processor, against DuckDB, which counts and hashes the rows of the same files."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb

import penstock
from bench.inputs import expressions, stream, write_input
from bench.measuring import Bench, require_content
from bench.queries import run_available
from bench.result import PENSTOCK, Case, Table
from penstock.run.operations import verify

ROWS, BATCHES = 12_000_000, 6
ACCOUNTS = ("account0", "account1", "account2")
DUCKDB = "DuckDB, count and hash"
TEXTS = ["id", "'account0' AS account", *(f"concat(sha2(CAST(id * {n} AS STRING), 256), id) AS text{n}" for n in range(1, 5))]
"""Texts of which no two are equal: nothing of them repeats, so that each is hashed by itself."""


def measure(bench: Bench) -> Iterator[Table]:
    """Rows of mixed columns, and rows of long texts."""
    cases = {"7 mixed columns": (expressions(), ROWS), "4 long texts": (TEXTS, ROWS // 8)}
    yield Table(
        name="verify",
        title="`verify` of a sink of type parquet: processor time, all cores together",
        unit="s",
        cases=tuple(_case(bench, name, columns, rows) for name, (columns, rows) in cases.items()),
        amounts="rows",
        note=f"{BATCHES} batches in three accounts, read whole. Long: 64 characters and a number, no two equal. DuckDB reads the "
        "same files by `SELECT count(*), sum(hash(…)) FROM read_parquet(…)` in the same process, and compares them with nothing.",
    )


def _case(bench: Bench, name: str, columns: list[str], full: int) -> Case:
    root, rows = bench.scratch / name.replace(" ", "_"), bench.sized(full, 400)
    write_input(bench.spark, root / "input", rows=rows, columns=columns, files=BATCHES)
    schema = bench.spark.read.parquet(str(root / "input")).schema.simpleString()[len("struct<") : -1].replace(":", " ")
    delivery = penstock.Delivery(
        "bench",
        home=root / "home",
        sinks={"lake": penstock.Parquet(accounts={account: root / account for account in ACCOUNTS}, route={"column": "account"})},
    )
    run_available(stream(bench, root / "input", files_per_batch=1, columns=schema), delivery.start)

    def ours() -> int:
        report = verify(delivery.plan).sinks["lake"]
        require_content(report.problems, (), writer=PENSTOCK)
        return sum(account.found.rows for account in report.accounts.values())

    if bench.spoilt:
        next((root / "account0").rglob("*.parquet")).unlink()
    ways: dict[str, Callable[[], int]] = {PENSTOCK: ours, DUCKDB: lambda: _counted_by_duckdb(root)}

    def seconds(writer: str, count: Callable[[], int]) -> float:
        started = time.process_time()
        found = count()
        took = time.process_time() - started
        require_content(found, rows, writer=writer)
        return took

    return Case(name=name, figures=bench.in_rounds(ways, seconds, warm_up=True), amount=rows)


def _counted_by_duckdb(root: Path) -> int:
    files = [str(path) for account in ACCOUNTS for path in (root / account).rglob("*.parquet")]
    with duckdb.connect() as connection:
        columns = [name for name, *_ in connection.execute("DESCRIBE SELECT * FROM read_parquet($1)", [files[:1]]).fetchall()]
        hashed = ", ".join(f'"{column}"' for column in columns)
        found = connection.execute(f"SELECT count(*), sum(hash({hashed})) FROM read_parquet($1)", [files]).fetchone()
    assert found is not None
    return int(found[0])
