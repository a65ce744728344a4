"""Whatever the umask: what Penstock keeps of rows and offsets is its user's alone, and what it publishes is as the umask says."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.lake import Lake
from tests.unit.test_spool import rows, spool_in, stage

from penstock.cli.opening import SparkLog
from penstock.ledger.sqlite import SqliteLedger
from penstock.run import session
from penstock.support.private_files import stderr_to
from penstock.testing.entries import PIPELINE, opened_entry

OTHERS = 0o077


@pytest.fixture(autouse=True, params=[0o022, 0o002, 0o000], ids=oct)
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def seen_by_others(root: Path) -> Iterator[Path]:
    """Files below `root` that another user, or the group, can get at."""
    for path in root.iterdir():
        if path.stat().st_mode & OTHERS and not path.is_dir():
            yield path
        elif path.stat().st_mode & OTHERS:
            yield from seen_by_others(path)


@pytest.mark.parametrize("ledger", ["sqlite:///state/ledger.db", "./state/ledger"])
def test_of_a_pipeline_others_see_what_is_published(tmp_path: Path, ledger: str) -> None:
    lake = Lake(tmp_path / "project", ledger=ledger)
    lake.run([0, 1])
    published = {*lake.listed("a"), *lake.listed("b")}
    assert len(published) == 4
    assert set(seen_by_others(lake.directory)) == {*published, lake.file}


def test_what_is_staged_is_closed_to_others_by_its_directory(tmp_path: Path) -> None:
    """A staged file becomes the published one by its name alone, so it has the access of that."""
    lake = Lake(tmp_path / "project")
    lake.run([0])
    [pieces] = (lake.directory / ".penstock-staging/a").rglob("pieces")
    (pieces / "staged.parquet").touch()
    assert list(seen_by_others(lake.directory / ".penstock-staging")) == []


def test_files_beside_an_open_sqlite_ledger(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with closing(SqliteLedger(tmp_path / "there/ledger.db", pipeline=PIPELINE)) as ledger:
        ledger.append(opened_entry())
        assert {path.name for path in (tmp_path / "there").iterdir()} == {"ledger.db", "ledger.db-wal", "ledger.db-shm"}
        assert list(seen_by_others(tmp_path / "there")) == []


def test_a_file_that_the_ledger_finds_keeps_its_access(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")
    (tmp_path / "shop.db").chmod(0o640)
    with closing(SqliteLedger(tmp_path / "shop.db", pipeline=PIPELINE)) as ledger:
        ledger.append(opened_entry())
    assert (tmp_path / "shop.db").stat().st_mode & 0o777 == 0o640


def test_the_spool(tmp_path: Path) -> None:
    assert stage(spool_in(tmp_path), rows(3))[0].inline is None
    assert [path for path in (tmp_path / "spool").rglob("*") if path.is_file()]
    assert list(seen_by_others(tmp_path)) == []


def test_logs(tmp_path: Path) -> None:
    with SparkLog(str(tmp_path / "home")), stderr_to(session._opened(tmp_path / "other/spark.log")):
        os.write(2, b"a row\n")
    assert len(list(tmp_path.rglob("spark.log"))) == 2
    assert list(seen_by_others(tmp_path)) == []
