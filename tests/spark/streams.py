"""Running streaming queries to their end and keeping what they delivered."""

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

_MILLISECOND_NS = 1_000_000
_ages = [0]
"""When files were modified: Spark reads them in that order, in milliseconds, and a file system may count in longer ticks."""

Deliver = Callable[[DataFrame, int], object]


def run(frame: DataFrame, checkpoint: Path, deliver: Deliver, *, mode: str = "append") -> StreamingQuery:
    """Run everything that is there now through `deliver`."""
    query = (
        frame.writeStream.foreachBatch(deliver)
        .outputMode(mode)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def everything(frame: DataFrame, scratch: Path, *, mode: str = "append") -> Counter[tuple[object, ...]]:
    """The rows that a streaming DataFrame yields now, as a multiset."""
    rows: Counter[tuple[object, ...]] = Counter()

    def collect(batch: DataFrame, _: int) -> None:
        rows.update(tuple(bytes(value) if isinstance(value, bytearray) else value for value in row) for row in batch.collect())

    run(frame, scratch / "checkpoint", collect, mode=mode)
    return rows


def put(folder: Path, name: str, *lines: object) -> Path:
    """Drop a file into a watched directory as one should: written under a hidden name, then renamed."""
    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / f".{name}"
    hidden.write_text("".join(f"{line}\n" for line in lines))
    _ages.append(max(time.time_ns(), _ages[-1] + _MILLISECOND_NS))
    os.utime(hidden, ns=(_ages[-1], _ages[-1]))
    return hidden.rename(folder / name)


def forget_commit(checkpoint: Path, batch_id: int) -> None:
    """What a driver leaves that dies after the sink returned and before `commits/N` was written."""
    for name in (str(batch_id), f".{batch_id}.crc"):
        (checkpoint / "commits" / name).unlink()


def numbers(spark: SparkSession, root: Path, *, per_trigger: int = 1) -> DataFrame:
    """The column `n` of the files below `in`, so many files a batch."""
    (root / "in").mkdir(exist_ok=True)
    return spark.readStream.schema("n INT").option("maxFilesPerTrigger", per_trigger).csv(str(root / "in"))
