"""What the pages about deployment and logging show is what there is."""

import ast
import configparser
import json
import logging
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from tests.architecture.reading import ROOT
from tests.console import Done, Shown, shown_in
from tests.crash.commandline import penstock
from tests.unit.test_run_delivery import PIPELINE, made_on

from penstock import errors
from penstock.cli.init import Template, make_project
from penstock.core.model import SinkName
from penstock.ledger.log import LogLedger
from penstock.ledger.store import MemoryStore
from penstock.observe.progress import BatchProgress, SinkProgress
from penstock.spec.load import load

DEPLOY, LOGGING = ((ROOT / "docs" / "howto" / name).read_text() for name in ("deploy.md", "logging.md"))
GRACE_S = 30
BATCH = BatchProgress(
    batch_id=7,
    rows_out=1500,
    rows_read=1600,
    sinks={SinkName("lake"): SinkProgress(rows=1500, files=3, bytes=9000), SinkName("table"): SinkProgress(already_committed=1)},
    stage_ms=2300,
    path="driver",
    warnings=("Slow.",),
)


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def test_the_unit_of_systemd_starts_again_after_75_and_lets_a_batch_end(tmp_path: Path) -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(blocks(DEPLOY, "ini")[0])
    service = unit["Service"]
    assert (service["KillMode"], service["RestartForceExitStatus"]) == ("mixed", str(errors.Retryable.exit_code))
    assert int(service["TimeoutStopSec"]) > GRACE_S
    _, run, file, option, override = service["ExecStart"].replace(r"\x20", "\0").split()
    assert (run, file, option) == ("run", "orders.yaml", "--set")
    (tmp_path / file).write_text(blocks(DEPLOY, "yaml")[0])
    assert load(tmp_path / file, [override.replace("\0", " ")]).trigger.processing_time == 10_000


@pytest.mark.parametrize("page", ["deploy.md", "supervise.md"])
def test_systemd_takes_the_units(tmp_path: Path, page: str) -> None:
    """As far as it is here: `systemd-analyze` needs neither the service manager nor rights."""
    (shown,) = blocks((ROOT / "docs" / "howto" / page).read_text(), "ini")
    unit = tmp_path / "penstock-orders.service"
    unit.write_text(re.sub(r"(?<=^ExecStart=)\S+", sys.executable, shown, flags=re.MULTILINE))
    done = verified(unit)
    assert done is None or (done.returncode, done.stderr) == (0, ""), done
    unit.write_text(unit.read_text().replace("KillMode=mixed", "KillMode=mixt"))
    done = verified(unit)
    assert done is None or done.returncode != 0


def verified(unit: Path) -> Done | None:
    """What systemd says of the unit; None where there is no systemd."""
    command = shutil.which("systemd-analyze")
    if command is None:
        return None
    words = [command, "verify", "--man=no", "--recursive-errors=no", str(unit)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_the_pipeline_of_a_cluster_is_valid(tmp_path: Path) -> None:
    (tmp_path / "orders.yaml").write_text(blocks(DEPLOY, "yaml")[0])
    assert load(tmp_path / "orders.yaml").spark.master == "spark://master:7077"


def test_the_files_that_init_writes_are_those_of_the_page(tmp_path: Path) -> None:
    project = make_project(tmp_path / "orders", Template.FILES)
    recipes = set(re.findall(r"^\| `([\w.]+)` \|", DEPLOY, re.MULTILINE)) - {"run"}
    assert {"Dockerfile", "entrypoint.sh", "compose.yaml", "kubernetes.yaml"} <= recipes <= set(project.files)


def test_the_task_of_airflow_runs_commands_that_are_there() -> None:
    dag = next(block for block in blocks(DEPLOY, "python") if "airflow" in block)
    calls = {ast.unparse(node.func): node for node in ast.walk(ast.parse(dag)) if isinstance(node, ast.Call)}
    given = {keyword.arg: ast.unparse(keyword.value).strip("'") for keyword in calls["BashOperator"].keywords}
    assert given["retries"] == "0"
    deliver, verify = (shlex.split(part) for part in given["bash_command"].split(" && "))
    assert deliver[:2] == ["sh", "entrypoint.sh"]
    for words in (deliver[2:], verify[1:]):
        assert penstock(words[0], "--help").code == 0
        assert all(option in penstock(words[0], "--help").out for option in words[2:])


def test_a_batch_is_logged_as_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    opened = made_on(LogLedger(MemoryStore(), pipeline=PIPELINE), tmp_path)
    setup = blocks(LOGGING, "python")[0]
    form = re.search(r'format="([^"]+)"', setup)
    assert form is not None
    with caplog.at_level(logging.INFO, "penstock"):
        opened._report(BATCH)
        opened._report(replace(BATCH, already=True, warnings=()))
        opened._report(replace(BATCH, recovered=True, warnings=()))
    lines = [logging.Formatter(form[1]).format(record) for record in caplog.records]
    assert lines == re.findall(r"^(?:INFO|WARNING) .*", LOGGING, re.MULTILINE)


def test_an_observer_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shown_observer.py").write_text(blocks(LOGGING, "python")[1])
    monkeypatch.syspath_prepend(tmp_path)
    import_module("shown_observer").print_json(BATCH)
    printed = json.loads(capsys.readouterr().out)
    assert (printed["batch_id"], printed["sinks"]["lake"]["rows"]) == (7, 1500)
    shown = json.loads(blocks(LOGGING, "json")[0])
    assert shown.keys() - {"rows_in", "rows_per_s"} == printed.keys()


def test_the_last_error_is_shown_by_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    (tmp_path / "state").mkdir()
    sink = "{type: sqlite, url: 'sqlite:///orders.db', table: orders}"
    source = '{format: csv, path: ./orders, schema: "id BIGINT"}'
    file = f"pipeline: orders\nhome: ./state\nsources: {{orders: {source}}}\nsinks: {{warehouse: {sink}}}\n"
    (tmp_path / "orders.yaml").write_text(file)

    def run(shown: Shown) -> Done:
        ended = penstock(*shown.words[1:], directory=tmp_path)
        return Done(shown.words, ended.code, ended.out + ended.err, "")

    for shown in shown_in(LOGGING):
        shown.assert_printed_by(run)
