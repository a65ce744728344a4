import sys
from pathlib import Path

import pytest

from penstock.errors import DependencyMissing, Usage
from penstock.ledger.log import LogLedger
from penstock.ledger.mysql import MysqlLedger
from penstock.ledger.open import open_ledger
from penstock.ledger.postgres import PostgresLedger
from penstock.ledger.sqlite import SqliteLedger
from penstock.testing.entries import PIPELINE


@pytest.mark.parametrize(
    ("place", "kind", "location"),
    [
        ("sqlite:////data/ledger.db", SqliteLedger, "/data/ledger.db"),
        ("sqlite:///state/ledger.db", SqliteLedger, "state/ledger.db"),
        ("sqlite:////data/a%20b.db", SqliteLedger, "/data/a%20b.db"),
        ("file:///data/ledger", LogLedger, "/data/ledger"),
        ("/data/ledger", LogLedger, "/data/ledger"),
        ("/data/a%20b", LogLedger, "/data/a%20b"),
        ("postgresql://user:secret@host/db", PostgresLedger, "postgresql://host:5432/db"),
        ("postgres://host:6000/db?sslmode=require", PostgresLedger, "postgresql://host:6000/db"),
        ("mysql://user:secret@host/db", MysqlLedger, "mysql://host:3306/db"),
        ("mariadb://host:6000/db?ssl_mode=disabled", MysqlLedger, "mysql://host:6000/db"),
    ],
)
def test_a_place_opens_as_its_kind_of_ledger(place: str, kind: type, location: str) -> None:
    ledger = open_ledger(place, pipeline=PIPELINE)
    assert isinstance(ledger, kind)
    assert ledger.location == location
    assert not Path("state").exists()


@pytest.mark.parametrize(
    "place", ["gopher://bucket/ledger", "sqlite://", "sqlite:///", "sqlite:ledger.db", "file://host/x", "file://", ""]
)
def test_another_place_is_refused_with_what_is_supported(place: str) -> None:
    with pytest.raises(Usage) as caught:
        open_ledger(place, pipeline=PIPELINE)
    assert "sqlite:///FILE" in caught.value.remedy


def test_a_password_is_never_shown() -> None:
    with pytest.raises(Usage) as caught:
        open_ledger("gopher://user:secret@host/db", pipeline=PIPELINE)
    assert "secret" not in str(caught.value)
    for kind, database in (("postgresql", "PostgreSQL"), ("mysql", "MySQL or MariaDB")):
        with pytest.raises(Usage, match=f"no URL of a {database} database|has the parameter 'nonsense'") as caught:
            open_ledger(f"{kind}://user:secret@host/db?nonsense=1", pipeline=PIPELINE)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "package", "said"),
    [("postgres", "psycopg", "PostgreSQL needs the package psycopg"), ("mysql", "pymysql", "MySQL needs the package pymysql")],
)
def test_a_client_that_is_not_installed_is_named(kind: str, package: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith((f"penstock.ledger.{kind}", f"penstock.sql.{kind}"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(DependencyMissing, match=f"A ledger in {said}"):
        open_ledger(f"{kind}://host/db", pipeline=PIPELINE)
