"""What goes wrong at publish, on a real server: told in one sentence, nothing half-shown, and the next try goes on."""

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.unit.mysql_target import targets
from tests.unit.table_target import SINK, content, require_batches_taken_back

from penstock.core import faults
from penstock.errors import PublishFailed, Refused, Retryable, StagedDataLost
from penstock.sink.mysql import load
from penstock.testing.conformance import PIPELINE

target = pytest.fixture(targets)

KILLS = int(os.environ.get("PENSTOCK_SOAK_KILLS", "6"))


def position(target):
    return target.sql("SELECT position, generation, batch_id FROM penstock_marker")


def test_rows_and_offsets_are_in_the_database_for_people_to_read(target):
    table = target()
    table.put(table.sink(), [(1, "a")], [(2, "b")], batch_id=7)
    assert table.sql("SELECT JSON_VALUE(offsets, '$[0].end'), rows_after FROM penstock_marker") == [("8", 2)]
    assert table.sql("SELECT batch_id, `rows` FROM penstock_batch") == [(7, 2)]
    columns = "table_name, pipeline, sink, JSON_UNQUOTE(end_offset), batch_id, position"
    assert table.sql(f"SELECT {columns} FROM penstock_offsets") == [("t", PIPELINE, SINK, "8", 7, 2)]


def test_no_staging_is_left_and_nobody_saw_it(target):
    table = target(inline_limit_bytes=0)
    table.put(table.sink(), [(1, "a")], batch_id=0)
    assert table.sql("SHOW TABLES") == [("penstock_batch",), ("penstock_marker",), ("penstock_offsets",), ("t",)]
    assert [path.suffix for path in table.rig.directory.glob("spool/*/*/*")] == [".id"]


def loads(sink):
    """How often the sink's session has loaded rows."""
    [(_, times)] = sink._database.connected().execute("SHOW SESSION STATUS LIKE 'Com_load'").fetchall()
    return int(times)


def test_all_pieces_of_a_batch_are_loaded_by_one_statement(target):
    """The server loads a piece while the next one is read."""
    table = target()
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], [(2, "b")], [(3, "c")], batch_id=0)
    before = loads(sink)
    sink.publish(publication)
    assert loads(sink) == before + 1
    assert content(table) == Counter([(1, "a"), (2, "b"), (3, "c")])


def test_a_piece_that_is_lost_among_others_shows_none_of_them(target):
    table = target(inline_limit_bytes=0)
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], [(2, "b")], batch_id=0)
    lost = next(table.rig.directory.glob(f"spool/*/*/{publication.staged[1].name}"))
    kept = lost.rename(lost.with_suffix(".away"))
    with pytest.raises(StagedDataLost, match="it is missing"):
        sink.publish(publication)
    assert content(table) == Counter()
    kept.rename(lost)
    sink.publish(publication)
    assert content(table) == Counter([(1, "a"), (2, "b")])


def test_rows_that_the_table_refuses_stop_the_batch_until_it_is_mended(target):
    """A trigger cannot leave a row out silently, but it can refuse it, as a constraint can."""
    table = target()
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a"), (20, "secret value")], batch_id=0)
    table.sql("ALTER TABLE t ADD CONSTRAINT small CHECK (id < 10)")
    with pytest.raises(PublishFailed, match=r"CONSTRAINT `small` failed .*\. Drop the constraint") as told:
        sink.publish(publication)
    assert "secret value" not in str(told.value)
    assert content(table) == Counter()
    table.sql("ALTER TABLE t DROP CONSTRAINT small")
    table.sql("ALTER TABLE t ADD UNIQUE theirs (name(3))", "INSERT INTO t VALUES (7, 'secret')")
    with pytest.raises(PublishFailed, match="Duplicate entry for key 'theirs'") as told:
        sink.publish(publication)
    assert "secret" not in str(told.value)
    table.sql("DROP INDEX theirs ON t", "DELETE FROM t")
    assert not sink.publish(publication).already
    assert content(table) == Counter([(1, "a"), (20, "secret value")])


@pytest.mark.parametrize("write", ["upsert", "insert_if_absent"])
def test_another_index_that_takes_two_rows_for_one_stops_the_batch(target, write):
    """ON DUPLICATE KEY would have changed a row of another key, and INSERT IGNORE would have left the row out."""
    table = target(write=write, key=["id"])
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    table.sql("ALTER TABLE t ADD UNIQUE theirs (name(9))")
    publication = table.decided_but_not_published(sink, [(2, "a")], batch_id=1)
    with pytest.raises(PublishFailed, match="Duplicate entry for key 'theirs'"):
        sink.publish(publication)
    assert sink.conflicts == 0
    assert content(table) == Counter([(1, "a")])


