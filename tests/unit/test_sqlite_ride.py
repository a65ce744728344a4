"""Riding in the ledger's own transaction, looked at with plain SQL after every step."""

import sqlite3
from collections import Counter
from pathlib import Path

import pytest
from tests.unit.sqlite_target import targets
from tests.unit.table_target import SINK, content

from penstock.ledger.sqlite import SqliteLedger
from penstock.sink.sqlite import SqliteSink
from penstock.testing.conformance import PIPELINE

target = pytest.fixture(targets)


def ledger_of(table):
    return SqliteLedger(table.rig.path, pipeline=PIPELINE)


def test_home_is_the_ledgers_also_through_a_link(target, tmp_path):
    table = target()
    link = tmp_path / "link.db"
    link.symlink_to(table.rig.path)
    linked = SqliteSink(name=SINK, path=link, table="t", spool=str(tmp_path))
    assert linked.home == table.rig.make().home == ledger_of(table).home == f"sqlite:{table.rig.path.resolve()}"


def test_a_ride_is_seen_only_if_its_driver_commits(target):
    table = target()
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    connection = sqlite3.connect(table.rig.path, isolation_level=None)
    for end in ("ROLLBACK", "COMMIT"):
        connection.execute("BEGIN IMMEDIATE")
        assert not sink.publish_within(connection, publication).already
        assert connection.in_transaction
        assert content(table) == Counter()
        connection.execute(end)
    assert content(table) == Counter([(1, "a")])
    connection.execute("BEGIN IMMEDIATE")
    assert sink.publish_within(connection, publication).already
    connection.execute("COMMIT")
    connection.close()
    assert sink.publish(publication).already
    assert content(table) == Counter([(1, "a")])


def test_the_files_of_a_ride_go_when_its_ledger_has_committed(target):
    table = target(inline_limit_bytes=0)
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    connection = sqlite3.connect(table.rig.path, isolation_level=None)
    [spooled] = Path(table.rig.directory).glob("spool/*/*/*.arrow")
    with pytest.raises(ZeroDivisionError), sink.ledger_transaction(publication):
        raise ZeroDivisionError
    assert spooled.exists()
    with sink.ledger_transaction(publication):
        connection.execute("BEGIN IMMEDIATE")
        sink.publish_within(connection, publication)
        connection.execute("COMMIT")
        assert spooled.exists()
    connection.close()
    assert not spooled.exists()
    assert sink.publish(publication).already
    assert content(table) == Counter([(1, "a")])


@pytest.mark.parametrize("write", ["append", "upsert", "insert_if_absent", "replace"])
def test_a_ride_works_on_a_connection_with_its_own_ways(target, write):
    table = target(write=write, key=["id"])
    sink = table.sink()
    connection = sqlite3.connect(table.rig.path, isolation_level=None)
    connection.row_factory = sqlite3.Row
    for at in range(2):
        publication = table.decided_but_not_published(sink, [(1, f"{at}")], batch_id=at)
        connection.execute("BEGIN IMMEDIATE")
        sink.publish_within(connection, publication)
        connection.execute("COMMIT")
    assert connection.execute("SELECT count(*) FROM sqlite_temp_master").fetchone()[0] == 0
    connection.close()
    expected = {"append": [(1, "0"), (1, "1")], "upsert": [(1, "1")], "insert_if_absent": [(1, "0")], "replace": [(1, "1")]}
    assert content(table) == Counter(expected[write])
    assert table.verify(sink).ok


def test_only_a_connection_can_be_ridden_on(target):
    table = target()
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    with pytest.raises(TypeError, match=r"expected an sqlite3\.Connection"):
        sink.publish_within(object(), publication)
