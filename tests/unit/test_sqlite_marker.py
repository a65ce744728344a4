"""The marker, the rows from before it, and what a changed pipeline may do."""

import json
import sqlite3
from collections import Counter
from contextlib import closing
from functools import partial

import pytest
from tests.unit.sqlite_target import targets
from tests.unit.table_target import SINK, content, spark_schema

from penstock.core.model import ONLY_ACCOUNT, SinkName
from penstock.errors import (
    FormatTooNew,
    LedgerMismatch,
    PublishFailed,
    Refused,
)
from penstock.sink.sqlite import SqliteSink
from penstock.testing.conformance import PIPELINE

NAMES = "SELECT id, name FROM t"


target = pytest.fixture(targets)


def test_the_marker_can_be_read_with_sql(target):
    table = target()
    sink = table.sink()
    table.put(sink, [(1, "a"), (2, "b")], batch_id=0)
    table.put(sink, [(3, "c")], batch_id=1)
    [row] = table.rig.sql("SELECT * FROM penstock_marker")
    found = dict(row)
    assert (found["pipeline"], found["sink"], found["table_name"], found["write"]) == (PIPELINE, SINK, "t", "append")
    assert (found["position"], found["batch_id"], found["rows_decided"], found["rows_after"]) == (3, 1, 3, 3)
    assert json.loads(found["offsets"]) == [{"source": "rows", "start": 1, "end": 2}]
    assert table.sql("SELECT position, batch_id, rows FROM penstock_batch ORDER BY position") == [(2, 0, 2), (3, 1, 1)]
    assert table.sql("SELECT json_extract(offsets, '$[0].end') FROM penstock_batch WHERE batch_id = 1") == [(2,)]


def test_remembered_batches_are_bounded(target, monkeypatch):
    monkeypatch.setattr("penstock.sink.table.marker_store.REMEMBERED_BATCHES", 3)
    table = target()
    sink = table.sink()
    shown = [table.put(sink, [(at, "a")], batch_id=at) for at in range(8)]
    assert table.sql("SELECT batch_id FROM penstock_batch ORDER BY 1") == [(5,), (6,), (7,)]
    assert sink.publish(shown[5].publication).already
    with pytest.raises(LedgerMismatch, match="no batch that it still knows"):
        sink.publish(shown[0].publication)
    assert len(table.sql(NAMES)) == 8


def test_an_empty_batch_writes_nothing(target):
    table = target()
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    before = table.sql("SELECT * FROM penstock_marker")
    table.put(sink, batch_id=1)
    assert table.sql("SELECT * FROM penstock_marker") == before


def test_a_marker_of_the_future_is_not_guessed(target):
    table = target()
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    table.sql("UPDATE penstock_marker SET format_version = 7")
    for act in (lambda: sink.publish(publication), table.sink, lambda: table.verify(sink)):
        with pytest.raises(FormatTooNew, match="has format 7, this Penstock knows formats up to 6"):
            act()


def test_a_marker_with_an_identity_is_refused_by_an_older_penstock(target, monkeypatch):
    """It would take another ledger's positions for its own. Before the first publication a marker has none."""
    table = target()
    sink = table.sink()
    assert table.sql("SELECT format_version, ledger_id FROM penstock_marker") == [(1, None)]
    table.put(sink, [(1, "a")], batch_id=0)
    monkeypatch.setattr("penstock.sink.table.marker.FORMAT_VERSION", 1)
    with pytest.raises(FormatTooNew, match="has format 2, this Penstock knows formats up to 1"):
        table.sink()


def test_a_marker_that_was_removed_is_told(target):
    table = target()
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    table.sql("DELETE FROM penstock_marker")
    with pytest.raises(PublishFailed, match="has no marker"):
        sink.publish(publication)
    assert not table.verify(sink).ok


@pytest.mark.parametrize("rides", [True, False])
def test_tables_of_markers_that_were_removed_are_told_as_a_marker_is(target, rides):
    table = target()
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    table.sql("DROP TABLE penstock_marker")
    table.sql("DROP TABLE penstock_batch")
    with closing(sqlite3.connect(table.rig.path, isolation_level=None)) as connection:
        publish = partial(sink.publish_within, connection) if rides else sink.publish
        with pytest.raises(PublishFailed, match="has no marker") as failure:
            publish(publication)
    assert "Restore the table penstock_marker" in failure.value.remedy
    assert content(table) == Counter()


