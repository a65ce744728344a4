"""What only the ledger in PostgreSQL has: riders, other sessions, servers that will not do, a COMMIT whose answer was lost."""

import os
import random
import threading
from collections import Counter
from contextlib import closing
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest
from tests.seed import SEED
from tests.servers import cutting, postgres
from tests.servers.fixtures import server, unique

from penstock.codec import encode_entry
from penstock.commit.append import append_once
from penstock.errors import (
    Failed,
    GuaranteeTooWeak,
    LedgerMismatch,
    OutcomeUnknown,
    PositionTaken,
    Refused,
    Retryable,
    StoreIgnoresConditions,
)
from penstock.faults import arm
from penstock.ledger.postgres import PostgresLedger
from penstock.model import PipelineName, Position
from penstock.testing.entries import PIPELINE, chain, decided_entry, opened_entry

KILLS = int(os.environ.get("PENSTOCK_SOAK_KILLS", "4"))
ENTRIES = "SELECT position, pipeline FROM penstock_ledger ORDER BY position"


class Place:
    """A database of its own, with ledgers in it."""

    def __init__(self, running=None):
        self.running, self.name = running or server("postgres"), unique("ledgerunit")
        self.url = self.running.database(self.name)
        self.made = []

    def ledger(self, *, port=None, url=None, pipeline=PIPELINE, **options):
        url = url or self.running.url(self.name, port=port)
        self.made.append(PostgresLedger(url, pipeline=pipeline, **{"lock_timeout_s": 0.2, **options}))
        return self.made[-1]

    def filled(self, count, **options):
        ledger, entries = self.ledger(**options), list(islice(chain(), count))
        for entry in entries:
            ledger.append(entry)
        return ledger, entries

    def close(self):
        for ledger in self.made:
            ledger.close()

    def connection(self):
        return psycopg.connect(self.url, autocommit=True)

    def sql(self, statement, *values):
        with self.connection() as connection:
            cursor = connection.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

    def positions(self):
        return [position for position, _ in self.sql(ENTRIES)]


@pytest.fixture
def place():
    made = Place()
    yield made
    arm("")
    made.close()


def inserting(value):
    def rows(transaction):
        assert isinstance(transaction, psycopg.Connection)
        transaction.execute("CREATE TABLE IF NOT EXISTS flights (name text)")
        transaction.execute("INSERT INTO flights VALUES (%s)", (value,))

    return rows


# --- one transaction


def test_rows_and_entry_are_one_transaction(place):
    ledger, entries = place.filled(1)
    entry, seen = decided_entry(after=entries[0]), []

    def rows(transaction):
        inserting("UA1")(transaction)
        seen.append(place.positions())

    ledger.append(entry, within=rows)
    assert seen == [[1]]
    assert place.sql("SELECT name FROM flights") == [("UA1",)]
    assert ledger.tail() == entry


def test_a_rider_that_fails_leaves_neither_rows_nor_entry(place):
    ledger, entries = place.filled(1)
    entry = decided_entry(after=entries[0])

    def failing(transaction):
        inserting("UA1")(transaction)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ledger.append(entry, within=failing)
    assert ledger.tail() == entries[0]
    assert place.sql("SELECT to_regclass('flights')") == [(None,)]
    ledger.append(entry, within=inserting("UA1"))
    assert ledger.tail() == entry


def test_a_rider_is_not_called_when_the_position_is_taken(place):
    ledger, entries = place.filled(2)
    called = []
    with pytest.raises(PositionTaken):
        ledger.append(decided_entry(after=entries[0]), within=called.append)
    assert called == []


def test_a_commit_is_durable_whatever_the_role_says(place):
    place.sql(f"ALTER DATABASE {place.name} SET synchronous_commit = off")
    ledger, entries = place.filled(1)
    found = []
    ledger.append(
        decided_entry(after=entries[0]), within=lambda open_: found.extend(open_.execute("SHOW synchronous_commit").fetchone())
    )
    assert found == ["on"]


