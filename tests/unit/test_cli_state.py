"""`penstock state` over real checkpoints and what a driver noted: what it shows, and what it refuses before Spark starts."""

import json
import shutil
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from penstock.cli.app import main
from penstock.core.model import BatchId, Generation, PipelineName
from penstock.ledger.open import open_ledger
from penstock.observe.state_samples import OperatorSample, StateSample, StateSamples
from penstock.run.pipeline import Pipeline
from penstock.testing.entries import decided_entry, opened_entry

CHECKPOINTS = Path(__file__).parent / "checkpoints"
FILE = """\
pipeline: shop
home: ./state
sources: {orders: {format: rate}}
transform: {sql: "SELECT DISTINCT n FROM orders"}
sinks: {lake: {type: parquet, accounts: {EWR: ./lake}}}
"""
DAY_MS = 86_400_000
Show = Callable[..., str]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("shop.yaml").write_text(FILE)


def use(kind: str) -> None:
    shutil.copytree(CHECKPOINTS / kind / "checkpoint", "state/checkpoint")


def note(*sizes: int, name: str = "dedupe") -> None:
    """Samples of as many bytes in memory, one each day, the newest an hour ago: batches 0, 1, …"""
    now_ms = time.time_ns() // 1_000_000 - 3_600_000
    Path("state").mkdir(exist_ok=True)
    for number, size in enumerate(sizes):
        operator = OperatorSample(name=name, rows=size // 10, memory_bytes=size)
        at_ms = now_ms - DAY_MS * (len(sizes) - 1 - number)
        StateSamples("state").write(
            StateSample(generation=Generation(1), batch_id=BatchId(number), at_ms=at_ms, operators=(operator,))
        )


def decide(batches: int) -> None:
    with closing(open_ledger("sqlite:///state/ledger.db", pipeline=PipelineName("shop"))) as ledger:
        entry = opened_entry(pipeline=PipelineName("shop"))
        ledger.append(entry)
        for _ in range(batches):
            entry = decided_entry(after=entry, rows=1)
            ledger.append(entry)


def ran(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["state", "shop.yaml", *words])
    printed = capsys.readouterr()
    return ended.value.code, printed.out, printed.err


def test_an_aggregation(capsys: pytest.CaptureFixture[str]) -> None:
    use("aggregation")
    note(1_000_000, 1_100_000, name="stateStoreSave")
    code, out, _ = ran(capsys, "--memory", "2MB", "--disk", "1KB")
    assert code == 0
    text = " ".join(out.split())
    assert "Rows and memory are those after batch 1, 1 hour ago." in text
    assert "The state has 1.1 MB, and reaches 2.0 MB in memory in 9 days (measured over 1 day)." in text
    assert "The state has 579 B, and reaches 1.0 kB on disk in 7 days (measured over 1 day)." in text
    assert "operator 0: stateStoreSave" in text
    assert "rows 110,000, +10,000 a day, measured over 1 day" in text
    assert "memory 1.1 MB, +100.0 kB a day, measured over 1 day" in text
    assert "provider HDFS" in text
    assert "times the mean" in text
    assert "default" in text
    (operator,) = json.loads(ran(capsys, "--json")[1])["operators"]
    assert (operator["on_disk"]["provider"], operator["measured"]["rows"]) == ("HDFS", 110_000)
    assert [each["partition"] for each in operator["on_disk"]["stores"][0]["partitions"]] == sorted(
        int(each) for each in operator["on_disk"]["partition_bytes"]
    )
    assert operator["measured"]["growth"]["rows_per_day"] == 10_000


def test_growth_that_was_measured_for_seconds_is_not_said_for_a_day(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use("aggregation")
    monkeypatch.setattr("penstock.observe.state_size.MEASURED_MS", 2 * DAY_MS)
    note(1_000_000, 1_100_000, name="stateStoreSave")
    assert "a day" not in ran(capsys)[1]


def test_variables_of_user_code(capsys: pytest.CaptureFixture[str]) -> None:
    use("rocksdb")
    out = " ".join(ran(capsys)[1].split())
    assert "transformWithStateInPandasExec" in out
    assert "as long as its condition or your code says" in out
    assert "default count n INT c INT" in out
    assert "How many rows that are is not known" in out


def test_a_join(capsys: pytest.CaptureFixture[str]) -> None:
    use("join")
    out = ran(capsys)[1]
    assert "right-keyWithIndexToValue" in out
    assert "operator 0: symmetricHashJoin" in out


def test_limits_of_the_file_and_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    use("aggregation")
    note(1_000_000, 1_100_000, name="stateStoreSave")
    Path("shop.yaml").write_text(f"{FILE}state_limits: {{memory: 1200kB}}\n")
    (forecast,) = json.loads(ran(capsys, "--json")[1])["forecasts"]
    assert (forecast["of"], forecast["reached_in_ms"], forecast["is_near"]) == ("memory", DAY_MS, True)
    (forecast,) = json.loads(ran(capsys, "--json", "--memory", "1300kB")[1])["forecasts"]
    assert forecast["reached_in_ms"] == 2 * DAY_MS
    code, _, err = ran(capsys, "--memory", "much")
    assert code == 2
    assert "should be a size with a unit" in err


def test_the_disk_grows_as_the_rows_do(capsys: pytest.CaptureFixture[str]) -> None:
    use("aggregation")
    note(1_000_000, 2_000_000, name="stateStoreSave")
    found = json.loads(ran(capsys, "--json", "--disk", "1GB")[1])
    (forecast,) = found["forecasts"]
    expected = (1_000_000_000 - found["size_bytes"]) * DAY_MS / round(found["size_bytes"] / 2)
    assert (forecast["of"], forecast["reached_in_ms"]) == ("disk", round(expected))


def test_in_complete_mode_every_group_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    use("aggregation")
    changed = FILE.replace("SELECT DISTINCT n FROM orders", "SELECT count(*) AS n FROM orders") + "output_mode: complete\n"
    Path("shop.yaml").write_text(changed.replace("type: parquet, accounts: {EWR: ./lake}", "type: memory"))
    assert "for ever: no watermark removes anything" in ran(capsys)[1]


def test_a_query_without_state(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no state" in ran(capsys)[1]
    use("files")
    assert "no state" in ran(capsys)[1]
    assert json.loads(ran(capsys, "--json")[1])["operators"] == []


def test_status_shows_the_state_and_warns(capsys: pytest.CaptureFixture[str]) -> None:
    note(1_000, 2_000, 3_000)
    decide(2)
    with pytest.raises(SystemExit):
        main(["status", "shop.yaml", "--json"])
    state = json.loads(capsys.readouterr().out)["state"]
    assert (state["batch_id"], state["rows"], state["near"]) == (1, 200, None), "batch 2 was taken back"
    with pytest.raises(SystemExit):
        main(["status", "shop.yaml", "--set", "state_limits.memory=4kB"])
    out = " ".join(capsys.readouterr().out.split())
    assert "state 200 rows of dedupe; 2.0 kB in memory. The state has 2.0 kB, and reaches 4.0 kB in memory in 2 days" in out


def test_a_new_ledger_knows_no_batch(capsys: pytest.CaptureFixture[str]) -> None:
    note(1_000, 2_000)
    decide(0)
    assert Pipeline.from_file("shop.yaml").status().state is None
    use("aggregation")
    assert json.loads(ran(capsys, "--json")[1])["batch_id"] is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--key", "n"], "`--key` should be COLUMN=VALUE"),
        (["--operator", "0"], "--operator goes with --key or --export."),
        (["--side", "left"], "--side goes with --key or --export."),
        (["--batch", "3"], "--batch goes with --key or --export."),
        (["--key", "n=1", "--export", "x"], "--key and --export do not go together."),
        (["--memory", "1"], "should be a size of at least 1KB"),
    ],
)
def test_what_does_not_go_together(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    code, out, err = ran(capsys, *words)
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        (["--key", "n=1"], None, "The checkpoint holds no state."),
        (["--key", "n=1", "--operator", "9"], "aggregation", "and 9 is none of them"),
        (["--export", "state"], "aggregation", "There is something at state already"),
        (["--export", "s3://b/x"], "aggregation", "expected a directory of this machine"),
    ],
)
def test_what_is_refused_before_spark_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str], kind: str | None, message: str
) -> None:
    monkeypatch.setattr(Pipeline, "session", lambda _: pytest.fail("Spark would start"))
    if kind is not None:
        use(kind)
    code, _, err = ran(capsys, *words)
    assert code in {2, 3}
    assert message in err


def test_state_that_cannot_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    use("aggregation")
    (metadata,) = Path("state/checkpoint/state/0/_metadata").glob("metadata")
    metadata.write_bytes(b"v1\n{")
    code, _, err = ran(capsys)
    assert code == 3
    assert "`penstock checkpoint verify shop.yaml` says what is damaged" in err
