"""What docs/howto/trouble.md shows of data that was removed on purpose: its commands, and their answers."""

import re
import shlex
from pathlib import Path

import pytest
from tests.unit.lake import Lake

from penstock.cli.app import main

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "trouble.md"
SECTION = PAGE.read_text(encoding="utf-8").partition("## Old data was removed on purpose\n")[2].partition("\n## ")[0]
COMMANDS = [command for block in re.findall(r"```\n(penstock .*?)\n```", SECTION, re.DOTALL) for command in block.splitlines()]
CODES = [5, 0, 0, 0]


def said(command: str, lake: Lake, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    words = shlex.split(command.replace("flights.yaml", str(lake.file)))[1:]
    with pytest.raises(SystemExit) as ended:
        main(words)
    return int(ended.value.code or 0), " ".join(capsys.readouterr().out.split())


def test_the_commands_of_the_page_do_what_it_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = Lake(tmp_path)
    lake.run(range(4))
    for batch in (0, 1):
        for path in lake.listed("a"):
            if f"-b{batch}-" in path.name:
                path.unlink()
    answers = [said(command, lake, capsys) for command in COMMANDS]
    assert [code for code, _ in answers] == CODES
    asked, done, verified, listed = (text for _, text in answers)
    assert "Missing, with nothing else wrong there: 2 files with 4 rows. Nothing was changed." in asked
    assert "If all of it was removed on purpose, record that with --yes --reason TEXT." in asked
    assert "Accepted as removed on purpose, at position 6 of the ledger: 2 files with 4 rows." in done
    assert "lake: 4 rows of 2 files were removed on purpose and are not expected (accepted last at position 6," in verified
    last = "Every row of the ledger, but for what was removed on purpose, is in its place once, and nothing else is."
    assert verified.endswith(last)
    assert last in SECTION
    assert "removal_accepted" in listed


def test_a_verification_names_the_command_with_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = Lake(tmp_path)
    lake.run(range(2))
    next(iter(lake.listed("a"))).unlink()
    _, text = said("penstock verify flights.yaml", lake, capsys)
    assert text.endswith(f"If whole files were removed on purpose: `penstock verify {lake.file} --accept-removed`.")


def test_a_verification_with_another_ledger_tells_to_put_the_right_one_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As after `home` was moved or not mounted: its advice for foreign files would be to take all that was delivered away."""
    lake = Lake(tmp_path)
    lake.run(range(2))
    lake.replace("sqlite:///ledger.db", "sqlite:///not-mounted/ledger.db")
    code, text = said("penstock verify flights.yaml", lake, capsys)
    assert code == 5
    assert "is empty: another ledger, or an older copy, is in its place. Put that ledger back" in text
    assert "take away" not in text
    assert "Before you take it away" not in text


def test_options_that_belong_to_it_are_refused_without_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = Lake(tmp_path)
    for words in ("--yes --reason old", "--before 3", "--forgotten", "--accept-removed --yes"):
        assert said(f"penstock verify flights.yaml {words}", lake, capsys)[0] == 2
