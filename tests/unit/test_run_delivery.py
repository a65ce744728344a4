"""A delivery without Spark: what is raised in a batch, what a failed one does, and what a start looks at first."""

import logging
import signal
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

import penstock
from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.core.model import Entry, Guarantee, PipelineName, SinkName
from penstock.errors import BatchFailed, Fenced, PenstockError, Retryable, StageFailed, StoreIgnoresConditions
from penstock.ledger.log import LogLedger
from penstock.ledger.store import MemoryStore
from penstock.observe.progress import BatchProgress, SinkProgress
from penstock.protocols import InTransaction
from penstock.run.assembly import assemble
from penstock.run.delivery import Delivery
from penstock.run.failure import StopRequested, Undelivered, error_from_query
from penstock.run.interrupt import Interrupt
from penstock.run.open_delivery import OpenDelivery
from penstock.run.query import Query
from penstock.run.runtime import Runtime
from penstock.support.error_transport import decode_error


class Rows:
    """Stands for a batch whose plan cannot even be asked for its columns."""

    def __init__(self, raised: BaseException) -> None:
        self._raised, self.seen = raised, False

    @property
    def schema(self) -> Mapping[str, str]:
        self.seen = True
        raise self._raised


@pytest.fixture
def delivery(tmp_path: Path) -> Delivery:
    return Delivery("flights", home=tmp_path / "home", sinks={"out": penstock.Console()})


def told(delivery: Delivery, raised: BaseException, batch_id: int = 0) -> PenstockError | None:
    with pytest.raises(Undelivered) as caught:
        delivery(Rows(raised), batch_id)  # type: ignore[arg-type]
    return decode_error(str(caught.value))


@pytest.mark.parametrize("raised", [SystemExit(7), KeyboardInterrupt(), GeneratorExit(), MemoryError(), ZeroDivisionError("x")])
def test_whatever_is_raised_becomes_a_failed_batch(delivery: Delivery, raised: BaseException) -> None:
    """Bug 25: an exit in foreachBatch ended Spark's thread, and the query hung for ever."""
    error = told(delivery, raised)
    assert isinstance(error, BatchFailed)
    assert type(raised).__name__ in error.message
    assert delivery.failure is raised


def test_an_error_of_ours_reaches_whoever_awaits_the_query(delivery: Delivery) -> None:
    error = told(delivery, Fenced("A newer run works.", remedy="Let it."))
    assert isinstance(error, Fenced)
    assert (error.message, error.remedy) == ("A newer run works.", "Let it.")


@pytest.mark.parametrize(
    "said",
    [
        "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 4.",
        "java.lang.IllegalStateException: Concurrent update to the log. Multiple streaming jobs detected for 4",
        "Multiple streaming queries are concurrently using metadata: Rename destination metadata already exists.",
    ],
)
def test_two_drivers_that_meet_in_the_checkpoint_are_recognised(tmp_path: Path, said: str) -> None:
    assert isinstance(error_from_query(said, checkpoint=SparkCheckpoint(tmp_path)), Fenced)


def test_a_checksum_that_was_left_behind_is_not_taken_for_another_driver(tmp_path: Path) -> None:
    """Spark says the same of both: `commits/2` was removed by hand, and `.2.crc` is still there."""
    said = open_on(MemoryStore(), tmp_path).diagnose(Fenced("Two runs.", remedy="Keep one."))
    assert isinstance(said, Retryable)
    assert said.message.endswith("and is fenced now; or an entry was removed, and not its checksum.")
    assert said.remedy.startswith("Start again: nothing was lost. If it ends so again, `penstock checkpoint repair`")


class Streaming:
    """Stands for Spark's query."""

    def __init__(self, *, running: bool | None) -> None:
        self._running = running
        self.failing: StreamingQueryException | None = None

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        if self._running is None:
            raise ConnectionError("the JVM is gone")
        return self._running

    def exception(self) -> StreamingQueryException | None:
        return self.failing


@pytest.mark.parametrize(("running", "state"), [(True, "running"), (False, "ended"), (None, "lost")])
def test_a_query_says_what_it_is(delivery: Delivery, tmp_path: Path, *, running: bool | None, state: str) -> None:
    assert repr(delivery) == f"<penstock delivery of pipeline 'flights' into out, home {delivery.plan.settings.home}>"
    query = Query(Streaming(running=running), delivery)  # type: ignore[arg-type]
    assert repr(query) == f"<penstock query of pipeline 'flights': {state}>"
    delivery._open = opened = open_on(MemoryStore(), tmp_path)
    assert repr(query) == f"<penstock query of pipeline 'flights': {state}, generation 1, no batch yet>"
    opened._report(BatchProgress(batch_id=7, sinks={}, path="driver"))
    assert repr(query) == f"<penstock query of pipeline 'flights': {state}, generation 1, batch 7>"


