"""What an error says to do is done, and then every row is there once: errors for which no other test does so."""

import errno
import importlib
import os
import subprocess
import sys
import zipfile
from collections import Counter
from itertools import count
from pathlib import Path

import pytest
from tests.attack.changing_table import ChangingTable
from tests.attack.places import pipelines
from tests.unit.dbapi_target import TableRig as DriverRig
from tests.unit.sqlite_target import TableRig
from tests.unit.table_target import targets_of

from penstock.errors import (
    BatchForgotten,
    BatchGap,
    ContentConflict,
    DependencyMissing,
    FormatTooNew,
    OutcomeUnknown,
    StagedDataLost,
    StoreIgnoresConditions,
)
from penstock.ledger.directory import DirectoryStore

__all__ = ["pipelines"]

targets = pytest.fixture(targets_of(TableRig))
driver_targets = pytest.fixture(targets_of(DriverRig))
ROWS = [(1, "a"), (2, "b"), (3, "c")]
DRIVER = "shop_driver"


def rows_of(table):
    assert table.verify().ok
    return Counter(table.content("id", "name"))


def test_a_gap_in_the_batches(targets):
    """Batch 1 is missing, as where an older ledger, or a newer checkpoint, was put in place."""
    table = ChangingTable(targets())
    table.deliver(ROWS[0])
    next(table.numbers)
    with pytest.raises(BatchGap) as told:
        table.deliver(ROWS[2])
    assert "checkpoint" in told.value.remedy
    assert rows_of(table) == Counter(ROWS[:1])
    table.numbers = count(1)  # of the checkpoint that matches
    table.deliver(ROWS[1])
    table.deliver(ROWS[2])
    assert rows_of(table) == Counter(ROWS)


def delivered(pipeline, rows):
    """Whether `rows` are there once each, for another client and for `verify`."""
    return pipeline.verify().ok and pipeline.content() == Counter(rows)


def test_a_batch_that_the_ledger_forgot(pipelines):
    pipeline = pipelines("sqlite")
    pipeline.run(ROWS[:1], ROWS[1:2])
    ledger = pipeline.ledger()
    ledger.prune(below=ledger.tail().position)
    ledger.close()
    with pytest.raises(BatchForgotten) as told:
        pipeline.run(again=0)  # as Spark does with a checkpoint that is too old
    assert "put the newest one back" in told.value.remedy
    assert delivered(pipeline, ROWS[:2])
    pipeline.run(ROWS[2:])
    assert delivered(pipeline, ROWS)


def test_a_store_that_ignores_conditions(pipelines, monkeypatch):
    pipeline = pipelines("parquet")

    def overwrite(store, key, data):
        store.put(key, data)
        return True

    with monkeypatch.context() as patched:
        patched.setattr(DirectoryStore, "put_if_absent", overwrite)
        with pytest.raises(StoreIgnoresConditions) as told:
            pipeline.run(ROWS)
    assert "an SQLite file on a local disk" in told.value.remedy
    assert pipeline.content() == Counter()
    pipeline.ledger_place = f"sqlite:///{pipeline.home / 'ledger.db'}"
    pipeline.run(ROWS)
    assert delivered(pipeline, ROWS)


@pytest.mark.parametrize("landed", [True, False], ids=["it came to be", "it did not"])
def test_a_decision_whose_answer_was_lost(pipelines, monkeypatch, landed):
    """As of a disk over the network: nothing is there when the run looks, and what was written may come to be later."""
    pipeline, link, on_their_way = pipelines("sqlite"), os.link, []
    pipeline.run(ROWS[:1])

    def lose_answer(source, target):
        data = Path(source).read_bytes()
        if b'"staged"' not in data:  # no decision
            return link(source, target)
        on_their_way.append((Path(target), data))
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken:
        broken.setattr("penstock.ledger.directory.os.link", lose_answer)
        with pytest.raises(OutcomeUnknown) as told:
            pipeline.run(ROWS[1:])
    assert told.value.remedy == "Start again: the start reads what is there."
    assert pipeline.content() == Counter(ROWS[:1])
    if landed:
        target, data = on_their_way[0]
        target.write_bytes(data)
        pipeline.run(again=1)  # as Spark does, which knows of no end of that batch
    else:
        pipeline.run(ROWS[1:])
    assert delivered(pipeline, ROWS)


