"""What only the ledger in PostgreSQL has: settings of roles, schemas, standbys."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.servers import postgres
from tests.unit.ledger_place import PostgresPlace

from penstock.core.codec import encode_entry
from penstock.errors import Failed, GuaranteeTooWeak, Refused
from penstock.ledger.postgres import PostgresLedger
from penstock.testing.entries import PIPELINE, decided_entry, opened_entry


@pytest.fixture
def place():
    made = PostgresPlace()
    yield made
    made.close()


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


def test_the_tail_is_one_look_at_the_key_however_long_the_ledger_is(place):
    ledger, entries = place.filled(1)
    text = encode_entry(entries[0]).decode()
    place.sql("INSERT INTO penstock_ledger SELECT %s, n, %s FROM generate_series(2, 30000) AS n", PIPELINE, text)
    place.sql("ANALYZE penstock_ledger")
    for statement in (ledger._sql.tail, ledger._sql.newest_positions):
        with place.session() as session:
            told = session.execute(b"EXPLAIN (ANALYZE, BUFFERS) " + statement.as_bytes(session), (PIPELINE,)).fetchall()
        plan = "\n".join(line for (line,) in told)
        assert "Backward using penstock_ledger_pkey" in plan, plan
        assert "Sort" not in plan


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
        place = PostgresPlace(primary)
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


def test_a_role_that_may_not_create_is_told(place):
    with place.running.admin(place.name) as admin:
        admin.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC, penstock")
        admin.execute(f"ALTER SCHEMA public OWNER TO {admin.info.user}")
    with pytest.raises(Failed, match="permission denied for schema public"):
        place.ledger().prove()


def test_a_table_in_another_schema_is_logged_by_what_is_told(place):
    place.sql('CREATE SCHEMA "Other"')
    place.filled(1, schema="Other")
    place.sql('ALTER TABLE "Other".penstock_ledger SET UNLOGGED')
    with pytest.raises(GuaranteeTooWeak, match="is unlogged") as refused:
        place.ledger(schema="Other").prove()
    place.sql(refused.value.remedy.rstrip("."))
    place.ledger(schema="Other").prove()
