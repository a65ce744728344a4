"""Each alert fires for its fault and no other one does: promtool runs the rules over what our exporter tells of a real pipeline.

The ledger, the journal and the sinks are real, and broken as the fault breaks them. Only brokers are not started: the lag of a
topic is a value.
"""

import errno
import json
import os
import pickle
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.live.prometheus_rules import Scrapes, checked, fires, none_fires
from tests.unit.journal_clients import SMALL
from tests.unit.parquet_target import SCHEMA, rows, stage

from penstock.blob.client import Failure, error_for
from penstock.commit.outcome import StagedBatch
from penstock.core.faults import arm
from penstock.core.model import Batch, BatchId, Generation, OffsetRange, QueryId, SinkName, SourceName
from penstock.errors import Fenced, PublishFailed
from penstock.journal.event import Event
from penstock.journal.journal import Journal
from penstock.journal.reading import JournalReader
from penstock.journal.storage import LocalStorage
from penstock.observe.alerts import rule_file
from penstock.observe.dashboard import PANELS
from penstock.observe.last_error import noting_error
from penstock.observe.state_samples import OperatorSample, StateSample, StateSamples
from penstock.observe.status import PlaceState
from penstock.observe.status_reader import StatusReader
from penstock.run.assembly import assemble
from penstock.run.pipeline import Pipeline
from penstock.run.runtime import coordinator_of, opened_by_this_process
from penstock.sink.parquet import ParquetSink
from penstock.sink.parquet.directory.rename import rename_or_refuse
from penstock.source.kafka.lag import TopicLag
from penstock.sql.errors import ServerError

FILE = """\
pipeline: shop
home: ./state
sources:
  web: {format: journal, path: ./web}
  files: {format: csv, path: ./incoming, schema: id INT}
transform: {sql: SELECT value FROM web UNION ALL SELECT id FROM files}
sinks:
  lake: {type: parquet, accounts: {only: ./lake}}
  warehouse: {type: sqlite, url: 'sqlite:///warehouse.db', table: flights}
"""
HOUR_US = 3_600_000_000


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    Path("shop.yaml").write_text(FILE)
    Path("incoming").mkdir()
    yield
    arm("")


@pytest.fixture(name="scrapes")
def _scrapes() -> Scrapes:
    """Of a pipeline that has delivered a batch and what was pushed, as seen for half an hour."""
    push(1)
    run()
    found = Scrapes()
    found.look(reader(), minutes=30)
    return found


def reader() -> StatusReader:
    return Pipeline.from_file("shop.yaml").status_reader()


def push(count: int) -> None:
    """Events that came an hour ago, each in a segment of its own."""
    came_us = time.time_ns() // 1_000 - HOUR_US
    limits = replace(SMALL, segment_bytes=1, least_free_bytes=0)
    with closing(Journal(Path("web"), now_us=lambda: came_us, limits=limits)) as journal:
        for _ in range(count):
            journal.append([Event(value=b"v")])
            journal.commit()


def run(*, decides: bool = True, fault: str = "", is_alive: bool = True) -> None:
    """A run that delivers all events that are there in one batch, with `fault`, unless it ends before that."""
    with closing(assemble(Pipeline.from_file("shop.yaml").plan)) as runtime, noting_error("state"):
        coordinator = coordinator_of(runtime)
        for sink in runtime.sinks:
            sink.prepare(pipeline=runtime.pipeline, schema=SCHEMA)
        body = opened_by_this_process(runtime)
        opened = coordinator.open(body if is_alive else replace(body, owner=f"{socket.gethostname()} process {ended_process()}"))
        if not decides:
            return
        number = opened.summary.next_batch_id or BatchId(0)
        lake = next(sink for sink in runtime.sinks if isinstance(sink, ParquetSink))
        pieces = stage(lake, rows(number), batch_id=number, generation=opened.generation)
        start = "{}" if opened.decision is None else opened.decision.batch.offsets[0].end
        batch = Batch(query_id=QueryId("query"), batch_id=number, offsets=(everything_from(start),))
        spark_logged("offsets", number)
        arm(fault)
        coordinator.deliver(batch, lambda _: StagedBatch(pieces=pieces, rows_in=1, schema=SCHEMA))
        spark_logged("commits", number)


def everything_from(start: str) -> OffsetRange:
    extent = JournalReader(LocalStorage(), Path("web")).extent()
    assert extent is not None
    return OffsetRange(source=SourceName("web"), start=start, end=json.dumps({extent.journal_id: [0, extent.next]}))


