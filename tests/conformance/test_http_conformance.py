"""The HTTP sink passes the suite with an endpoint that remembers keys; and what it does with every other answer."""

import base64
import hashlib
import hmac
import json
import re
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from email.utils import formatdate
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.conformance.http_rig import (
    Handler,
    HttpRig,
    KeyedRig,
    KeysInTasksRig,
    LanesInTasksRig,
    Received,
    RecordRig,
    endpoint,
)
from tests.conformance.in_tasks import run_in_turn
from tests.unit.in_tasks import Tasks

from penstock.core import faults
from penstock.core.model import SinkName
from penstock.core.publish_task import Answer, PublishTask
from penstock.errors import ContentConflict, Failed, OutcomeUnknown, PenstockError, PublishFailed, Retryable, Usage
from penstock.sink.http.client import KEY_HEADER, Client, Endpoint
from penstock.sink.http.layout import Layout
from penstock.sink.http.sink import HttpSink
from penstock.testing.conformance import PIPELINE, Bench, CrashContract, Shown, StagingLossContract, make_rows
from penstock.testing.conformance.publishing import PublishContract, RaceContract
from penstock.testing.conformance.staging import StageContract, SweepContract


@pytest.fixture(name="url")
def _url() -> Iterator[str]:
    with endpoint() as (url, _):
        yield url


class TestHttp(StageContract, PublishContract, RaceContract, SweepContract):
    """All but `verify`: an endpoint cannot be read."""

    @pytest.fixture(params=[HttpRig, RecordRig, KeyedRig, KeysInTasksRig], ids=lambda rig: rig.__name__)
    def rig(self, request: pytest.FixtureRequest, tmp_path: Path, url: str) -> HttpRig:
        rig: HttpRig = request.param(tmp_path, url)
        return rig


class TestHttpStagingLost(StagingLossContract):
    @pytest.fixture
    def rig(self, tmp_path: Path, url: str) -> HttpRig:
        return HttpRig(tmp_path, url)


class TestHttpCrashes(CrashContract):
    fault_parts = ("http", "spool")

    @pytest.fixture
    def rig(self, tmp_path: Path, url: str) -> HttpRig:
        directory = tmp_path / "rig"
        directory.mkdir()
        return RecordRig(directory, url)


class TestHttpInTasksCrashes(CrashContract):
    fault_parts = ("http",)

    @pytest.fixture
    def rig(self, tmp_path: Path, url: str) -> HttpRig:
        directory = tmp_path / "rig"
        directory.mkdir()
        return LanesInTasksRig(directory, url)


def decided(bench: Bench, sink: Any, count: int = 100) -> Shown:
    rows = bench.rows(range(count))
    return bench.decide((rows, bench.stage(sink, rows, batch_id=0)), batch_id=0)


def test_a_lost_answer_is_asked_for_with_the_same_key(tmp_path: Path) -> None:
    with endpoint() as (url, received):
        bench = Bench(RecordRig(tmp_path, url))
        sink = bench.sink()
        shown = decided(bench, sink)
        faults.arm("http.request=lost@7")
        with pytest.raises(OutcomeUnknown):
            sink.publish(shown.publication)
        faults.arm("")
        sink.publish(shown.publication)
        bench.require_shown(shown)
        assert received.repeated == 1
        bench.close()


def test_what_was_answered_is_not_sent_by_a_later_run(tmp_path: Path) -> None:
    """The endpoint may have forgotten the keys by then."""
    with endpoint() as (url, received):
        bench = Bench(HttpRig(tmp_path, url))
        shown = decided(bench, bench.sink())
        bench.sink().publish(shown.publication)
        received.bodies.clear()
        assert bench.sink().publish(shown.publication).already
        assert received.bodies == {}
        bench.close()