def test_a_query_that_failed_says_so_with_the_error(delivery: Delivery) -> None:
    streaming = Streaming(running=False)
    query = Query(streaming, delivery)  # type: ignore[arg-type]
    streaming.failing = StreamingQueryException("The disk has no room.")
    told = "failed with Failed: Spark could not run the query: The disk has no room"
    assert repr(query) == f"<penstock query of pipeline 'flights': {told}>"
    delivery.failure = StageFailed("Rows cannot be routed.", remedy="Mend them.")
    assert repr(query) == "<penstock query of pipeline 'flights': failed with StageFailed: Rows cannot be routed>"
    delivery.failure = StopRequested()
    assert repr(query) == "<penstock query of pipeline 'flights': ended>"


def test_a_batch_is_logged_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    opened = made_on(LogLedger(MemoryStore(), pipeline=PIPELINE), tmp_path)
    share = SinkProgress(rows=1500, files=3, bytes=9000)
    sinks = {SinkName("lake"): share, SinkName("table"): SinkProgress(already_committed=1)}
    batch = BatchProgress(
        batch_id=7, rows_out=1500, rows_read=1600, sinks=sinks, stage_ms=2300, path="driver", warnings=("Slow.",)
    )
    with caplog.at_level(logging.INFO, "penstock"):
        opened._report(batch)
        opened._report(replace(batch, already=True, warnings=()))
        opened._report(replace(batch, recovered=True, warnings=()))
        opened._report(
            replace(batch, rows_out=0, rows_read=0, sinks={SinkName("table"): SinkProgress(already_committed=1)}, warnings=())
        )
    shares = "(lake: 1,500 rows in 3 files, table: already committed)."
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", f"Pipeline flights: batch 7 delivered in 2.3 s: 1,600 read, 1,500 rows {shares}"),
        ("WARNING", "Pipeline flights, batch 7: Slow."),
        ("INFO", f"Pipeline flights: batch 7 was committed already; nothing written {shares}"),
        ("INFO", f"Pipeline flights: batch 7, which an earlier run decided, was published {shares}"),
        ("INFO", "Pipeline flights: batch 7 delivered in 2.3 s: 0 read, 0 rows (table: 0 rows)."),
    ]
    assert (opened.summary.rows_read, opened.summary.rows_out, opened.summary.rows_in) == (1600, 1500, 1500)
    opened._report(replace(batch, rows_read=None))
    assert opened.summary.rows_read is None


def test_the_first_interruption_is_noted_and_the_second_one_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_pyspark(*_: object) -> None:
        raise AssertionError("it cancels the jobs of the batch")

    monkeypatch.setattr(of_pyspark, "__module__", "pyspark.core.context")
    before = signal.signal(signal.SIGINT, of_pyspark)
    try:
        with Interrupt() as interrupt:
            signal.raise_signal(signal.SIGINT)
            assert interrupt.wanted
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is of_pyspark
        monkeypatch.setattr(of_pyspark, "__module__", "job")
        with Interrupt(), pytest.raises(AssertionError):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_delivery_that_failed_goes_on_failing(delivery: Delivery) -> None:
    """Bug 5: Spark is free to call it again; only a new start knows what was decided."""
    first = ZeroDivisionError("the first")
    told(delivery, first)
    rows = Rows(SystemExit(0))
    with pytest.raises(Undelivered) as caught:
        delivery(rows, 1)  # type: ignore[arg-type]
    error = decode_error(str(caught.value))
    assert error is not None
    assert "the first" in error.message
    assert delivery.failure is first
    assert not rows.seen


def test_a_batch_dropped_on_request_is_no_error(delivery: Delivery) -> None:
    assert told(delivery, StopRequested()) is None