def test_rows_from_before_are_kept_and_do_not_disturb_the_proof(target):
    table = target()
    table.sql("CREATE TABLE t (id INTEGER, name TEXT)")
    table.sql("INSERT INTO t VALUES (100, 'old'), (101, NULL)")
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    assert content(table) == Counter([(100, "old"), (101, None), (1, "a")])
    report = table.verify(sink)
    assert report.ok
    assert report.accounts[ONLY_ACCOUNT].found.rows == 1
    table.sql("DELETE FROM t WHERE id = 100")
    assert not table.verify(sink).ok


def test_rows_from_before_that_cannot_be_read_are_refused(target):
    table = target()
    table.sql("CREATE TABLE t (id INTEGER, name TEXT)")
    table.sql("INSERT INTO t VALUES ('one', 'old')")
    with pytest.raises(Refused, match=r"could not have stored.* column 'id'"):
        table.sink()
    assert table.sql("SELECT name FROM sqlite_master") == [("t",)]


def test_replace_does_not_keep_rows_from_before(target):
    table = target(write="replace")
    table.sql("CREATE TABLE t (id INTEGER, name TEXT)")
    table.sql("INSERT INTO t VALUES (100, 'old')")
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    assert content(table) == Counter([(1, "a")])
    assert table.verify(sink).ok


def test_two_sinks_cannot_share_a_table(target):
    table = target()
    table.sink()
    other = SqliteSink(name=SinkName("other"), path=table.rig.path, table="T", spool=str(table.rig.directory / "spool"))
    with pytest.raises(Refused, match="is filled by sink 'warehouse' of pipeline 'conformance'"):
        other.prepare(pipeline=PIPELINE, schema=table.rig.schema)


def test_a_sink_cannot_silently_go_on_in_another_table(target):
    table = target()
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    table.rig.table = "u"
    with pytest.raises(LedgerMismatch, match="filled table 't' so far, expected 'u'"):
        table.sink()
    moved = table.rig.make()
    with pytest.raises(LedgerMismatch, match="filled table 't' so far, expected 'u'"):
        moved.publish(publication)
    moved.close()
    assert table.sql("SELECT name FROM sqlite_master WHERE name = 'u'") == []


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": "integer", "name": "string"}, "'id' was int64 .* and is int32 now"),
        ({"id": "long", "name": "timestamp"}, "'name' was string .* and is timestamp"),
        ({"name": "string", "id": "long"}, "came in the order id, name and come in the order name, id now"),
    ],
)
def test_a_change_of_types_or_order_would_change_every_digest(target, columns, message):
    table = target()
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    table.rig.schema = spark_schema(**columns)
    with pytest.raises(Refused, match=message):
        table.sink()


def test_a_new_column_may_come_anywhere(target):
    table = target()
    shown = [table.put(table.sink(), [(1, "a")], batch_id=0)]
    table.rig.schema = spark_schema(id="long", new="double", name="string")
    with pytest.raises(Refused, match="missing in the table: new"):
        table.sink()
    table.sql("ALTER TABLE t ADD COLUMN new REAL")
    table.columns = ["id", "new", "name"]
    sink = table.sink()
    assert table.verify(sink).ok
    shown.append(table.put(sink, [(2, 0.5, "b")], batch_id=1))
    assert content(table, "SELECT id, name, new FROM t") == Counter([(1, "a", None), (2, "b", 0.5)])
    assert table.verify(sink).ok


def test_replace_may_change_its_columns(target):
    table = target(write="replace")
    table.put(table.sink(), [(1, "a")], batch_id=0)
    table.rig.schema = spark_schema(name="string", id="integer")
    table.columns = ["name", "id"]
    sink = table.sink()
    table.put(sink, [("b", 2)], batch_id=1)
    assert content(table) == Counter([(2, "b")])
    assert table.verify(sink).ok


def test_the_way_of_writing_may_change(target):
    table = target()
    table.put(table.sink(), [(1, "a"), (2, "b")], batch_id=0)
    table.sql("CREATE UNIQUE INDEX i ON t (id)")
    table.rig.options = {"write": "upsert", "key": ["id"]}
    table.put(table.sink(), [(1, "A"), (3, "c")], batch_id=1)
    table.rig.options = {}
    sink = table.sink()
    table.put(sink, [(4, "d")], batch_id=2)
    assert content(table) == Counter([(1, "A"), (2, "b"), (3, "c"), (4, "d")])
    assert table.verify(sink).ok


def test_a_marker_that_was_removed_is_not_made_anew_beside_its_batches(target):
    table = target()
    table.put(table.sink(), [(1, "a")], batch_id=0)
    table.sql("DELETE FROM penstock_marker")
    with pytest.raises(Refused, match="is gone from penstock_marker, but its batches up to position 2"):
        table.sink()
