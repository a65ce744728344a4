"""What a run tells others: an error before Spark starts, the end of a query, and nothing where nothing is asked for."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.crash.commandline import penstock
from tests.unit.receivers import receiving
from tests.unit.test_run_delivery import PIPELINE, made_on
from tests.unit.test_run_query import GONE, Opened, Streaming, Told

from penstock.cli.supervise import tell_of_killed
from penstock.core.model import SinkName
from penstock.errors import DependencyMissing, PublishFailed, Retryable
from penstock.ledger.log import LogLedger
from penstock.ledger.store import MemoryStore
from penstock.observe.export.observation import Observation
from penstock.observe.progress import BatchProgress, SinkProgress
from penstock.run.measuring import BusyLook
from penstock.run.pipeline import Pipeline
from penstock.run.preflight.description import describe
from penstock.run.query import Query
from penstock.spec.load import load
from penstock.spec.pipeline import PipelineSettings
from penstock.supervise.driver import Limits, Stop
from penstock.supervise.restarts import Ended, Restarts
from penstock.supervise.supervisor import Event, Supervised, _Carer

FILE = """\
pipeline: flights
home: ./state
sources: {{s: {{format: csv, path: ./missing, schema: id INT}}}}
sinks: {{lake: {{type: parquet, accounts: {{a: ./lake}}}}}}
on_event: {{pager: {{url: "{url}"}}}}
"""


def test_a_run_that_ends_before_spark_starts_is_told(tmp_path: Path) -> None:
    with receiving() as receiver:
        (tmp_path / "flights.yaml").write_text(FILE.format(url=receiver.url))
        done = penstock("run", "flights.yaml", directory=tmp_path)
        (request,) = receiver.requests
    assert done.code == 2
    assert request.json["text"] == "A run of flights ended with Usage, exit code 2."


class Recording:
    """An exporter that keeps what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **more: self.calls.append((name, *args[:1], *more))


@pytest.mark.parametrize("failing", [None, GONE])
def test_the_end_of_a_query_is_told_once(failing: PublishFailed | None) -> None:
    recording, opened = Recording(), Opened(failing)
    opened.published.set()
    query = Query(Streaming(), Told(opened), Observation([recording]))  # type: ignore[arg-type,list-item]
    for _ in range(2):
        if failing is None:
            query.stop()
        else:
            with pytest.raises(PublishFailed):
                query._end()
    told = [call for call in recording.calls if call[0] == "ended"]
    assert [call[1].error for call in told] == [None if failing is None else "PublishFailed"]
    assert recording.calls[-1][0] == "close"


@pytest.mark.parametrize("is_stop", [False, True])
def test_a_stop_whose_signal_ended_java_too_is_no_failure(*, is_stop: bool) -> None:
    """As systemd stops a service without `KillMode=mixed`: nobody is to be called for each stop."""
    recording, streaming = Recording(), Streaming()
    told = Told(Opened())
    told.opened.limit_reached = threading.Event()  # type: ignore[attr-defined]
    query = Query(streaming, told, Observation([recording]))  # type: ignore[arg-type,list-item]

    def gone(timeout: float) -> bool:
        raise ConnectionRefusedError(timeout)

    streaming.awaitTermination = gone  # type: ignore[method-assign]
    asked = iter([False])
    with pytest.raises(Retryable):
        query.run_until(lambda: next(asked, is_stop), grace_s=1)
    ((_, end),) = [call for call in recording.calls if call[0] == "ended"]
    assert (end.error, end.is_stop) == ((None, True) if is_stop else ("Retryable", False))


def test_the_newest_totals_go_with_a_batch(tmp_path: Path) -> None:
    recording = Recording()
    opened = made_on(LogLedger(MemoryStore(), pipeline=PIPELINE), tmp_path)
    opened._observation = Observation([recording])  # type: ignore[list-item]
    opened.coordinator = opened  # type: ignore[assignment]
    opened.totals = {}  # type: ignore[attr-defined]
    opened.summary = opened  # type: ignore[assignment]
    opened.plus = lambda progress: opened  # type: ignore[attr-defined]
    opened._report(BatchProgress(batch_id=7, sinks={SinkName("lake"): SinkProgress()}, path="driver"))
    ((name, batch),) = recording.calls
    assert (name, batch.progress.batch_id, batch.totals) == ("batch", 7, {})