def test_a_batch_that_its_query_left_running_is_not_cut_off_by_the_next_query(
    delivery: Delivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark ends a query and does not wait for its batch in Python: its failure was taken for one of the next query."""
    monkeypatch.setattr("penstock.run.delivery.run_of_batch", lambda rows: rows.run)
    inside, goes_on, left = threading.Event(), threading.Event(), ZeroDivisionError("of the query that was ended")

    class Slow(Rows):
        run = "first"

        @property
        def schema(self) -> Mapping[str, str]:
            inside.set()
            goes_on.wait(10)
            raise left

    class Next(Rows):
        run = "second"

        @property
        def schema(self) -> Mapping[str, str]:
            older.join(10)
            return super().schema

    def deliver(rows: Rows) -> None:
        with pytest.raises(Undelivered):
            delivery(rows, 0)  # type: ignore[arg-type]

    older = threading.Thread(target=deliver, args=(Slow(left),))
    older.start()
    inside.wait(10)
    threading.Timer(0.2, goes_on.set).start()
    deliver(Next(Fenced("A newer run works.", remedy="Let it.")))
    older.join()
    assert isinstance(delivery.failure, Fenced)


PIPELINE = PipelineName("flights")


def made_on(ledger: LogLedger, checkpoint: Path, *, stop_wanted: Callable[[], bool] = bool) -> OpenDelivery:
    return OpenDelivery(
        Runtime(
            pipeline=PIPELINE,
            ledger=ledger,
            sinks=(),
            checkpoint=SparkCheckpoint(checkpoint),
            sources=(),
            digest="0" * 16,
            demanded=Guarantee.EXACTLY_ONCE,
            retry_timeout_s=30.0,
        ),
        stop_wanted=stop_wanted,
    )


def open_on(store: MemoryStore, checkpoint: Path) -> OpenDelivery:
    opened = made_on(LogLedger(store, pipeline=PIPELINE), checkpoint)
    opened.open(schema=None)
    return opened


@pytest.mark.parametrize("planned", [False, True])
def test_a_start_removes_what_a_kill_left_of_sparks_first_offsets(tmp_path: Path, *, planned: bool) -> None:
    """Spark 4.1 and newer would never start again. What belongs to a batch that Spark planned, or is nobody's, stays."""
    left = ".0.67c1ac74-8d0e-4e2b-a87f-67091fa019b8.tmp"
    offsets, others = tmp_path / "offsets", {".1.67c1ac74-8d0e-4e2b-a87f-67091fa019b8.tmp", ".nfs0001", "notes.tmp"}
    offsets.mkdir()
    for name in (left, f".{left}.crc", *others, *(["0"] if planned else [])):
        (offsets / name).write_text("v1\n")
    open_on(MemoryStore(), tmp_path)
    found = {path.name for path in offsets.iterdir()}
    assert found == ({left, f".{left}.crc", "0", *others} if planned else others)


def test_what_a_kill_left_of_sparks_first_offsets_and_cannot_be_removed_is_told(tmp_path: Path) -> None:
    stuck = tmp_path / "offsets" / ".0.67c1ac74-8d0e-4e2b-a87f-67091fa019b8.tmp"
    stuck.mkdir(parents=True)
    with pytest.raises(Retryable, match="tmp cannot be removed") as refused:
        open_on(MemoryStore(), tmp_path)
    stuck.rmdir()
    assert "then try again" in refused.value.remedy
    open_on(MemoryStore(), tmp_path)


class SilentLedger(LogLedger):
    """Does not answer to an append."""

    tries = 0

    def append(self, entry: Entry, *, within: InTransaction | None = None) -> None:
        self.tries += 1
        raise Retryable("The store is silent.", remedy="Wait.")


def test_a_run_is_tried_as_long_as_the_settings_say(tmp_path: Path) -> None:
    sinks = {"out": penstock.Console()}
    delivery = penstock.Delivery("flights", home=tmp_path, sinks=sinks, guarantee="at_least_once", retry_timeout="250ms")
    with closing(assemble(delivery.plan)) as runtime:
        assert runtime.retry_timeout_s == 0.25


def test_a_stop_signal_ends_the_tries_of_a_start(tmp_path: Path) -> None:
    """The start is made by the thread that the signal comes to: nobody else can drain then."""
    ledger = SilentLedger(MemoryStore(), pipeline=PIPELINE)
    with pytest.raises(Retryable, match="The store is silent"):
        made_on(ledger, tmp_path, stop_wanted=lambda: ledger.tries > 2).open(schema=None)
    assert ledger.tries == 3


@pytest.mark.parametrize("end", [lambda opened: opened.drain(grace_s=0), OpenDelivery.release], ids=["drain", "release"])
def test_a_stop_ends_a_pause_between_two_tries(tmp_path: Path, end: Callable[[OpenDelivery], object]) -> None:
    ledger = SilentLedger(MemoryStore(), pipeline=PIPELINE)
    opened = made_on(ledger, tmp_path)
    with ThreadPoolExecutor(1) as threads:
        opening = threads.submit(opened.open, schema=None)
        while ledger.tries < 2:
            threading.Event().wait(0.01)
        end(opened)
        assert isinstance(opening.exception(20), Retryable)
    assert ledger.tries < 6


class IgnoringStore(MemoryStore):
    """Overwrites, and says that it created."""

    def put_if_absent(self, key: str, data: bytes) -> bool:
        self.put(key, data)
        return True


def test_a_start_on_a_ledger_that_ignores_conditions_is_refused(tmp_path: Path) -> None:
    """Bug 11: nobody had tried it, and two drivers both succeeded. Nothing is written but the self-test."""
    store = IgnoringStore()
    with pytest.raises(StoreIgnoresConditions):
        open_on(store, tmp_path / "checkpoint")
    assert list(store.keys("entries/")) == []


def test_a_sink_that_is_only_called_quarantine_gets_every_row(tmp_path: Path) -> None:
    """The quarantine is told by the setting, not by its name: a sink of that name may be older than it."""
    lake = {name: penstock.Parquet(accounts={"only": tmp_path / name}) for name in ("lake", "quarantine")}
    runtime = assemble(Delivery("flights", home=tmp_path / "home", sinks=lake).plan)
    runtime.ledger.close()
    assert [sink.name for sink in runtime.row_sinks] == ["lake", "quarantine"]
    assert runtime.quarantine is None
