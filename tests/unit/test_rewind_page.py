"""What docs/howto/rewind.md shows: its commands, and their answers."""

import re
import shlex
from pathlib import Path

import pytest
from tests.unit.lake import Lake
from tests.unit.parquet_target import QUERY

from penstock import Pipeline, SQLite
from penstock.cli.app import main

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "rewind.md").read_text(encoding="utf-8")
COMMANDS = [command for block in re.findall(r"```\n(penstock .*?)\n```", PAGE, re.DOTALL) for command in block.splitlines()]
ANSWER = re.findall(r"```\n(Batches .*?)\n```", PAGE, re.DOTALL)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Four batches, with Spark's logs of them."""
    made = Lake(tmp_path)
    made.run(range(4))
    checkpoint = tmp_path / "state" / "checkpoint"
    for log in ("offsets", "commits"):
        (checkpoint / log).mkdir(parents=True)
    (checkpoint / "metadata").write_text(f'{{"id":"{QUERY}"}}')
    for number in range(4):
        (checkpoint / "offsets" / str(number)).write_text(f"v1\n{{}}\n{number + 1}")
        (checkpoint / "commits" / str(number)).write_text("v1\n{}")
    return made


def said(command: str, lake: Lake, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    words = shlex.split(command.replace("shop.yaml", str(lake.file)))[1:]
    with pytest.raises(SystemExit) as ended:
        main(words)
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out + printed.err


def test_the_commands_of_the_page_do_what_it_shows(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    asked, done, verified, listed, keeping = (said(command, lake, capsys) for command in COMMANDS)
    assert asked == (0, f"{ANSWER[0]}\n")
    assert done[1].startswith("Batches 2 to 3 were taken back.\n")
    assert (done[0], done[1].splitlines()[-1]) == (0, "Rewound: the pipeline goes on with batch 2.")
    assert verified[0] == 0
    assert "decided, taken back" in listed[1]
    assert "rewound" in listed[1]
    assert keeping == (2, "error: The pipeline has no sink 'warehouse' to keep.\nIt has lake.\n")


def test_what_is_already_so_is_said(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = said("penstock rewind shop.yaml --to-batch 3 --yes", lake, capsys)
    assert (code, text) == (0, "Batch 3 is the last one already: there is nothing to take back.\n")
    assert said("penstock rewind shop.yaml --to-batch 4", lake, capsys)[0] == 3
    assert said("penstock rewind shop.yaml", lake, capsys)[0] == 2


def test_the_table_of_the_page_says_of_which_batch_its_rows_are(tmp_path: Path) -> None:
    [sinks] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    file = tmp_path / "shop.yaml"
    file.write_text(f"pipeline: shop\nhome: ./state\nsources: {{orders: {{format: rate}}}}\n{sinks}")
    warehouse = Pipeline.from_file(file).settings.sinks["warehouse"]
    assert isinstance(warehouse, SQLite)
    assert warehouse.batch_column == "written_by"
