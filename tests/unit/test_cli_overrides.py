"""`--set` wherever a pipeline file is read: in the first of two, in each of many, and of a pipeline whose checkpoint is meant."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from penstock.cli import app
from penstock.cli.supervise import _settings, _supervised

FILE = """\
pipeline: shop
home: ./wrong
sources: {t: {format: csv, path: in, schema: id LONG}}
sinks: {lake: {type: parquet, accounts: {only: ./lake}}}
"""
NO_PIPELINE_FILE = {"init", "crashtest", "journal inspect", "journal verify", "journal readers", "journal trim"}
WITH_TWO = {"compare", "savepoint fork", "checkpoint diff", "checkpoint copy"}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    Path("shop.yaml").write_text(FILE)
    Path("other.yaml").write_text(FILE.replace("shop", "other"))


def ran(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as ended:
        app.main(words)
    printed = capsys.readouterr()
    return ended.value.code, printed.out, printed.err


def commands(group: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{name} ")
        else:
            yield f"{above}{name}", command


def test_every_command_that_reads_a_pipeline_file_takes_it() -> None:
    options = {
        name: {option for parameter in command.params for option in parameter.opts}
        for name, command in commands(typer.main.get_command(app.app))
    }
    assert {name for name, taken in options.items() if "--set" not in taken} == NO_PIPELINE_FILE
    assert {name for name, taken in options.items() if "--other-set" in taken} == WITH_TWO


def test_it_replaces_a_value_in_each_of_many_files(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ran(
        capsys, "report", "shop.yaml", "other.yaml", "-o", "x.html", "--set", "guarantee=at_least_once", "--json"
    )
    assert (code, json.loads(out)["pipelines"]) == (0, ["shop", "other"]), err
    code, _, err = ran(capsys, "metrics", "shop.yaml", "--set", "guarantee=twice")
    assert (code, "error: --set guarantee: guarantee should be exactly_once or at_least_once" in err) == (2, True), err
    code, _, err = ran(capsys, "supervise", "shop.yaml", "other.yaml", "--set", "home=./same")
    assert (code, "Two files have the home" in err) == (2, True), err


def test_a_supervisor_hands_it_on_to_its_drivers() -> None:
    settings = _settings(["shop.yaml"], ["home=./right", "spark.master=local[1]"])
    [one] = _supervised(settings, ["home=./right", "spark.master=local[1]"], grace_s=1, lease_s=None)
    assert one.home == str(Path("right").absolute())
    assert one.command[-3:] == ["--set=home=./right", "--set=spark.master=local[1]", "shop.yaml"]


@pytest.mark.parametrize(
    ("words", "first", "second"),
    [
        (("compare", "shop.yaml", "other.yaml"), "--set", "--other-set"),
        (("savepoint", "fork", "shop.yaml", "point", "other.yaml"), "--set", "--other-set"),
        (("checkpoint", "diff", "shop.yaml", "other.yaml"), "--set", "--other-set"),
        (("checkpoint", "copy", "shop.yaml", "other.yaml"), "--set", "--other-set"),
    ],
)
def test_of_two_files_each_has_its_own(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], first: str, second: str
) -> None:
    for option, name in ((first, "one"), (second, "two")):
        code, _, err = ran(capsys, *words, option, f"{name}=1")
        assert (code, f"error: {option} {name}: {name} is not a known key" in err) == (2, True), err


@pytest.mark.parametrize("verb", ["inspect", "explain", "verify", "gc", "repair"])
def test_the_checkpoint_of_a_file_is_where_it_says(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    root = Path("elsewhere")
    for folder in ("offsets", "commits"):
        (root / folder).mkdir(parents=True)
    (root / "metadata").write_text('{"id": "dc72533e-f9ea-46fb-9bc0-453efc1a564d"}')
    code, out, err = ran(capsys, "checkpoint", verb, "shop.yaml", "--set", "checkpoint=./elsewhere", "--json")
    assert code == 0, err
    assert str(root.absolute()) in out or "dc72533e-f9ea-46fb-9bc0-453efc1a564d" in out


@pytest.mark.parametrize("words", ["inspect", "verify", "gc", "repair", "rewind --to-batch 1", "gc --undo"])
def test_a_checkpoint_itself_has_no_values(capsys: pytest.CaptureFixture[str], words: str) -> None:
    verb, *more = words.split()
    code, _, err = ran(capsys, "checkpoint", verb, "state/checkpoint", *more, "--set", "home=./x")
    assert code == 2
    assert err.startswith("error: `--set` replaces values of a pipeline file, found the checkpoint state/checkpoint.\n")
