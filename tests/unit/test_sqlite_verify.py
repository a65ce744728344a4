"""`verify` and `check` of the sqlite sink say what is different, and change nothing."""

import threading

import pytest
from tests.unit.sqlite_target import targets

from penstock.core.model import ONLY_ACCOUNT, Totals
from penstock.testing.conformance.bench import DecidedBatches

target = pytest.fixture(targets)


def test_verify_names_a_batch_that_is_missing_or_twice(target):
    table = target()
    sink = table.sink()
    table.put(sink, [(1, "a"), (2, "b")], batch_id=0)
    table.put(sink, [(3, "c")], batch_id=1)
    table.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    [problem] = table.verify(sink).problems
    assert (problem.message, problem.batch_id, problem.file) == ("Batch 0 with 2 rows is twice in table 't'.", 0, "t")
    table.sql("DELETE FROM t WHERE id < 3")
    [problem] = table.verify(sink).problems
    assert problem.message == "Batch 0 with 2 rows is no more in table 't'."


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("DELETE FROM t WHERE id = 1", "lacks 1 of the rows"),
        ("INSERT INTO t VALUES (9, 'x')", "holds 1 rows more than were published"),
        ("UPDATE t SET name = 'x' WHERE id = 1", "holds as many rows as were published into it, but other values"),
        ("UPDATE t SET name = NULL WHERE id = 1", "other values"),
        ("UPDATE t SET id = 'one' WHERE id = 1", "column 'id': expected INTEGER for int64, found a value of Python's str"),
        ("ALTER TABLE t DROP COLUMN name", "Table 't': it has no column 'name' any more"),
        ("DROP TABLE t", "it is gone"),
        ("UPDATE penstock_marker SET rows_decided = 7", "the ledger counts 2, or another digest"),
        ("DELETE FROM penstock_marker", "has no marker"),
        ("DROP TABLE penstock_marker", "has no marker"),
        ("UPDATE penstock_marker SET sink = 'x'", "is filled by sink 'x'"),
    ],
)
def test_verify_says_what_is_different(target, statement, message):
    table = target()
    sink = table.sink()
    table.put(sink, [(1, "a"), (2, "b")], batch_id=0)
    table.sql(statement)
    report = table.verify(sink)
    assert not report.ok
    assert message in report.problems[0].message


def test_rows_are_never_counted_below_zero(target):
    """Whoever empties a table takes the rows of before along."""
    table = target()
    table.sql("CREATE TABLE t (id INTEGER, name TEXT)")
    table.sql("INSERT INTO t VALUES (7, 'x'), (8, 'y'), (9, 'z')")
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    table.sql("DELETE FROM t")
    report = table.verify(sink)
    assert [problem.message for problem in report.problems] == ["Table 't' lacks 4 of the rows that were published into it."]
    account = report.accounts[ONLY_ACCOUNT]
    assert (report.ok, account.expected.rows, account.found.rows) == (False, 1, 0)
    table.sql("UPDATE penstock_marker SET rows_decided = 9, rows_after = 0")
    account = table.verify(sink).accounts[ONLY_ACCOUNT]
    assert (account.expected.rows, account.found.rows) == (0, 0)


def test_verify_needs_no_preparation_and_creates_nothing(target):
    table = target()
    sink = table.rig.make()
    assert table.verify(sink).ok
    assert not table.rig.path.exists()
    lost = sink.verify(DecidedBatches([], totals={ONLY_ACCOUNT: Totals(rows=1, digest=5)}))
    assert not lost.ok
    assert "There is no database file" in lost.problems[0].message
    table.put(table.sink(), [(1, "a")], batch_id=0)
    assert table.verify(table.rig.make()).ok


def test_verify_reads_one_snapshot_while_others_write(target):
    table = target(busy_timeout_s=10)
    sink, stop, reports = table.sink(), threading.Event(), []
    table.put(sink, [(0, "a")], batch_id=0)
    first = list(table.decided)

    def look():
        other = table.rig.make()
        while not stop.is_set():
            reports.append(table.verify(other, ledger=first))
        other.close()

    thread = threading.Thread(target=look)
    thread.start()
    for at in range(1, 15):
        table.put(sink, [(at, "a")] * 50, batch_id=at)
    stop.set()
    thread.join()
    assert reports
    assert {len(report.problems) for report in reports} <= {0, 1}
    assert all("the ledger counts " in problem.message for report in reports for problem in report.problems)


def test_check_says_what_is_there(target, tmp_path):
    table = target()
    sink = table.rig.make()
    assert [(finding.ok, "will be created" in finding.message) for finding in sink.check()] == [(True, True)]
    table.sql("CREATE TABLE other (x)")
    assert [(finding.ok, "will be created" in finding.message) for finding in sink.check()] == [(True, True)]
    table.sink()
    assert [(finding.ok, "table t with 2 columns" in finding.message) for finding in sink.check()] == [(True, True)]
    (table.rig.directory / "text.db").write_text("no database" * 100)
    table.rig.path = table.rig.directory / "text.db"
    assert [(finding.ok, "not a database" in finding.message) for finding in table.rig.make().check()] == [(False, True)]
    table.rig.path = table.rig.directory / "data.db"
    table.rig.options = {"create": False}
    table.rig.table = "none"
    assert [finding.ok for finding in table.rig.make().check()] == [False]


@pytest.mark.parametrize(("write", "expected"), [("append", 4), ("upsert", 3), ("insert_if_absent", 3)])
def test_a_batch_that_is_still_to_come_is_expected(target, write, expected):
    """Rows that replaced or were skipped are not expected to be there; rows that are decided and not published are."""
    table = target(write=write, key=["id"])
    sink = table.sink()
    table.put(sink, [(1, "a"), (1, "b")], batch_id=0)
    table.decided_but_not_published(sink, [(2, "c"), (3, "d")], batch_id=1)
    report = table.verify(sink)
    assert [problem.message for problem in report.problems] == ["Batch 1 with 2 rows is decided but not published in table 't'."]
    assert report.accounts[ONLY_ACCOUNT].expected.rows == expected
    assert report.accounts[ONLY_ACCOUNT].found.rows == expected - 2
