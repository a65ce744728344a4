"""`python -m bench [PART …]`: measures these parts, or all, keeps the results, and renders docs/benchmarks.md from them."""

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

from pyspark.sql import SparkSession
from tests.servers.kafka import connector

from bench.aims import require_aims
from bench.kept import keep, kept_runs
from bench.measuring import Bench, ContentError
from bench.page import page, section
from bench.parts import PARTS, Part
from bench.result import Run
from bench.servers import stop_all
from bench.session import session, write_checkpoints
from bench.target import PACKAGES
from bench.versions import versions

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"


def main(arguments: "Sequence[str] | None" = None) -> int:
    """Exit code 1: a part failed, or does not notice wrong content."""
    options = _parser().parse_args(arguments)
    chosen = [name for name in PARTS if name in options.parts or not options.parts]
    start = partial(
        session,
        PACKAGES if any(PARTS[name].jdbc for name in chosen) else (),
        connector() if any(PARTS[name].kafka for name in chosen) else (),
    )
    if options.render:
        _render()
    elif options.check:
        return max([check(name, start) for name in chosen], default=0)
    else:
        return max([_measure(name, start, quick=options.quick) for name in chosen], default=0)
    return 0


def _parser() -> argparse.ArgumentParser:
    parts = ", ".join(f"{name} ({part.minutes:g})" for name, part in PARTS.items())
    total = sum(part.minutes for part in PARTS.values())
    parser = argparse.ArgumentParser(
        prog="bench", description=f"{__doc__} Parts, and minutes on two cores: {parts}; all: {total:g}."
    )
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[[], *PARTS], help="what to measure; without it everything")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--quick", action="store_true", help="tiny inputs, one round; prints, and writes nothing")
    how.add_argument("--check", action="store_true", help="the same, and again with a changed row, which must be noticed")
    how.add_argument("--render", action="store_true", help="measure nothing, render the page from what is kept")
    return parser


def _measure(name: str, start: "partial[SparkSession]", *, quick: bool) -> int:
    """Measure a part and keep the run. 1: it failed, is not kept, and the others are measured all the same."""
    try:
        run = _run(name, start, quick=quick)
    except Exception:  # noqa: BLE001 - shown, and the exit code says it; an hour of other parts is not lost
        traceback.print_exc()
        print(f"{name} failed: nothing of it is kept.", file=sys.stderr, flush=True)
        return 1
    if not run.tables:
        print(f"{name} was not measured: its servers are not here.", file=sys.stderr, flush=True)
        return 0
    print(f"# {name}\n{section([run])}", flush=True)
    if not quick:
        keep(name, run)
        _render()
    return 0


def _run(name: str, start: "partial[SparkSession]", *, quick: bool) -> Run:
    with _bench(PARTS[name], start, quick=quick) as bench:
        began, started = time.strftime("%Y-%m-%d %H:%M", time.gmtime()), time.monotonic()
        tables = tuple(PARTS[name].measure(bench))
        minutes = (time.monotonic() - started) / 60
        measured_with = versions(PARTS[name].servers, PARTS[name].libraries) if tables else {}
    return Run(began=began, minutes=round(minutes, 1), rounds=bench.rounds, versions=measured_with, tables=tables)


def check(name: str, start: "partial[SparkSession]") -> int:
    """Run a part quickly, then with a changed row. 1: the change was not noticed."""
    with _bench(PARTS[name], start, quick=True) as bench:
        tables = tuple(PARTS[name].measure(bench))
    if tables:
        require_aims(name, tables)
    if not tables or not PARTS[name].notices:
        print(f"{name}: {'runs' if tables else 'was not measured'}", flush=True)
        return 0
    try:
        with _bench(PARTS[name], start, quick=True, spoilt=True) as bench:
            tuple(PARTS[name].measure(bench))
    except ContentError:
        print(f"{name}: runs, and notices a changed row", flush=True)
        return 0
    print(f"{name}: does not notice a changed row", flush=True)
    return 1


@contextmanager
def _bench(part: Part, start: "partial[SparkSession]", *, quick: bool, spoilt: bool = False) -> "Iterator[Bench]":
    @cache
    def prepared() -> SparkSession:
        spark = start(cores=part.cores)
        write_checkpoints(spark, in_process=part.small_batches)
        return spark

    try:
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
            yield Bench(scratch=Path(scratch), session=prepared, quick=quick, spoilt=spoilt)
    finally:
        _stop_queries()
        if part.servers:
            stop_all()


def _stop_queries() -> None:
    """Those that a part which failed has left running."""
    spark = SparkSession.getActiveSession()
    for query in spark.streams.active if spark else ():
        query.stop()


def _render() -> None:
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), kept_runs(), list(PARTS)), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
