"""Riding in the transaction of a ledger in the same database, looked at with plain SQL after every step."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from tests.servers import cutting
from tests.unit.postgres_target import targets
from tests.unit.table_target import SINK, content

from penstock.commit.append import append_once
from penstock.errors import ContentConflict, Failed, Retryable
from penstock.ledger.postgres import PostgresLedger
from penstock.model import Position, SinkName, SweepCut
from penstock.sink.postgres.sink import PostgresSink
from penstock.testing.conformance import PIPELINE
from penstock.testing.entries import decided_entry, opened_entry

target = pytest.fixture(targets)


class Riding:
    """A table, its sink, and a ledger in the same database that takes its rows along."""

    def __init__(self, table):
        self.table, self.sink = table, table.sink()
        self.ledger = PostgresLedger(table.rig.url, pipeline=PIPELINE, lock_timeout_s=30)
        self.tail = opened_entry(pipeline=PIPELINE)
        self.ledger.append(self.tail)

    def decide(self, rows, *, batch_id):
        """A publication, and what appends the decision with its rows riding along."""
        publication = self.table.decided_but_not_published(self.sink, rows, batch_id=batch_id)
        entry = decided_entry(after=self.tail)

        def append():
            taken = append_once(self.ledger, entry, within=lambda open_: self.sink.publish_within(open_, publication))
            assert taken is None
            self.tail = entry

        return publication, append

    def piece(self, staged):
        """The bytes of a spooled piece."""
        [path] = Path(self.table.rig.directory).glob(f"spool/*/*/{staged.name}")
        return path.read_bytes()

    def spooled(self):
        return sorted(path.name for path in Path(self.table.rig.directory).glob("spool/*/*/*.arrow"))


@pytest.fixture
def riding(target):
    made = []

    def make(**options):
        made.append(Riding(target(**options)))
        return made[-1]

    yield make
    for one in made:
        one.ledger.close()


def position(table):
    return table.sql("SELECT position FROM penstock_marker")[0][0]


def test_two_sinks_ride_together(riding):
    one = riding(inline_limit_bytes=0)
    other = PostgresSink(name=SinkName("other"), url=one.table.rig.url, table="u", spool=str(one.table.rig.directory / "spool"))
    other.prepare(pipeline=PIPELINE, schema=one.table.rig.schema)
    publication = one.table.decided_but_not_published(one.sink, [(1, "a"), (2, "b")], batch_id=0)
    copies = tuple(replace(piece, sink=other.name, inline=one.piece(piece)) for piece in publication.staged)
    copied = replace(publication, sink=other.name, staged=copies)

    def publish(transaction):
        one.sink.publish_within(transaction, publication)
        other.publish_within(transaction, copied)

    one.ledger.append(decided_entry(after=one.tail), within=publish)
    other.close()
    for table in ("t", "u"):
        assert content(one.table, f"SELECT id, name FROM {table}") == Counter([(1, "a"), (2, "b")])


def test_a_ride_is_seen_only_if_its_ledger_commits(target):
    table = target()
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    with table.rig.session() as connection:
        for end in ("ROLLBACK", "COMMIT"):
            connection.execute("BEGIN")
            assert not sink.publish_within(connection, publication).already
            assert content(table) == Counter()
            connection.execute(end)
        assert content(table) == Counter([(1, "a")])
        connection.execute("BEGIN")
        assert sink.publish_within(connection, publication).already
        connection.execute("COMMIT")
    assert sink.publish(publication).already
    assert content(table) == Counter([(1, "a")])


def test_rows_marker_and_decision_are_one_transaction(riding):
    one = riding()
    assert one.sink.home == one.ledger.home
    publication, append = one.decide([(1, "a")], batch_id=0)
    seen = []

    def look(transaction):
        one.sink.publish_within(transaction, publication)
        seen.append((content(one.table), one.ledger_rows()))
        raise ZeroDivisionError

    one.ledger_rows = lambda: one.table.sql("SELECT count(*) FROM penstock_ledger")[0][0]
    with pytest.raises(ZeroDivisionError):
        one.ledger.append(decided_entry(after=one.tail), within=look)
    assert seen == [(Counter(), 1)]
    assert (content(one.table), one.ledger_rows()) == (Counter(), 1)
    append()
    assert (content(one.table), one.ledger_rows(), position(one.table)) == (Counter([(1, "a")]), 2, publication.position)


def test_the_files_of_a_ride_are_kept_until_its_commit_is_seen(riding):
    one = riding(inline_limit_bytes=0)
    first, append = one.decide([(0, "a")], batch_id=0)
    append()
    assert one.spooled() == [first.staged[0].name]
    second, append = one.decide([(1, "a")], batch_id=1)
    append()
    assert one.spooled() == [second.staged[0].name]
    assert one.sink.publish(second).already
    assert one.spooled() == []
    assert content(one.table) == Counter([(0, "a"), (1, "a")])


@pytest.mark.parametrize("end", ["ROLLBACK", "COMMIT"])
def test_the_sweep_takes_the_files_of_the_last_ride_once_it_is_committed(target, end):
    table = target(inline_limit_bytes=0)
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    with table.rig.session() as connection:
        connection.execute("BEGIN")
        sink.publish_within(connection, publication)
        connection.execute(end)
    spooled = [Path(table.rig.directory) / "spool" / PIPELINE / SINK / piece.name for piece in publication.staged]
    cut = SweepCut(
        pipeline=PIPELINE,
        generation=publication.generation,
        batch_id=publication.batch.batch_id,
        kept=frozenset(piece.attempt for piece in publication.staged),
    )
    sink.sweep(cut, dry_run=True)
    assert [path.exists() for path in spooled] == [True]
    sink.sweep(cut, dry_run=False)
    assert [path.exists() for path in spooled] == [end == "ROLLBACK"]
    assert sink.publish(publication).already == (end == "COMMIT")
    assert content(table) == Counter([(1, "a")])


@pytest.mark.parametrize("write", ["append", "upsert", "insert_if_absent", "replace"])
def test_every_way_of_writing_rides(riding, write):
    one = riding(write=write, key=["id"])
    for at in range(2):
        one.decide([(1, f"{at}")], batch_id=at)[1]()
    expected = {"append": [(1, "0"), (1, "1")], "upsert": [(1, "1")], "insert_if_absent": [(1, "0")], "replace": [(1, "1")]}
    assert content(one.table) == Counter(expected[write])
    assert one.table.verify(one.sink).ok


@pytest.mark.parametrize("kind", cutting.KINDS)
@pytest.mark.parametrize("write", ["append", "upsert"])
def test_after_a_commit_without_an_answer_rows_and_decision_are_there_once(riding, kind, write):
    one = riding(write=write, key=["id"] if write == "upsert" else [])
    with cutting.before(one.table.rig.running.port) as cutter:
        one.ledger.close()
        one.ledger = PostgresLedger(one.table.rig.running.url(one.table.rig.name, port=cutter.port), pipeline=PIPELINE)
        publication, append = one.decide([(1, "a"), (2, "b")], batch_id=0)
        cutter.arm(kind)
        append()
        assert cutter.cuts == 1
        one.ledger.close()
    assert content(one.table) == Counter([(1, "a"), (2, "b")])
    assert one.table.sql("SELECT count(*) FROM penstock_ledger") == [(2,)]
    assert one.sink.publish(publication).already


@pytest.mark.parametrize("ahead", [False, True])
def test_a_zombie_adds_neither_rows_nor_a_decision(riding, ahead):
    """`ahead`: the newer run has gone on so far that the zombie's position is pruned."""
    one = riding()
    publication, _ = one.decide([(1, "a")], batch_id=0)
    newer = PostgresLedger(one.table.rig.url, pipeline=PIPELINE)
    opened = opened_entry(after=one.tail, pipeline=PIPELINE)
    newer.append(opened)
    if ahead:
        newer.append(decided_entry(after=opened))
        newer.prune(below=Position(3))
    newer.close()
    zombie = decided_entry(after=one.tail)
    taken = append_once(one.ledger, zombie, within=lambda open_: one.sink.publish_within(open_, publication))
    assert taken.by == (None if ahead else opened)
    assert content(one.table) == Counter()
    assert position(one.table) == 0


