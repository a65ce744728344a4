import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.journal_clients import SMALL, Clients, registered

from penstock.cli.app import main
from penstock.journal.journal import Journal
from penstock.journal.segment import segment_firsts
from penstock.journal.storage import LocalStorage

STORAGE = LocalStorage()


@pytest.fixture(name="home")
def _home(tmp_path: Path) -> Path:
    """A journal with 27 events, of which a reader needs the last seven."""
    home = tmp_path / "journal"
    journal = Journal(home, now_us=lambda: 1_700_000_000_000_000, limits=replace(SMALL, least_free_bytes=0))
    Clients().push(journal, until=9)
    journal.close()
    registered(STORAGE, home, "clicks/web", 20)
    return home


def ran(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(words)
    printed = capsys.readouterr()
    return ended.value.code, printed.out, printed.err


def test_inspect(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ran(capsys, "journal", "inspect", str(home), "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["first"], found["next"], found["producers"]) == (0, 27, 3)
    assert [each["waiting"] for each in found["readers"]] == [7]
    code, out, _ = ran(capsys, "journal", "inspect", str(home))
    assert code == 0
    assert "0 to 26" in out
    assert "clicks/web" in out


def test_verify_says_what_is_damaged(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ran(capsys, "journal", "verify", str(home))
    assert (code, out.strip().endswith("every one is whole.")) == (0, True)
    log = min((home / "segments").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-1])
    code, out, _ = ran(capsys, "journal", "verify", str(home), "--json")
    assert code == 5
    assert not json.loads(out)["ok"]
    code, out, _ = ran(capsys, "journal", "verify", str(home))
    assert "that are no frame" in out


def test_verify_names_no_event_before_the_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "journal"
    journal = Journal(home, now_us=lambda: 1_700_000_000_000_000, limits=replace(SMALL, least_free_bytes=0))
    Clients().push(journal, until=1)
    journal.close()
    (log,) = (home / "segments").glob("*.log")
    header, newline, frames = log.read_bytes().partition(b"\n")
    log.write_bytes(header + newline + frames[:3])
    code, out, _ = ran(capsys, "journal", "verify", str(home))
    assert (code, "Events up to 2 were acknowledged, and none of them is whole." in out) == (5, True)


def test_trim_removes_what_is_released_when_told_to(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = segment_firsts(STORAGE, home)
    code, out, _ = ran(capsys, "journal", "trim", str(home))
    assert (code, "Would remove" in out, segment_firsts(STORAGE, home)) == (0, True, before)
    code, out, _ = ran(capsys, "journal", "trim", str(home), "--yes", "--json")
    left = segment_firsts(STORAGE, home)
    assert (code, json.loads(out)["done"]) == (0, True)
    assert len(json.loads(out)["segments"]) == len(before) - len(left)
    assert left[0] <= 20 < left[1]
    code, out, _ = ran(capsys, "journal", "trim", str(home), "--yes")
    assert out.strip() == "There is no segment that every reader has released."


def test_a_reader_is_forgotten_when_told_to(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = ran(capsys, "journal", "readers", str(home), "--forget", "clicks")
    assert (code, "It has clicks/web: name one of these" in err) == (2, True)
    code, out, _ = ran(capsys, "journal", "readers", str(home), "--forget", "clicks/web")
    assert "Nothing was changed" in out
    code, out, _ = ran(capsys, "journal", "readers", str(home))
    assert (code, "clicks/web" in out) == (0, True)
    code, out, _ = ran(capsys, "journal", "readers", str(home), "--forget", "clicks/web", "--yes")
    assert (code, out.strip()) == (0, "No reader is registered, so nothing is removed.")


def test_a_directory_that_is_no_journal_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("inspect", "verify", "readers", "trim"):
        code, _, err = ran(capsys, "journal", verb, str(tmp_path))
        assert (code, "is not the directory of a journal" in err) == (2, True)


def test_trim_beside_a_receiver_is_told_to_wait(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = Journal(home, now_us=lambda: 1)
    code, _, err = ran(capsys, "journal", "trim", str(home), "--yes")
    assert (code, "has a writer already" in err) == (75, True)
    journal.close()