def test_a_column_that_was_altered_since_would_change_values_and_is_refused(target):
    table = target()
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a"), (2, "b")], batch_id=0)
    table.sql("ALTER TABLE t MODIFY id double")
    with pytest.raises(Refused, match="Column 'id' of table 't' is double"):
        sink.publish(publication)
    table.sql("ALTER TABLE t MODIFY id decimal(30,2)", "ALTER TABLE t ENGINE = Aria")
    with pytest.raises(Refused, match="Table 't' is of the engine Aria, expected InnoDB"):
        sink.publish(publication)
    table.sql("ALTER TABLE t ENGINE = InnoDB")
    sink.publish(publication)
    assert table.verify(table.sink()).ok


def test_a_marker_that_was_removed_is_told_and_not_made_anew_beside_its_batches(target):
    table = target()
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    table.sql("DELETE FROM penstock_marker")
    with pytest.raises(PublishFailed, match="has no marker"):
        sink.publish(table.decided_but_not_published(sink, [(1, "a")], batch_id=1))
    with pytest.raises(Refused, match="is gone from penstock_marker, but its batches up to position 2"):
        table.sink()
    assert content(table) == Counter([(1, "a")])


def test_a_transaction_that_something_ended_is_not_taken_for_committed(target, monkeypatch):
    """MySQL commits at any statement that defines a table: nothing of ours may be one."""
    table = target()
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    ends = "CREATE TABLE theirs (id int) -- %(position)s"
    monkeypatch.setattr("penstock.sink.table.marker_store.MarkerStatements.forget_batches", lambda _: ends)
    with pytest.raises(PublishFailed, match="ended before its COMMIT"):
        sink.publish(publication)
    monkeypatch.undo()
    assert sink.publish(publication).already


# --- who may publish


def test_a_driver_that_stands_still_in_its_transaction_loses_it(target, monkeypatch):
    monkeypatch.setattr("penstock.sql.mysql.database.IDLE_TIMEOUT_S", 1)
    table = target()
    zombie, sink = table.sink(), table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    faults.arm("mysql.mark=stall:2")
    with pytest.raises(Retryable, match="does not answer"):
        zombie.publish(publication)
    assert not sink.publish(publication).already
    assert zombie.publish(publication).already


# --- answers that are lost


def test_a_connection_that_was_lost_between_two_batches_is_opened_again(target):
    table = target()
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    with table.rig.session() as admin:
        admin.execute("KILL USER penstock")
    table.put(sink, [(2, "b")], batch_id=1)
    assert content(table) == Counter([(1, "a"), (2, "b")])


def test_a_fault_while_preparing_leaves_what_the_next_start_goes_on_with(target):
    table = target()
    for fault in ("mysql.prepare=error", "mysql.prepare=lost"):
        faults.arm(fault)
        with pytest.raises(Retryable):
            table.sink()
    table.sql("DELETE FROM penstock_marker")  # as if it had ended between the table and its marker
    table.put(table.sink(), [(1, "a")], batch_id=0)
    assert content(table) == Counter([(1, "a")])


# --- others that write


def test_a_deadlock_is_run_again_and_counted(target):
    """Another session holds a row that the upsert wants, and then wants the marker: MySQL ends one of the two."""
    table = target(write="upsert", key=["id"], lock_timeout_s=60)
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    publication = table.decided_but_not_published(sink, [(1, "b")], batch_id=1)
    with table.rig.session() as other, ThreadPoolExecutor(1) as pool:
        other.execute("CREATE TABLE more (id int)")
        other.execute("SET GLOBAL innodb_lock_wait_timeout = 50")
        other.execute("BEGIN")
        other.execute(f"INSERT INTO more VALUES {', '.join(['(1)'] * 1000)}")  # who wrote less is ended
        other.execute("UPDATE t SET name = 'c' WHERE id = 1")
        publishing = pool.submit(sink.publish, publication)
        table.rig.await_lock()
        other.execute("SELECT 1 FROM penstock_marker FOR UPDATE")
        other.execute("ROLLBACK")
        assert not publishing.result().already
    assert sink.conflicts == 1
    assert content(table) == Counter([(1, "b")])


