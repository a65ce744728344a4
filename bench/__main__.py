"""`python -m bench [passes|tax|ledger|restart|stores|databases …]`: measures and writes docs/benchmarks.md."""

import argparse
import os
import platform
import re
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pyspark

from bench import databases, ledger, passes, restart, stores, tax
from bench.session import session
from bench.table import Table
from bench.target import PACKAGES

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

Written by `make bench`; every run is verified by content, every comparison is made in one run, in turns. Ratios carry over to
other machines, milliseconds do not. Measured with PySpark {spark}, Python {python}, {cores} cores, `local[2]`.
"""


_TABLE = re.compile(r"^(?=### )", re.MULTILINE)


def main() -> None:
    """Measure what was asked for (everything by default); other tables of the page stay."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("what", nargs="*", choices=[[], *_WHAT], help="what to measure; without it everything")
    parser.add_argument("--print-only", action="store_true", help="do not write docs/benchmarks.md")
    arguments = parser.parse_args()
    what = arguments.what or list(_WHAT)
    if "databases" in what:
        session(PACKAGES)
    for name in what:
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
            for table in _WHAT[name](Path(scratch)):
                print(table.markdown(), flush=True)
                if not arguments.print_only:
                    PAGE.write_text(_page([table.markdown()]))


def _page(tables: list[str]) -> str:
    """With what was measured now in its old place, or after the other tables."""
    head = HEAD.format(spark=pyspark.__version__, python=platform.python_version(), cores=os.cpu_count())
    old, *notes = PAGE.read_text().partition("## What the figures say")
    shown = {section.partition("\n")[0]: section for section in [*_TABLE.split(old)[1:], *tables]}
    return "\n".join([head, *(f"{section.rstrip()}\n" for section in shown.values()), "".join(notes)]).rstrip() + "\n"


_WHAT: dict[str, Callable[[Path], Iterable[Table]]] = {
    "ledger": ledger.measure,
    "restart": restart.measure,
    "tax": lambda scratch: tax.measure(session(), scratch),
    "passes": lambda scratch: passes.measure(session(), scratch),
    "stores": lambda scratch: stores.measure(session(), scratch),
    "databases": lambda scratch: databases.measure(session(), scratch),
}

if __name__ == "__main__":
    main()
