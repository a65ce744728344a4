"""Real sinks of a test's query, and their content as multisets, read without Penstock."""

import os
import sqlite3
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pyarrow.dataset as ds
from pyspark.sql import DataFrame

import penstock
from penstock.run.query import Query
from tests.spark.streams import put

Rows = Counter[tuple[object, ...]]


class Target:
    """Two accounts by parity of `n` and one table, below one directory."""

    def __init__(self, root: Path, **sinks: object) -> None:
        self.root = root
        self.lake = penstock.Parquet(
            accounts={"even": root / "lake/even", "odd": root / "lake/odd"}, route={"sql": "if(n % 2 = 0, 'even', 'odd')"}
        )
        self.table = penstock.SQLite(url=f"sqlite:///{root}/warehouse.db", table="numbers")
        self.sinks: Mapping[str, object] = sinks or {"lake": self.lake, "table": self.table}

    @property
    def checkpoint(self) -> Path:
        return self.root / "home/checkpoint"

    def delivery(self, **settings: object) -> penstock.Delivery:
        return penstock.Delivery("numbers", home=self.root / "home", **{"sinks": self.sinks, **settings})

    def start(self, frame: DataFrame, *, mode: str = "append", **settings: object) -> Query:
        return self.delivery(**settings).start(frame.writeStream.outputMode(mode).trigger(availableNow=True))

    def deliver(self, frame: DataFrame, *, mode: str = "append", **settings: object) -> Query:
        """Deliver everything that is there now; raises what ended the query."""
        query = self.start(frame, mode=mode, **settings)
        query.awaitTermination()
        return query

    def accounts(self) -> Rows:
        return self.account("even") + self.account("odd")

    def account(self, name: str) -> Rows:
        root = self.root / "lake" / name
        if not root.exists():
            return Counter()
        table = ds.dataset(root, format="parquet").to_table()
        return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def rows(self, table: str = "numbers") -> Rows:
        with sqlite3.connect(self.root / "warehouse.db") as connection:
            found: Rows = Counter(connection.execute(f'SELECT * FROM "{table}"'))
        connection.close()
        return found

    def files(self) -> list[str]:
        return sorted(name for _, _, names in os.walk(self.root / "lake") for name in names if name.endswith(".parquet"))


def of_three_files(tmp_path: Path) -> Target:
    """A fixture's: three batches of one row each wait for it."""
    for number in range(3):
        put(tmp_path / "in", f"{number}.csv", number)
    return Target(tmp_path)


THREE_FILES: Rows = Counter([(0,), (1,), (2,)])
