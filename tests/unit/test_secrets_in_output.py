"""A marker secret at every place of a pipeline file is in no output: text, --json, --debug, errors of what cannot be reached."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.crash.commandline import penstock
from tests.unit.secret_places import MARKER, NAMES, PARTS, PLACES, VALID, refusing_server, text_fields

from penstock.run.status import places_of
from penstock.spec.load import load

VERBS = {
    "status": ("status",),
    "verify": ("verify",),
    "doctor": ("doctor",),
    "history": ("history",),
    "recover": ("recover",),
    "adopt": ("adopt", "--yes", "--reason", "a test"),
    "sweep": ("sweep", "--yes"),
}
"""Those without Spark; `tests/spark/test_secrets_in_output.py` has the others."""
CASES = [(verb, name) for name in VALID for verb in VERBS if verb not in PLACES[name].waits]
CASES += [("status", name) for name, place in PLACES.items() if not place.loads]


@pytest.fixture(name="web", scope="module")
def _web() -> Iterator[str]:
    with refusing_server() as address:
        yield address


@pytest.mark.parametrize(("verb", "place"), CASES)
def test_no_output_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, web: str, place: str, verb: str) -> None:
    monkeypatch.setenv("S", MARKER)
    monkeypatch.setattr("penstock.commit.verification.TRIES", 2)  # what cannot be reached is asked again for half a minute
    monkeypatch.setattr("penstock.ledger.self_test.ROUNDS", 1)  # twenty take ten times as long as the rest of a command
    if "verify" in PLACES[place].waits:  # its client gives no answer, however long it is waited for
        monkeypatch.setattr("penstock.run.status.places_of", partial(places_of, within_s=0.5))
    file = PLACES[place].write(tmp_path, web=web)
    for words in ("--show-values", "--json"):
        ended = penstock(VERBS[verb][0], str(file), *VERBS[verb][1:], words)
        assert [part for part in PARTS if part in str(ended)] == []
        assert ended.out + ended.err


@pytest.mark.parametrize("place", [name for name in VALID if "status" not in PLACES[name].waits])
def test_no_report_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, web: str, place: str) -> None:
    monkeypatch.setenv("S", MARKER)
    monkeypatch.setattr("penstock.run.status.places_of", partial(places_of, within_s=0.5))
    file, report = PLACES[place].write(tmp_path, web=web), tmp_path / "report.html"
    ended = penstock("report", str(file), "-o", str(report))
    assert ended.code == 0, str(ended)
    assert [part for part in PARTS if part in f"{ended} {report.read_text()}"] == []


@pytest.mark.parametrize("place", VALID)
def test_each_place_is_a_valid_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setenv("S", MARKER)
    settings = load(PLACES[place].write(tmp_path))
    assert [part for part in PARTS if part in f"{settings!r} {settings} {settings.shown()}"] == []


def test_every_field_of_text_is_a_place_or_a_name() -> None:
    """A new field without an entry fails here: add a place to `PLACES`, or its name to `NAMES` if no secret belongs there."""
    places = {field for place in PLACES.values() for field in place.fields}
    assert places & NAMES == set()
    assert places | NAMES == text_fields().keys()


def test_every_field_of_sql_is_marked_as_such() -> None:
    """By the types of `penstock.spec.sql`, on which all depends that hides values of the environment in SQL."""
    of_sql = {name for name, field in text_fields().items() if field.is_sql}
    assert of_sql - {"Merge.file"} == {name for name, field in text_fields().items() if field.marked}
    assert len(of_sql) > 6
