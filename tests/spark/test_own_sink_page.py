"""The page about a sink of one's own, followed as it stands: killed, finished by the next run, verified, examined."""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.page import Page, run, run_beside
from tests.spark.test_readme import feed, lake

PAGE = Page("own_sink")
[PIPELINE] = PAGE.blocks("yaml")
SINK, SUITE = PAGE.blocks("python")
CHECKED = """
from json_lines import JsonLines
from penstock.errors import StageFailed

def none_below_zero(rows):
    if any(value < 0 for value in rows.column("id").to_pylist()):
        raise StageFailed("An id is below zero.", remedy="Correct it.")

class Checked(JsonLines):
    def row_check(self):
        return none_below_zero
"""


@pytest.fixture(name="project")
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "flights.yaml").write_text(PIPELINE)
    (tmp_path / "json_lines.py").write_text(SINK)
    (tmp_path / "test_json_lines.py").write_text(SUITE)
    yield tmp_path
    sys.modules.pop("json_lines", None)


def shown(directory: Path) -> "Counter[tuple[object, ...]]":
    lines = [line for file in (directory / "lines").glob("*.jsonl") for line in file.read_text().splitlines()]
    return Counter(tuple(json.loads(line)[name] for name in ("id", "origin", "month", "delay")) for line in lines)


@pytest.mark.usefixtures("spark")
def test_the_page_works_and_a_killed_run_is_finished_by_the_next(project: Path) -> None:
    assert len(SINK.splitlines()) < 60
    sent = feed(project / "incoming")
    assert run(project, "penstock run flights.yaml", faults="own.mark=kill").returncode != 0
    followed = [run_beside(project, f"{command} --json") for command in PAGE.commands]
    assert [done.returncode for done in followed] == [0, 0, 0], "".join(done.stdout + done.stderr for done in followed)
    assert shown(project) == lake(project / "lake") == sent
    claims = json.loads(followed[0].stdout)["claims"]
    [claim] = [claim for claim in claims if claim["subject"] == "sink lines (python)"]
    assert claim["guarantee"] == "exactly_once"
    assert claim["why"].startswith("The same batch writes the same keys with the same values")
    newest = max((project / "lines").glob("*.jsonl"))
    newest.write_text("".join(newest.read_text().splitlines(keepends=True)[1:]))
    verified = run_beside(project, "penstock verify flights.yaml --json")
    assert verified.returncode == 5
    assert not json.loads(verified.stdout)["sinks"]["lines"]["ok"]


def test_the_suite_of_the_page_passes_as_users_run_it(project: Path) -> None:
    done = run(project, "pytest -q test_json_lines.py -p no:cacheprovider")
    assert done.returncode == 0, done.stdout
    assert re.search(r"[5-9]\d passed", done.stdout)


def test_a_check_of_rows_from_beside_the_pipeline_file_reaches_the_tasks(project: Path) -> None:
    (project / "checked.py").write_text(CHECKED)
    (project / "checked.yaml").write_text(PIPELINE.replace("json_lines:JsonLines", "checked:Checked"))
    feed(project / "incoming")
    (project / "incoming" / "bad.csv").write_text("id,origin,month,delay\n-1,EWR,1,0.5\n")
    refused = run(project, "penstock run checked.yaml")
    assert refused.returncode == 1
    assert "An id is below zero." in refused.stdout + refused.stderr
    assert shown(project) == Counter()
