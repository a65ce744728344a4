"""What `watch` shows of the newest batches, and `history` of what was measured of one: values that the page shows, too."""

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from penstock.cli.app import main
from penstock.cli.newest_batches import NewestBatches, bars, text_of_batches
from penstock.core.model import BatchId, Generation, PipelineName, SinkName
from penstock.errors import Retryable
from penstock.ledger.open import open_ledger
from penstock.observe.batch_record import BatchRecords, DeliveryRecord, SparkRecord
from penstock.protocols import Ledger
from penstock.run.pipeline import Pipeline
from penstock.testing.entries import decided_entry, opened_entry

FILE = """\
pipeline: shop
home: ./state
sources: {orders: {format: rate}}
sinks: {lake: {type: parquet, accounts: {EWR: ./lake}}}
"""
LEDGER = "sqlite:///state/ledger.db"
NAMES = {"generation": Generation(1), "batch_id": BatchId(1)}
DELIVERED = DeliveryRecord(
    **NAMES,  # type: ignore[arg-type]
    at_ms=1,
    rows_read=25,
    decide_ms=3,
    publish_ms=40,
    sink_ms={SinkName("lake"): 40},
    warnings=("The ledger could not be pruned.",),
)
SPARK = SparkRecord(
    **NAMES,  # type: ignore[arg-type]
    began_ms=0,
    fetch_ms=7,
    offset_log_ms=0,
    plan_ms=0,
    execute_ms=0,
    commit_log_ms=5,
    total_ms=60,
    state_rows=77,
    state_bytes=12_345,
    watermark="2026-11-29T08:00:00Z",
)


@pytest.fixture(autouse=True)
def _two_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("shop.yaml").write_text(FILE)
    Path("state").mkdir()
    with closing(open_ledger(LEDGER, pipeline=PipelineName("shop"))) as ledger:
        entry = opened_entry(pipeline=PipelineName("shop"))
        ledger.append(entry)
        for rows in (10, 20):
            entry = decided_entry(after=entry, rows=rows)
            ledger.append(entry)
    records = BatchRecords("state")
    for record in (DELIVERED, SPARK, replace(DELIVERED, already=True)):
        records.write(record)


def ran(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_history_has_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    newest, before, opened = json.loads(ran(capsys, "history", "shop.yaml", "--json"))
    assert (newest["batch_id"], newest["publish_ms"], newest["rows_read"], newest["replays"]) == (1, 40, 25, 1)
    assert [(step["kind"], step["duration_ms"]) for step in newest["steps"]] == [
        ("fetch offsets", 7),
        *[(step["kind"], step["duration_ms"]) for step in newest["steps"] if step["kind"] == "stage"],
        ("decide", 3),
        ("publish", 40),
        ("write commit log", 5),
    ]
    assert newest["spark"]["state_rows"] == 77
    assert newest["rows_per_s"] == pytest.approx(1000 * 20 / (newest["stage_ms"] + 3 + 40))
    assert (before["rows_read"], before["replays"], before["spark"]) == (None, 0, None)
    assert (opened["kind"], opened["steps"], opened["duration_ms"]) == ("opened", [], 0)
    first, second, *_ = [line for line in ran(capsys, "history", "shop.yaml").splitlines() if "decided" in line]
    assert "40 ms" in first
    assert "40 ms" not in second


def test_history_of_one_batch_shows_its_steps(capsys: pytest.CaptureFixture[str]) -> None:
    out = " ".join(ran(capsys, "history", "shop.yaml", "--batch", "1").split())
    for text in (
        "publish lake",
        "read 25 records",
        "replayed 1 time, and nothing was delivered twice",
        "state 77 rows, 12.3 kB",
        "watermark 2026-11-29T08:00:00Z",
        "warning The ledger could not be pruned.",
    ):
        assert text in out
    assert "replayed" not in ran(capsys, "history", "shop.yaml", "--batch", "0")


def shown(newest: NewestBatches) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(text_of_batches(newest.lives(Pipeline.from_file("shop.yaml").status())))
    return captured.get()


def test_watch_shows_rows_per_second_and_the_steps_of_the_newest_batch(capsys: pytest.CaptureFixture[str]) -> None:
    watched = Pipeline.from_file("shop.yaml").watched()
    opened = list[int]()

    def open_counted() -> Ledger:
        opened.append(1)
        return watched.open_ledger()

    newest = NewestBatches(replace(watched, open_ledger=open_counted))
    text = shown(newest)
    assert "rows per second" in text
    assert "batch 1" in text
    assert "fetch offsets 7 ms" in text
    assert "publish lake 40 ms" in text
    BatchRecords("state").write(replace(SPARK, fetch_ms=9))
    assert "fetch offsets 9 ms" in shown(newest)
    assert len(opened) == 1, "the ledger has nothing new"


def test_a_ledger_that_is_away_costs_only_the_batches() -> None:
    def away() -> Ledger:
        raise Retryable("Away.", remedy="Wait.")

    newest = NewestBatches(replace(Pipeline.from_file("shop.yaml").watched(), open_ledger=away))
    assert shown(newest).strip() == ""


@pytest.mark.parametrize(("values", "text"), [([], ""), ([0.0, 0.0], "▁▁"), ([7.0], "█"), ([0.0, 1.0, 2.0, 4.0, 8.0], "▁▂▃▅█")])
def test_bars(values: list[float], text: str) -> None:
    assert bars(values) == text
