"""What goes wrong at publish: told in one sentence, nothing half-shown, and the next try goes on."""

import os
import re
import sqlite3
from collections import Counter
from pathlib import Path

import pytest
from tests.unit.sqlite_target import targets
from tests.unit.table_target import SINK, content, spark_schema

from penstock.core import faults
from penstock.errors import (
    ContentConflict,
    Failed,
    OutcomeUnknown,
    PublishFailed,
    Refused,
    Retryable,
    StageFailed,
    Usage,
)
from penstock.sink.sqlite import SqliteSink
from penstock.support.filesystem_errors import FULL, PathProblem
from penstock.testing.conformance import PIPELINE

target = pytest.fixture(targets)


def test_a_trigger_that_drops_rows_is_noticed_and_nothing_is_shown(target):
    table = target()
    sink = table.sink()
    table.sql("CREATE TRIGGER drops BEFORE INSERT ON t WHEN NEW.id = 2 BEGIN SELECT RAISE(IGNORE); END")
    publication = table.decided_but_not_published(sink, [(1, "a"), (2, "b")], batch_id=0)
    with pytest.raises(ContentConflict, match="has 2 rows, but table 't' took 1"):
        sink.publish(publication)
    assert content(table) == Counter()
    table.sql("DROP TRIGGER drops")
    assert not sink.publish(publication).already
    assert content(table) == Counter([(1, "a"), (2, "b")])


def test_a_publication_that_fails_keeps_no_spool_file_open(target):
    table = target(inline_limit_bytes=0)
    table.sql("CREATE TABLE t (id INTEGER CHECK (id < 10), name TEXT)")
    publication = table.decided_but_not_published(table.sink(), [(10, "a")], batch_id=0)
    with pytest.raises(PublishFailed) as held:
        table.sink().publish(publication)
    opened = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert [path for path in opened if path.endswith(publication.staged[0].name)] == []
    assert held.value is not None


def test_a_constraint_stops_the_batch_until_it_is_mended(target):
    table = target()
    table.sql("CREATE TABLE t (id INTEGER CHECK (id < 10), name TEXT UNIQUE)")
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a"), (2, "a")], batch_id=0)
    with pytest.raises(PublishFailed, match=r"UNIQUE constraint failed: t\.name.*Drop the constraint"):
        sink.publish(publication)
    assert content(table) == Counter()


def test_a_locked_database_is_tried_again(target):
    table = target()
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    other = sqlite3.connect(table.rig.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    for act in (lambda: sink.publish(publication), table.sink):
        with pytest.raises(Retryable, match="locked by another writer"):
            act()
    other.execute("ROLLBACK")
    other.close()
    assert not sink.publish(publication).already


def test_a_file_that_was_exchanged_while_it_was_open_is_told(target):
    """`VACUUM INTO` and a rename, say: the open connection would go on writing to a file that nobody sees any more."""
    table = target()
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    table.sql("VACUUM INTO ?", f"{table.rig.path}.new")
    os.replace(f"{table.rig.path}.new", table.rig.path)
    publication = table.decided_but_not_published(sink, [(2, "b")], batch_id=1)
    with pytest.raises(PublishFailed, match="was replaced or removed while this run was writing"):
        sink.publish(publication)
    for journal in ("-wal", "-shm"):
        Path(f"{table.rig.path}{journal}").unlink(missing_ok=True)
    assert not table.sink().publish(publication).already
    assert content(table) == Counter([(1, "a"), (2, "b")])


def test_a_table_that_was_dropped_is_told(target):
    table = target()
    sink = table.sink()
    shown = table.put(sink, [(1, "a")], batch_id=0)
    table.sql("DROP TABLE t")
    assert sink.publish(shown.publication).already
    with pytest.raises(Refused, match="Table 't', for which a batch is decided, does not exist"):
        sink.publish(table.decided_but_not_published(sink, [(2, "b")], batch_id=1))
    assert "it is gone" in table.verify(sink).problems[0].message


@pytest.mark.parametrize("what", ["no database at all", "directory"])
def test_a_file_that_is_no_database(target, what):
    table = target()
    table.rig.path.mkdir() if what == "directory" else table.rig.path.write_text(what * 100)
    with pytest.raises(Failed, match=r"not a database|a directory is where a file is expected"):
        table.sink()


def test_a_directory_that_is_missing(tmp_path):
    sink = SqliteSink(name=SINK, path=tmp_path / "none" / "data.db", table="t", spool=str(tmp_path / "spool"))
    with pytest.raises(Failed, match="unable to open database file"):
        sink.prepare(pipeline=PIPELINE, schema=spark_schema(id="long"))
    [finding] = sink.check()
    assert not finding.ok
    assert "cannot be created" in finding.message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": ":memory:"}, "lost at exit"),
        ({"path": ""}, "lost at exit"),
        ({"write": "merge"}, "`write` is 'merge', expected one of append"),
        ({"write": "upsert"}, "needs a key"),
    ],
)
def test_settings_that_make_no_sense(tmp_path, options, message):
    with pytest.raises(Usage, match=message):
        SqliteSink(**{"name": SINK, "path": tmp_path / "a.db", "table": "t", "spool": str(tmp_path), **options})


