"""The verbs that look at a pipeline, over a real ledger and without Spark."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.cli.app import main
from penstock.core.model import Decided, Entry, PipelineName
from penstock.ledger.open import open_ledger
from penstock.testing.entries import decided_entry, opened_entry

FILE = """\
pipeline: shop
home: ./state
sources: {orders: {format: rate}}
sinks: {lake: {type: parquet, accounts: {'[EWR]': ./lake}}}
"""


@pytest.fixture(name="entries", autouse=True)
def _entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Entry]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.yaml").write_text(FILE)
    (tmp_path / "state").mkdir()
    ledger = open_ledger(f"sqlite:///{tmp_path}/state/ledger.db", pipeline=PipelineName("shop"))
    entries = [opened_entry(pipeline=PipelineName("shop"))]
    for rows in (10, 20, 30):
        entries.append(decided_entry(after=entries[-1], rows=rows))
    for entry in entries:
        ledger.append(entry)
    ledger.close()
    return entries


def ran(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str]:
    with pytest.raises(SystemExit) as ended:
        main(words)
    return ended.value.code, capsys.readouterr().out


def test_status(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = ran(capsys, "status", "f.yaml", "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["pipeline"], found["generation"], found["last_batch_id"], found["tail"]) == ("shop", 1, 2, 4)
    assert found["health"] == "conflict"
    assert sum(totals["rows"] for totals in found["totals"]["lake"].values()) == 60
    code, out = ran(capsys, "status", "f.yaml")
    assert code == 0
    assert "shop  conflict" in out
    assert "60" in out


def test_history(capsys: pytest.CaptureFixture[str]) -> None:
    _, out = ran(capsys, "history", "f.yaml", "--json")
    rows = json.loads(out)
    assert [(row["position"], row["kind"], row["batch_id"], row["rows_in"]) for row in rows] == [
        (4, "decided", 2, 30),
        (3, "decided", 1, 20),
        (2, "decided", 0, 10),
        (1, "opened", None, 0),
    ]
    _, out = ran(capsys, "history", "f.yaml", "--limit", "2")
    assert [line.split()[0] for line in out.splitlines()[2:]] == ["4", "3"]


def test_history_shows_requests_where_some_are_known(capsys: pytest.CaptureFixture[str], entries: list[Entry]) -> None:
    _, out = ran(capsys, "history", "f.yaml")
    assert "requests" not in out
    _, out = ran(capsys, "history", "f.yaml", "--json")
    assert [(row["stage_requests"], row["publish_requests"]) for row in json.loads(out)] == [(None, None)] * 4
    entry = decided_entry(after=entries[-1], inline=None)
    assert isinstance(entry.body, Decided)
    decision = replace(entry.body.decision, stage_requests=1_200, previous_publish_requests=14)
    append(replace(entry, body=Decided(decision=decision)))
    _, out = ran(capsys, "history", "f.yaml")
    assert [line.rsplit("  ", 1)[1].strip() for line in out.splitlines()[:4] if line.strip("─")][1:] == ["1,200 + ?", "? + 14"]
    assert out.splitlines()[0].split()[-1] == "requests"
    assert "?" not in "".join(out.splitlines()[4:])
    _, out = ran(capsys, "history", "f.yaml", "--json")
    assert [(row["stage_requests"], row["publish_requests"]) for row in json.loads(out)][:2] == [(1_200, None), (None, 14)]


def test_history_of_one_batch_tells_the_way_of_its_pieces(capsys: pytest.CaptureFixture[str], entries: list[Entry]) -> None:
    append(decided_entry(after=entries[-1], inline=None))
    for batch, in_decision in (("2", 1), ("3", 0)):
        _, out = ran(capsys, "history", "f.yaml", "--batch", batch, "--json")
        assert json.loads(out)[0]["pieces"] == {"lake": {"EWR": {"in_decision": in_decision, "staged": 1 - in_decision}}}
        _, out = ran(capsys, "history", "f.yaml", "--batch", batch)
        heading, line = (line for line in out.splitlines() if line.startswith(("sink", "lake")))
        assert heading.split()[-5:] == ["size", "in", "decision", "staged", "digest"]
        assert line.split()[-3:-1] == [str(in_decision), str(1 - in_decision)]


def test_history_and_offsets_of_one_batch(capsys: pytest.CaptureFixture[str]) -> None:
    _, out = ran(capsys, "history", "f.yaml", "--batch", "1", "--json")
    (row,) = json.loads(out)
    assert (row["batch_id"], row["rows_in"]) == (1, 20)
    code, text = ran(capsys, "history", "f.yaml", "--batch", "1")
    assert code == 0
    assert "lake" in text
    _, out = ran(capsys, "offsets", "f.yaml", "--batch", "1", "--json")
    assert json.loads(out)["offsets"] == row["offsets"]
    code, text = ran(capsys, "offsets", "f.yaml", "--batch", "1")
    assert code == 0
    for each in row["offsets"]:
        assert each["source"] in text


def test_a_batch_that_the_ledger_does_not_hold(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = ran(capsys, "history", "f.yaml", "--batch", "99")
    assert (code, out.startswith("The ledger holds no decision of this batch:")) == (0, True)
    code, out = ran(capsys, "offsets", "f.yaml", "--batch", "99", "--json")
    assert code == 1
    assert json.loads(out)["error"]["message"] == "The ledger of 'shop' holds no decision of batch 99."


def test_verify_ends_with_5_if_rows_are_missing(capsys: pytest.CaptureFixture[str]) -> None:
    Path("f.yaml").write_text(FILE.replace("'[EWR]'", "EWR"))
    code, out = ran(capsys, "verify", "f.yaml", "--json")
    found = json.loads(out)
    assert (code, found["ok"], found["sinks"]["lake"]["rows_expected"], found["sinks"]["lake"]["rows_found"]) == (5, False, 30, 0)
    assert found["unsettled"] == 2, "nobody noted that the newest batch is published"


def test_watch_prints_a_line_per_change(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, entries: list[Entry]
) -> None:
    looks = iter([lambda: None, lambda: None, lambda: append(decided_entry(after=entries[-1])), _interrupt])
    monkeypatch.setattr("penstock.cli.status.time.sleep", lambda _s: next(looks)())
    code, out = ran(capsys, "watch", "f.yaml")
    assert code == 0
    assert [json.loads(line)["last_batch_id"] for line in out.splitlines()] == [2, 3]


def append(entry: Entry) -> None:
    ledger = open_ledger(f"sqlite:///{Path.cwd()}/state/ledger.db", pipeline=PipelineName("shop"))
    ledger.append(entry)
    ledger.close()


def _interrupt() -> None:
    raise KeyboardInterrupt