def test_a_decided_batch_keeps_its_requests_whatever_the_settings_are_now(tmp_path: Path) -> None:
    """Other requests under the same keys would be taken for repetitions, and rows would be lost."""

    class Wider(RecordRig):
        layout = Layout(body="json_lines", rows=50, size_bytes=1_000_000, lanes=1)

    with endpoint() as (url, received):
        bench = Bench(RecordRig(tmp_path, url))
        sink = bench.sink()
        shown = decided(bench, sink)
        faults.arm("http.request=error@31")
        with pytest.raises(Retryable):
            sink.publish(shown.publication)
        faults.arm("")
        later = Bench(Wider(tmp_path, url))
        assert not later.sink().publish(shown.publication).already
        bench.require_shown(shown)
        assert received.repeated >= 30 - 4 * 3
        later.close()
        bench.close()


def test_rows_of_a_key_arrive_in_their_order(tmp_path: Path) -> None:
    with endpoint() as (url, received):
        bench = Bench(KeyedRig(tmp_path, url))
        shown = bench.deliver(bench.sink(), bench.rows(range(300)), batch_id=0)
        arrived = [json.loads(line) for line in received.lines()]
        assert len({row["place"] for row in shown.rows}) > 3
        assert sorted(row["id"] for row in arrived) == list(range(300))
        for place in {row["place"] for row in arrived}:
            assert all(one < next_one for one, next_one in pairwise(row["id"] for row in arrived if row["place"] == place))
        bench.close()


@pytest.mark.parametrize("rig", [RecordRig, KeysInTasksRig])
def test_tasks_send_the_same_requests_as_the_driver(tmp_path: Path, rig: type[HttpRig]) -> None:
    """Under the same keys: one of them may go on with what the other began."""
    with endpoint() as (url, received), closing(Bench(rig(tmp_path, url))) as bench:
        sink, tasks = bench.sink(), Tasks()
        sink.publish_by(None)
        sink._spool.discard = lambda *_, **__: None
        shown = decided(bench, sink, count=300)
        sink.publish(shown.publication)
        by_driver = len(received.bodies)
        [mark] = tmp_path.rglob("posted-*.id")
        mark.unlink()
        later = bench.sink()
        later.publish_by(tasks)
        assert not later.publish(shown.publication).already
        assert (len(received.bodies), received.repeated) == (by_driver, by_driver)
        assert len(tasks.seen[0]) == rig.layout.lanes


