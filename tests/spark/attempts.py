"""Run by test_stage_attempts in a process of its own: stage, publish and count while tasks are killed, fail or run twice."""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.lake import Lake, content


def main(master: str, directory: str, conf: str) -> None:
    builder = SparkSession.builder.master(master)
    for key, value in json.loads(conf).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    rows = spark.range(0, 4_000, 1, 4).selectExpr("id", "concat('row ', id) AS s")
    lake = Lake(Path(directory), "a", "b", route="IF(id % 2 = 0, 'a', 'b')")
    staged = lake.stage(rows)
    pieces = len(lake.staged())
    lake.publish(staged.pieces, rows)
    exact = content(lake.read(spark)) == content(rows)
    result = {"rows": staged.rows_in, "decided": len(staged.pieces), "staged": pieces, "exact": exact}
    Path(directory, "result.json").write_text(json.dumps(result))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
