"""What only the ledger in MySQL has: what a server or a user may be set to, and statements that commit by themselves."""

from concurrent.futures import ThreadPoolExecutor

import pymysql
import pytest
from tests.servers.settings import set_globally
from tests.unit.ledger_place import MysqlPlace, inserting

from penstock.commit.append import append_once
from penstock.core.faults import arm
from penstock.core.model import Position
from penstock.errors import Failed, GuaranteeTooWeak, Refused, Retryable
from penstock.ledger.mysql import MysqlLedger
from penstock.sink.mysql.sink import MysqlSink
from penstock.testing.entries import PIPELINE, decided_entry, opened_entry


@pytest.fixture
def place():
    made = MysqlPlace()
    yield made
    arm("")
    made.close()


def test_a_home_is_the_same_for_every_way_to_write_one_url(place, tmp_path):
    def home(url):
        return MysqlLedger(url, pipeline=PIPELINE).home

    sink = MysqlSink(name="db", url=place.url, table="t", spool=str(tmp_path))
    assert home(place.url) == home(place.url.replace("mysql://", "mariadb://")) == sink.home == place.ledger().home
    assert home("mysql://me@here/db") == home("mysql://me:secret@here:3306/db?connect_timeout=3")
    others = ("me@there/db", "me@here:3307/db", "me@here/other", "you@here/db", "me@here/db?unix_socket=/s")
    for other in others:
        assert home(f"mysql://{other}") != home("mysql://me@here/db")
    assert "s3cret" not in f"{place.ledger().home} {place.ledger().location}"


def test_the_tail_is_one_look_at_the_key_however_long_the_ledger_is(place):
    ledger, _ = place.filled(1)
    place.ledger(pipeline="zzz").append(opened_entry(pipeline="zzz"))
    copies = "SELECT pipeline, seq, entry FROM penstock_ledger, seq_2_to_30000 WHERE pipeline = %s AND position = 1"
    place.sql(f"INSERT INTO penstock_ledger {copies}", PIPELINE)
    for statement, rows in ((ledger._sql.tail, 1), (ledger._sql.newest_positions, 2)):
        with place.session() as session:
            session.execute("FLUSH STATUS")
            session.execute(statement, (PIPELINE,))
            session.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
            assert sum(int(value) for _, value in session.fetchall()) <= rows + 1


def test_what_a_server_says_of_sessions_changes_nothing(place):
    """Such as one that begins without autocommit, ends transactions otherwise, or lets a plain SELECT see an old snapshot."""
    tail = None
    settings = {"autocommit": 0, "completion_type": 1, "sql_mode": "", "time_zone": "+05:00", "tx_isolation": "REPEATABLE-READ"}
    for name, value in {**settings, "init_connect": "SET autocommit = 0"}.items():
        with set_globally(place, name, value):
            ledger, other = place.ledger(), place.ledger()
            ledger.prove()
            assert ledger.tail() == tail
            tail = opened_entry() if tail is None else decided_entry(after=tail)
            other.append(tail)
            assert ledger.tail() == tail
    assert place.positions() == list(range(1, len(settings) + 2))


@pytest.mark.parametrize(
    ("name", "value", "error", "said"),
    [
        ("read_only", 1, Refused, "has read_only = ON, as replicas have"),
        ("innodb_flush_log_at_trx_commit", 2, GuaranteeTooWeak, "runs with innodb_flush_log_at_trx_commit = 2"),
    ],
)
def test_a_server_that_will_not_do_is_refused_and_can_be_read(place, name, value, error, said):
    _, entries = place.filled(1)
    with set_globally(place, name, value):
        ledger = place.ledger()
        assert ledger.tail() == entries[0]
        for act in (ledger.prove, lambda: ledger.append(decided_entry(after=entries[0]))):
            with pytest.raises(error, match=said):
                act()
    assert place.positions() == [1]


def test_an_entry_that_no_statement_can_carry_is_told_before_it_is_sent(place):
    """A server that gets more than it takes closes the connection: that would look like a network that fails, and be repeated."""
    with set_globally(place, "max_allowed_packet", 16384):
        ledger, entries = place.filled(1)
        [(text,)] = place.sql("SELECT entry FROM penstock_ledger")
        connection = ledger._database.connected()
        for quotes in (3900, 8200):
            values = (PIPELINE, 2, text + '"' * quotes)
            fits = connection.size_of(ledger._sql.insert, values) < 16384
            assert fits == (quotes == 3900)
            if fits:
                assert ledger._put(connection, *values)
                connection.execute("DELETE FROM penstock_ledger WHERE position = 2")
            else:
                with pytest.raises(Failed, match=r"Entry 2 takes a statement of \d+ bytes, but max_allowed_packet .* is 16384"):
                    ledger._put(connection, *values)
        assert connection.is_alive()
        ledger.append(decided_entry(after=entries[0]))


def test_a_rider_that_ends_the_transaction_is_told_and_what_is_there_is_read(place):
    """MySQL commits at any statement that defines a table: the entry is there then, and the next start goes on from it."""
    ledger, entries = place.filled(1)
    entry = decided_entry(after=entries[0])
    with pytest.raises(Failed, match="ended before its COMMIT"):
        ledger.append(entry, within=lambda transaction: transaction.execute("CREATE TABLE theirs (id int)"))
    assert place.ledger().tail() == entry


def test_after_a_deadlock_nothing_is_there_and_the_entry_is_appended_again(place):
    """Another session holds a row that the sink wants, and then wants the position."""
    place.sql("CREATE TABLE flights (name varchar(9) PRIMARY KEY)")
    place.sql("CREATE TABLE more (id int)")
    ledger, entries = place.filled(1, lock_timeout_s=60)
    entry, told = decided_entry(after=entries[0]), []

    def append():
        try:
            ledger.append(entry, within=inserting("UA1"))
        except pymysql.err.OperationalError as error:  # of the sink itself, which a sink would translate
            told.append(error)

    with place.session() as other, ThreadPoolExecutor(1) as pool:
        other.execute("BEGIN")
        other.execute(f"INSERT INTO more VALUES {', '.join(['(1)'] * 1000)}")  # who wrote less is ended
        other.execute("INSERT INTO flights VALUES ('UA1')")
        appending = pool.submit(append)
        place.await_lock()
        other.execute("SELECT 1 FROM penstock_ledger WHERE position = 2 FOR UPDATE")
        other.execute("ROLLBACK")
        appending.result()
    assert len(told) == 1
    assert "Deadlock" in str(told[0])
    assert place.positions() == [1]
    assert append_once(ledger, entry, within=inserting("UA1")) is None
    assert place.positions() == [1, 2]


def test_a_run_that_was_killed_between_table_and_view_is_mended_by_the_next(place):
    ledger = place.ledger()
    arm("ledger.mysql_create=error")
    with pytest.raises(Retryable):
        ledger.prove()
    place.sql(ledger._sql.create_ledger)
    ledger.prove()
    assert place.sql("SELECT * FROM penstock_history") == []


def test_the_rights_that_the_page_names_are_enough(place):
    _, entries = place.filled(1)
    user = f"poor_{place.name}"
    place.sql(f"CREATE USER {user} IDENTIFIED BY 'a-word-of-theirs'")
    place.sql(f"GRANT SELECT, INSERT, DELETE ON {place.name}.penstock_ledger TO {user}")
    ledger = place.ledger(url=place.running.url(place.name, user=user, password="a-word-of-theirs"))
    ledger.prove()
    ledger.append(decided_entry(after=entries[0]))
    ledger.prune(below=Position(2))
    assert place.positions() == [2]
