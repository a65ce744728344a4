"""Every page of docs/howto is followed as it stands, on a real server of its store where it is about one."""

import io
import json
import re
import shutil
from collections import Counter
from operator import itemgetter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.architecture.reading import ROOT
from tests.crash import shared_java
from tests.servers import az, s3
from tests.servers.fixtures import server
from tests.servers.server import Outside, Place
from tests.spark.page import run_beside
from tests.spark.test_readme import feed

pytestmark = pytest.mark.usefixtures("spark")


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / "docs" / "howto" / f"{page}.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def prepared_s3() -> tuple[dict[str, str], dict[str, Outside]]:
    running = server("s3")
    for bucket in ("flights-ewr", "flights-jfk", "flights-state"):
        running.client().create_bucket(Bucket=bucket)
    environment = {
        "AWS_ENDPOINT_URL_S3": running.options["endpoint"],
        "AWS_ACCESS_KEY_ID": s3.KEY,
        "AWS_SECRET_ACCESS_KEY": s3.SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    return environment, {name: running.outside(Place(f"s3://flights-{name.lower()}/table")) for name in ("EWR", "JFK")}


def prepared_azure() -> tuple[dict[str, str], dict[str, Outside]]:
    running = server("az")
    running.client().create_container("flights")
    parts = {"AccountName": az.ACCOUNT, "AccountKey": az.KEY, "BlobEndpoint": running.options["endpoint"]}
    environment = {"CONNECTION": ";".join(f"{name}={value}" for name, value in parts.items())}
    return environment, {name: running.outside(Place(f"az://flights@{az.ACCOUNT}/{name.lower()}")) for name in ("EWR", "JFK")}


def prepared_gcs() -> tuple[dict[str, str], dict[str, Outside]]:
    running = server("gs")
    for bucket in ("flights-lake", "flights-state"):
        running.client().create_bucket(bucket)
    seen = {name: running.outside(Place(f"gs://flights-lake/raw/{name.lower()}")) for name in ("EWR", "JFK")}
    return {"STORAGE_EMULATOR_HOST": running.options["endpoint"], "GOOGLE_CLOUD_PROJECT": "test"}, seen


def prepared_hdfs() -> tuple[dict[str, str], dict[str, Outside]]:
    running = server("hdfs")
    seen = {name: running.outside(Place(f"hdfs://namenode:8020/lake/{name.lower()}")) for name in ("EWR", "JFK")}
    namenode = running.place("any").url.removesuffix("/any/table")
    return {"WEBHDFS": running.options["webhdfs"], "NAMENODE": namenode}, seen


@pytest.mark.parametrize(
    ("page", "prepared"), [("s3", prepared_s3), ("azure", prepared_azure), ("gcs", prepared_gcs), ("hdfs", prepared_hdfs)]
)
def test_the_page_works(tmp_path: Path, page: str, prepared, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    environment, accounts = prepared()
    for name, value in environment.items():  # Python workers find credentials in the environment that Spark was started with
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    sent = Counter(row for row in feed(tmp_path / "incoming").elements() if row[1] in accounts)
    whole, kept, *_ = blocks(page, "yaml")
    whole += "transform: {sql: SELECT * FROM flights WHERE origin != 'LGA'}\n"
    *ours, _ = kept.splitlines(keepends=True)
    commands = [line.split("#")[0] for block in blocks(page, "sh") for line in block.splitlines() if line.startswith("penstock")]
    assert len(commands) == 5

    def follow(command: str) -> str:
        done = run_beside(tmp_path, command, environment=environment)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        assert not [value for value in environment.values() if "Key" in value and value in done.stdout + done.stderr]
        return done.stdout

    file = tmp_path / f"{page}.yaml"
    file.write_text(whole + kept if page in SPARK_WRITES_TO else whole + "".join(ours))
    for command in commands[:3]:
        follow(command)
    assert sum((rows_of(store) for store in accounts.values()), Counter()) == sent
    said = follow(f"penstock status {file.name} --json")
    if page not in SPARK_WRITES_TO:
        copy_checkpoint(tmp_path / "state" / page / "checkpoint", page)
    assert not (tmp_path / "state" / page / "checkpoint").exists()
    file.write_text(whole + kept)
    assert follow(f"penstock status {file.name} --json") == said
    assert "goes on with batch 1" in "".join(map(follow, commands[3:]))


SPARK_WRITES_TO = {"hdfs"}
"""Where Spark can keep a checkpoint by itself; elsewhere it needs a connector."""

CHECKPOINTS = {
    "s3": ("s3", "s3://flights-state/checkpoint"),
    "azure": ("az", f"az://flights@{az.ACCOUNT}/checkpoint"),
    "gcs": ("gs", "gs://flights-state/checkpoint"),
}


def copy_checkpoint(local: Path, page: str) -> None:
    """As if Spark had written it there: byte by byte, and no more here."""
    kind, url = CHECKPOINTS[page]
    there = server(kind).outside(Place(url))
    for path in local.rglob("*"):
        if path.is_file():
            there.put(path.relative_to(local).as_posix(), path.read_bytes())
    shutil.rmtree(local)


PRINT_EACH = """
import json
spark.stop()
print(json.dumps([flights_of_pandas, late.fetchall(), flights_of_duckdb, flights_of_spark]))
"""
COUNTED = {
    "flights = table.arrow().to_pandas()": "\nflights_of_pandas = flights.values.tolist()\n",
    "flights = duckdb.read": "\nflights_of_duckdb = flights.select('id, origin, delay, month').fetchall()\n",
    "flights = table.spark": "\nflights_of_spark = [tuple(row) for row in flights.collect()]\n",
}


def test_the_page_on_reading_works(tmp_path: Path) -> None:
    sent = feed(tmp_path / "incoming")
    (tmp_path / "flights.yaml").write_text(blocks("reading", "yaml")[0])
    commands = [line.split("#")[0] for block in blocks("reading", "sh") for line in block.splitlines()]
    said = [run_beside(tmp_path, command).stdout for command in commands]
    listed = json.loads(said[4])
    assert said[1].splitlines() == [file["url"] for file in listed["files"]]
    assert sum(file["rows"] for file in listed["files"]) == sent.total() == 900
    assert {line.split("/lake/")[1][:3] for line in said[2].splitlines()} == {"ewr"}
    assert set(said[3].splitlines()) < set(said[1].splitlines())
    text = "".join(
        block + "".join(more for begin, more in COUNTED.items() if begin in block) for block in blocks("reading", "python")
    )
    (tmp_path / "page.py").write_text(text + PRINT_EACH)
    program = shared_java.run(["page.py"], directory=tmp_path)
    assert program.returncode == 0, program.stderr
    *shown, last = program.stdout.splitlines()
    pandas, late, duckdb, spark = json.loads(last)
    assert shown[-3:] == ["0 300", "1 300", "2 300"]
    expected = sorted(((row[0], row[1], row[2], row[3]) for row in sent), key=itemgetter(0))
    for rows in (spark, [none_for_nan(row) for row in pandas], [(row[0], row[1], row[3], row[2]) for row in duckdb]):
        assert sorted((tuple(row) for row in rows), key=itemgetter(0)) == expected
    origins = Counter(origin for _, origin, _, delay in sent if delay is not None and delay > 0)
    assert late == [list(item) for item in sorted(origins.items())]


def none_for_nan(row: list[object]) -> tuple[object, ...]:
    return tuple(None if value != value else value for value in row)  # noqa: PLR0124 - NaN alone differs from itself


def rows_of(store: Outside) -> "Counter[tuple[object, ...]]":
    found: Counter[tuple[object, ...]] = Counter()
    for name in store.listing():
        if not name.startswith("_penstock/"):
            month = int(name.split("/")[-2].removeprefix("month="))
            rows = pq.ParquetFile(io.BytesIO(store.get(name))).read().to_pylist()
            found.update((row["id"], row["origin"], month, row["delay"]) for row in rows)
    return found