class Busy:
    """A query in a trigger, and its delivery."""

    def __init__(self) -> None:
        self.delivering: int | None = None
        self.is_published, self.active, self.ended_at = True, False, "1"
        self.status, self._jsq, self.summary = self, self, self
        self.last_batch_id = 3

    def is_published_within(self, seconds: float) -> bool:
        return self.is_published

    def __getitem__(self, name: str) -> bool:
        return self.active

    def lastProgress(self) -> "Busy":  # noqa: N802 - Spark's name
        return self

    def timestamp(self) -> str:
        return self.ended_at


def test_a_query_is_busy_in_a_batch_in_a_publication_and_in_a_trigger_that_does_not_end() -> None:
    busy = Busy()
    look = BusyLook(busy, lambda: busy)  # type: ignore[arg-type,return-value]
    assert look() == (False, None)
    busy.active = True
    assert look() == (True, None)
    busy.ended_at = "2"  # a trigger without a batch has ended meanwhile, and another one goes on
    assert look() == (False, None)
    busy.is_published = False
    assert look() == (True, 3)
    busy.delivering = 4
    assert look() == (True, 4)


@pytest.mark.parametrize(
    ("key", "package"),
    [
        ("opentelemetry", "opentelemetry.sdk.metrics"),
        ("openlineage", "openlineage.client"),
    ],
)
def test_a_package_that_is_missing_is_named(tmp_path: Path, key: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for name in ("penstock.observe.export.telemetry", "penstock.observe.export.lineage"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    given: dict[str, Any] = {key: {}}
    made = PipelineSettings(pipeline="p", home=tmp_path, sources={"s": {"format": "rate"}}, sinks={"c": {"type": "memory"}},
                            guarantee="at_least_once", **given)  # fmt: skip
    with pytest.raises(DependencyMissing), Pipeline(made).observed():
        pass


def test_what_is_not_asked_for_is_not_imported(tmp_path: Path) -> None:
    made = (
        "import sys; from penstock.run.pipeline import Pipeline; from penstock.spec.pipeline import PipelineSettings\n"
        f"p = Pipeline(PipelineSettings(pipeline='p', home={str(tmp_path)!r}, guarantee='at_least_once',\n"
        "    sources={'s': {'format': 'rate'}}, sinks={'m': {'type': 'memory'}}))\n"
        "with p.observed(): pass\n"
        "print([name for name in ('opentelemetry.sdk', 'openlineage', 'requests', 'penstock.observe.export.queue')"
        " if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", made], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_supervisor_tells_of_a_driver_that_was_killed(tmp_path: Path) -> None:
    with receiving() as receiver:
        (tmp_path / "flights.yaml").write_text(FILE.format(url=receiver.url))
        file = str(tmp_path / "flights.yaml")
        (tmp_path / "state").mkdir()
        for _ in range(2):
            tell_of_killed(file, load(file, ()), "was killed by signal 9")
        (request,) = receiver.requests
    assert request.json["text"] == "A run of flights ended with Failed, exit code 1."


def test_a_supervisor_reports_how_a_driver_was_killed(tmp_path: Path) -> None:
    reported: list[Event] = []
    carer = _Carer(
        Supervised(pipeline="flights", home=str(tmp_path), command=()),
        Limits(grace_s=1, hung_after_s=1),
        Stop(),
        Restarts(most_failures=1),
        reported.append,
    )
    for exit_code in (-9, None, 75, 1):
        carer._ended = Ended(exit_code=exit_code, ran_s=1)
        carer._note("waiting", "x")
    carer._note("running", "x")
    assert [event.killed for event in reported] == ["was killed by signal 9", "hung and was killed", None, None, None]


def test_who_is_told_is_no_change_of_the_pipeline(tmp_path: Path) -> None:
    """So that `check` and a start compare nothing of it with the run before, and a change is safe."""
    known: dict[str, Any] = {
        "pipeline": "p",
        "home": tmp_path,
        "sources": {"s": {"format": "rate"}},
        "guarantee": "at_least_once",
    }
    before = PipelineSettings(sinks={"c": {"type": "memory"}}, **known)
    told: dict[str, Any] = {"on_event": {"x": {"url": "http://h"}}, "opentelemetry": {}, "openlineage": {"url": "http://h"}}
    after = PipelineSettings(sinks={"c": {"type": "memory"}}, **known, **told)
    assert describe(before, modules=None, versions={}) == describe(after, modules=None, versions={})
