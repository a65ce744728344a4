"""SQL of the user's own over the staged rows: once for each batch, tried before the start, run again after a deadlock."""

import re
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from ruamel.yaml import YAML
from tests.architecture.reading import ROOT
from tests.servers import cutting
from tests.unit.served_target import every_target
from tests.unit.table_target import content, spark_schema

from penstock.core import faults
from penstock.errors import OutcomeUnknown, PublishFailed, Refused, Retryable, Usage
from penstock.sink.table.script import Statement
from penstock.testing.conformance import PIPELINE

target = pytest.fixture(every_target, params=["mysql", "postgres"])

ADD = {
    "mysql": "INSERT INTO {table} SELECT id, name FROM {staged} ON DUPLICATE KEY UPDATE name = concat(t.name, {staged}.name)",
    "postgres": "INSERT INTO {table} AS t (id, name) SELECT id, name FROM {staged} "
    "ON CONFLICT (id) DO UPDATE SET name = t.name || excluded.name",
}
"""Not the same when it is done twice: a name grows with each row of its key."""


@pytest.fixture
def merging(target):
    """Makes tables whose rows add up."""

    def make(sql=None, **options):
        made = target(write="merge", key=["id"], **options)
        made.rig.options["merge"] = sql or ADD[made.rig.kind]
        return made

    return make


def test_each_batch_counts_once_however_often_it_is_published(merging):
    table = merging(inline_limit_bytes=0)
    sink = table.sink()
    table.put(sink, [(1, "a"), (2, "b")], batch_id=0)
    shown = table.put(sink, [(1, "c")], [(3, "d")], batch_id=1)
    assert sink.publish(shown.publication).already
    assert table.sink().publish(shown.publication).already
    assert content(table) == Counter([(1, "ac"), (2, "b"), (3, "d")])
    assert table.sql("SELECT rows_decided, rows_after FROM penstock_marker") == [(4, 4)]
    assert "merge by 1 of your own statements" in sink.describe()["publish"]


def test_verify_compares_the_marker_with_the_ledger_and_leaves_the_rows_to_their_owner(merging):
    table = merging()
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    table.sql("UPDATE t SET name = 'theirs'")
    assert table.verify(sink).ok
    assert table.verify(sink).unread
    table.decided_but_not_published(sink, [(2, "b")], batch_id=1)
    report = table.verify(sink)
    assert not report.ok
    assert "Batch 1 with 1 rows is decided but not published" in report.problems[0].message
    table.sql("DROP TABLE t")
    assert not table.verify(sink).ok


@pytest.mark.parametrize("kind", cutting.KINDS)
def test_after_a_commit_without_an_answer_the_marker_decides(merging, kind):
    table = merging()
    table.put(table.sink(), [(1, "a")], batch_id=0)
    with cutting.before(table.rig.running.port) as cutter:
        table.rig.port = cutter.port
        sink = table.sink()
        publication = table.decided_but_not_published(sink, [(1, "b")], batch_id=1)
        cutter.arm(kind)
        with pytest.raises(OutcomeUnknown, match="gave no answer"):
            sink.publish(publication)
        assert sink.publish(publication).already is (kind == "after")
    assert content(table) == Counter([(1, "ab")])


@pytest.mark.parametrize("step", ["loading", "move", "mark"])
def test_after_a_fault_the_next_try_counts_once(merging, step):
    table = merging()
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    publication = table.decided_but_not_published(sink, [(1, "b")], batch_id=1)
    for kind in ("error", "lost"):
        faults.arm(f"{table.rig.kind}.{table.rig.loading if step == 'loading' else step}={kind}")
        with pytest.raises(Retryable, match="does not answer"):
            sink.publish(publication)
    assert not sink.publish(publication).already
    assert content(table) == Counter([(1, "ab")])


