"""One pass to N accounts against N passes over the same batch, uncached and cached, and against what Spark does in one pass."""

from collections.abc import Iterator

from bench.content import fingerprint
from bench.inputs import expressions, write_input
from bench.lakes import PASSES, SPARKS, Lake, seconds
from bench.measuring import Bench
from bench.result import Case, Table

ROWS, FILES = 2_000_000, 8


def measure(bench: Bench) -> Iterator[Table]:
    """Three and eight accounts."""
    rows = bench.sized(ROWS, 200)
    yield Table(
        name="passes",
        title=f"{ROWS:,} rows x 7 columns to several accounts, one batch",
        unit="s",
        cases=tuple(_case(bench, rows, accounts) for accounts in (3, 8)),
        amounts="rows",
        note="The whole query from start to end, checkpoint and commits included; Penstock's files are fsynced, Spark's are not. "
        "The last two peers write into one root, the accounts as partitions.",
    )


def _case(bench: Bench, rows: int, accounts: int) -> Case:
    lake = Lake(root=bench.scratch / f"accounts{accounts}", accounts=accounts)
    write_input(bench.spark, lake.root / "input", rows=rows, columns=expressions(accounts=accounts), files=bench.sized(FILES, 1))
    expected = fingerprint(bench.spark.read.parquet(str(lake.root / "input")))
    figures = bench.in_rounds(
        {**SPARKS, **PASSES}, lambda name, way: seconds(bench, lake, name, way, expected=expected), warm_up=accounts == 3
    )
    return Case(name=f"{accounts} accounts", figures=figures, amount=rows)
