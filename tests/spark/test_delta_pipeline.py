"""The page about Delta, command by command; and a pipeline that is killed at one step after the other."""

import json
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.servers.fixtures import accounts_on
from tests.spark.page import Page, killed_at, run, run_beside
from tests.spark.test_readme import feed

pytestmark = pytest.mark.usefixtures("spark")

PAGE, TAKE_OVER = Page("delta"), Page("take_over")
COLUMNS = ("id", "origin", "month", "delay")
UNPARTITIONED = ("    partition_by: [month]\n", "")
KILLS = (
    *("claim.place", "delta.prepare", "parquet.stage.sync", "stage.report", "rename.move", "parquet.publish.sync"),
    *("delta.commit", "deltalog.sync", "delta.look"),
)


def placed(directory: Path, *changes: tuple[str, str]) -> "Counter[tuple[object, ...]]":
    """The page's pipeline in a directory with input; what is in the input."""
    text = PAGE.blocks("yaml")[0]
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (directory / "delta.yaml").write_text(text)
    return feed(directory / "incoming")


def rows(directory: Path) -> "Counter[tuple[object, ...]]":
    """By the library's own engine."""
    return rows_in(DeltaTable(str(directory / "tables/flights")))


def rows_in(table: DeltaTable) -> "Counter[tuple[object, ...]]":
    found = pa.table(table.scan())
    return Counter(zip(*(found[name].to_pylist() for name in COLUMNS), strict=True))


def test_a_table_in_a_bucket_gets_exactly_what_was_sent_whatever_is_killed(tmp_path: Path) -> None:
    [(place, _)] = accounts_on(table="s3").values()
    sent = placed(tmp_path, ("./tables/flights", f"{place.url}\n    options: {json.dumps(place.options)}"))
    points = ("object.prepare", "stage.report", "inline.put", "delta.commit", "delta.look")
    assert 0 not in killed_at(tmp_path, "penstock run delta.yaml", points)
    for command in ("check", "run", "verify"):
        done = run_beside(tmp_path, f"penstock {command} delta.yaml")
        assert done.returncode == 0, done.stdout + done.stderr
        assert place.options["secret_access_key"] not in done.stdout + done.stderr
    there = {
        "AWS_ENDPOINT_URL": place.options["endpoint"],
        "AWS_ACCESS_KEY_ID": place.options["access_key_id"],
        "AWS_SECRET_ACCESS_KEY": place.options["secret_access_key"],
        "AWS_REGION": place.options["region"],
        "AWS_ALLOW_HTTP": "true",
    }
    assert rows_in(DeltaTable(place.url, storage_options=there)) == sent


def rows_of_duckdb(directory: Path) -> "Counter[tuple[object, ...]]":
    """By another engine, of the files that the table's log lists."""
    files = DeltaTable(str(directory / "tables/flights")).file_uris()
    return Counter(duckdb.sql(f"SELECT {', '.join(COLUMNS)} FROM read_parquet({files})").fetchall())


def test_the_page_works_and_a_killed_run_is_finished_by_the_next(tmp_path: Path) -> None:
    sent = placed(tmp_path)
    assert run(tmp_path, "penstock run delta.yaml", faults="delta.commit=kill").returncode != 0
    assert rows(tmp_path) == Counter()
    for command in PAGE.commands:
        done = run_beside(tmp_path, command)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    assert rows(tmp_path) == sent
    [text] = PAGE.blocks("python")
    read = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert read.stdout.startswith("900 rows; last batch: 0 at position ")
    DeltaTable(str(tmp_path / "tables/flights")).delete("id = 1")
    verified = run_beside(tmp_path, "penstock verify delta.yaml --json")
    assert verified.returncode == 5
    assert not json.loads(verified.stdout)["sinks"]["table"]["ok"]