def test_a_deadlock_is_run_again_and_counted(merging):
    """Another session holds a row that the SQL wants, and then wants the marker: the server ends one of the two."""
    table = merging(lock_timeout_s=60)
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    publication = table.decided_but_not_published(sink, [(1, "b")], batch_id=1)
    sink.close()
    table.sql("CREATE TABLE more (id int)")
    before = _deadlocks(table)
    with table.rig.running.admin(table.rig.name) as connection, connection.cursor() as other, ThreadPoolExecutor(1) as pool:
        _make_ours_the_victim(table, other)
        other.execute("UPDATE t SET name = 'c' WHERE id = 1")
        publishing = pool.submit(sink.publish, publication)
        table.rig.await_lock()
        other.execute("SELECT 1 FROM penstock_marker FOR UPDATE")
        other.execute("ROLLBACK")
        assert not publishing.result().already
    sink.close()
    assert sink.conflicts == _deadlocks(table) - before > 0
    assert content(table) == Counter([(1, "ab")])


def _deadlocks(table):
    """By the server's own count. On a busy machine ours may be the victim again before the other one wakes up."""
    with table.rig.running.admin(table.rig.name) as connection, connection.cursor() as cursor:
        if table.rig.kind == "mysql":
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'")
            return int(cursor.fetchone()[1])
        gone = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'penstock:%' AND datname = current_database()"
        while cursor.execute(gone).fetchone()[0]:  # a session tells its count when it ends
            threading.Event().wait(0.02)
        return cursor.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").fetchone()[0]


def _make_ours_the_victim(table, other):
    if table.rig.kind == "postgres":
        other.execute(f"ALTER DATABASE {table.rig.name} SET deadlock_timeout = '3s'")
        other.execute("SET deadlock_timeout = '600s'")  # so that it is not the one that looks
    other.execute("BEGIN")
    if table.rig.kind == "mysql":
        other.execute(f"INSERT INTO more VALUES {', '.join(['(1)'] * 1000)}")  # who wrote less is ended


# --- tried before the start


TWO = "DELETE FROM {table} WHERE id IN (SELECT id FROM {staged}); INSERT INTO {table} SELECT id, name FROM {staged}"


def test_several_statements_and_a_table_with_other_columns(merging):
    table = merging(sql=TWO)
    table.sql("CREATE TABLE t (id bigint NOT NULL, name varchar(9) NOT NULL)", "INSERT INTO t VALUES (1, 'old'), (7, 'theirs')")
    sink = table.sink()
    table.put(sink, [(1, "a")], batch_id=0)
    assert content(table) == Counter([(1, "a"), (7, "theirs")])


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("INSERT INTO {table} SELECT nothing FROM {staged}", "nothing"),
        ("INSERT INTO elsewhere SELECT id FROM {staged}", "elsewhere"),
        ("INSERT INTO {table} SELECT FROM FROM {staged}", "syntax"),
        ("INSERT INTO {table} SELECT id FROM {staged}; UPDATE {table} SET missing = 1", "missing"),
    ],
)
def test_sql_that_the_server_refuses_is_refused_before_the_start_and_nothing_is_done(merging, sql, said):
    table = merging(sql=sql)
    table.sql("CREATE TABLE t (id bigint)", "INSERT INTO t VALUES (1)")
    for act in ("prepare", "require_schema_accepted"):
        sink = table.rig.make()
        with pytest.raises(Refused, match=f"The SQL of `merge` for table 't' fails even without rows: .*{said}"):
            getattr(sink, act)(pipeline=PIPELINE, schema=table.rig.schema)
        sink.close()
    assert table.sql("SELECT id FROM t") == [(1,)]


def test_what_was_tried_is_taken_back(merging):
    table = merging(sql="DELETE FROM {table}; INSERT INTO {table} SELECT id, name FROM {staged}")
    table.sql("CREATE TABLE t (id bigint, name varchar(9))", "INSERT INTO t VALUES (1, 'theirs')")
    table.rig.make().require_schema_accepted(pipeline=PIPELINE, schema=table.rig.schema)
    table.sink()
    assert content(table) == Counter([(1, "theirs")])