@pytest.mark.parametrize("newer_still", [0, 1], ids=["the version that wrote it", "a newer one"])
def test_a_marker_of_a_newer_version(pipelines, monkeypatch, newer_still):
    """This version, once it is made to write what it does not know, is the newer one."""
    pipeline, version = pipelines("sqlite"), "penstock.sink.table.marker.FORMAT_VERSION"
    with monkeypatch.context() as newer:
        newer.setattr(version, 7)
        newer.setattr("penstock.sink.table.marker.NAMED", 7)
        pipeline.run(ROWS[:1])
    with pytest.raises(FormatTooNew) as told:
        pipeline.run(ROWS[1:])
    assert told.value.remedy == "Use the Penstock that wrote it, or a newer one."
    assert pipeline.decided() == 1
    monkeypatch.setattr(version, 7 + newer_still)
    pipeline.run(ROWS[1:])
    assert delivered(pipeline, ROWS)


def outstanding(pipeline):
    """Deliver all rows, and die before the last ones are published. Gives the file that is staged."""
    pipeline.run(ROWS[:1])
    pipeline.run(ROWS[1:], is_dying=True)
    (staged,) = (path for path in pipeline.rig.place.glob("lake/.penstock-staging/**/*.staged") if path.is_file())
    return staged


@pytest.mark.parametrize("damage", ["removed", "cut short"])
def test_staged_data_that_is_lost(pipelines, tmp_path, damage):
    pipeline = pipelines("parquet", options={"inline_limit_bytes": 0})
    staged = outstanding(pipeline)
    backup = tmp_path / "backup"
    backup.write_bytes(staged.read_bytes())
    staged.unlink() if damage == "removed" else staged.write_bytes(backup.read_bytes()[:-1])
    with pytest.raises(StagedDataLost) as told:
        pipeline.run()
    assert told.value.remedy.startswith("Restore ")
    assert told.value.remedy.endswith("from a backup, then run `penstock recover`.")
    assert pipeline.content() == Counter(ROWS[:1])
    staged.write_bytes(backup.read_bytes())
    pipeline.recover()
    assert delivered(pipeline, ROWS)


def test_a_foreign_file_under_the_decided_name(pipelines, tmp_path):
    pipeline = pipelines("parquet", options={"inline_limit_bytes": 0})
    staged = outstanding(pipeline)
    (shown,) = pipeline.rig.parquet_files()
    foreign = shown.with_name(staged.name.removesuffix(".staged"))
    foreign.write_bytes(b"of somebody else")
    with pytest.raises(ContentConflict) as told:
        pipeline.run()
    assert told.value.remedy.endswith("move the foreign file away, then run `penstock recover`.")
    foreign.rename(tmp_path / "moved away")
    pipeline.recover()
    assert delivered(pipeline, ROWS)


def test_a_table_that_takes_fewer_rows_than_were_decided(pipelines):
    pipeline = pipelines("sqlite")
    with pipeline.driver() as deliver:
        deliver(ROWS[:1])
        pipeline.rig.sql("CREATE TRIGGER drops BEFORE INSERT ON t WHEN NEW.id = 2 BEGIN SELECT RAISE(IGNORE); END")
        with pytest.raises(ContentConflict) as told:
            deliver(ROWS[1:])
    assert told.value.remedy.startswith("Look for a trigger or a view that drops rows, remove it and start again")
    assert pipeline.content() == Counter(ROWS[:1])
    pipeline.rig.sql("DROP TRIGGER drops")
    pipeline.run()
    assert delivered(pipeline, ROWS)


def wheel_of_a_driver(folder):
    """The package of a driver, which is sqlite3 under another name."""
    wheel, info = folder / f"{DRIVER}-1.0-py3-none-any.whl", f"{DRIVER}-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr(f"{DRIVER}.py", "from sqlite3 import *\n")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {DRIVER}\nVersion: 1.0\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return wheel


def test_a_driver_that_is_not_installed(driver_targets, tmp_path, monkeypatch):
    table, site = ChangingTable(driver_targets(driver=DRIVER)), tmp_path / "site"
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, DRIVER, raising=False)
    with pytest.raises(DependencyMissing) as told:
        table.deliver(*ROWS)
    assert told.value.remedy.startswith("Install its package where the driver runs")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--target", site, wheel_of_a_driver(tmp_path)]
    subprocess.run(install, check=True)
    importlib.invalidate_caches()
    table.deliver(*ROWS)
    assert rows_of(table) == Counter(ROWS)
