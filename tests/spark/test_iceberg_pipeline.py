"""The page about Iceberg, command by command; and a pipeline that is killed at one step after the other."""

import json
import signal
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import duckdb
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

from tests.spark.page import Page, killed_at, run, run_beside
from tests.spark.test_readme import feed

pytestmark = pytest.mark.usefixtures("spark")

PAGE = Page("iceberg")
COLUMNS = ("id", "origin", "month", "delay")
UNPARTITIONED = ("    partition_by: [month]\n", "")
KILLS = ("iceberg.prepare", "stage.report", "rename.move", "iceberg.commit", "iceberg.look")


def placed(directory: Path, *changes: tuple[str, str]) -> "Counter[tuple[object, ...]]":
    """The page's pipeline in a directory with input; what is in the input."""
    text = PAGE.blocks("yaml")[0]
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (directory / "iceberg.yaml").write_text(text)
    return feed(directory / "incoming")


def rows(directory: Path) -> "Counter[tuple[object, ...]]":
    """By the library's own scan."""
    with closing(SqlCatalog("default", uri=f"sqlite:///{directory}/catalog.db")) as catalog:
        try:
            found = catalog.load_table("shop.flights").scan().to_arrow()
        except NoSuchTableError:
            return Counter()
    return Counter(zip(*(found[name].to_pylist() for name in COLUMNS), strict=True))


def rows_of_duckdb(directory: Path) -> "Counter[tuple[object, ...]]":
    """By another engine, of the files that the table consists of."""
    with closing(SqlCatalog("default", uri=f"sqlite:///{directory}/catalog.db")) as catalog:
        tasks = catalog.load_table("shop.flights").scan().plan_files()
        files = [task.file.file_path.removeprefix("file://") for task in tasks]
    return Counter(duckdb.sql(f"SELECT {', '.join(COLUMNS)} FROM read_parquet({files})").fetchall())


def test_the_page_works_and_a_killed_run_is_finished_by_the_next(tmp_path: Path) -> None:
    sent = placed(tmp_path)
    assert run(tmp_path, "penstock run iceberg.yaml", faults="iceberg.commit=kill").returncode != 0
    assert rows(tmp_path) == Counter()
    for command in PAGE.commands:
        done = run_beside(tmp_path, command)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    assert rows(tmp_path) == sent
    text = PAGE.blocks("python")[0]
    read = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert read.stdout.startswith("900 rows; last batch: 0 at position ")
    with closing(SqlCatalog("default", uri=f"sqlite:///{tmp_path}/catalog.db")) as catalog:
        catalog.load_table("shop.flights").delete("month = 1")
    verified = run_beside(tmp_path, "penstock verify iceberg.yaml --json")
    assert verified.returncode == 5
    assert not json.loads(verified.stdout)["sinks"]["table"]["ok"]


def test_a_run_that_is_killed_at_every_step_delivers_exactly(tmp_path: Path) -> None:
    sent = placed(tmp_path, UNPARTITIONED, ("options: {header: true}", "options: {header: true, maxFilesPerTrigger: 1}"))
    assert 0 not in killed_at(tmp_path, "penstock run iceberg.yaml", KILLS)
    done = run_beside(tmp_path, "penstock run iceberg.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert rows(tmp_path) == sent
    assert rows_of_duckdb(tmp_path) == sent
    verified = run_beside(tmp_path, "penstock verify iceberg.yaml")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert list(tmp_path.rglob("*.staged")) == []


def test_partitions_are_hidden_as_the_page_says_whatever_is_killed(tmp_path: Path) -> None:
    """Tasks of Spark make the values; who filters by a column skips files of other partitions of it."""
    [sink] = [block for block in PAGE.blocks("yaml") if "bucket(4, id)" in block]
    [by] = [line for line in sink.splitlines() if "partition_by" in line]
    sent = placed(tmp_path, ("    partition_by: [month]", by))
    assert run(tmp_path, "penstock run iceberg.yaml", faults="iceberg.commit=kill", forked=True).returncode != 0
    for command in PAGE.commands:
        done = run_beside(tmp_path, command)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    assert rows(tmp_path) == sent
    with closing(SqlCatalog("default", uri=f"sqlite:///{tmp_path}/catalog.db")) as catalog:
        table = catalog.load_table("shop.flights")
        assert [field.name for field in table.spec().fields] == ["month", "origin_trunc", "id_bucket"]
        every, one = (len(list(table.scan(row_filter=where).plan_files())) for where in ("id >= 0", "id = 7"))
        assert 0 < one <= every // 3


def test_a_branch_is_audited_and_published_as_the_page_says(tmp_path: Path) -> None:
    [sink] = [block for block in PAGE.blocks("yaml") if "branch: audit" in block]
    [branch] = [line for line in sink.splitlines() if "branch:" in line]
    sent = placed(tmp_path, ("    partition_by: [month]", branch))
    for command in PAGE.commands:
        done = run_beside(tmp_path, command)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    assert rows(tmp_path) == Counter()
    [audit] = [text for text in PAGE.blocks("python") if "audited" in text]
    read = subprocess.run([sys.executable, "-c", audit], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert read.stdout == "900 rows to audit\n"
    assert rows(tmp_path) == sent


def maintained(directory: Path) -> "Counter[tuple[object, ...]]":
    """The page's pipeline with the maintenance that the page shows, after each batch; what is in the input."""
    [sink] = [block for block in PAGE.blocks("yaml") if "maintenance:" in block]
    whole = PAGE.blocks("yaml")[0]
    text = whole[: whole.index("sinks:\n")] + sink.replace("every: 100", "every: 1") + whole[whole.index("trigger:") :]
    (directory / "iceberg.yaml").write_text(text.replace("{header: true}", "{header: true, maxFilesPerTrigger: 1}"))
    return feed(directory / "incoming")


def test_small_files_are_compacted_as_the_page_says_whatever_is_killed(tmp_path: Path) -> None:
    """What was killed while it wrote files, or before it committed them, is removed by the run that comes next."""
    sent = maintained(tmp_path)
    points = ["lakecompaction.write", "lakecompaction.commit"]
    assert killed_at(tmp_path, "penstock run iceberg.yaml", points) == [-signal.SIGKILL] * 2
    assert rows(tmp_path) == sent
    later = [(number, "EWR", 1, 7.5) for number in range(1_000, 1_050)]
    (tmp_path / "incoming/part-9.csv").write_text("\n".join(",".join(map(str, row)) for row in [COLUMNS, *later]))
    done = run_beside(tmp_path, "penstock run iceberg.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert rows(tmp_path) == rows_of_duckdb(tmp_path) == sent + Counter(later)
    assert len(list((tmp_path / "warehouse/shop/flights/data").glob("compact-*"))) == 1
    verified = run_beside(tmp_path, "penstock verify iceberg.yaml")
    assert verified.returncode == 0, verified.stdout + verified.stderr