def test_a_home_is_the_same_for_every_way_to_write_one_url(place):
    def home(url):
        return PostgresLedger(url, pipeline=PIPELINE).home

    url = place.url
    assert home(url) == home(url.replace("postgresql://", "postgres://")) == home(f"{url}?sslmode=prefer") == place.ledger().home
    assert home("postgresql://me@here/db") == home("postgresql://me:secret@here:5432/db?connect_timeout=3")
    for other in ("me@there/db", "me@here:5433/db", "me@here/other", "you@here/db", "me@here/db?options=-csearch_path%3Dx"):
        assert home(f"postgresql://{other}") != home("postgresql://me@here/db")
    assert "s3cret" not in f"{place.ledger().home} {place.ledger().location}"


# --- answers that are lost


@pytest.mark.parametrize("kind", cutting.KINDS)
def test_a_commit_without_an_answer_is_unknown_and_then_read_back(place, kind):
    with cutting.before(place.running.port) as cutter:
        ledger, entries = place.filled(1, port=cutter.port)
        entry = decided_entry(after=entries[0])
        cutter.arm(kind)
        with pytest.raises(OutcomeUnknown, match="gave no answer"):
            ledger.append(entry, within=inserting("UA1"))
        assert cutter.cuts == 1
        assert ledger.read(Position(2)) == (entry if kind == "after" else None)
        assert append_once(ledger, entry, within=inserting("UA1")) is None
        cutter.arm(kind)
        following = decided_entry(after=entry)
        assert append_once(ledger, following, within=inserting("UA2")) is None
        assert cutter.cuts == 2
    assert place.positions() == [1, 2, 3]
    assert place.sql("SELECT name FROM flights ORDER BY name") == [("UA1",), ("UA2",)]
    assert ledger.tail() == following


@pytest.mark.timeout(600)
def test_a_server_that_is_killed_while_it_commits(place):
    """Again and again, at any moment: entry and rows are both there, once, when the append is told as done."""
    ledger, entries = place.filled(1, lock_timeout_s=10)
    place.sql("CREATE TABLE flights (name text)")
    print("seed", SEED)
    chance, tail, outcomes = random.Random(SEED), entries[0], Counter()
    for number in range(KILLS):
        tail = decided_entry(after=tail)
        killer = threading.Timer(chance.uniform(0, 0.02), place.running.kill)
        killer.start()
        outcomes[_appended(ledger, tail, str(number))] += 1
        killer.join()
        place.running.start()
        assert append_once(ledger, tail, within=inserting(str(number))) is None
        assert ledger.tail() == tail
    print(dict(outcomes))
    assert place.positions() == list(range(1, KILLS + 2))
    assert Counter(place.sql("SELECT name FROM flights")) == Counter((str(number),) for number in range(KILLS))


def _appended(ledger, entry, name):
    """What appending ended with."""
    try:
        ledger.append(entry, within=inserting(name))
    except OutcomeUnknown:
        return "unknown"
    except (Retryable, psycopg.OperationalError):  # the latter of this test's own statement, which a sink would translate
        return "told before the commit"
    return "appended"


def test_a_connection_that_was_lost_while_nothing_happened_is_opened_again(place):
    ledger, entries = place.filled(2)
    ends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s"
    place.sql(ends, f"penstock:{PIPELINE}")
    assert ledger.tail() == entries[1]
    place.sql(ends, f"penstock:{PIPELINE}")
    assert append_once(ledger, decided_entry(after=entries[1])) is None
    assert place.positions() == [1, 2, 3]


# --- other sessions


