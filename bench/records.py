"""Records for the parts that measure Kafka: files of them, topics for them, and how many of which size make a batch."""

from dataclasses import dataclass
from itertools import count

import pyarrow as pa
from pyspark.sql import DataFrame
from tests.servers.fixtures import server

from bench.inputs import Batches, stream
from bench.measuring import Bench

PARTITIONS = 4
_topics = count()


@dataclass(frozen=True)
class RecordSize:
    """So many records of so many bytes in a batch, and how many batches a query has."""

    rows: int
    size: int
    batches: int
    warm_up: int

    @property
    def name(self) -> str:
        """As the page has it."""
        return f"{self.rows:,} records of {self.size:,} bytes"


SMALL, LARGE, FEW = RecordSize(100_000, 100, 6, 2), RecordSize(50_000, 1_000, 6, 2), RecordSize(1_000, 100, 14, 4)


@dataclass(frozen=True, kw_only=True)
class Records(Batches):
    """Files of records with a key, which is their number, and a value."""

    size: int

    @classmethod
    def of(cls, bench: Bench, size: RecordSize) -> "Records":
        """In a directory of that size."""
        root = bench.scratch / f"records{size.rows}-{size.size}"
        rows, batches, warm_up = bench.sized(size.rows, 100), bench.sized(size.batches, 2), bench.sized(size.warm_up, 1)
        return cls(root=root, rows=rows, batches=batches, warm_up=warm_up, size=size.size)

    def table(self, first: int, end: int) -> "pa.Table":
        """The records of those numbers."""
        keys = [f"{number}" for number in range(first, end)]
        values = [(key + "-" + key * 200)[: self.size].ljust(self.size, "x") for key in keys]
        return pa.table({"key": keys, "value": values})

    def stream(self, bench: Bench) -> DataFrame:
        """One file in each batch."""
        return stream(bench, self.root, files_per_batch=1, columns="key STRING, value STRING")


def new_topic() -> str:
    """Empty."""
    topic: str = server("kafka").topic(f"bench{next(_topics)}", PARTITIONS)
    return topic


def records_of(frame: DataFrame) -> DataFrame:
    """Keys and values as text, of what was read from a topic."""
    return frame.selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")
