"""Writes sample orders: `python generate.py [FILES] [ROWS_PER_FILE]` adds CSV files to ./incoming.

A file appears under its final name only when it is complete, since Spark reads a file once, as it finds it.
"""

import csv
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

INCOMING = Path(__file__).parent / "incoming"
REGIONS = ("europe", "america", "asia")
ARTICLES = ("anvil", "bellows", "crucible", "die", "engraver")
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def order(order_id: int) -> tuple[int, str, str, str, int, str]:
    """One order; the same id always gives the same order."""
    placed_at = START + timedelta(seconds=37 * order_id)
    price = 100 + (order_id * 7919) % 9900
    return (
        order_id,
        placed_at.strftime("%Y-%m-%d %H:%M:%S"),
        REGIONS[order_id * 31 % len(REGIONS)],
        ARTICLES[order_id * 17 % len(ARTICLES)],
        1 + order_id % 5,
        f"{price // 100}.{price % 100:02d}",
    )


def write_file(number: int, rows: int) -> None:
    """Write file `number` with its `rows` orders."""
    unfinished = INCOMING / f".orders-{number:05d}.csv"  # Spark leaves out names that begin with a dot
    with unfinished.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("order_id", "placed_at", "region", "article", "quantity", "price"))
        writer.writerows(order(order_id) for order_id in range(number * rows, (number + 1) * rows))
    unfinished.rename(INCOMING / f"orders-{number:05d}.csv")


def main(files: int = 6, rows: int = 1000) -> None:
    """Add `files` files of `rows` orders each after those that are there."""
    INCOMING.mkdir(exist_ok=True)
    first = len(list(INCOMING.glob("orders-*.csv")))
    for number in range(first, first + files):
        write_file(number, rows)
    sys.stdout.write(f"{files} files with {files * rows} orders are in {INCOMING}\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
