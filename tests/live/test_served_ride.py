"""Riding in the transaction of a ledger in the same database, looked at with plain SQL after every step: on every server."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from tests.servers import cutting
from tests.unit.served_target import every_target
from tests.unit.table_target import content

from penstock.commit.append import append_once
from penstock.core.model import Position, SinkName
from penstock.errors import Retryable
from penstock.ledger.mysql import MysqlLedger
from penstock.ledger.postgres import PostgresLedger
from penstock.testing.conformance import PIPELINE
from penstock.testing.entries import decided_entry, opened_entry

LEDGERS = {"mysql": MysqlLedger, "postgres": PostgresLedger}

target = pytest.fixture(every_target, params=list(LEDGERS))


class Riding:
    """A table, its sink, and a ledger in the same database that takes its rows along."""

    def __init__(self, table):
        self.table, self.sink = table, table.sink()
        self.ledger = self.another_ledger(lock_timeout_s=30)
        self.tail = opened_entry(pipeline=PIPELINE)
        self.ledger.append(self.tail)

    def another_ledger(self, *, port=None, **options):
        rig = self.table.rig
        return LEDGERS[rig.kind](rig.running.url(rig.name, port=port), pipeline=PIPELINE, **options)

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
    rig = one.table.rig
    other = rig.sink(name=SinkName("other"), url=rig.url, table="u", spool=str(rig.directory / "spool"))
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
    database = type(sink._database)(table.rig.running.url(table.rig.name), application="a ledger")
    connection = database.writable()
    for end in ("ROLLBACK", "COMMIT"):
        database.begin(connection)
        assert not sink.publish_within(connection, publication).already
        assert content(table) == Counter()
        connection.execute(end)
    assert content(table) == Counter([(1, "a")])
    database.begin(connection)
    assert sink.publish_within(connection, publication).already
    connection.execute("COMMIT")
    database.drop()
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


def test_the_files_of_a_ride_go_when_its_ledger_has_committed(riding):
    one = riding(inline_limit_bytes=0)
    publication, append = one.decide([(1, "a")], batch_id=0)
    piece = publication.staged[0].name
    with pytest.raises(ZeroDivisionError), one.sink.ledger_transaction(publication):
        raise ZeroDivisionError
    assert one.spooled() == [piece]
    with one.sink.ledger_transaction(publication):
        append()
        assert one.spooled() == [piece]
    assert one.spooled() == []
    assert one.sink.publish(publication).already
    assert content(one.table) == Counter([(1, "a")])


def test_the_files_of_a_ride_whose_driver_was_killed_go_at_the_next_start(riding):
    one = riding(inline_limit_bytes=0)
    publication, append = one.decide([(1, "a")], batch_id=0)
    append()
    assert len(one.spooled()) == 1
    assert one.sink.publish(publication).already
    assert one.spooled() == []
    assert content(one.table) == Counter([(1, "a")])


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
        one.ledger = one.another_ledger(port=cutter.port)
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
    newer = one.another_ledger()
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
    assert one.sink.conflicts == (0 if (one.table.rig.kind, write) == ("mysql", "upsert") else 1)
    assert content(one.table) == Counter([(5, shown), (6, "c")])
    assert one.table.sql("SELECT count(*) FROM penstock_ledger") == [(2,)]


LOCKS = {"mysql": ("LOCK TABLES t WRITE", "UNLOCK TABLES"), "postgres": ("LOCK TABLE t IN ACCESS EXCLUSIVE MODE", "ROLLBACK")}


def test_a_table_that_is_locked_keeps_the_batch_undecided(riding):
    one = riding()
    one.ledger.close()
    one.ledger = one.another_ledger(lock_timeout_s=0.1)
    _, append = one.decide([(1, "a")], batch_id=0)
    lock, unlock = LOCKS[one.table.rig.kind]
    with one.table.rig.session() as other:
        other.execute("BEGIN")
        other.execute(lock)
        with pytest.raises(Retryable, match="Another session holds a lock"):
            append()
        other.execute(unlock)
    assert one.ledger.tail() == one.tail
    append()
    assert content(one.table) == Counter([(1, "a")])


def test_only_a_connection_can_be_ridden_on(target):
    table = target()
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a")], batch_id=0)
    with pytest.raises(TypeError, match="found object"):
        sink.publish_within(object(), publication)
