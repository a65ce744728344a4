"""What docs/howto/checkpoint.md prints is what its commands print, on a real checkpoint of Spark 4.3."""

import re
import shutil
from pathlib import Path

import pytest
from tests.upgrade.checkpoint_archives import ARCHIVES, content_of

from penstock.cli.app import main

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "checkpoint.md"
SHOWN = re.findall(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def lines_of(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


@pytest.mark.parametrize("shown", SHOWN)
def test_the_commands_print_what_the_page_shows(
    shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    [archive] = [path for path in ARCHIVES if path.name.startswith("spark-4.3-aggregation")]
    for name, data in content_of(archive).items():
        place = Path("checkpoint", name)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    shutil.copytree("checkpoint", "older")
    for step in re.split(r"^\$ ", shown, flags=re.MULTILINE)[1:]:
        command, _, expected = step.partition("\n")
        program, *words = command.split()
        if program == "rm":
            Path(words[0]).unlink()
            continue
        with pytest.raises(SystemExit):
            main(words)
        assert lines_of(capsys.readouterr().out) == lines_of(expected)