def test_a_run_that_is_killed_at_every_step_delivers_exactly(tmp_path: Path) -> None:
    sent = placed(tmp_path, UNPARTITIONED, ("options: {header: true}", "options: {header: true, maxFilesPerTrigger: 1}"))
    assert 0 not in killed_at(tmp_path, "penstock run delta.yaml", KILLS)
    done = run_beside(tmp_path, "penstock run delta.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert rows(tmp_path) == sent
    assert rows_of_duckdb(tmp_path) == sent
    verified = run_beside(tmp_path, "penstock verify delta.yaml")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert list((tmp_path / "tables/.penstock-staging").rglob("*.staged")) == []


ONE_FILE = ("options: {header: true}", "options: {header: true, maxFilesPerTrigger: 1}")
BY_KEY = ("    partition_by: [month]\n", "    write: upsert\n    key: [id]\n")
WHOLE = ("    partition_by: [month]\n", "    write: replace\n")
COUNTED = "transform: {sql: 'SELECT month, COUNT(*) AS flights FROM flights GROUP BY month'}\noutput_mode: complete\n"


def test_rows_are_replaced_by_key_whatever_is_killed(tmp_path: Path) -> None:
    """Of the rows of a file with one key the last one counts; a later file replaces what is there."""
    sent = placed(tmp_path, BY_KEY, ONE_FILE)
    with (tmp_path / "delta.yaml").open("a") as file:
        file.write("transform: {sql: 'SELECT id % 300 AS id, origin, month, delay FROM flights'}\n")
    points = ("delta.prepare", "lakekeys.rewrite", "delta.commit", "deltalog.sync", "delta.look")
    assert killed_at(tmp_path, "penstock run delta.yaml", points) == [-signal.SIGKILL] * len(points)
    assert run_beside(tmp_path, "penstock run delta.yaml").returncode == 0
    there = {row[0] % 300: (row[0] % 300, *row[1:]) for row in sorted(sent, key=lambda row: row[0])}
    assert rows(tmp_path) == Counter(there.values())
    later = [(number, "EWR", 1, 7.5) for number in range(50)]
    text = "\n".join(",".join(map(str, row)) for row in [COLUMNS, *later])
    (tmp_path / "incoming/part-9.csv").write_text(text)
    assert killed_at(tmp_path, "penstock run delta.yaml", ["lakekeys.match"]) == [-signal.SIGKILL]
    assert run_beside(tmp_path, "penstock run delta.yaml").returncode == 0
    there |= {row[0]: row for row in later}
    assert rows(tmp_path) == rows_of_duckdb(tmp_path) == Counter(there.values())
    verified = run_beside(tmp_path, "penstock verify delta.yaml")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    DeltaTable(str(tmp_path / "tables/flights")).delete("id = 1")
    assert run_beside(tmp_path, "penstock verify delta.yaml").returncode == 5


def test_late_changes_leave_newer_rows_alone_whatever_is_killed(tmp_path: Path) -> None:
    """As the page says, by the column `month`; each file is a batch."""
    sent = placed(
        tmp_path, ("    partition_by: [month]\n", "    write: upsert\n    key: [id]\n    sequence_by: month\n"), ONE_FILE
    )
    with (tmp_path / "delta.yaml").open("a") as file:
        file.write("transform: {sql: 'SELECT id % 300 AS id, origin, CAST(id * 7 % 11 AS INT) AS month, delay FROM flights'}\n")
    points = ("lakekeys.match", "lakekeys.rewrite", "delta.commit", "delta.look")
    assert killed_at(tmp_path, "penstock run delta.yaml", points) == [-signal.SIGKILL] * len(points)
    for command in ("check", "run", "verify"):
        done = run_beside(tmp_path, f"penstock {command} delta.yaml")
        assert done.returncode == 0, done.stdout + done.stderr
    there: dict[int, tuple[object, ...]] = {}
    for number, origin, _, delay in sorted(sent.elements(), key=lambda row: int(str(row[0]))):
        key, at = int(str(number)) % 300, int(str(number)) * 7 % 11
        if key not in there or at >= int(str(there[key][2])):
            there[key] = (key, origin, at, delay)
    assert rows(tmp_path) == rows_of_duckdb(tmp_path) == Counter(there.values())


def job(directory: Path, *, dies_in: int | None = None) -> None:
    """The program that the page takes over from, in this Spark session; a batch for each file."""
    session = SparkSession.getActiveSession()
    assert session is not None

    def write(frame: DataFrame, batch_id: int) -> None:
        target = str(directory / "tables/orders")
        there = DeltaTable(target).transaction_version("orders-job") if DeltaTable.is_deltatable(target) else None
        if there is None or there < batch_id:  # as Delta passes over a version that is there
            versions = CommitProperties(app_transactions=[Transaction("orders-job", batch_id)])
            write_deltalake(target, frame.toArrow(), mode="append", commit_properties=versions)
        if batch_id == dies_in:
            raise RuntimeError("the job was killed")

    read = session.readStream.format("csv").schema("id INT, origin STRING, month INT, delay DOUBLE")
    frame = read.options(header=True, maxFilesPerTrigger=1).load(str(directory / "orders"))
    writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(directory / "checkpoints/orders"))
    query = writer.trigger(availableNow=True).start()
    with suppress(StreamingQueryException):
        query.awaitTermination()


