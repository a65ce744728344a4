from pathlib import Path

import pytest

from penstock.errors import Usage
from penstock.ledger.log import LogLedger
from penstock.ledger.open import open_ledger
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
        open_ledger("postgresql://user:secret@host/db", pipeline=PIPELINE)
    assert "secret" not in str(caught.value)