def spark_logged(folder: str, batch_id: int) -> None:
    """What Spark's checkpoint has then, as far as it is read."""
    checkpoint = Path("state/checkpoint")
    (checkpoint / folder).mkdir(parents=True, exist_ok=True)
    (checkpoint / folder / str(batch_id)).write_text("v1\n{}\n-")
    (checkpoint / "metadata").write_text(json.dumps({"id": "query"}))


def ended_process() -> str:
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as process:
        pass
    return str(process.pid)


def test_prometheus_takes_the_rules(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(rule_file())
    checked(["check", "rules", tmp_path / "rules.yml"])


def test_prometheus_reads_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    replaced = [expression.replace("$__rate_interval", "2m") for panel in PANELS for expression in panel.expressions.values()]
    rules = [{"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(replaced)]
    (tmp_path / "panels.yml").write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    checked(["check", "rules", tmp_path / "panels.yml"])


def test_none_fires_where_all_is_well(tmp_path: Path, scrapes: Scrapes) -> None:
    for _ in range(3):
        push(2)
        run()
        scrapes.look(reader(), minutes=20)
    none_fires(tmp_path, scrapes)


def test_the_ledger_is_away(tmp_path: Path, scrapes: Scrapes) -> None:
    Path("state/ledger.db").write_bytes(b"no database at all" * 100)
    scrapes.look(reader(), minutes=15)
    fires(tmp_path, scrapes, "PenstockUnreadable", "Ledger or checkpoint of shop cannot be read.")


def test_a_place_is_emptied(tmp_path: Path, scrapes: Scrapes) -> None:
    run()
    for part in ("lake", ".penstock-staging"):
        shutil.rmtree(part)
    scrapes.look(reader(), minutes=15)
    fires(tmp_path, scrapes, "PenstockPlaceLost", "Sink lake only of shop is lost.", sink="lake", account="only", state="lost")


def warehouse_fires(tmp_path: Path, scrapes: Scrapes) -> None:
    scrapes.look(reader(), minutes=15)
    alert, summary = "PenstockPlaceUnreachable", "Sink warehouse of shop does not answer."
    fires(tmp_path, scrapes, alert, summary, sink="warehouse", account="", state="unreachable")


def test_a_database_does_not_answer(tmp_path: Path, scrapes: Scrapes) -> None:
    Path("warehouse.db").write_bytes(b"no database at all" * 100)
    warehouse_fires(tmp_path, scrapes)


def test_a_database_server_is_away(tmp_path: Path, scrapes: Scrapes) -> None:
    away = "{type: postgres, url: 'postgresql://ann:any@127.0.0.1:1/shop', table: flights}"
    Path("shop.yaml").write_text(f"{FILE.partition('  warehouse')[0]}  warehouse: {away}\n")
    warehouse_fires(tmp_path, scrapes)


def test_the_brokers_are_away(tmp_path: Path, scrapes: Scrapes) -> None:
    orders = "  orders: {format: kafka, options: {subscribe: t, kafka.bootstrap.servers: '127.0.0.1:1'}}\n"
    Path("shop.yaml").write_text(FILE.replace("transform:", f"{orders}transform:"))
    scrapes.look(reader(), minutes=15)
    fires(tmp_path, scrapes, "PenstockSourceUnreadable", "A source of shop does not tell what waits.")


def test_the_checkpoint_is_behind(tmp_path: Path, scrapes: Scrapes) -> None:
    run()
    run()
    for folder in ("offsets", "commits"):
        for number in (1, 2):
            (Path("state/checkpoint") / folder / str(number)).unlink()
    scrapes.look(reader(), minutes=15)
    fires(tmp_path, scrapes, "PenstockStartRefused", "The next start of shop will be refused.", state="conflict")


def test_events_are_gone_that_were_never_delivered(tmp_path: Path, scrapes: Scrapes) -> None:
    push(3)
    for segment in sorted(Path("web/segments").iterdir())[:4]:
        segment.unlink()
    scrapes.look(reader(), minutes=5)
    fires(
        tmp_path,
        scrapes,
        "PenstockRecordsLost",
        f"1 records of {tmp_path}/web are gone and were never delivered to shop.",
        source="web",
        input=str(tmp_path / "web"),
    )


def test_retention_comes_near(tmp_path: Path, scrapes: Scrapes) -> None:
    for left_h in (23, 7, 5):
        run()
        found = replace(Pipeline.from_file("shop.yaml").status(), lag=(topic(left_h),))
        scrapes.look(StatusReader(lambda _, found=found: found, pipeline="shop"), minutes=5)  # type: ignore[misc]
    fires(tmp_path, scrapes, "PenstockNearLoss", "Retention removes unread records of t in 5h 0m 0s.", source="orders", input="t")


def test_the_state_comes_near_to_its_limit(tmp_path: Path, scrapes: Scrapes) -> None:
    """A deduplication keeps 100 kB more each day, by what its driver noted: there is room for five days, then for two."""
    run()
    day_ms, now_ms = 86_400_000, time.time_ns() // 1_000_000
    for number, size in enumerate((1_000_000, 1_100_000)):
        operator = OperatorSample(name="dedupe", rows=size // 100, memory_bytes=size)
        at_ms = now_ms - (1 - number) * day_ms
        StateSamples("state").write(
            StateSample(generation=Generation(1), batch_id=BatchId(number), at_ms=at_ms, operators=(operator,))
        )
    scrapes.look(reader(), minutes=30)
    for limit in ("1600kB", "1300kB"):
        Path("shop.yaml").write_text(f"{FILE}state_limits: {{memory: {limit}}}\n")
        scrapes.look(reader(), minutes=30)
    told = "The state of shop reaches its limit in memory in 2d 0h 0m 0s."
    fires(tmp_path, scrapes, "PenstockStateGrows", told, of="memory")


def topic(left_h: int) -> TopicLag:
    """A topic of one day."""
    hour_ms = 3_600_000
    lag = {"behind_ms": (24 - left_h) * hour_ms, "loss_in_ms": left_h * hour_ms, "retention_ms": 24 * hour_ms}
    return TopicLag(source=SourceName("orders"), topic="t", topic_id="x", partitions=1, records=7, lost=0, gaps=0, **lag)


def test_a_source_cannot_be_read(tmp_path: Path, scrapes: Scrapes) -> None:
    for segment in Path("web/segments").iterdir():
        segment.write_bytes(b"no segment")
    scrapes.look(reader(), minutes=15)
    fires(tmp_path, scrapes, "PenstockSourceUnreadable", "A source of shop does not tell what waits.")


def test_runs_end_again_and_again(tmp_path: Path, scrapes: Scrapes) -> None:
    """Killed, so that none leaves an error, and started at once by a supervisor."""
    push(1)
    for _ in range(4):
        run(decides=False)
        scrapes.look(reader(), minutes=4)
    fires(tmp_path, scrapes, "PenstockKeepsRestarting", "shop was started 4 times in 30 minutes and decided no batch.")


def test_two_schedulers_fence_one_another(tmp_path: Path, scrapes: Scrapes) -> None:
    for _ in range(9):
        run(decides=False)
    push(1)
    run()
    scrapes.look(reader(), minutes=5)
    fires(tmp_path, scrapes, "PenstockStartsOften", "shop was started 10 times in 30 minutes.")


def test_an_account_is_full(tmp_path: Path, scrapes: Scrapes, monkeypatch: pytest.MonkeyPatch) -> None:
    push(1)

    def full(staged: Path, target: Path) -> bool:
        if target.suffix == ".parquet":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return rename_or_refuse(staged, target)

    monkeypatch.setattr("penstock.sink.parquet.directory.rename.rename_or_refuse", full)
    with pytest.raises(PublishFailed):
        run(is_alive=False)
    scrapes.look(reader(), minutes=30)
    fires(tmp_path, scrapes, "PenstockPlaceFull", "A disk, quota or database of shop is full.")


def test_a_token_has_expired(tmp_path: Path, scrapes: Scrapes) -> None:
    refused = error_for(Failure.CREDENTIALS, "ExpiredToken", act="read", where="s3://b/x", changes=False)
    place = PlaceState(sink=SinkName("lake"), account=None, state="unreachable", trouble=str(refused), lacks=refused.lacks)
    found = replace(Pipeline.from_file("shop.yaml").status(), places=(place,))
    scrapes.look(StatusReader(lambda _: found, pipeline="shop"), minutes=30)
    fires(tmp_path, scrapes, "PenstockAccessRefused", "A login or token of shop is refused.")


def test_a_run_ends_as_its_login_is_refused(tmp_path: Path, scrapes: Scrapes) -> None:
    push(1)
    error = ServerError(place="postgresql://db/shop", reason="password expired", kind=PublishFailed).not_let_in("Renew it.")
    with pytest.raises(PublishFailed), noting_error("state"):
        raise pickle.loads(pickle.dumps(error))
    scrapes.look(reader(), minutes=30)
    fires(tmp_path, scrapes, "PenstockAccessRefused", "A login or token of shop is refused.")


def test_a_run_is_fenced_by_a_newer_one(tmp_path: Path, scrapes: Scrapes) -> None:
    with closing(assemble(Pipeline.from_file("shop.yaml").plan)) as runtime:
        older = coordinator_of(runtime)
        for sink in runtime.sinks:
            sink.prepare(pipeline=runtime.pipeline, schema=SCHEMA)
        older.open(opened_by_this_process(runtime))
        push(1)
        run()
        with pytest.raises(Fenced), noting_error("state"):
            older.require_newest()
    scrapes.look(reader(), minutes=5)
    fires(tmp_path, scrapes, "PenstockFenced", "A run of shop was stopped: a newer run has the pipeline.")


def test_a_fence_is_told_for_a_quarter_of_an_hour(tmp_path: Path, scrapes: Scrapes) -> None:
    with pytest.raises(Fenced), noting_error("state"):
        raise Fenced("A newer run has it.", remedy="Let it work.")
    scrapes.look(reader(), minutes=40)
    with pytest.raises(AssertionError, match="exp:"):
        fires(tmp_path, scrapes, "PenstockFenced", "A run of shop was stopped: a newer run has the pipeline.")


def test_a_run_fails_for_want_of_a_person(tmp_path: Path, scrapes: Scrapes) -> None:
    push(1)
    with pytest.raises(PublishFailed):
        run(fault="rename.move=error", is_alive=False)
    scrapes.look(reader(), minutes=30)
    fires(
        tmp_path,
        scrapes,
        "PenstockRunFailed",
        "A run of shop ended with PublishFailed, exit code 1.",
        error="PublishFailed",
        exit_code="1",
    )


def test_a_batch_is_not_published(tmp_path: Path, scrapes: Scrapes) -> None:
    """The error is not noted where the home is full too, or on another machine."""
    push(1)
    with pytest.raises(PublishFailed):
        run(fault="rename.move=error")
    Path("state/last-error.json").unlink()
    scrapes.look(reader(), minutes=15)
    fires(tmp_path, scrapes, "PenstockNotPublished", "The newest batch of shop is decided and not in every sink.")


def test_the_driver_is_killed_and_nobody_starts_it(tmp_path: Path, scrapes: Scrapes) -> None:
    run(is_alive=False)
    push(1)
    scrapes.look(reader(), minutes=30)
    fires(tmp_path, scrapes, "PenstockDriverGone", "Nobody runs shop, and input waits.")


def test_no_driver_is_missed_where_nothing_waits(tmp_path: Path, scrapes: Scrapes) -> None:
    run(is_alive=False)
    scrapes.look(reader(), minutes=60)
    none_fires(tmp_path, scrapes)


def test_a_pipeline_that_was_idle_gets_something_to_do(tmp_path: Path, scrapes: Scrapes) -> None:
    push(1)
    scrapes.look(reader(), minutes=4)
    run()
    scrapes.look(reader(), minutes=30)
    none_fires(tmp_path, scrapes)


def test_a_driver_hangs(tmp_path: Path, scrapes: Scrapes) -> None:
    run()
    push(1)
    scrapes.look(reader(), minutes=21)
    fires(tmp_path, scrapes, "PenstockStandsStill", "shop has decided nothing for 20m 0s, and input waits.")


def test_more_comes_than_goes(tmp_path: Path, scrapes: Scrapes) -> None:
    for number in range(6):
        push(1)
        run()
        push(number)
        scrapes.look(reader(), minutes=5)
    fires(
        tmp_path,
        scrapes,
        "PenstockFallsBehind",
        "web of shop is 1h 0m 0s behind, and more waits.",
        source="web",
        input=str(tmp_path / "web"),
    )


def test_more_files_come_than_go(tmp_path: Path, scrapes: Scrapes) -> None:
    for number in range(6):
        run()
        file = Path("incoming") / f"{number}.csv"
        file.touch()
        os.utime(file, (time.time() - 3600,) * 2)
        scrapes.look(reader(), minutes=5)
    fires(tmp_path, scrapes, "PenstockFallsBehind", "files of shop is 1h 59m 0s behind, and more waits.", source="files")