def test_a_job_with_foreach_batch_is_taken_over_as_the_page_says(tmp_path: Path) -> None:
    """What it delivered before it died is not delivered again, though Spark would run that batch again."""
    [text] = [block for block in TAKE_OVER.blocks("yaml") if "existing_rows" in block]
    (tmp_path / "orders.yaml").write_text(text)
    sent = feed(tmp_path / "orders")
    job(tmp_path, dies_in=1)
    adopt = "penstock adopt orders.yaml --txn-app-id orders-job"
    refused = run_beside(tmp_path, adopt)
    assert refused.returncode == 3
    assert "the checkpoint has no commits/1" in " ".join(refused.stderr.split())
    job(tmp_path)  # the remedy
    assert "nothing comes twice, and nothing is lost" in " ".join(run_beside(tmp_path, adopt).stdout.split())
    assert run_beside(tmp_path, f"{adopt} --yes --reason 'took over the job'").returncode == 0
    later = [(number, "EWR", 1, 7.5) for number in range(1_000, 1_050)]
    (tmp_path / "orders/part-9.csv").write_text("\n".join(",".join(map(str, row)) for row in [COLUMNS, *later]))
    for command in ("check", "run", "verify"):
        done = run_beside(tmp_path, f"penstock {command} orders.yaml")
        assert done.returncode == 0, done.stdout + done.stderr
    assert rows_in(DeltaTable(str(tmp_path / "tables/orders"))) == sent + Counter(later)


def test_a_whole_table_is_replaced_in_complete_mode(tmp_path: Path) -> None:
    sent = placed(tmp_path, WHOLE, ONE_FILE)
    with (tmp_path / "delta.yaml").open("a") as file:
        file.write(COUNTED)
    assert killed_at(tmp_path, "penstock run delta.yaml", ("delta.commit", "delta.look")) == [-signal.SIGKILL] * 2
    for command in ("check", "run", "verify"):
        done = run_beside(tmp_path, f"penstock {command} delta.yaml")
        assert done.returncode == 0, done.stdout + done.stderr
    found = pa.table(DeltaTable(str(tmp_path / "tables/flights")).scan()).to_pylist()
    assert Counter((row["month"], row["flights"]) for row in found) == Counter(Counter(row[2] for row in sent).items())


def maintained(directory: Path) -> "Counter[tuple[object, ...]]":
    """The page's pipeline with the maintenance that the page shows, after each batch; what is in the input."""
    [sink] = [block for block in PAGE.blocks("yaml") if "maintenance:" in block]
    whole = PAGE.blocks("yaml")[0]
    text = whole[: whole.index("sinks:\n")] + sink.replace("every: 100", "every: 1") + whole[whole.index("trigger:") :]
    (directory / "delta.yaml").write_text(text.replace(*ONE_FILE))
    return feed(directory / "incoming")


def test_small_files_are_compacted_as_the_page_says_whatever_is_killed(tmp_path: Path) -> None:
    """What was killed while it wrote files, or before it committed them, is removed by the run that comes next."""
    sent = maintained(tmp_path)
    points = ["lakecompaction.write", "lakecompaction.commit"]
    assert killed_at(tmp_path, "penstock run delta.yaml", points) == [-signal.SIGKILL] * 2
    assert rows(tmp_path) == sent
    later = [(number, "EWR", 1, 7.5) for number in range(1_000, 1_050)]
    (tmp_path / "incoming/part-9.csv").write_text("\n".join(",".join(map(str, row)) for row in [COLUMNS, *later]))
    done = run_beside(tmp_path, "penstock run delta.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert rows(tmp_path) == rows_of_duckdb(tmp_path) == sent + Counter(later)
    [file] = DeltaTable(str(tmp_path / "tables/flights")).file_uris()
    assert [path.name for path in (tmp_path / "tables/flights").glob("compact-*")] == [Path(file).name]
    verified = run_beside(tmp_path, "penstock verify delta.yaml")
    assert verified.returncode == 0, verified.stdout + verified.stderr
