"""What `status` answers first: is a driver running, is everything published, what is waiting, what failed last."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.unit.parquet_target import SCHEMA, rows, stage

from penstock.cli.app import main
from penstock.commit.outcome import StagedBatch
from penstock.core.faults import arm
from penstock.core.model import Adopted, Batch, BatchId, OffsetRange, QueryId, SourceName
from penstock.errors import Failed, Fenced, PublishFailed
from penstock.observe.driver import driver_of
from penstock.observe.last_error import last_error, note_error, noting_error
from penstock.run.assembly import assemble
from penstock.run.pipeline import Pipeline
from penstock.run.runtime import coordinator_of, opened_by_this_process
from penstock.sink.parquet import ParquetSink

FILE = """\
pipeline: flights
home: ./state
sources: {events: {format: csv, path: ./incoming, schema: id INT}}
sinks:
  lake: {type: parquet, accounts: {only: ./lake}}
"""
NOW_MS = time.time_ns() // 1_000_000


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    Path("flights.yaml").write_text(FILE)
    Path("incoming").mkdir()
    yield
    arm("")


def status(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(said(capsys, "--json"))
    return found


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["status", "flights.yaml", *words])
    assert ended.value.code == 0
    return capsys.readouterr().out


def deliver(*, last_fails: bool) -> None:
    """Two batches by this process, of which the second one stays outstanding if `last_fails`."""
    with closing(assemble(Pipeline.from_file("flights.yaml").plan)) as runtime:
        (sink,) = runtime.sinks
        assert isinstance(sink, ParquetSink)
        coordinator = coordinator_of(runtime)
        sink.prepare(pipeline=runtime.pipeline, schema=SCHEMA)
        coordinator.open(opened_by_this_process(runtime))
        for number in (0, 1):
            pieces = stage(sink, rows(number), batch_id=number)
            arm("rename.move=error" if last_fails and number else "")
            offsets = OffsetRange(source=SourceName("events"), start=f"{number}", end=f"{number + 1}")
            batch = Batch(query_id=QueryId("query"), batch_id=BatchId(number), offsets=(offsets,))
            try:
                coordinator.deliver(batch, lambda _, pieces=pieces: StagedBatch(pieces=pieces, rows_in=1, schema=SCHEMA))
            except PublishFailed:
                assert last_fails
    spark_planned(1, committed=0)


def spark_planned(batch_id: int, *, committed: int) -> None:
    """Write what Spark's checkpoint has at that moment, as far as `status` reads it."""
    checkpoint = Path("state/checkpoint")
    for folder, newest in (("offsets", batch_id), ("commits", committed)):
        (checkpoint / folder).mkdir(parents=True, exist_ok=True)
        for number in range(newest + 1):
            (checkpoint / folder / str(number)).write_text("v1\n{}\n-")
    (checkpoint / "metadata").write_text(json.dumps({"id": "query"}))


def test_a_plan_of_spark_that_is_cut_off_is_a_conflict(capsys: pytest.CaptureFixture[str]) -> None:
    deliver(last_fails=False)
    Path("state/checkpoint/offsets/1").write_text("v1\n{")
    found = status(capsys)
    assert found["health"] == "conflict"
    assert "offsets/1 line 2 is not JSON" in found["text"]
    assert found["text"].endswith("A start would be refused: `penstock doctor FILE` says what to do.")


def test_a_lost_checkpoint_is_a_conflict_that_names_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    deliver(last_fails=False)
    Path("state/checkpoint/metadata").unlink()
    assert "`penstock checkpoint repair FILE` makes it again from the ledger." in status(capsys)["text"]
    shutil.rmtree("state/checkpoint")
    found = status(capsys)
    assert found["health"] == "conflict"
    assert found["text"].endswith("`penstock checkpoint rebuild FILE` makes it again from the ledger.")


