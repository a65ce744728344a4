"""What happens to sinks behind Penstock's back: `penstock verify` says where, and only if something did."""

import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock.core.model import Attempt
from tests.crash.commandline import Ended, penstock
from tests.crash.world import ACCOUNTS, World, account_rows, file_rows, make_world

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.timeout(300)]

SEED = 5
FLIPPED = 40
"""At how many places of a file one byte is changed."""


@pytest.fixture(scope="module")
def delivered(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Batches 0 to 2 are delivered and verified."""
    made = make_world(tmp_path_factory.mktemp("damage") / "world", files=3, rows_per_file=60, seed=SEED, per_trigger=1)
    done = penstock("run", str(made.file), "--json")
    assert done.code == 0, str(done)
    made.assert_exact()
    return made


@pytest.fixture
def world(delivered: World, tmp_path: Path) -> World:
    """A copy that may be damaged."""
    shutil.copytree(delivered.root, tmp_path / "world")
    return World(tmp_path / "world", delivered.expected)


def verify(world: World, code: int, *options: str) -> tuple[Ended, Ended]:
    """For people, and for programs."""
    human, machine = penstock("verify", str(world.file), *options), penstock("verify", str(world.file), "--json", *options)
    assert (human.code, machine.code) == (code, code), str(human)
    assert human.err == machine.err == ""
    assert machine.last["ok"] is (code == 0)
    return human, machine


def files_of(world: World, account: str) -> list[Path]:
    return sorted(world.account(account).rglob("*.parquet"))


def file_of_batch(world: World, account: str, batch_id: int) -> Path:
    return next(file for file in files_of(world, account) if batch_in(file.name) == batch_id)


def batch_in(name: str) -> int:
    attempt = Attempt.find(name)
    assert attempt is not None
    return attempt.batch_id


@dataclass(frozen=True)
class Found:
    """The one problem that must be told. `file` is relative to the account's root."""

    account: str
    file: str
    batch: int | None
    message: str


def test_a_good_result_is_told_as_good(world: World) -> None:
    human, machine = verify(world, 0)
    assert "Every row of the ledger is in its place once" in human.out
    lake, warehouse = machine.last["sinks"]["lake"], machine.last["sinks"]["warehouse"]
    rows = {account: sum(world.expected[account].values()) for account in ACCOUNTS}
    assert {name: account["rows_found"] for name, account in lake["accounts"].items()} == rows
    assert warehouse["rows_found"] == warehouse["rows_expected"] == 180
    assert lake["digest_found"] == lake["digest_expected"] == warehouse["digest_found"]


# --- accounts


def copied_beside(world: World) -> Found:
    file = file_of_batch(world, "JFK", 1)
    shutil.copy(file, file.with_name("copy.parquet"))
    return Found("JFK", f"{file.parent.name}/copy.parquet", None, "is a copy of")


def copied_with_its_name(world: World) -> Found:
    file = file_of_batch(world, "EWR", 1)
    target = world.account("LGA") / file.parent.name / file.name
    target.parent.mkdir(exist_ok=True)
    shutil.copy(file, target)
    return Found("LGA", f"{file.parent.name}/{file.name}", 1, "of account 'EWR'")


def removed(world: World) -> Found:
    file = file_of_batch(world, "EWR", 2)
    file.unlink()
    return Found("EWR", f"{file.parent.name}/{file.name}", 2, "is missing")


def truncated(world: World) -> Found:
    file = file_of_batch(world, "LGA", 0)
    file.write_bytes(file.read_bytes()[:-10])
    return Found("LGA", f"{file.parent.name}/{file.name}", 0, "was truncated")


def emptied(world: World) -> Found:
    file = file_of_batch(world, "LGA", 1)
    file.write_bytes(b"")
    return Found("LGA", f"{file.parent.name}/{file.name}", 1, "was truncated")


def a_row_changed(world: World) -> Found:
    file = file_of_batch(world, "JFK", 0)
    rows = pq.ParquetFile(file).read()
    payload = pa.array(["changed", *rows["payload"].to_pylist()[1:]])
    pq.write_table(rows.set_column(rows.column_names.index("payload"), "payload", payload), file)
    return Found("JFK", f"{file.parent.name}/{file.name}", 0, "the content of its")


def moved_to_another_month(world: World) -> Found:
    file = file_of_batch(world, "JFK", 2)
    target = world.account("JFK") / "month=12" / "moved.parquet"
    target.parent.mkdir()
    file.rename(target)
    return Found("JFK", f"{file.parent.name}/{file.name}", 2, "is missing")


def foreign(world: World) -> Found:
    file = file_of_batch(world, "EWR", 1)
    rows = pq.ParquetFile(file).read()
    pq.write_table(rows.slice(0, 1).set_column(0, "id", pa.array([99], pa.int32())), file.with_name("foreign.parquet"))
    return Found("EWR", f"{file.parent.name}/foreign.parquet", None, "is foreign: no batch decided its 1 rows")


def no_parquet(world: World) -> Found:
    (world.account("EWR") / "notes.txt").write_text("hello")
    return Found("EWR", "notes.txt", None, "is foreign and is no Parquet file")


@pytest.mark.parametrize(
    "damage",
    [
        *(copied_beside, copied_with_its_name, removed, truncated, emptied, a_row_changed, moved_to_another_month),
        *(foreign, no_parquet),
    ],
)
def test_a_damaged_account_is_named_with_file_and_batch(world: World, damage: Callable[[World], Found]) -> None:
    found = damage(world)
    human, machine = verify(world, 5)
    lake = machine.last["sinks"]["lake"]
    told = [problem for problem in lake["problems"] if problem["file"] == found.file]
    assert [(problem["account"], problem["batch_id"]) for problem in told] == [(found.account, found.batch)], lake["problems"]
    assert found.message in told[0]["message"]
    assert lake["ok"] is False
    assert machine.last["sinks"]["warehouse"]["ok"] is True
    shown = " ".join(human.out.split())
    place = f"account {found.account} file {found.file}" + ("" if found.batch is None else f" batch {found.batch}")
    assert place in shown
    assert "The sinks do not hold what the ledger says." in shown
    assert "from a backup" in shown
    assert "penstock recover" not in shown, "every account shows what is decided: publishing would mend nothing"
    assert verify(world, 0, "--sink", "warehouse")
    assert verify(world, 5, "--sink", "lake")


def test_one_changed_byte_is_told_unless_readers_find_the_same_rows(world: World) -> None:
    file = file_of_batch(world, "JFK", 1)
    whole, rows = file.read_bytes(), file_rows(file)
    told = Counter[bool]()
    for place in range(0, len(whole), max(1, len(whole) // FLIPPED)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        ended = penstock("verify", str(world.file), "--sink", "lake", "--json")
        same = rows_or_none(file) == rows
        assert ended.code in ({0, 5} if same else {5}), f"byte {place}: {ended}"
        told[ended.code == 5] += 1
        if ended.code == 5:
            (problem,) = ended.last["sinks"]["lake"]["problems"]
            assert (problem["account"], Path(problem["file"]).name, problem["batch_id"]) == ("JFK", file.name, 1)
    assert told[True] > FLIPPED / 4
    file.write_bytes(whole)
    verify(world, 0)


def rows_or_none(file: Path) -> "Counter[tuple[object, ...]] | None":
    try:
        return file_rows(file)
    except (pa.ArrowException, OSError, ValueError, KeyError):
        return None


# --- the database


@pytest.mark.parametrize(
    ("statement", "told", "batch"),
    [
        pytest.param("UPDATE flights SET payload = 'x' WHERE rowid = 7", "other values", None, id="row changed"),
        pytest.param("UPDATE flights SET amount = 'x' WHERE rowid = 7", "found the text 'x'", None, id="value of another type"),
        pytest.param("DELETE FROM flights WHERE rowid = 7", "lacks 1 of the rows", None, id="row removed"),
        pytest.param("INSERT INTO flights SELECT * FROM flights WHERE rowid = 7", "holds 1 rows more", None, id="row doubled"),
        pytest.param("INSERT INTO flights VALUES (1, 'EWR', 2, '', 0)", "holds 1 rows more", None, id="row added"),
        pytest.param("DELETE FROM flights WHERE rowid > 120", "Batch 2 with 60 rows is no more in", 2, id="batch removed"),
        pytest.param(
            "INSERT INTO flights SELECT * FROM flights WHERE rowid > 120",
            "Batch 2 with 60 rows is twice in",
            2,
            id="batch doubled",
        ),
        pytest.param("DROP TABLE flights", "it is gone", None, id="table dropped"),
    ],
)
def test_a_damaged_table_is_named_and_where_it_can_be_the_batch(
    world: World, statement: str, told: str, batch: int | None
) -> None:
    with closing(sqlite3.connect(world.root / "warehouse.db")) as connection, connection:
        connection.execute(statement)
    human, machine = verify(world, 5)
    (problem,) = machine.last["sinks"]["warehouse"]["problems"]
    assert told in problem["message"]
    assert (problem["file"], problem["batch_id"]) == ("flights", batch)
    assert machine.last["sinks"]["lake"]["ok"] is True
    shown = " ".join(human.out.split())
    assert told in shown
    assert "file flights" in shown
    verify(world, 0, "--sink", "lake")


def test_a_database_that_is_gone_is_told(world: World) -> None:
    (world.root / "warehouse.db").unlink()
    _, machine = verify(world, 5)
    assert machine.last["sinks"]["warehouse"]["rows_found"] == 0
    assert not (world.root / "warehouse.db").exists()


def test_an_account_that_is_gone_is_told_file_by_file(world: World) -> None:
    files = files_of(world, "EWR")
    shutil.rmtree(world.account("EWR"))
    _, machine = verify(world, 5)
    assert len(machine.last["sinks"]["lake"]["problems"]) == len(files)
    assert account_rows(world.account("EWR")) == Counter()
