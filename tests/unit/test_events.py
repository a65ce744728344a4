"""`on_event`: targets hear of failures, fences, stalls and recoveries, each once, by real requests and real commands."""

import base64
import hashlib
import hmac
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.receivers import Receiver, closed_url, receiving

from penstock.core.model import BatchId, Generation, SinkName
from penstock.errors import Fenced, PenstockError, PublishFailed, Retryable
from penstock.observe.batch_record import DeliveryRecord
from penstock.observe.export.events import Events
from penstock.observe.export.observation import Observation
from penstock.observe.export.stall import StallWatch
from penstock.observe.progress import BatchProgress, SinkProgress
from penstock.spec.export import EventTarget
from penstock.support.secret import Secret, remember

FULL = PublishFailed("Row (7, 'Ada') does not fit.", remedy="Drop it.")


def observation(home: Path, *, directory: Path | None = None, **targets: EventTarget) -> Observation:
    return Observation([Events("flights", targets, home=str(home), directory=directory)])


def run(home: Path, ended_by: BaseException | None, *, batches: int = 0, bounded: bool = False, **targets: EventTarget) -> None:
    """A run that delivers some batches and ends."""
    told = observation(home, **targets)
    told.describe(is_bounded=bounded)
    told.opened(Generation(3), {})
    for number in range(batches):
        deliver(told, number)
    told.ended(ended_by)


def deliver(told: Observation, number: int, **more: Any) -> None:
    told.record(DeliveryRecord(generation=Generation(3), batch_id=BatchId(number), at_ms=1))
    shares = {SinkName("lake"): SinkProgress(rows=1)}
    told.batch(BatchProgress(batch_id=number, rows_out=1, sinks=shares, path="driver", **more), {})


def types(receiver: Receiver) -> list[str]:
    return [request.json["type"] for request in receiver.requests]


def test_a_failure_is_posted_without_what_the_error_quotes(tmp_path: Path) -> None:
    with receiving() as receiver:
        run(tmp_path, FULL, pager=EventTarget(url=receiver.url))
        (request,) = receiver.requests
    assert request.json["type"] == "pipeline.failed"
    assert request.json["text"] == "A run of flights ended with PublishFailed, exit code 1."
    assert request.json["data"].keys() == {"pipeline", "owner", "generation", "error", "exit_code"}
    assert request.json["timestamp"].endswith("Z")
    assert b"Ada" not in request.body


def test_the_message_is_sent_where_it_is_asked_for_and_never_a_secret(tmp_path: Path) -> None:
    remember(Secret("geheim-7654321"))
    error = PublishFailed("The login geheim-7654321 fails.", remedy="Mend it.")
    with receiving() as receiver:
        run(tmp_path, error, pager=EventTarget(url=receiver.url, with_message=True))
        (request,) = receiver.requests
    assert request.json["data"]["message"] == "The login *** fails."
    assert request.json["data"]["remedy"] == "Mend it."


def test_requests_are_signed_as_standard_webhooks_says(tmp_path: Path) -> None:
    key = b"0123456789abcdef"
    secret = "whsec_" + base64.b64encode(key).decode()
    with receiving() as receiver:
        run(
            tmp_path, FULL, pager=EventTarget(url=f"{receiver.url}/hook", token="word", signing_secret=secret, headers={"X": "y"})
        )
        (request,) = receiver.requests
    headers = request.headers
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + request.body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert (request.path, headers["authorization"], headers["x"]) == ("/hook", "Bearer word", "y")
    assert headers["content-type"] == "application/json"


def test_a_receiver_that_is_busy_gets_the_same_event_again(tmp_path: Path) -> None:
    with receiving() as receiver:
        receiver.answers += [(503, {}), (429, {"Retry-After": "0"})]
        run(tmp_path, FULL, pager=EventTarget(url=receiver.url))
        first, second, third = receiver.requests
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"] == third.headers["idempotency-key"]
    assert first.body == third.body


def test_the_same_failure_is_told_once_until_batches_are_delivered_again(tmp_path: Path) -> None:
    with receiving() as receiver:
        pager = EventTarget(url=receiver.url)
        for ended_by in (FULL, FULL, Retryable("It is away.", remedy="Wait."), FULL, FULL):
            run(tmp_path, ended_by, pager=pager)
        assert types(receiver) == ["pipeline.failed"] * 3
        assert [request.json["data"]["error"] for request in receiver.requests] == ["PublishFailed", "Retryable", "PublishFailed"]
        run(tmp_path, FULL, batches=2, pager=pager)
        assert types(receiver)[3:] == ["pipeline.recovered", "pipeline.failed"]
        assert receiver.requests[3].json["data"]["batch_id"] == 0