def test_a_lost_checkpoint_of_a_query_that_was_adopted_is_put_back_from_a_copy(capsys: pytest.CaptureFixture[str]) -> None:
    with closing(assemble(Pipeline.from_file("flights.yaml").plan)) as runtime:
        coordinator = coordinator_of(runtime)
        coordinator.open(opened_by_this_process(runtime))
        coordinator.adopt(Adopted(query_id=QueryId("query"), next_batch_id=BatchId(7), reason="", operator="test"))
    found = status(capsys)
    assert found["health"] == "conflict"
    assert found["text"].startswith(
        "The ledger expects batch 7, but there is no checkpoint. A start would be refused: put a copy"
    )
    assert "only if no source reads files" in found["text"]


def test_the_command_that_mends_a_lost_checkpoint_is_said_with_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    deliver(last_fails=False)
    shutil.rmtree("state/checkpoint")
    assert "`penstock checkpoint rebuild flights.yaml` makes it again" in said(capsys)


def test_an_input_directory_that_is_missing_is_not_taken_for_an_empty_one(capsys: pytest.CaptureFixture[str]) -> None:
    directory = Path("incoming").absolute()
    directory.rename("elsewhere")
    assert status(capsys)["waiting_unknown"] == [f"events: {directory} does not exist"]
    Path("elsewhere").rename(directory)
    assert "waiting     events: no file" in said(capsys)


def ended_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.mark.parametrize(
    ("owner", "opened_at_ms", "state"),
    [
        (f"{socket.gethostname()} process {os.getpid()}", NOW_MS, "running"),
        (f"{socket.gethostname()} process {os.getpid()}", 0, "stopped"),
        (f"{socket.gethostname()} process {{ended}}", NOW_MS, "stopped"),
        (f"not-{socket.gethostname()} process {os.getpid()}", NOW_MS, "unknown"),
        ("ann", NOW_MS, "unknown"),
        (None, NOW_MS, "unknown"),
    ],
    ids=["runs", "another process has its number now", "has ended", "elsewhere", "written by a person", "an older Penstock's"],
)
def test_a_driver_runs_where_its_process_does(owner: str | None, opened_at_ms: int, state: str) -> None:
    owner = owner and owner.format(ended=ended_process())
    assert driver_of(owner, opened_at_ms=opened_at_ms).state == state


def test_a_machine_that_does_not_tell_of_its_processes(tmp_path: Path) -> None:
    owner = f"{socket.gethostname()} process {os.getpid()}"
    assert driver_of(owner, opened_at_ms=NOW_MS, proc=tmp_path).state == "unknown"


def test_a_killed_process_that_nobody_has_waited_for_does_not_run() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = f"{socket.gethostname()} process {process.pid}"
    soon_ms = time.time_ns() // 1_000_000
    assert driver_of(owner, opened_at_ms=soon_ms).state == "running"
    process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert driver_of(owner, opened_at_ms=soon_ms).state == "stopped"
    process.communicate()


def test_before_the_first_run(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys)
    for answer in ("driver      none has run yet", "delivered   nothing yet", "waiting     events: no file", "none noted"):
        assert answer in text
    assert status(capsys)["driver"] is None


def test_a_checkpoint_of_a_job_that_nobody_adopted_refuses_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    spark_planned(0, committed=0)
    assert status(capsys)["health"] == "conflict"
    assert "The ledger is empty, but Spark's checkpoint goes on with batch 1. A start would be refused" in said(capsys)


def test_a_batch_that_a_running_driver_publishes_is_no_replay(capsys: pytest.CaptureFixture[str]) -> None:
    deliver(last_fails=True)
    found = status(capsys)
    assert (found["health"], found["published"], found["lacking"]) == ("ok", False, ["lake only"])
    text = said(capsys)
    assert "batch 1 is not in lake only yet; the driver publishes it" in text
    assert f"process {os.getpid()} of this machine runs; it opened" in " ".join(text.split())
    assert "2 batches, the last one is batch 1; 2 rows in lake" in text