@pytest.mark.parametrize(("write", "shown", "conflicts"), [("upsert", "b", 0), ("insert_if_absent", "theirs", 1)])
def test_a_key_that_another_session_inserts_meanwhile_is_waited_for(target, write, shown, conflicts):
    table = target(write=write, key=["id"], lock_timeout_s=60)
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(5, "b"), (6, "c")], batch_id=0)
    with table.rig.session() as other, ThreadPoolExecutor(1) as pool:
        other.execute("BEGIN")
        other.execute("INSERT INTO t VALUES (5, 'theirs')")
        publishing = pool.submit(sink.publish, publication)
        table.rig.await_lock()
        other.execute("COMMIT")
        assert not publishing.result().already
    assert sink.conflicts == conflicts
    assert content(table) == Counter([(5, shown), (6, "c")])


@pytest.mark.parametrize("keys", [(5, 6), (5, 6, 6)], ids=["distinct", "repeated"])
def test_a_key_that_comes_in_after_the_look_is_counted_anew(target, monkeypatch, keys):
    table, insert = target(write="upsert", key=["id"]), load._insert
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(key, "b") for key in keys], batch_id=0)

    def after_another(*arguments, **absent):
        if not sink.conflicts:
            table.sql("INSERT INTO t VALUES (5, 'theirs')")
        return insert(*arguments, **absent)

    monkeypatch.setattr(load, "_insert", after_another)
    assert not sink.publish(publication).already
    assert sink.conflicts == 1
    assert content(table) == Counter([(5, "b"), (6, "b")])
    assert table.sql("SELECT rows_decided, rows_after FROM penstock_marker") == [(len(keys), 1)]


# --- which rows of a batch may be inserted before it is known whether their keys are there


@pytest.fixture
def statements(monkeypatch):
    """What writes rows into the user's table, in order."""
    run, sent = load._execute_strictly, []
    monkeypatch.setattr(load, "_execute_strictly", lambda on, sql: (sent.append(sql.split()[0:2]), run(on, sql))[1])
    return lambda: [" ".join(words) for words in sent]


def test_rows_of_different_keys_are_written_without_a_look_at_each(target, statements):
    table = target(write="upsert", key=["id"])
    sink = table.sink()
    for batch_id, names in enumerate(["ab", "bb", "ca"]):
        table.put(sink, [(batch_id + place, name) for place, name in enumerate(names)], batch_id=batch_id)
    assert content(table) == Counter([(0, "a"), (1, "b"), (2, "c"), (3, "a")])
    assert statements() == ["INSERT INTO"] * 5
    assert table.verify(sink).ok


ONE_BY_ONE = {
    "another index": ["ALTER TABLE t ADD UNIQUE theirs (name(3))"],
    "a column of theirs": [
        "ALTER TABLE t ADD theirs int DEFAULT 1",
        "ALTER TABLE t ALTER theirs SET DEFAULT 0, ADD CHECK (theirs > 0 OR id > 1)",
    ],
    "a trigger": ["CREATE TRIGGER theirs BEFORE INSERT ON t FOR EACH ROW IF NEW.id = 1 THEN SIGNAL SQLSTATE '45000'; END IF"],
}


@pytest.mark.parametrize("theirs", ONE_BY_ONE)
def test_a_row_that_is_there_is_never_inserted_where_that_does_more(target, statements, theirs):
    """ON DUPLICATE KEY UPDATE inserts first: with triggers, with the defaults of other columns, by every unique index."""
    table = target(write="upsert", key=["id"])
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    for statement in ONE_BY_ONE[theirs]:
        table.sql(statement)
    table.put(sink, [(1, "b"), (2, "c")], batch_id=1)
    assert Counter(table.sql("SELECT id, name FROM t")) == Counter([(1, "b"), (2, "c")])
    assert "UPDATE penstock_chosen" in statements()


def test_a_row_under_another_index_is_never_taken_for_that_of_the_key(target):
    """ON DUPLICATE KEY UPDATE changes the row that the first index finds: here that of the name."""
    table = target(write="upsert", key=["id"])
    sink = table.sink()
    table.put(sink, [(1, "a"), (2, "b")], batch_id=0)
    table.sql("ALTER TABLE t DROP PRIMARY KEY, MODIFY name varchar(9) NOT NULL, ADD PRIMARY KEY (name), ADD UNIQUE (id)")
    publication = table.decided_but_not_published(sink, [(1, "b")], batch_id=1)
    with pytest.raises(PublishFailed, match="Duplicate entry for key 'PRIMARY'"):
        sink.publish(publication)
    assert content(table) == Counter([(1, "a"), (2, "b")])


def test_batches_are_taken_back(target):
    require_batches_taken_back(target)
