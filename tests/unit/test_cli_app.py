"""How the command line ends: exit codes, the style of errors, no traceback."""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli import app
from penstock.errors import Fenced, GuaranteeTooWeak, PenstockError, PublishFailed, Retryable, StageFailed, Usage


@pytest.fixture(name="ran")
def _ran(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Ran":
    monkeypatch.chdir(tmp_path)
    return Ran(capsys)


class Ran:
    """Runs a command line in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str) -> tuple[object, str, str]:
        with pytest.raises(SystemExit) as ended:
            app.main(words)
        printed = self._capsys.readouterr()
        return ended.value.code, printed.out, printed.err


_NO_CRASHTEST = (
    "error: crashtest without --list is not supported by this version.\n`penstock crashtest --list` names the steps, and "
    "`PENSTOCK_FAULTS=STEP=kill penstock run {}` kills a run at one of them.\n"
)


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (("frobnicate",), 2, "error: No such command 'frobnicate'.\nSee `penstock --help`.\n"),
        (("run",), 2, "error: Missing argument 'FILE'.\nSee `penstock run --help`.\n"),
        (
            ("status", "none.yaml"),
            2,
            "error: There is no pipeline file none.yaml.\nCheck the path, or make a project with `penstock init`.\n",
        ),
        (("crashtest",), 2, _NO_CRASHTEST.format("FILE")),
        (("crashtest", "flights.yaml"), 2, _NO_CRASHTEST.format("flights.yaml")),
        (("adopt", "f.yaml", "--yes"), 2, "error: --yes without --reason.\nSay why with --reason; the ledger keeps it.\n"),
    ],
)
def test_wrong_usage(ran: Ran, words: tuple[str, ...], code: int, error: str) -> None:
    assert ran(*words) == (code, "", error)


def test_an_option_out_of_range(ran: Ran) -> None:
    code, out, err = ran("history", "f.yaml", "--limit", "0")
    assert (code, out) == (2, "")
    assert err.startswith("error: Invalid value for '--limit': ")
    assert err.endswith("\nSee `penstock history --help`.\n")


def test_help_fills_its_lines(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    _, out, _ = ran("doctor", "--help")
    assert "an account is lost, another ledger's or cannot be looked at or written, a" in out


def test_help_and_version(ran: Ran) -> None:
    code, out, _ = ran("--help")
    assert code == 0
    for verb in (
        "init",
        "check",
        "explain",
        "run",
        "status",
        "watch",
        "history",
        "offsets",
        "verify",
        "recover",
        "adopt",
        "sweep",
    ):
        assert f" {verb} " in out
    code, out, _ = ran("--version")
    assert (code, out.split()[0]) == (0, "penstock")


@pytest.mark.parametrize("kind", [Usage, GuaranteeTooWeak, Fenced, Retryable, StageFailed])
def test_errors_end_with_their_code_and_without_a_traceback(
    ran: Ran, monkeypatch: pytest.MonkeyPatch, kind: type[PenstockError]
) -> None:
    def fails(*args: object) -> None:
        raise kind("It did not work with mysql://ann:geheim@host/db.", remedy="Do something.")

    monkeypatch.setattr("penstock.cli.status.pipeline", fails)
    code, out, err = ran("status", "f.yaml")
    assert (code, out) == (kind.exit_code, "")
    assert err == "error: It did not work with mysql://ann:***@host/db.\nDo something.\n"
    code, out, err = ran("status", "f.yaml", "--json")
    assert json.loads(out) == {
        "error": {
            "kind": kind.__name__,
            "message": "It did not work with mysql://ann:***@host/db.",
            "remedy": "Do something.",
            "exit_code": kind.exit_code,
        }
    }
    _, _, err = ran("--debug", "status", "f.yaml")
    assert "Traceback" in err
    _, _, err = ran("status", "f.yaml", "--debug")
    assert "Traceback" in err


@pytest.mark.parametrize(("switch", "named"), [("--debug", False), ("--show-values", True)])
def test_a_traceback_names_values_of_rows_where_they_are_asked_for(
    ran: Ran, monkeypatch: pytest.MonkeyPatch, switch: str, *, named: bool
) -> None:
    """In whichever way the database's error hangs on Penstock's."""
    value = " ".join(("Ann", "Lee"))  # the traceback shows the text of this file, too

    def fails(*args: object) -> None:
        by = sqlite3.IntegrityError(f"Key (name)=({value}) already exists")
        try:
            try:
                raise by
            except sqlite3.IntegrityError:
                raise KeyError(value)  # noqa: B904 - as code of others does
        except KeyError as cause:
            raise PublishFailed("The rows are not there.", remedy="Mend the table.") from cause

    monkeypatch.setattr("penstock.cli.status.pipeline", fails)
    for words in (("status", "f.yaml", switch), (switch, "status", "f.yaml")):
        code, _, err = ran(*words)
        assert code == 1
        assert "sqlite3.IntegrityError: " in err
        assert "PublishFailed: The rows are not there." in err
        assert (value in err.partition("error: ")[0]) is named
        assert ("`--show-values` prints them" in err) is not named


def test_an_unexpected_error_is_told_in_the_same_style(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("penstock.cli.status.pipeline", fails)
    code, out, err = ran("status", "f.yaml")
    assert (code, out) == (1, "")
    assert err.startswith("error: ZeroDivisionError: by zero\n")
    assert "Traceback" not in err


def test_an_interruption_is_no_error(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("penstock.cli.status.pipeline", interrupted)
    code, out, err = ran("status", "f.yaml")
    assert (code, out) == (130, "")
    assert "Traceback" not in err


def test_a_malformed_list_of_faults_is_wrong_usage() -> None:
    environ = {**os.environ, "PENSTOCK_FAULTS": "sqlite.commit=kil"}
    for words in (("crashtest", "--list"), ("history", "none.yaml")):
        command = [sys.executable, "-m", "penstock", *words]
        ended = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr.startswith("error: PENSTOCK_FAULTS holds 'sqlite.commit=kil', expected point=kind[@occurrence] with")


@pytest.mark.parametrize("group", ["checkpoint", "quarantine", "journal", "savepoint"])
def test_a_group_without_a_verb_shows_its_help_and_no_empty_error(ran: Ran, group: str) -> None:
    code, out, err = ran(group)
    assert (code, err) == (2, "")
    assert f"Usage: penstock {group} [OPTIONS] COMMAND" in out


def test_crashtest_lists_every_point(ran: Ran) -> None:
    code, out, _ = ran("crashtest", "--list", "--json")
    assert code == 0
    points = {point["name"]: point for point in json.loads(out)["points"]}
    assert {"ledger.append", "stage.start", "sqlite.commit", "parquet.stage.open"} <= set(points)
    assert all(point["meaning"] and {"kill", "error", "lost", "stall"} <= set(point["kinds"]) for point in points.values())
    code, text, _ = ran("crashtest", "--list")
    assert code == 0
    assert all(name in text for name in points)


def test_looking_starts_neither_spark_nor_arrow(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text("pipeline: p\nhome: ./state\nsources: {s: {format: rate}}\nsinks: {m: {type: memory}}\n")
    script = """
import sys
from penstock.cli.app import main
for words in (["--help"], ["status", "f.yaml"], ["history", "f.yaml"], ["status", "f.yaml", "--json"]):
    try:
        main(words)
    except SystemExit as ended:
        assert ended.code == 0, ended.code
heavy = {"pyspark", "pyarrow", "numpy", "pandas"} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    script = f"{sys.executable} -m penstock.cli.app crashtest --list --json | head -c 1 > /dev/null; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr
