"""`python -m bench [passes|tax|ledger|restart|stores …]`: measures and writes docs/benchmarks.md."""

import argparse
import os
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyspark

from bench import ledger, passes, restart, stores, tax
from bench.session import session
from bench.table import Table

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

Written by `make bench`; every run is verified by content, every comparison is made in one run, in turns. Ratios carry over to
other machines, milliseconds do not. Measured with PySpark {spark}, Python {python}, {cores} cores, `local[2]`.
"""


def main() -> None:
    """Measure what was asked for (everything by default)."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("what", nargs="*", choices=[[], *_WHAT], help="what to measure; without it everything")
    parser.add_argument("--print-only", action="store_true", help="do not write docs/benchmarks.md")
    arguments = parser.parse_args()
    chosen = arguments.what or list(_WHAT)
    tables = []
    for name in chosen:
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
            for table in _WHAT[name](Path(scratch)):
                print(table.markdown(), flush=True)
                tables.append(table)
    if not arguments.print_only and not arguments.what:
        PAGE.write_text(_page(tables))


def _page(tables: list[Table]) -> str:
    head = HEAD.format(spark=pyspark.__version__, python=platform.python_version(), cores=os.cpu_count())
    notes = PAGE.read_text().partition("## What the figures say")[1:] if PAGE.exists() else ()
    return "\n".join([head, *(table.markdown() for table in tables), "".join(notes)]).rstrip() + "\n"


_WHAT: dict[str, Callable[[Path], list[Table]]] = {
    "ledger": ledger.measure,
    "restart": restart.measure,
    "tax": lambda scratch: tax.measure(session(), scratch),
    "passes": lambda scratch: passes.measure(session(), scratch),
    "stores": lambda scratch: stores.measure(session(), scratch),
}

if __name__ == "__main__":
    main()
