"""The page about Python, followed as it stands: a drop-in, a pipeline in code and a sink as an object deliver each row once."""

import json
import re
import sqlite3
from collections import Counter
from pathlib import Path

from penstock.run.pipeline import Pipeline
from tests.crash import shared_java
from tests.spark.page import Page
from tests.spark.test_readme import feed, lake

DROP_IN, LOGGING, PIPELINE, OBJECT = Page("python").blocks("python")
SINK = Page("own_sink").blocks("python")[0]
JOB = f"""
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").getOrCreate()
{DROP_IN}
{LOGGING}
deliver(spark)
{PIPELINE}
{OBJECT}
deliver_lines(spark)
deliver_lines(spark)
"""


def rows(database: Path, table: str) -> "Counter[tuple[object, ...]]":
    with sqlite3.connect(database) as connection:
        return Counter(connection.execute(f"SELECT id, origin, month, delay FROM {table}"))


def test_the_page_delivers_each_row_once_in_every_way(tmp_path: Path) -> None:
    sent = feed(tmp_path / "incoming")
    (tmp_path / "json_lines.py").write_text(SINK)
    (tmp_path / "job.py").write_text(JOB)
    done = shared_java.run(["job.py"], directory=tmp_path)
    assert done.returncode == 0, done.stderr
    logged = re.findall(
        r" INFO Pipeline flights: batch \d+ delivered in [\d.]+ s: ([\d,]+) rows \(lake: .*, warehouse: .*\)\.$",
        done.stderr,
        re.M,
    )
    assert sum(int(count.replace(",", "")) for count in logged) == sum(sent.values())
    assert sum((lake(tmp_path / "lake" / account) for account in ("ewr", "jfk", "lga")), Counter()) == sent
    assert rows(tmp_path / "warehouse.db", "flights") == sent
    assert rows(tmp_path / "delays.db", "delays") == Counter({row: count for row, count in sent.items() if row[3] is not None})
    lines = [json.loads(line) for file in (tmp_path / "lines").glob("*.jsonl") for line in file.read_text().splitlines()]
    assert Counter(tuple(line[name] for name in ("id", "origin", "month", "delay")) for line in lines) == sent
    verify_beside(tmp_path, Page("python").blocks("yaml")[0], sent.total())


def verify_beside(directory: Path, file: str, rows_each: int) -> None:
    """Look at what a drop-in delivered by a pipeline file without sources."""
    (directory / "flights.yaml").write_text(file)
    pipeline = Pipeline.from_file(directory / "flights.yaml")
    report = pipeline.verify()
    assert report.ok
    found = {sink: sum(account.found.rows for account in each.accounts.values()) for sink, each in report.sinks.items()}
    assert found == dict.fromkeys(pipeline.settings.sinks, rows_each)
    assert pipeline.doctor().ok
    assert pipeline.status().health == "ok"
