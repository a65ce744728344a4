"""What commands that start Spark say where PySpark or Java is missing, and what they say before they look for either."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from penstock.cli.app import main
from penstock.errors import DependencyMissing, Usage
from penstock.run.pipeline import Pipeline

FILE = """\
pipeline: flights
home: ./state
sources: {events: {format: csv, path: ./incoming, schema: id INT}}
transform: {sql: SELECT id FROM events}
sinks: {lake: {type: parquet, accounts: {all: ./lake}}, screen: {type: console}}
guarantee: at_least_once
"""
QUARANTINE = "quarantine: ./quarantine\n"
NEED_PYSPARK = ("backfill", "replay", "state_rows", "state_rebuilding", "check", "explain", "start", "session")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("incoming").mkdir()
    Path("flights.yaml").write_text(FILE)


@pytest.fixture
def no_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.run.startable.find_spec", lambda name: None if name == "pyspark" else find_spec(name))
    for name in NEED_PYSPARK:
        monkeypatch.setitem(sys.modules, f"penstock.run.{name}", None)


def ended(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str]:
    with pytest.raises(SystemExit) as ending:
        main(words)
    return ending.value.code, capsys.readouterr().err


@pytest.mark.usefixtures("no_pyspark")
@pytest.mark.parametrize(
    "words",
    [
        ("run", "flights.yaml"),
        ("check", "flights.yaml"),
        ("explain", "flights.yaml"),
        ("backfill", "flights.yaml", "--sink", "lake"),
        ("backfill", "flights.yaml", "--sink", "lake", "--debug"),
        ("quarantine", "replay", "aside.yaml"),
        ("quarantine", "replay", "aside.yaml", "--rows", "17"),
        ("quarantine", "replay", "aside.yaml", "--debug"),
        ("state", "flights.yaml", "--key", "id=1"),
        ("state", "flights.yaml", "--export", "out"),
    ],
)
def test_every_command_that_starts_spark_names_pyspark(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    Path("aside.yaml").write_text(FILE + QUARANTINE)
    code, err = ended(capsys, *words)
    assert code == 1
    assert "error: A pipeline runs on PySpark, which is not installed.\nInstall it: pip install 'pandas<" in err


@pytest.mark.usefixtures("no_pyspark")
@pytest.mark.parametrize("act", ["start", "check", "explain", "session"])
def test_so_do_methods(act: str) -> None:
    with pytest.raises(DependencyMissing, match="runs on PySpark"):
        getattr(Pipeline.from_file("flights.yaml"), act)()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("backfill", "flights.yaml", "--sink", "lak"), "The pipeline has no sink 'lak'.\nIt has lake, screen."),
        (("backfill", "flights.yaml", "--sink", "screen"), "Sink 'screen' is of type console, which keeps no rows."),
        (("quarantine", "replay", "flights.yaml"), "The pipeline 'flights' has no quarantine."),
        (("run", "no_schema.yaml"), "sources.events reads csv files but has no schema.\nAdd schema: "),
        (("check", "no_schema.yaml"), "sources.events reads csv files but has no schema.\nAdd schema: "),
        (("checkpoint", "rebuild", "flights.yaml"), "is empty, so it cannot tell what the checkpoint held."),
    ],
)
def test_a_command_that_cannot_be_done_starts_no_spark(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    def starts(*_: object) -> None:
        raise AssertionError("Spark starts")

    monkeypatch.setattr(Pipeline, "session", starts)
    Path("no_schema.yaml").write_text(FILE.replace(", schema: id INT", ""))
    assert said in ended(capsys, *words)[1]
    assert said in ended(capsys, *words, "--debug")[1]


def test_methods_look_first_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def starts(*_: object) -> None:
        raise AssertionError("Spark starts")

    monkeypatch.setattr(Pipeline, "session", starts)
    flights = Pipeline.from_file("flights.yaml")
    with pytest.raises(Usage, match="no sink 'lak'"):
        flights.backfill("lak")
    with pytest.raises(Usage, match="no quarantine"):
        flights.replay()
