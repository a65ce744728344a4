"""What ledgers in tables of servers share: sinks in their transaction, other sessions, a COMMIT without answer, dead servers."""

import os
import random
import threading
from collections import Counter
from contextlib import closing

import pytest
from tests.seed import SEED
from tests.servers import cutting
from tests.unit.ledger_place import ENTRIES, PLACES, inserting

from penstock.commit.append import append_once
from penstock.core.codec import encode_entry
from penstock.core.faults import arm
from penstock.core.model import PipelineName, Position
from penstock.errors import (
    Failed,
    GuaranteeTooWeak,
    LedgerMismatch,
    OutcomeUnknown,
    PositionTaken,
    Retryable,
    StoreIgnoresConditions,
)
from penstock.testing.entries import PIPELINE, decided_entry, opened_entry

KILLS = int(os.environ.get("PENSTOCK_SOAK_KILLS", "4"))


@pytest.fixture(params=list(PLACES))
def place(request):
    made = PLACES[request.param]()
    yield made
    arm("")
    made.close()


@pytest.fixture
def flights(place):
    """The place with a table for a sink."""
    place.sql("CREATE TABLE flights (name varchar(9))")
    return place


def names(place):
    return Counter(name for (name,) in place.sql("SELECT name FROM flights"))


# --- one transaction


def test_rows_and_entry_are_one_transaction(flights):
    ledger, entries = flights.filled(1)
    entry, seen = decided_entry(after=entries[0]), []

    def rows(transaction):
        inserting("UA1")(transaction)
        seen.append((flights.positions(), names(flights)))

    ledger.append(entry, within=rows)
    assert seen == [([1], Counter())]
    assert names(flights) == Counter(["UA1"])
    assert ledger.tail() == entry


def test_a_rider_that_fails_leaves_neither_rows_nor_entry(flights):
    ledger, entries = flights.filled(1)
    entry = decided_entry(after=entries[0])

    def failing(transaction):
        inserting("UA1")(transaction)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ledger.append(entry, within=failing)
    assert ledger.tail() == entries[0]
    assert names(flights) == Counter()
    ledger.append(entry, within=inserting("UA1"))
    assert ledger.tail() == entry
    assert names(flights) == Counter(["UA1"])


def test_a_rider_is_not_called_when_the_position_is_taken(place):
    ledger, entries = place.filled(2)
    called = []
    with pytest.raises(PositionTaken):
        ledger.append(decided_entry(after=entries[0]), within=called.append)
    assert called == []


# --- answers that are lost


@pytest.mark.parametrize("kind", cutting.KINDS)
def test_a_commit_without_an_answer_is_unknown_and_then_read_back(flights, kind):
    with cutting.before(flights.running.port) as cutter:
        ledger, entries = flights.filled(1, port=cutter.port)
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
        ledger.close()
    assert flights.positions() == [1, 2, 3]
    assert names(flights) == Counter(["UA1", "UA2"])
    assert flights.ledger().tail() == following


@pytest.mark.timeout(600)
def test_a_server_that_is_killed_while_it_commits(flights):
    """Again and again, at any moment: entry and rows are both there, once, when the append is told as done."""
    ledger, entries = flights.filled(1, lock_timeout_s=10)
    print("seed", SEED)
    chance, tail, outcomes = random.Random(SEED), entries[0], Counter()
    for number in range(KILLS):
        tail = decided_entry(after=tail)
        killer = threading.Timer(chance.uniform(0, 0.02), flights.running.kill)
        killer.start()
        outcomes[_appended(flights, ledger, tail, str(number))] += 1
        killer.join()
        flights.running.start()
        assert append_once(ledger, tail, within=inserting(str(number))) is None
        assert ledger.tail() == tail
    print(dict(outcomes))
    assert flights.positions() == list(range(1, KILLS + 2))
    assert names(flights) == Counter(map(str, range(KILLS)))


def _appended(place, ledger, entry, name):
    """What appending ended with."""
    try:
        ledger.append(entry, within=inserting(name))
    except OutcomeUnknown:
        return "unknown"
    except (Retryable, place.no_answer):  # the latter of this test's own statement, which a sink would translate
        return "told before the commit"
    return "appended"


def test_a_connection_that_was_lost_while_nothing_happened_is_opened_again(place):
    ledger, entries = place.filled(2)
    place.sql(place.ends)
    assert ledger.tail() == entries[1]
    place.sql(place.ends)
    assert append_once(ledger, decided_entry(after=entries[1])) is None
    assert place.positions() == [1, 2, 3]


# --- other sessions


@pytest.mark.parametrize("end", ["ROLLBACK", "COMMIT"])
def test_a_position_that_another_session_holds_is_waited_for(place, end):
    ledger, entries = place.filled(1)
    mine, theirs = decided_entry(after=entries[0]), decided_entry(after=entries[0])
    with place.session() as other:
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
    timeout_s, longer_s, said = place.idle
    monkeypatch.setattr(f"penstock.sql.{place.kind}.database.IDLE_TIMEOUT_S", timeout_s)
    ledger, entries = place.filled(1, lock_timeout_s=30)
    other, entry = place.ledger(lock_timeout_s=30), decided_entry(after=entries[0])
    arm(f"ledger.{place.kind}_commit=stall:{longer_s}")
    with pytest.raises(OutcomeUnknown, match=said):
        ledger.append(entry)
    winner = decided_entry(after=entries[0])
    other.append(winner)
    assert append_once(ledger, entry).by == winner


