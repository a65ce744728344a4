"""Acts on a checkpoint in a process whose Spark has run the query, as in a notebook: nothing of it writes there meanwhile."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.errors import Refused
from penstock.run.pipeline import Pipeline
from tests.spark.streams import put

FILE = """\
pipeline: counts
home: {home}
sources: {{events: {{format: csv, path: {home}/in, schema: "n INT", options: {{maxFilesPerTrigger: 1}}}}}}
transform: {{sql: "SELECT n, count(*) AS many FROM events GROUP BY n"}}
output_mode: update
sinks: {{table: {{type: sqlite, url: "sqlite:///{home}/counts.db", table: counts, write: upsert, key: [n]}}}}
trigger: {{{trigger}}}
"""


def keeps_state_up(spark: SparkSession) -> bool:
    """Whether Spark's maintenance of state runs: it begins with the first state that a batch loads."""
    state: Any = spark._jvm.org.apache.spark.sql.execution.streaming.state  # type: ignore[union-attr]
    return bool(getattr(getattr(state, "StateStore$"), "MODULE$").isMaintenanceRunning())


def counts(home: Path, trigger: str) -> Pipeline:
    (home / "counts.yaml").write_text(FILE.format(home=home, trigger=trigger))
    return Pipeline.from_file(str(home / "counts.yaml"))


def test_a_query_that_has_ended_writes_no_state_behind_an_act(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(3):
        put(tmp_path / "in", f"{number}.csv", str(number))
    pipeline = counts(tmp_path, "available_now: true")
    pipeline.start(spark).awaitTermination()
    assert keeps_state_up(spark)
    pipeline.rewind(1, keep=["table"])
    assert not keeps_state_up(spark)


def test_an_act_is_refused_while_the_query_runs_in_this_process(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in", "0.csv", "0")
    pipeline = counts(tmp_path, "processing_time: 0s")
    query = pipeline.start(spark)
    try:
        query.processAllAvailable()
        with pytest.raises(Refused, match="its query runs in this process"):
            pipeline.rewind(0, keep=["table"])
    finally:
        query.stop()
    pipeline.rewind(0, keep=["table"])
