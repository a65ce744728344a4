"""Runs streaming queries and reads from their progress how long each trigger took."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame


def run_available(frame: DataFrame, start: "Callable[[Any], Any]") -> Any:
    """The query that `start` makes of a writer, after it has delivered all there is."""
    query = start(frame.writeStream.trigger(availableNow=True))
    query.awaitTermination()
    return query


def run_until(query: Any, batch_id: int) -> int:
    """Stop an endless query after that batch. How many batches are finished; one more may have been cut."""
    while (query.lastProgress is None or query.lastProgress.batchId < batch_id) and query.isActive:
        time.sleep(0.05)
    if not query.isActive:
        query.awaitTermination()  # raises what ended it
    query.stop()
    return int(query.lastProgress.batchId) + 1


def trigger_ms(query: Any, *, warm_up: int) -> float:
    """The median of whole triggers in milliseconds, without those of the first `warm_up` batches."""
    progress = [each for each in query.recentProgress if each.batchId >= warm_up and each.numInputRows]
    return float(statistics.median(each.durationMs["triggerExecution"] for each in progress))


def batchwise(write: "Callable[[DataFrame, int], None]", checkpoint: Path) -> "Callable[[Any], Any]":
    """What starts a query that hands each micro-batch to a function, as Spark's documentation shows it."""
    return lambda writer: writer.foreachBatch(write).option("checkpointLocation", str(checkpoint)).start()