# --- servers and tables that will not do


def test_reading_creates_nothing(place):
    ledger = place.ledger()
    assert ledger.tail() is None
    assert list(ledger.newest_first()) == []
    assert place.sql(place.named) == []


NO_TABLE = "no table with the primary key"
A_VIEW = ("ALTER TABLE penstock_ledger RENAME TO other", "CREATE VIEW penstock_ledger AS SELECT * FROM other")
SPOILED = {
    "postgres": {
        "unlogged": (("ALTER TABLE penstock_ledger SET UNLOGGED",), GuaranteeTooWeak, "is unlogged"),
        "without a key": (("ALTER TABLE penstock_ledger DROP CONSTRAINT penstock_ledger_pkey",), LedgerMismatch, NO_TABLE),
        "a view": (A_VIEW, LedgerMismatch, NO_TABLE),
        "a trigger": (
            (
                "CREATE FUNCTION drops() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
                "CREATE TRIGGER drops BEFORE INSERT ON penstock_ledger FOR EACH ROW EXECUTE FUNCTION drops()",
            ),
            StoreIgnoresConditions,
            "let 0 writers create",
        ),
    },
    "mysql": {
        "MyISAM": (
            ("ALTER TABLE penstock_ledger MODIFY pipeline varchar(100) NOT NULL, ENGINE = MyISAM",),
            GuaranteeTooWeak,
            "is of the engine MyISAM, expected InnoDB",
        ),
        "without a key": (("ALTER TABLE penstock_ledger DROP PRIMARY KEY",), LedgerMismatch, NO_TABLE),
        "a key of a part": (
            ("ALTER TABLE penstock_ledger DROP PRIMARY KEY", "ALTER TABLE penstock_ledger ADD UNIQUE (pipeline(3), position)"),
            LedgerMismatch,
            NO_TABLE,
        ),
        "a view": (A_VIEW, LedgerMismatch, NO_TABLE),
        "a trigger": (
            ("CREATE TRIGGER changes BEFORE INSERT ON penstock_ledger FOR EACH ROW SET NEW.entry = '\"\"'",),
            StoreIgnoresConditions,
            "let 1 writers create",
        ),
    },
}


@pytest.mark.parametrize(("place", "how"), [(kind, how) for kind, hows in SPOILED.items() for how in hows], indirect=["place"])
def test_a_table_that_loses_entries_is_refused(place, how):
    statements, error, said = SPOILED[place.kind][how]
    place.filled(1)
    for statement in statements:
        place.sql(statement)
    with pytest.raises(error, match=said):
        place.ledger().prove()


def test_a_server_that_will_not_let_us_in_is_told_without_the_password(place):
    for url, error, said in (
        (place.running.url(place.name, password="geheimes-wort"), Failed, "The login at .* fails"),
        (place.running.url("none"), Failed, "The login at .* fails"),
        (place.running.url(place.name, port=1), Retryable, "does not answer"),
    ):
        ledger = place.ledger(url=url)
        for act in (ledger.tail, ledger.prove):
            with pytest.raises(error, match=said) as told:
                act()
            assert not [secret for secret in ("geheimes-wort", "s3cret") if secret in str(told.value)]


# --- self-test and history


def test_the_self_test_leaves_nothing_and_a_killed_one_is_collected_later(place):
    ledger, _ = place.filled(5)
    ledger.prove()
    assert place.positions() == [1, 2, 3, 4, 5]
    left = [(f"{PIPELINE}/prove/0123456789abcdef", 3), (f"{PIPELINE}/prove/f123456789abcdef", 6), ("other/prove/01", 3)]
    for name, position in left:
        place.sql("INSERT INTO penstock_ledger VALUES (%s, %s, '\"writer 0\"')", name, position)
    assert place.sql("SELECT count(*) FROM penstock_history") == [(5,)]
    ledger.prune(below=Position(5))
    assert sorted(place.sql(ENTRIES)) == sorted([(5, PIPELINE), *((position, name) for name, position in left[1:])])


def test_the_history_is_there_for_plain_sql(place):
    _, entries = place.filled(3)
    place.ledger(pipeline=PipelineName("other")).append(opened_entry(pipeline=PipelineName("other")))
    query = f"SELECT position, generation, kind, by_whom, query_id, batch_id, rows_in, {place.first_end} FROM penstock_history"
    found = place.sql(f"{query} WHERE pipeline = %s ORDER BY position", PIPELINE)
    decided = [entry.body.decision.batch for entry in entries[1:]]
    assert found == [
        (1, 1, "opened", "host:1", None, None, None, None),
        (2, 1, "decided", None, decided[0].query_id, 0, 1, decided[0].offsets[0].end),
        (3, 1, "decided", None, decided[1].query_id, 1, 1, decided[1].offsets[0].end),
    ]
    assert len(place.sql("SELECT DISTINCT pipeline FROM penstock_history WHERE written_at < '2100-01-01'")) == 2


def test_one_that_is_closed_opens_again(place):
    ledger, entries = place.filled(1)
    with closing(ledger):
        ledger.close()
        assert ledger.tail() == entries[0]