def test_a_batch_that_no_driver_publishes_any_more_wants_a_hand(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(last_fails=True)
    monkeypatch.setattr("penstock.observe.driver._runs", lambda *_, **__: False)
    assert status(capsys)["health"] == "replay"
    text = " ".join(said(capsys).split())
    assert "driver none runs: process" in text
    assert "NO: batch 1 is not in lake only yet; `penstock recover flights.yaml` publishes it, or the next start" in text
    Pipeline.from_file("flights.yaml").recover()
    assert "published everything" in " ".join(said(capsys).split())


def test_a_batch_that_is_published_is_told_before_the_ledger_has_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(last_fails=False)
    found = status(capsys)
    assert (found["unsettled"], found["lacking"], found["published"]) == (1, [], True)
    monkeypatch.setattr("penstock.observe.driver.socket.gethostname", lambda: "elsewhere")
    found = status(capsys)
    assert (found["driver"]["state"], found["health"]) == ("unknown", "ok")
    assert "If none runs, Spark runs the batch again at the next start" in found["text"]


def test_a_place_that_cannot_be_asked_leaves_it_open_what_is_published(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(last_fails=True)

    def fails(*_: object, **__: object) -> None:
        raise Failed("The disk is broken.", remedy="Mend it.")

    monkeypatch.setattr(ParquetSink, "high_water_mark", fails)
    found = status(capsys)
    assert (found["published"], found["lacking"]) == (None, None)
    assert "everything before batch 1" in said(capsys)


def test_a_second_look_by_watch_keeps_what_the_first_one_saw() -> None:
    deliver(last_fails=False)
    pipeline = Pipeline.from_file("flights.yaml")
    first = pipeline.status()
    assert pipeline.status(known=first).published is True
    Path("incoming/new.csv").write_text("1\n")
    assert pipeline.status(known=first).waiting == first.waiting
    assert pipeline.status().waiting[0].files == 1


def test_only_the_first_look_by_watch_searches_who_opened_the_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads one entry for each batch since."""
    deliver(last_fails=False)
    pipeline = Pipeline.from_file("flights.yaml")
    first = pipeline.status()
    assert first.opened_at_ms is not None
    with monkeypatch.context() as changed:
        changed.setattr("penstock.observe.status._newest_opened", lambda *_: pytest.fail("it is searched"))
        second = pipeline.status(known=first)
    assert (second.owner, second.opened_at_ms, second.driver) == (first.owner, first.opened_at_ms, first.driver)
    with closing(assemble(pipeline.plan)) as runtime:
        coordinator_of(runtime).open(opened_by_this_process(runtime))
    third = pipeline.status(known=second)
    assert (third.generation or 0, third.opened_at_ms or 0) > (first.generation or 0, first.opened_at_ms)


def logged(*names: str) -> str:
    entries = ({"path": f"file://{Path('incoming').resolve()}/{name}", "timestamp": NOW_MS, "batchId": 0} for name in names)
    return "\n".join(["v1", *map(json.dumps, entries)])


def test_files_that_no_batch_has_planned_wait(capsys: pytest.CaptureFixture[str]) -> None:
    """As Spark lists them: hidden files, and those in directories that are no partitions, are not read."""
    for name in ("a.csv", "b c.csv", "d.csv", "_e.csv", ".f.csv", "day=1/g.csv", "old/h.csv", "day=1/i.csv"):
        path = Path("incoming") / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("1\n")
    os.utime("incoming/d.csv", (NOW_MS / 1000 - 3600, NOW_MS / 1000 - 3600))
    (waiting,) = status(capsys)["waiting"]
    assert (waiting["files"], waiting["size_bytes"]) == (5, 10)
    source = Path("state/checkpoint/sources/0")
    source.mkdir(parents=True)
    (source / "8").write_text(logged("d.csv"))
    (source / "9.compact").write_text(logged("a.csv", "b%20c.csv"))
    (source / "10").write_text(logged("day=1/g.csv"))
    (waiting,) = status(capsys)["waiting"]
    assert (waiting["files"], waiting["oldest_ms"] // 1000) == (2, NOW_MS // 1000 - 3600)
    assert "events: 2 files (4 B), the oldest from 1 hour ago" in said(capsys)
    os.utime("incoming/d.csv", (1, 1))
    (waiting,) = status(capsys)["waiting"]
    assert waiting["files"] == 1, "Spark passes over files that are more than seven days older than the newest"


@pytest.mark.parametrize(
    ("source", "names", "files"),
    [
        ("{format: csv, path: './in*', schema: id INT}", ("a.csv",), 1),
        ("{format: csv, path: './incoming', schema: id INT, options: {pathGlobFilter: '*.csv'}}", ("a.csv", "b.txt"), 1),
        ("{format: csv, path: './incoming', schema: id INT, options: {recursiveFileLookup: true}}", ("x/a.csv", "b.csv"), 2),
        ("{format: text, path: './incoming/a.csv'}", ("a.csv", "b.csv"), 1),
    ],
    ids=["wildcard", "names", "recursive", "one file"],
)
def test_settings_of_a_source_say_which_files_wait(
    capsys: pytest.CaptureFixture[str], source: str, names: tuple[str, ...], files: int
) -> None:
    for name in names:
        path = Path("incoming") / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("1\n")
    Path("flights.yaml").write_text(FILE.replace("{format: csv, path: ./incoming, schema: id INT}", source))
    assert [each["files"] for each in status(capsys)["waiting"]] == [files]


def test_files_in_a_store_are_not_counted(capsys: pytest.CaptureFixture[str]) -> None:
    Path("flights.yaml").write_text(FILE.replace("./incoming", "s3a://bucket/incoming"))
    assert status(capsys)["waiting"] == []
    assert "files of s3a://bucket/incoming are not counted from here" in said(capsys)


def test_the_last_error_is_kept_without_secrets_until_a_batch_comes(capsys: pytest.CaptureFixture[str]) -> None:
    note_error("state", Failed("Nothing is there yet.", remedy="Start."))
    assert last_error("state") is None, "a start that is refused leaves nothing behind"
    deliver(last_fails=False)
    with pytest.raises(Failed), noting_error("state"):
        raise Failed("The login at mysql://ann:geheim@host/db fails.", remedy="Correct it.")
    with pytest.raises(Fenced), noting_error("state"):
        raise Fenced("A newer run is there.", remedy="Let it run.")
    found = status(capsys)["last_error"]
    assert (found["kind"], found["exit_code"]) == ("Failed", 1)
    assert found["message"] == "The login at mysql://ann:***@host/db fails."
    assert "ago: The login at mysql://ann:***@host/db fails. Correct it." in said(capsys)
    assert Path("state/last-error.json").stat().st_mode & 0o077 == 0
    Pipeline.from_file("flights.yaml").recover()
    assert "before the newest entry of the ledger: The login" in " ".join(said(capsys).split())
    Path("state/last-error.json").write_text('{"format": "penstock.last_error", "version": 2}')
    assert last_error("state") is None


def test_a_query_that_failed_is_not_running_though_its_process_lives_on(capsys: pytest.CaptureFixture[str]) -> None:
    """As a notebook's: the driver is this process."""
    deliver(last_fails=False)
    spark_planned(2, committed=1)
    assert "batch 2 is being staged" in said(capsys)
    note_error("state", Failed("Nothing starts.", remedy="Mend it."), of_start=True)
    assert "batch 2 is being staged" in said(capsys), "a second query of the process was refused, the first one goes on"
    note_error("state", Failed("A row has no route.", remedy="Give it one."))
    shown = " ".join(said(capsys).split())
    assert "The query has failed. Everything up to batch 1 is decided; the next start runs batch 2 (planned before" in shown
    assert f"driver none runs: the query has failed; its process {os.getpid()} lives on; it opened" in shown
    assert "ago: A row has no route. Give it one." in shown
    assert status(capsys)["failure"]["message"] == "A row has no route."
    Pipeline.from_file("flights.yaml").recover()
    assert "batch 2 is being staged" in said(capsys), "a newer run of the process has opened the pipeline"