def test_a_missing_table_is_made_of_the_rows_with_its_key(merging):
    table = merging()
    table.rig.make().require_schema_accepted(pipeline=PIPELINE, schema=table.rig.schema)
    table.put(table.sink(), [(1, "a")], batch_id=0)
    with pytest.raises(Exception, match=r"(?i)duplicate"):
        table.sql("INSERT INTO t VALUES (1, 'theirs')")


def test_a_batch_that_the_sql_cannot_take_stops_until_it_is_mended(merging):
    table = merging(sql=TWO)
    table.sql("CREATE TABLE t (id bigint NOT NULL, name varchar(3) NOT NULL)")
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "secret value")], batch_id=0)
    with pytest.raises(PublishFailed) as told:
        sink.publish(publication)
    assert "secret" not in str(told.value)
    assert content(table) == Counter()
    table.rig.options["merge"] = TWO.replace("SELECT id, name FROM {staged}", "SELECT id, left(name, 3) FROM {staged}")
    assert not table.sink().publish(publication).already
    assert content(table) == Counter([(1, "sec")])


def test_a_second_statement_in_one_is_refused_by_the_server_itself(merging, monkeypatch):
    """Whatever is read wrongly here: nothing can be appended to a statement."""
    monkeypatch.setattr("penstock.sink.table.script._split", lambda text, _: [Statement((text,))])
    table = merging(sql="INSERT INTO {table} SELECT id, name FROM {staged}; COMMIT")
    with pytest.raises(Refused, match=r"The SQL of `merge` for table 't' fails even without rows: .*(multiple commands|syntax)"):
        table.sink()


@pytest.mark.parametrize(("first", "then"), [("merge", "append"), ("append", "merge")])
def test_the_way_of_writing_cannot_change_to_merge_or_from_it(merging, first, then):
    table, sql = merging(), "INSERT INTO {table} SELECT id, name FROM {staged}"
    for write, refused in ((first, False), (then, True)):
        table.rig.options.update(write=write, merge=sql if write == "merge" else None)
        if refused:
            with pytest.raises(Refused, match=f"was filled with `write: {first}` so far, expected '{then}'"):
                table.sink()
        else:
            table.sink().close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"merge": None}, "but there is none"),
        ({"write": "append"}, "but `write` is 'append'"),
        ({"merge": "COMMIT"}, "Sink 'warehouse': A statement of `merge` begins with 'COMMIT'"),
    ],
)
def test_settings_that_make_no_sense(merging, options, said):
    with pytest.raises(Usage, match=said):
        merging().rig.make(**options)


ON_PAGE = re.compile(r"^```yaml\n( +write: merge\n.*?)^```\n.*?^```sql\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_what_the_page_says_works(target):
    """Totals that grow: what counts twice is seen."""
    schema = spark_schema(id="integer", origin="string", month="integer", delay="double")
    table = target(schema=schema, write="merge", table="totals")
    found = ON_PAGE.search((ROOT / "docs" / "howto" / f"{table.rig.kind}.md").read_text())
    table.sql(found[2])
    table.rig.options["merge"] = YAML(typ="safe").load(found[1])["merge"]["sql"]
    sink = table.sink()
    table.put(sink, [(1, "EWR", 1, 2.0), (2, "JFK", 1, 3.0), (3, "EWR", 2, 4.0)], batch_id=0)
    shown = table.put(sink, [(4, "EWR", 2, None), (5, "LGA", 2, 1.0)], batch_id=1)
    assert sink.publish(shown.publication).already
    totals = content(table, "SELECT origin, flights, delay FROM totals")
    assert totals == Counter([("EWR", 3, 6.0), ("JFK", 1, 3.0), ("LGA", 1, 1.0)])