def test_a_failure_that_did_not_arrive_is_told_by_the_next_run(tmp_path: Path) -> None:
    run(tmp_path, FULL, pager=EventTarget(url=closed_url(), retry_timeout="1ms"))
    with receiving() as receiver:
        run(tmp_path, FULL, pager=EventTarget(url=receiver.url))
        assert types(receiver) == ["pipeline.failed"]


def test_a_run_that_delivers_what_is_there_recovers_without_a_batch(tmp_path: Path) -> None:
    with receiving() as receiver:
        pager = EventTarget(url=receiver.url)
        run(tmp_path, FULL, pager=pager)
        run(tmp_path, None, pager=pager)
        run(tmp_path, None, bounded=True, pager=pager)
        run(tmp_path, None, bounded=True, pager=pager)
        assert types(receiver) == ["pipeline.failed", "pipeline.recovered"]


def test_a_run_that_was_stopped_before_its_end_recovers_nothing(tmp_path: Path) -> None:
    with receiving() as receiver:
        pager = EventTarget(url=receiver.url)
        run(tmp_path, FULL, pager=pager)
        stopped = observation(tmp_path, pager=pager)
        stopped.describe(is_bounded=True)
        stopped.opened(Generation(3), {})
        stopped.ended(None, is_stop=True)
        assert types(receiver) == ["pipeline.failed"]


def test_a_decision_that_a_killed_run_left_is_told_when_it_is_published(tmp_path: Path) -> None:
    with receiving() as receiver:
        told = observation(tmp_path, pager=EventTarget(url=receiver.url))
        told.opened(Generation(4), {})
        deliver(told, 7, recovered=True)
        deliver(told, 7, already=True)
        deliver(told, 8)
        told.ended(None)
        (request,) = receiver.requests
    assert request.json["text"] == "flights delivers again: batch 7, which an earlier run decided, is published now."
    assert request.json["data"]["generation"] == 4


def test_every_fence_is_told(tmp_path: Path) -> None:
    with receiving() as receiver:
        pager = EventTarget(url=receiver.url)
        for _ in range(2):
            run(tmp_path, Fenced("A newer run has it.", remedy="Let it."), pager=pager)
        assert types(receiver) == ["pipeline.fenced"] * 2
        assert receiver.requests[0].json["text"] == "A run of flights was stopped: a newer run has the pipeline."


def test_a_target_gets_the_events_that_it_names(tmp_path: Path) -> None:
    with receiving() as receiver, receiving() as other:
        targets = {"a": EventTarget(url=receiver.url, events=["fenced"]), "b": EventTarget(url=other.url, events=["failed"])}
        run(tmp_path, FULL, **targets)
        run(tmp_path, FULL, batches=1, **targets)
        assert (types(receiver), types(other)) == ([], ["pipeline.failed"] * 2)


def test_a_command_gets_the_event_on_its_input(tmp_path: Path) -> None:
    script = tmp_path / "tell.py"
    script.write_text("import os, sys\nopen('told', 'a').write(os.environ['PENSTOCK_EVENT'] + sys.argv[1] + sys.stdin.read())\n")
    told = observation(tmp_path / "home", directory=tmp_path, mail=EventTarget(command=[sys.executable, "tell.py", "! "]))
    told.ended(FULL)
    event, _, text = (tmp_path / "told").read_text().partition("! ")
    assert (event, json.loads(text)["type"]) == ("failed", "pipeline.failed")


def test_a_command_that_fails_is_run_again(tmp_path: Path) -> None:
    script = tmp_path / "tell"
    script.write_text(f'#!{sys.executable}\nopen("tries", "a").write("x")\nraise SystemExit(len(open("tries").read()) < 3)\n')
    script.chmod(stat.S_IRWXU)
    told = observation(tmp_path / "home", directory=tmp_path, mail=EventTarget(command=["./tell"]))
    told.ended(FULL)
    assert (tmp_path / "tries").read_text() == "xxx"


@pytest.mark.parametrize(
    ("command", "reason"), [("./nothing", "./nothing cannot be run: No such file"), ("false", "false ended with exit code 1.")]
)
def test_a_command_that_does_not_work_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, command: str, reason: str
) -> None:
    told = observation(tmp_path, mail=EventTarget(command=[command], retry_timeout="1ms"))
    told.ended(FULL)
    assert reason in caplog.text


def test_a_command_that_hangs_is_killed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    told = observation(tmp_path, mail=EventTarget(command=["sleep", "3600"], timeout="50ms", retry_timeout="1ms"))
    told.ended(FULL)
    assert "sleep did not end within 0.05 s." in caplog.text


