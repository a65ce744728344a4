"""Mistakes of a person at the command line: what is said names what was given as it was given, and the advice can be followed."""

from pathlib import Path

import pytest

from penstock.checkpoint.files import LocalFiles
from penstock.checkpoint.rewind_plan import plan_rewind
from penstock.cli.app import main
from penstock.core.model import BatchId
from penstock.errors import LedgerMismatch, Refused
from penstock.spec.settings import nearest

FILE = """\
pipeline: flights
home: ./state
sources: {events: {format: csv, path: ./incoming, schema: id INT}}
sinks: {lake: {type: parquet, accounts: {all: ./lake}}, warehouse: {type: sqlite, url: 'sqlite:///w.db', table: t}}
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("incoming").mkdir()
    Path("flights.yaml").write_text(FILE)


def ended(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str]:
    with pytest.raises(SystemExit) as ending:
        main(words)
    return ending.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            "savepoint restore flights.yaml gone",
            1,
            "has no savepoint 'gone': it has none.\nIf savepoints were made in another place, give it with --to PLACE.",
        ),
        (
            "checkpoint rewind flights.yaml --to-batch 3",
            3,
            "it holds no batch.\nIf it was lost, `penstock checkpoint rebuild flights.yaml` makes it again from the ledger",
        ),
        ("journal inspect nowhere", 2, "nowhere is not the directory of a journal: it does not exist, or is empty."),
        ("journal readers .", 2, ". is not the directory of a journal: it has no segments."),
        (
            "metrics flights.yaml --listen localhost:65536",
            2,
            "found 'localhost:65536'.\nGive both, the port up to 65535",
        ),
        ("init flights.yaml", 2, "flights.yaml is a file, expected a directory.\nChoose another name: penstock init DIR."),
        ("status flights.yaml --set trigger={", 2, "error: --set trigger: the value is not valid YAML: "),
        ("files flights.yaml --sink warehouse", 2, "Sink 'warehouse' is not of type parquet.\nName one of type parquet: lake."),
        ("files flights.yaml --sink lak", 2, "The pipeline has no sink 'lak'.\nName one of type parquet: lake."),
        (
            "status flights.yaml --set chekpoint.url=1",
            2,
            "error: --set chekpoint.url: chekpoint is not a known key.\nDid you mean checkpoint?",
        ),
        (
            "compare flights.yaml flights.yaml --other-set trigger={",
            2,
            "error: --other-set trigger: the value is not valid YAML: ",
        ),
        (
            "checkpoint diff flights.yaml flights.yaml --other-set home=1",
            2,
            "error: --other-set home: home should be text, found the number 1.",
        ),
        ("checkpoint inspect ftp://host/x", 2, "error: PATH is at ftp:, where Penstock cannot read it"),
        ("checkpoint inspect s3:///x", 2, "error: PATH is no URL of a place at s3://.\nWrite s3://bucket/prefix."),
        ("state flights.yaml --memory lots", 2, "error: --memory should be a size with a unit, found the text 'lots'."),
    ],
)
def test_what_is_said(capsys: pytest.CaptureFixture[str], words: str, code: int, said: str) -> None:
    found, err = ended(capsys, *words.split())
    assert (found, said in err) == (code, True), err


def test_the_other_place_of_savepoints_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    _, err = ended(capsys, "savepoint", "restore", "flights.yaml", "gone", "--to", "./kept")
    assert "kept has no savepoint 'gone'" in err


def test_a_place_without_savepoints_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["savepoint", "list", "flights.yaml", "--to", "./kept"])
    assert capsys.readouterr().out == "There is no savepoint in ./kept.\n"


@pytest.mark.parametrize("command", ["status", "doctor", "history", "verify"])
def test_a_file_in_place_of_the_home_is_no_empty_ledger(capsys: pytest.CaptureFixture[str], command: str) -> None:
    Path("state").touch()
    code, err = ended(capsys, command, "flights.yaml")
    assert code == 1
    assert "state/ledger.db cannot be looked at: a file is where a directory is expected.\nMove that file away" in err


def test_files_without_a_parquet_sink(capsys: pytest.CaptureFixture[str]) -> None:
    Path("flights.yaml").write_text(FILE.replace("lake: {type: parquet, accounts: {all: ./lake}}, ", ""))
    code, err = ended(capsys, "files", "flights.yaml")
    assert code == 2
    assert "Expected one sink of type parquet, but the pipeline has none.\nOnly sinks of type parquet keep a table" in err


def test_a_checkpoint_without_a_batch_has_none_to_go_back_to() -> None:
    with pytest.raises(Refused, match="it holds no batch"):
        plan_rewind(LocalFiles(Path("nowhere")), to_batch=BatchId(0))


def test_a_pipeline_that_was_renamed_is_told_its_old_name(capsys: pytest.CaptureFixture[str]) -> None:
    ended(capsys, "recover", "flights.yaml")
    Path("flights.yaml").write_text(FILE.replace("pipeline: flights", "pipeline: planes"))
    code, err = ended(capsys, "status", "flights.yaml")
    assert code == LedgerMismatch.exit_code
    assert "belongs to pipeline 'flights', not to 'planes'.\nIf the name was changed, write `pipeline: flights` again" in err


@pytest.mark.parametrize(
    ("name", "valid", "guess"),
    [
        ("partition_bi", ["partition_by", "compression"], "partition_by"),
        ("cvs", ["csv", "json"], "csv"),
        ("tpye", ["type", "topic"], "type"),
        ("table", ["value", "topic", "headers"], None),
    ],
)
def test_a_guess_is_similar(name: str, valid: list[str], guess: str | None) -> None:
    assert nearest(name, valid) == guess
