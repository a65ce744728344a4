"""In a client of Spark Connect: `Delivery.start` for every case of the table of doors; prints what was raised."""

import json
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.errors import PenstockError
from tests.spark.streams import put
from tests.spark.test_doors import CASES, CLIENT, World, by_start

SEEN = {name: case for name, case in CASES.items() if CLIENT not in case.not_by}


def raised(world: World) -> tuple[str, str]:
    try:
        by_start(world)
    except PenstockError as error:
        return type(error).__name__, error.message
    return "", "it was started"


def main(port: int) -> None:
    spark = SparkSession.builder.getOrCreate()
    found = {}
    for name, case in SEEN.items():
        with tempfile.TemporaryDirectory() as directory:
            put(Path(directory, "in"), "0.csv", 1, 2)
            put(Path(directory, "lake"), "0.csv", 1, 2)
            said = raised(World(spark=spark, root=Path(directory), case=case, port=port))
            found[name] = [*said, sorted(path.name for path in Path(directory).iterdir())]
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]))