def test_a_command_does_not_outlive_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor starts the run again and again: each would leave one behind."""
    monkeypatch.setattr("penstock.observe.export.observation.FLUSH_S", 0.5)
    os.mkfifo(tmp_path / "alive")
    end = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    told = observation(tmp_path, mail=EventTarget(command=["sh", "-c", f"exec 3>{tmp_path}/alive; sleep 3600"], timeout="1h"))
    told.ended(FULL)
    os.set_blocking(end, True)
    assert os.read(end, 1) == b""  # nobody has it open for writing
    os.close(end)


def test_a_stall_is_told_once_and_the_next_batch_ends_it(tmp_path: Path) -> None:
    with receiving() as receiver:
        events = Events("flights", {"pager": EventTarget(url=receiver.url)}, home=str(tmp_path), directory=None)
        told = Observation([events])
        now_s = [0.0]
        events._targets[0].watch = StallWatch(900, clock=lambda: now_s[0])
        assert events.watches
        for at_s in (0.0, 899.0, 900.0, 1800.0):
            now_s[0] = at_s
            events.busy(batch_id=4)
        deliver(told, 4)
        told.ended(None)
        assert types(receiver) == ["pipeline.stalled", "pipeline.recovered"]
        assert receiver.requests[0].json["text"] == "flights works on batch 4 for 15 minutes."


def test_a_standby_that_waited_for_hours_does_not_stall_when_its_turn_comes(tmp_path: Path) -> None:
    with receiving() as receiver:
        events = Events("flights", {"pager": EventTarget(url=receiver.url)}, home=str(tmp_path), directory=None)
        now_s = [0.0]
        events._targets[0].watch = StallWatch(900, clock=lambda: now_s[0])
        now_s[0] = 7200.0
        told = Observation([events])
        told.opened(Generation(3), {})
        events.busy(batch_id=4)
        told.ended(None)
        assert types(receiver) == []


def test_a_standby_recovers_what_was_told_while_it_waited(tmp_path: Path) -> None:
    with receiving() as receiver:
        pager = EventTarget(url=receiver.url)
        standby = observation(tmp_path, pager=pager)
        run(tmp_path, FULL, pager=pager)
        standby.opened(Generation(4), {})
        deliver(standby, 0)
        standby.ended(None)
        assert types(receiver) == ["pipeline.failed", "pipeline.recovered"]


def test_two_processes_keep_what_each_of_them_notes(tmp_path: Path) -> None:
    with receiving() as receiver:
        targets = {"pager": EventTarget(url=receiver.url), "mail": EventTarget(url=receiver.url)}
        first = Events("flights", targets, home=str(tmp_path), directory=None)
        second = Events("flights", targets, home=str(tmp_path), directory=None)
        first._noted.note("pager", "PublishFailed")
        second._noted.note("mail", "Retryable")
    third = Events("flights", targets, home=str(tmp_path), directory=None)
    assert [each.cause for each in third._targets] == ["PublishFailed", "Retryable"]


def test_time_without_anything_to_do_is_no_stall() -> None:
    now_s = [0.0]
    watch = StallWatch(900, clock=lambda: now_s[0])
    now_s[0] = 899
    watch.idle()
    now_s[0] = 1798
    assert watch.stalled_s() is None
    now_s[0] = 1799
    assert watch.stalled_s() == 900
    assert watch.stalled_s() is None
    watch.moved()
    now_s[0] = 2699
    assert watch.stalled_s() == 900


def test_a_receiver_that_hangs_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.observe.export.observation.FLUSH_S", 0.05)
    with receiving(hangs=True) as receiver:
        events = Events("flights", {"pager": EventTarget(url=receiver.url, timeout="1h")}, home=str(tmp_path), directory=None)
        Observation([events]).ended(FULL)
        receiver.wait_for(1)
        assert [count() for count in events.lost().values()] == [1]


class Broken:
    """An exporter with a bug in every method."""

    watches = True

    def __getattribute__(self, name: str) -> Any:
        raise ZeroDivisionError(name)


@pytest.mark.parametrize("ended_by", [None, FULL, ZeroDivisionError("user code")])
def test_whatever_an_exporter_raises_stays_there(ended_by: PenstockError | None, caplog: pytest.LogCaptureFixture) -> None:
    told = Observation([Broken()])
    told.opened(Generation(1), {})
    deliver(told, 0)
    told.ended(ended_by)
    assert "ZeroDivisionError" in caplog.text


def test_without_anybody_to_tell_nothing_is_made() -> None:
    told = Observation()
    told.watch(lambda: (True, None))
    deliver(told, 0)
    told.ended(FULL)
    assert not told.is_on
