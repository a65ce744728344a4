"""The pages about Delta and Iceberg where rows gain columns, with the newest batch of before outstanding."""

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spark import test_delta_pipeline, test_iceberg_pipeline
from tests.spark.page import run, run_beside
from tests.spark.test_readme import feed

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

PAGES = {"delta": test_delta_pipeline, "iceberg": test_iceberg_pipeline}
MORE = "transform: {sql: 'SELECT *, delay > 60 AS late FROM flights'}\n"


@pytest.mark.parametrize("name", PAGES)
def test_a_start_adds_what_the_rows_have_gained(tmp_path: Path, name: str) -> None:
    page = PAGES[name]
    file, first = tmp_path / f"{name}.yaml", page.PAGE.blocks("yaml")[0]
    grown = next(block for block in page.PAGE.blocks("yaml") if "schema_changes: add" in block)
    head, tail = first.partition("sinks:\n")[0], "trigger: {available_now: true}\n"
    plain = grown.replace("    schema_changes: add          # default: fail\n", "")
    file.write_text(f"{head}{plain}{tail}")
    sent = feed(tmp_path / "incoming")
    command = f"penstock run {name}.yaml"
    assert run(tmp_path, command, faults=f"{name}.commit=kill", forked=True).returncode == -signal.SIGKILL
    file.write_text(file.read_text() + MORE)
    refused = run_beside(tmp_path, command)
    assert (refused.returncode, "has no column 'late'" in refused.stderr) == (3, True), refused.stderr
    file.write_text(f"{head}{grown}{tail}{MORE}")
    assert run(tmp_path, command, faults="lake.add_columns=kill", forked=True).returncode == -signal.SIGKILL
    (tmp_path / "incoming" / "late.csv").write_text("id,origin,month,delay\n9001,EWR,1,75\n9002,EWR,1,5\n")
    sent.update([(9001, "EWR", 1, 75.0), (9002, "EWR", 1, 5.0)])
    for act in ("check", "run", "verify"):
        done = run_beside(tmp_path, f"penstock {act} {name}.yaml")
        assert done.returncode == 0, f"{act}\n{done.stdout}{done.stderr}"
    there: Callable[[Path], Counter[tuple[object, ...]]] = page.rows
    assert there(tmp_path) == page.rows_of_duckdb(tmp_path) == sent