def test_staging_needs_to_know_the_table(target):
    table = target()
    sink = table.rig.make()
    sink.prepare(pipeline=PIPELINE, schema=None)
    with pytest.raises(Failed, match="was not prepared with a schema"):
        sink.stager()
    assert not table.rig.path.exists()


def test_bad_rows_fail_before_anything_is_decided(target):
    table = target(write="upsert", key=["id"])
    sink = table.sink()
    with pytest.raises(StageFailed, match="NULL in column 'id'"):
        table.stage(sink, table.named([(1, "a"), (None, "b")]), batch_id=0)
    assert content(table) == Counter()


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("sqlite.begin=error", Retryable),
        ("sqlite.begin=lost", Retryable),
        ("sqlite.move=error", PublishFailed),
        ("sqlite.move=lost", PublishFailed),
        ("sqlite.mark=error", PublishFailed),
        ("sqlite.mark=lost", PublishFailed),
        ("sqlite.commit=error", OutcomeUnknown),
        ("sqlite.commit=lost", OutcomeUnknown),
    ],
)
def test_after_any_fault_the_next_try_shows_the_batch_once(target, fault, error):
    table = target(inline_limit_bytes=0)
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a"), (2, "b")], batch_id=0)
    faults.arm(fault)
    with pytest.raises(error):
        sink.publish(publication)
    committed = fault == "sqlite.commit=lost"
    assert content(table) == (Counter([(1, "a"), (2, "b")]) if committed else Counter())
    assert sink.publish(publication).already is committed
    assert content(table) == Counter([(1, "a"), (2, "b")])
    assert [path.suffix for path in table.rig.directory.glob("spool/*/*/*")] == [".id"]


def test_a_fault_while_preparing_leaves_nothing_half_made(target):
    table = target()
    for fault in ("sqlite.prepare=error", "sqlite.prepare=lost"):
        faults.arm(fault)
        with pytest.raises(Failed):
            table.sink()
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    assert content(table) == Counter([(1, "a")])


READ_ONLY = "the file system is read-only"


@pytest.fixture
def read_only(monkeypatch):
    """A mount that takes no write, as far as a look at it tells."""
    problem = PathProblem(reason=READ_ONLY, advice="Mount it for writing")
    monkeypatch.setattr("penstock.sink.table.file.file_problem", lambda _: problem)


@pytest.mark.usefixtures("read_only")
def test_a_file_that_cannot_be_created_is_told_with_another_place(target):
    table = target()
    said = (
        f"The database {table.rig.path} cannot be created: {READ_ONLY}. Mount it for writing, or name a file elsewhere in `url`;"
    )
    sink = table.rig.make()
    with pytest.raises(Failed, match=re.escape(said)) as failed:
        sink.require_writable(home="/nowhere")
    assert failed.value.exit_code == 1
    assert [(found.ok, found.message.startswith(said)) for found in sink.check()] == [(False, True)]


def test_a_file_that_takes_no_write_any_more_fails_before_anything_is_staged(target, monkeypatch):
    """SQLite opens it to read, and would say so in the first publication, of a batch that is decided."""
    table = target()
    table.sink()
    table.close()
    problem = PathProblem(reason=READ_ONLY, advice="Mount it for writing")
    monkeypatch.setattr("penstock.sink.table.file.file_problem", lambda _: problem)
    said = f"{READ_ONLY}. Mount it for writing and start again: what was decided is published then."
    sink = table.rig.make()
    with pytest.raises(Failed, match=said):
        sink.prepare(pipeline=PIPELINE, schema=table.schema)
    assert [(found.ok, found.message.endswith(said)) for found in sink.check()] == [(False, True)]


def test_a_full_disk_is_tried(target, monkeypatch):
    monkeypatch.setattr("penstock.sink.table.file.file_problem", lambda _: FULL)
    target().rig.make().require_writable(home="/nowhere")
