"""What a command says to do can be typed as it stands, and a dry run announces nothing that the act then refuses."""

import logging
import shutil
from pathlib import Path

import pytest
from tests.unit import rewound_world
from tests.unit.rewound_world import RewoundWorld

from penstock.cli.app import SafeFormatter, main
from penstock.cli.check import _cause
from penstock.cli.output import name_file

delivered, world = rewound_world.delivered, rewound_world.world

FILE = """\
pipeline: flights
home: ./home
sources:
  events: {format: rate}
sinks:
  lake: {type: parquet, accounts: {a: ./lake/a, b: ./lake/b}, route: {column: place}, partition_by: [place]}
"""


@pytest.fixture(autouse=True)
def _here(world: RewoundWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world.root)
    Path("flights.yaml").write_text(FILE)


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int) -> str:
    with pytest.raises(SystemExit) as ended:
        main(words)
    printed = capsys.readouterr()
    told = " ".join(f"{printed.out} {printed.err}".split())
    assert ended.value.code == code, told
    return told


def test_a_lost_ledger_is_put_back_and_nothing_else_is_offered(capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "savepoint", "create", "flights.yaml", "late", code=0)
    shutil.move("home/ledger.db", "ledger.db")
    for path in Path("home").glob("ledger.db-*"):
        path.unlink()
    told = said(capsys, "doctor", "flights.yaml", code=1)
    assert "A start would be refused: The ledger is empty, but the checkpoint" in told
    assert "read what `penstock adopt flights.yaml` says" in told
    told = said(capsys, "adopt", "flights.yaml", code=3)
    assert "in use by ledger" in told or "shows what ledger" in told
    assert "ledger back" in told
    assert told == said(capsys, "adopt", "flights.yaml", "--yes", "--reason", "lost", code=3)
    told = said(capsys, "checkpoint", "rebuild", "flights.yaml", code=3)
    assert "is empty, so it cannot tell what the checkpoint held. Put the ledger back" in told
    told = said(capsys, "savepoint", "verify", "flights.yaml", "late", code=5)
    assert "Savepoint late is whole, but the ledger does not go on from it." in told
    told = said(capsys, "savepoint", "restore", "flights.yaml", "late", code=3)
    assert "put that back. Else take another savepoint: `penstock savepoint list flights.yaml` names them." in told
    said(capsys, "savepoint", "list", "flights.yaml", code=0)
    for path in Path("home").glob("ledger.db*"):
        path.unlink()
    shutil.move("ledger.db", "home/ledger.db")
    assert "Nothing is pending" in said(capsys, "doctor", "flights.yaml", code=0)
    assert "is whole: a query that starts there goes on" in said(capsys, "savepoint", "verify", "flights.yaml", "late", code=0)


def test_a_lost_entry_of_the_offset_log_is_a_conflict_with_a_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    Path("home/checkpoint/offsets/3").unlink()
    told = said(capsys, "status", "flights.yaml", code=0)
    assert "flights conflict" in told
    assert "has commits/3, but no offsets/3" in told
    assert "A start would be refused: `penstock doctor flights.yaml` says what to do." in told
    rebuild = "`penstock checkpoint rebuild flights.yaml` makes the checkpoint again from the ledger"
    assert rebuild in said(capsys, "doctor", "flights.yaml", code=1)
    assert rebuild in said(capsys, "checkpoint", "repair", "flights.yaml", code=3)


def test_so_is_an_entry_that_is_torn(capsys: pytest.CaptureFixture[str]) -> None:
    Path("home/checkpoint/offsets/3").write_text("v1\n{")
    assert "`penstock doctor flights.yaml` says what to do." in said(capsys, "status", "flights.yaml", code=0)
    told = said(capsys, "doctor", "flights.yaml", code=1)
    assert "if `penstock history flights.yaml` has no batch 3" in told
    assert "`penstock checkpoint rebuild flights.yaml` makes the checkpoint again" in told


@pytest.mark.parametrize(
    ("given", "where", "there"),
    [
        ("sources.event.on_gap=accept", "sources.event has neither", "sources events"),
        ("sinks.lakes.type=parquet", "sinks.lakes.accounts is missing", "sinks lake"),
    ],
)
def test_a_name_that_was_typed_wrong_is_found_in_the_option(
    capsys: pytest.CaptureFixture[str], given: str, where: str, there: str
) -> None:
    told = said(capsys, "status", "flights.yaml", "--set", given, code=2)
    assert f"error: --set {given.partition('=')[0]}: {where}" in told
    assert f"flights.yaml has {there}: if one of them is meant, correct its name." in told


def test_a_sink_can_still_be_added(capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "status", "flights.yaml", "--set", "sinks.out={type: console}", "--set", "guarantee=at_least_once", code=0)


def test_causes_and_warnings_name_the_file() -> None:
    name_file("flights.yaml")
    try:
        assert _cause(["checkpoint"], "Read what `penstock adopt FILE` says.").plain == (
            "checkpoint: Read what `penstock adopt flights.yaml` says."
        )
        record = logging.makeLogRecord({"msg": "Put it on record: `penstock verify FILE --accept-removed`."})
        assert SafeFormatter().format(record) == "Put it on record: `penstock verify flights.yaml --accept-removed`."
    finally:
        name_file(None)
