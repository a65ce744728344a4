"""URLs that people get wrong, above all passwords with signs that mean something in one: no part of a password is ever shown."""

import logging
import traceback

import pytest

from penstock.blob.client import require_known
from penstock.blob.url import parse
from penstock.checkpoint.files import open_files
from penstock.core.model import PipelineName
from penstock.errors import PenstockError, Usage
from penstock.kafka.event_hubs import event_hubs_of
from penstock.ledger.open import open_ledger
from penstock.run.connect import require_listening
from penstock.sink.cassandra.address import address_of as cassandra_address
from penstock.sink.redshift.database import address_of as redshift_address
from penstock.sink.sqlserver.database import address_of as sqlserver_address
from penstock.spec.kafka import Kafka
from penstock.spec.location import Account, LedgerPlace
from penstock.spec.registry import Registry
from penstock.spec.table import Cassandra, MySQL, PostgreSQL, Redshift, SQLite, SQLServer
from penstock.sql.mysql.connection import address_of as mysql_address
from penstock.sql.mysql.database import Database as MysqlDatabase
from penstock.sql.postgres.database import Database as PostgresDatabase

MARKER = "geheim"
PASSWORDS = [
    MARKER,
    *(f"p2{sign}{MARKER}" for sign in "@/?#:%&=;, \n[]'\"\\"),
    *(f"{MARKER}{sign}12" for sign in "@/?#:%&=;, \n[]'\"\\"),
    f"[{MARKER}]",
    f"@{MARKER}@",
    f"{MARKER}\u2100",
]
LIKE_A_PORT = [
    *(f"12{sign}{MARKER}" for sign in "@/?#:%&=;, \n[]'\"\\"),
    *(f"{port}/x?{text}" for port in ("12", "1@2") for text in (MARKER, f"ssl_mode={MARKER}", f"{MARKER}=1", f"host={MARKER}")),
]
"""What follows such a beginning could be the name of a database, but for the `@` behind it."""
SHAPES = [
    "{scheme}://me:{password}@localhost:1/db",
    "{scheme}://me:{password}@localhost/db?nonsense=1",
    "{scheme}://me:{password}@localhost:port/db",
    "{scheme}://me:{password}@localhost:1",
    "{scheme}://me:{password}@",
    "{scheme}://me:{password}",
    "{scheme}://:{password}@/db",
    "{scheme}:/me:{password}@localhost/db",
    "{scheme}:me:{password}@localhost/db",
    "{scheme}//me:{password}@localhost/db",
    "me:{password}@localhost/db",
]


def _connected(database):
    def connect(url):
        found = database(url, application="test")
        found.connected()
        return found

    return connect


def _ledger(url):
    return open_ledger(url, pipeline=PipelineName("flights")).location


def _shown(settings):
    return f"{settings!r} {settings.shown()} {getattr(settings, 'where', '')}"


ADDRESSES = {
    "mysql": mysql_address,
    "redshift": redshift_address,
    "sqlserver": sqlserver_address,
    "cassandra": cassandra_address,
}
SERVERS = {"postgresql", *ADDRESSES}
PARSERS = {
    "postgresql": [_connected(PostgresDatabase), lambda url: _shown(PostgreSQL(url=url, table="t")), _ledger],
    "mysql": [mysql_address, _connected(MysqlDatabase), lambda url: _shown(MySQL(url=url, table="t")), _ledger],
    "redshift": [redshift_address, lambda url: _shown(Redshift(url=url, table="t"))],
    "sqlserver": [sqlserver_address, lambda url: _shown(SQLServer(url=url, table="t"))],
    "cassandra": [cassandra_address, lambda url: _shown(Cassandra(url=url, table="t", key=["id"]))],
    "s3": [parse, lambda url: _shown(Account(url=url)), lambda url: _shown(LedgerPlace(url=url))],
    "az": [parse, lambda url: _shown(Account(url=url))],
    "hdfs": [parse],
    "ftp": [open_files, _ledger, lambda url: _shown(LedgerPlace(url=url)), lambda url: _shown(SQLite(url=url, table="t"))],
    "http": [
        lambda url: _shown(Registry(url=url)),
        lambda url: _shown(Kafka(bootstrap=url, topic="t")),
        lambda url: require_known({"endpoint": url}, ("endpoint",), place=parse("s3://bucket")),
    ],
    "sc": [require_listening],
    "sb": [event_hubs_of, lambda url: event_hubs_of(f"Endpoint={url};SharedAccessKeyName=me;SharedAccessKey=k;EntityPath=h")],
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("scheme", "parser"), [(scheme, at) for scheme in PARSERS for at in range(len(PARSERS[scheme]))])
def test_no_part_of_a_password_is_shown_whatever_is_malformed(scheme, parser, shape, caplog):
    caplog.set_level(logging.DEBUG)
    leaks = []
    told_by_at = scheme in SERVERS and shape.rpartition("}")[2].startswith("@")
    passwords = [*PASSWORDS, *LIKE_A_PORT] if told_by_at else PASSWORDS
    for password in passwords if "@" in shape else [text for text in passwords if "@" not in text]:
        url = shape.format(scheme=scheme, password=password)
        caplog.clear()
        if MARKER in f"{_outcome(PARSERS[scheme][parser], url)} {caplog.text}":
            leaks.append(url)
    assert leaks == []


def _outcome(parser, url):
    """All that a person may get to see: what was made of it, or the error with its traceback."""
    try:
        found = parser(url)
    except PenstockError as error:
        shown = "".join(traceback.format_exception(error))
        return f"{error!r} {error} {error.remedy} {error.as_fields()} {shown}"
    return f"{found!r} {getattr(found, 'place', '')} {getattr(found, 'home', '')}"


@pytest.mark.parametrize("database", [PostgresDatabase, MysqlDatabase])
@pytest.mark.parametrize("password", ["p/ss", "12/ss"])
def test_a_sign_that_ends_a_password_is_told_with_what_to_write(database, password):
    url = f"{'mysql' if database is MysqlDatabase else 'postgresql'}://me:{password}@localhost/db"
    with pytest.raises(Usage) as told:
        database(url, application="test")
    assert "%40" in told.value.remedy
    assert "%2F" in told.value.remedy
    database(url.replace(password, "p%40ss%2F"), application="test")


def test_an_at_in_a_password_is_told_or_understood():
    with pytest.raises(Usage, match="contains a character that must be escaped") as told:
        PostgresDatabase("postgresql://me:p@ss@localhost/db", application="test")
    assert "%40" in told.value.remedy
    for scheme, address_of in ADDRESSES.items():
        without_tls = "sslmode=disable" if scheme == "redshift" else "ssl_mode=disabled"
        found = address_of(f"{scheme}://me:p@ss@db.example/keep?{without_tls}")
        assert (found.user, found.password) == ("me", "p@ss")
        assert "ss@" not in found.place