@pytest.mark.parametrize("end", ["ROLLBACK", "COMMIT"])
def test_a_position_that_another_session_holds_is_waited_for(place, end):
    ledger, entries = place.filled(1)
    mine, theirs = decided_entry(after=entries[0]), decided_entry(after=entries[0])
    with place.connection() as other:
        other.execute("BEGIN")
        other.execute("INSERT INTO penstock_ledger VALUES (%s, 2, %s)", (PIPELINE, encode_entry(theirs).decode()))
        with pytest.raises(Retryable, match="Another session holds a lock") as told:
            ledger.append(mine)
        assert not isinstance(told.value, OutcomeUnknown)
        assert ledger.tail() == entries[0]
        other.execute(end)
    taken = append_once(ledger, mine)
    assert (taken is None) == (end == "ROLLBACK")
    assert taken is None or taken.by == theirs
    assert ledger.tail() == (mine if taken is None else theirs)


def test_a_driver_that_stands_still_in_its_transaction_loses_it(place, monkeypatch):
    monkeypatch.setattr("penstock.postgres.database.IDLE_TIMEOUT_S", 0.2)
    ledger, entries = place.filled(1, lock_timeout_s=30)
    other, entry = place.ledger(lock_timeout_s=30), decided_entry(after=entries[0])
    arm("ledger.postgres_commit=stall:1")
    with pytest.raises(OutcomeUnknown, match="idle-in-transaction timeout"):
        ledger.append(entry)
    winner = decided_entry(after=entries[0])
    other.append(winner)
    assert append_once(ledger, entry).by == winner


def test_the_tail_is_one_look_at_the_key_however_long_the_ledger_is(place):
    ledger, entries = place.filled(1)
    text = encode_entry(entries[0]).decode()
    place.sql("INSERT INTO penstock_ledger SELECT %s, n, %s FROM generate_series(2, 30000) AS n", PIPELINE, text)
    place.sql("ANALYZE penstock_ledger")
    for statement in (ledger._sql.tail, ledger._sql.newest_positions):
        with place.connection() as connection:
            told = connection.execute(b"EXPLAIN (ANALYZE, BUFFERS) " + statement.as_bytes(connection), (PIPELINE,)).fetchall()
        plan = "\n".join(line for (line,) in told)
        assert "Backward using penstock_ledger_pkey" in plan, plan
        assert "Sort" not in plan


# --- servers and tables that will not do


def test_reading_creates_nothing_and_needs_no_schema(place):
    for ledger in (place.ledger(), place.ledger(schema="nowhere")):
        assert ledger.tail() is None
        assert list(ledger.newest_first()) == []
    assert place.sql("SELECT relname FROM pg_class WHERE relname ~ '^penstock'") == []
    with pytest.raises(Refused, match="There is no schema 'nowhere'"):
        place.ledger(schema="nowhere").prove()


def test_a_schema_of_its_own(place):
    place.sql('CREATE SCHEMA "my own%"')
    ledger = place.ledger(schema="my own%")
    ledger.prove()
    ledger.append(opened_entry())
    assert place.sql('SELECT kind FROM "my own%".penstock_history') == [("opened",)]
    assert place.ledger().tail() is None
    assert ledger.location.endswith("schema my own%")


def test_a_standby_is_refused_and_of_several_servers_the_primary_is_taken():
    """On a server of its own: the other one's databases would all be copied."""
    with TemporaryDirectory(prefix="penstock-primary-") as directory, postgres.running(Path(directory)) as primary:
        place = Place(primary)
        _, entries = place.filled(1)
        entry = decided_entry(after=entries[0])
        with primary.standby() as standby:
            follower = place.ledger(url=standby.url(place.name))
            assert follower.tail() == entries[0]
            for act in (follower.prove, lambda: follower.append(entry)):
                with pytest.raises(Refused, match="is a standby, which nothing can be written to"):
                    act()
            assert place.positions() == [1]
            both = place.url.replace(f"127.0.0.1:{primary.port}", "127.0.0.1,127.0.0.1")
            place.ledger(url=f"{both}?port={standby.port},{primary.port}").append(entry)
            assert place.positions() == [1, 2]
        place.close()


def test_a_database_that_is_set_to_be_read_only_is_refused(place):
    _, entries = place.filled(1)
    place.sql(f"ALTER DATABASE {place.name} SET default_transaction_read_only = on")
    with pytest.raises(Refused, match="is set to be read only"):
        place.ledger().prove()
    assert place.ledger().tail() == entries[0]