def test_tasks_of_older_batches_that_come_late_post_nothing_new(tmp_path: Path) -> None:
    with endpoint() as (url, received), closing(Bench(LanesInTasksRig(tmp_path, url))) as bench:
        sink, tasks = bench.sink(), Tasks(lambda task: (task.run(), task.run())[1])
        sink._spool.discard = lambda *_, **__: None  # type: ignore[method-assign]
        sink.publish_by(tasks)
        shown = [bench.deliver(sink, bench.rows(range(at, at + 40)), batch_id=at // 40) for at in (0, 40)]
        for late in tasks.seen[0]:
            late.run()
        bench.require_shown(*shown)
        assert received.repeated == 40 + 40 + 40


def test_a_task_that_sends_less_than_was_decided_is_told(tmp_path: Path) -> None:
    with endpoint() as (url, _), closing(Bench(LanesInTasksRig(tmp_path, url))) as bench:
        sink = bench.sink()
        sink.publish_by(Tasks(lambda task: [task.run()[0] - (task.number == 2)]))
        shown = decided(bench, sink)
        with pytest.raises(ContentConflict, match="has 100 rows, the spool 99"):
            sink.publish(shown.publication)


def test_a_batch_that_another_driver_posted_and_removed_meanwhile_is_not_lost(tmp_path: Path) -> None:
    with endpoint() as (url, received), closing(Bench(LanesInTasksRig(tmp_path, url))) as bench:
        sink, other = bench.sink(), bench.sink()
        other.publish_by(None)
        shown = decided(bench, sink)

        def behind_the_other(tasks: Sequence[PublishTask]) -> Sequence[Answer]:
            other.publish(shown.publication)
            return run_in_turn(tasks)

        sink.publish_by(behind_the_other)
        assert sink.publish(shown.publication).already
        bench.require_shown(shown)
        assert received.repeated == 0


def test_a_task_that_sees_another_directory_posts_nothing(tmp_path: Path) -> None:
    with endpoint() as (url, received), closing(Bench(LanesInTasksRig(tmp_path, url))) as bench:
        sink = bench.sink()
        elsewhere = Tasks(lambda task: replace(task, claimed=replace(task.claimed, identity="elsewhere.id")).run())
        sink.publish_by(elsewhere)
        shown = decided(bench, sink)
        with pytest.raises(PublishFailed, match="is not the one the driver uses"):
            sink.publish(shown.publication)
        assert not received.bodies
        assert "elsewhere" not in repr(elsewhere.seen[0][0].endpoint)


def test_an_endpoint_that_forgets_keys_is_not_given_rows_by_tasks(tmp_path: Path) -> None:
    class Forgets(RecordRig):
        def make(self) -> HttpSink:
            place = Endpoint(url=self.url, name=self.url)
            spool = str(self.directory / "spool")
            return HttpSink(
                name=SinkName("posted"),
                spool=spool,
                endpoint=place,
                layout=self.layout,
                remembers_keys=False,
                inline_limit_bytes=0,
            )

    with endpoint() as (url, _), closing(Bench(Forgets(tmp_path, url))) as bench:
        sink, tasks = bench.sink(), Tasks()
        sink.publish_by(tasks)
        assert sink.tasks_per_batch == 0
        bench.require_shown(bench.deliver(sink, bench.rows(range(40)), batch_id=0))
        assert not tasks.seen


def test_requests_say_whose_they_are_and_no_two_have_one_key(tmp_path: Path) -> None:
    with endpoint() as (url, received):
        bench = Bench(RecordRig(tmp_path, url))
        bench.deliver(bench.sink(), bench.rows(range(20)), batch_id=0)
        assert len(received.bodies) == len({headers[KEY_HEADER] for headers in received.headers}) == 20
        first = next(headers for headers in received.headers if headers["Penstock-Part"] == "0-0-0")
        assert (first["Penstock-Pipeline"], first["Penstock-Sink"], first["Penstock-Batch"]) == (PIPELINE, "posted", "0")
        assert first["Content-Type"] == "application/json"
        assert re.fullmatch(rf"conformance/posted/{first['Penstock-Position']}/[0-9a-f]{{16}}/0-0-0", first[KEY_HEADER])
        bench.close()


def answering(status: int, body: bytes = b"", **headers: str) -> type[Handler]:
    class Answering(Handler):
        seen: ClassVar[list[str]] = []

        def do_POST(self) -> None:  # noqa: N802
            self.rfile.read(int(self.headers["Content-Length"]))
            self.seen.append(self.headers[KEY_HEADER])
            self.reply(status, body, **headers)

        do_OPTIONS = do_POST  # noqa: N815

    return Answering


@pytest.mark.parametrize(
    ("status", "kind", "told"),
    [
        (400, PublishFailed, "refuses the request: HTTP 400: no such field"),
        (401, Failed, "refuses access"),
        (408, Retryable, "does not take requests now"),
        (409, OutcomeUnknown, "may still work on this request"),
        (422, ContentConflict, "other rows under this key"),
        (429, Retryable, "does not take requests now"),
        (500, Retryable, "does not take requests now"),
        (302, Failed, "is somewhere else"),
    ],
)
def test_each_answer_means_something_else(tmp_path: Path, status: int, kind: type[PenstockError], told: str) -> None:
    handler = answering(status, b"no such field", Location="http://127.0.0.1:1/elsewhere")
    with endpoint(handler) as (url, _):
        bench = Bench(HttpRig(tmp_path, url))
        sink = bench.sink()
        with pytest.raises(PenstockError, match=told) as raised:
            sink.publish(decided(bench, sink).publication)
        assert type(raised.value) is kind
        assert "no such field" in str(raised.value)
        bench.close()


@pytest.mark.parametrize("written", ["in seconds", "as a date"])
def test_an_endpoint_is_left_alone_for_as_long_as_it_asks(tmp_path: Path, written: str) -> None:
    header = "1000" if written == "in seconds" else formatdate(time.time() + 1000, usegmt=True)
    handler = answering(503, Retry_After=header)
    with endpoint(handler) as (url, _):
        bench = Bench(HttpRig(tmp_path, url))
        sink = bench.sink()
        shown = decided(bench, sink)
        for told in ("HTTP 503", r"asked to wait, for another \d+ s"):
            with pytest.raises(Retryable, match=told):
                sink.publish(shown.publication)
        assert len(handler.seen) == 1
        bench.close()


@pytest.mark.parametrize(("status", "header"), [(202, "1000"), (503, "Mon, 01 Jan 99999999999 00:00:00 GMT")])
def test_what_says_nothing_about_the_next_request_delays_none(status: int, header: str) -> None:
    """Of a success it says when to ask for the result; a date may be none."""
    handler = answering(status, Retry_After=header)
    with endpoint(handler) as (url, _):
        client = Client(Endpoint(url=url, name=url))
        for _ in range(2):
            with nullcontext() if status == 202 else pytest.raises(Retryable, match="HTTP 503"):
                client.post(b"{}", key="k", headers={})
    assert len(handler.seen) == 2


def test_an_answer_without_end_is_cut_off(tmp_path: Path) -> None:
    class Endless(Handler):
        def do_POST(self) -> None:  # noqa: N802
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(500)
            self.send_header("Content-Length", str(1 << 40))
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b"x" * 65_536)
            except OSError:
                self.close_connection = True

    with endpoint(Endless) as (url, _):
        with pytest.raises(Retryable, match="HTTP 500: xxx") as raised:
            Client(Endpoint(url=url, name=url)).post(b"{}", key="k", headers={})
        assert len(str(raised.value)) < 600


def test_an_answer_that_is_no_http_leaves_the_outcome_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        client = Client(Endpoint(url=url, name=url, timeout_s=0.2))
        with pytest.raises(OutcomeUnknown, match=r"does not answer: .*timed out"):
            client.post(b"{}", key="k", headers={})
    with pytest.raises(Retryable, match="Connection refused") as raised:
        client.post(b"{}", key="k", headers={})
    assert type(raised.value) is Retryable


def test_an_endpoint_that_is_not_there_is_a_finding(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        url = f"http://127.0.0.1:{probe.getsockname()[1]}/"
    with closing(HttpRig(tmp_path, url).make()) as sink:
        (finding,) = sink.check()
    assert not finding.ok
    assert "does not answer: " in finding.message


def test_requests_are_signed_as_standard_webhooks_says() -> None:
    with endpoint() as (url, received):
        key = b"a secret of some length"
        Client(Endpoint(url=url, name=url, signing_key=key, token="t0ken")).post(b'{"id":1}', key="k", headers={})
    (headers,) = received.headers
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + b'{"id":1}'
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert headers["Authorization"] == "Bearer t0ken"


def test_a_key_must_be_of_the_rows(tmp_path: Path, url: str) -> None:
    rig = KeyedRig(tmp_path, url)
    sink = HttpSink(
        name=SinkName("posted"),
        spool=str(tmp_path / "spool"),
        endpoint=Endpoint(url=url, name=url),
        layout=replace(rig.layout, key=("places",)),
        remembers_keys=True,
    )
    with closing(sink), pytest.raises(Usage, match=r"has the key places, but the rows have id, place, "):
        sink.prepare(pipeline=PIPELINE, schema=rig.schema)


@pytest.mark.parametrize("body", ["json_lines", "json_array", "record"])
@pytest.mark.parametrize("size_bytes", [1000, 1_000_000])
def test_every_row_is_in_one_request(tmp_path: Path, body: Any, size_bytes: int) -> None:
    rig = HttpRig(tmp_path, "")
    layout = Layout(body=body, rows=1 if body == "record" else 30, size_bytes=size_bytes, lanes=1)
    batch, _ = rig.batch(make_rows(range(100)))
    requests = list(layout.divided([batch.slice(0, 37), batch.slice(37)], rig.row_digest))
    received = Received(bodies={request.name: request.body for request in requests})
    assert sum(request.rows for request in requests) == len(received.lines()) == 100
    assert max(len(request.body) for request in requests if request.rows > 1 or body == "record") <= size_bytes + 2
    spans = [tuple(map(int, request.name.split("-"))) for request in requests]
    assert [first for _, first, _ in spans] == [0, *(last + 1 for _, _, last in spans[:-1])]