def test_a_batch_that_the_table_refuses_is_not_decided(riding):
    one = riding()
    one.table.sql("CREATE FUNCTION drops() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    one.table.sql("CREATE TRIGGER drops BEFORE INSERT ON t FOR EACH ROW WHEN (NEW.id = 2) EXECUTE FUNCTION drops()")
    _, append = one.decide([(1, "a"), (2, "b")], batch_id=0)
    with pytest.raises(ContentConflict, match="has 2 rows, but table 't' took 1"):
        append()
    assert one.ledger.tail() == one.tail
    assert content(one.table) == Counter()


def test_a_deferred_constraint_that_fails_at_commit_is_told_as_what_it_is(target):
    table = target()
    table.sql("CREATE TABLE t (id bigint UNIQUE DEFERRABLE INITIALLY DEFERRED, name text)")
    one = Riding(table)
    _, append = one.decide([(1, "a"), (1, "b")], batch_id=0)
    with pytest.raises(Failed, match="violates unique constraint"):
        append()
    assert one.ledger.tail() == one.tail
    one.ledger.close()


@pytest.mark.parametrize(("write", "shown"), [("upsert", "b"), ("insert_if_absent", "theirs")])
def test_a_key_that_another_session_inserts_meanwhile_rides_again(riding, write, shown):
    one = riding(write=write, key=["id"], lock_timeout_s=60)
    _, append = one.decide([(5, "b"), (6, "c")], batch_id=0)
    with one.table.rig.session() as other, ThreadPoolExecutor(1) as pool:
        other.execute("BEGIN")
        other.execute("INSERT INTO t VALUES (5, 'theirs')")
        appending = pool.submit(append)
        one.table.rig.await_lock()
        other.execute("COMMIT")
        appending.result()
    assert one.sink.conflicts == 1
    assert content(one.table) == Counter([(5, shown), (6, "c")])
    assert one.table.sql("SELECT count(*) FROM penstock_ledger") == [(2,)]


def test_a_table_that_is_locked_keeps_the_batch_undecided(riding):
    one = riding()
    one.ledger.close()
    one.ledger = PostgresLedger(one.table.rig.url, pipeline=PIPELINE, lock_timeout_s=0.1)
    _, append = one.decide([(1, "a")], batch_id=0)
    with one.table.rig.session() as other:
        other.execute("BEGIN")
        other.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(Retryable, match="Another session holds a lock"):
            append()
        other.execute("ROLLBACK")
    assert one.ledger.tail() == one.tail
    append()
    assert content(one.table) == Counter([(1, "a")])


def test_only_a_connection_can_be_ridden_on(target):
    table = target()
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    with pytest.raises(TypeError, match=r"expected a psycopg\.Connection"):
        sink.publish_within(object(), publication)