@pytest.mark.parametrize(
    ("statements", "error", "said"),
    [
        (["ALTER TABLE penstock_ledger SET UNLOGGED"], GuaranteeTooWeak, "is unlogged"),
        (["ALTER TABLE penstock_ledger DROP CONSTRAINT penstock_ledger_pkey"], LedgerMismatch, "no table with the primary key"),
        (
            ["ALTER TABLE penstock_ledger RENAME TO other", "CREATE VIEW penstock_ledger AS SELECT * FROM other"],
            LedgerMismatch,
            "no table with the primary key",
        ),
        (
            [
                "CREATE FUNCTION drops() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
                "CREATE TRIGGER drops BEFORE INSERT ON penstock_ledger FOR EACH ROW EXECUTE FUNCTION drops()",
            ],
            StoreIgnoresConditions,
            "let 0 writers create",
        ),
    ],
    ids=["unlogged", "without a key", "a view", "a trigger"],
)
def test_a_table_that_loses_entries_is_refused(place, statements, error, said):
    place.filled(1)
    for statement in statements:
        place.sql(statement)
    with pytest.raises(error, match=said):
        place.ledger().prove()


def test_a_server_that_will_not_let_us_in_is_told_without_the_password(place):
    for url, error, said in (
        (place.running.url(place.name, password="geheimes-wort"), Failed, "password authentication failed"),
        (place.running.url("none"), Failed, 'database "none" does not exist'),
        (place.running.url(place.name, port=1), Retryable, "does not answer"),
    ):
        ledger = PostgresLedger(url, pipeline=PIPELINE)
        for act in (ledger.tail, ledger.prove):
            with pytest.raises(error, match=said) as told:
                act()
            assert not [secret for secret in ("geheimes-wort", "s3cret") if secret in str(told.value)]


def test_a_role_that_may_not_create_is_told(place):
    with place.running.admin(place.name) as admin:
        admin.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC, penstock")
        admin.execute(f"ALTER SCHEMA public OWNER TO {admin.info.user}")
    with pytest.raises(Failed, match="permission denied for schema public"):
        place.ledger().prove()


# --- self-test and history


def test_the_self_test_leaves_nothing_and_a_killed_one_is_collected_later(place):
    ledger, _ = place.filled(5)
    ledger.prove()
    assert place.positions() == [1, 2, 3, 4, 5]
    left = [(f"{PIPELINE}/prove/0123456789abcdef", 3), (f"{PIPELINE}/prove/0123456789abcdef", 6), ("other/prove/01", 3)]
    for name, position in left:
        place.sql("INSERT INTO penstock_ledger VALUES (%s, %s, '\"writer 0\"')", name, position)
    assert place.sql("SELECT count(*) FROM penstock_history") == [(5,)]
    ledger.prune(below=Position(5))
    assert sorted(place.sql(ENTRIES)) == sorted([(5, PIPELINE), *((position, name) for name, position in left[1:])])


def test_the_history_is_there_for_plain_sql(place):
    _, entries = place.filled(3)
    place.ledger(pipeline=PipelineName("other")).append(opened_entry(pipeline=PipelineName("other")))
    query = "SELECT position, kind, by_whom, batch_id, rows_in, offsets -> 0 ->> 'end' FROM penstock_history"
    found = place.sql(f"{query} WHERE pipeline = %s ORDER BY position", PIPELINE)
    ends = [entry.body.decision.batch.offsets[0].end for entry in entries[1:]]
    assert found == [
        (1, "opened", "host:1", None, None, None),
        (2, "decided", None, 0, 1, ends[0]),
        (3, "decided", None, 1, 1, ends[1]),
    ]


def test_one_that_is_closed_opens_again(place):
    ledger, entries = place.filled(1)
    with closing(ledger):
        ledger.close()
        assert ledger.tail() == entries[0]
