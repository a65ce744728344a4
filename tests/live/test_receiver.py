"""Real receivers and real clients: what is acknowledged is durable, repeats are recognised, and nobody else gets in."""

import base64
import gzip
import http.client
import json
import random
import re
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.architecture.reading import ROOT
from tests.live.receiver import Receiver
from tests.seed import SEED
from tests.servers.certificates import certify

from penstock.journal.inspection import verify_journal
from penstock.journal.reading import JournalReader
from penstock.journal.storage import LocalStorage

HTTP = "http: {listen: 127.0.0.1:0, max_body: 100kB}"


def content(directory: Path) -> list[tuple[bytes, str | None, int | None]]:
    reader = JournalReader(LocalStorage(), directory / "journal")
    extent = reader.extent()
    if extent is None:
        return []
    assert verify_journal(LocalStorage(), directory / "journal").ok
    return [
        (each.event.value, each.event.producer, each.event.number)
        for each in reader.read(extent.first, extent.next, journal_id=extent.journal_id)
    ]


def values(directory: Path) -> list[bytes]:
    return [value for value, _, _ in content(directory)]


class Client:
    """Requests by HTTP, each on a connection of its own."""

    def __init__(self, receiver: Receiver, **more: Any) -> None:
        kind = http.client.HTTPSConnection if "context" in more else http.client.HTTPConnection
        self._connect = partial(kind, *receiver.address("http"), timeout=30, **more)

    def post(self, body: bytes, headers: Mapping[str, str] | None = None, *, path: str = "/events") -> tuple[int, Any]:
        with closing(self._connect()) as connection:
            connection.request("POST", path, body, dict(headers or {}))
            answer = connection.getresponse()
            self.headers = dict(answer.getheaders())
            text = answer.read()
        return answer.status, json.loads(text) if text[:1] == b"{" else text

    def get(self, path: str) -> tuple[int, Any]:
        with closing(self._connect()) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    started = Receiver(tmp_path, HTTP)
    yield started
    assert started.stop() == 0


def test_one_event_lines_and_arrays_are_taken_as_they_are(tmp_path: Path, receiver: Receiver) -> None:
    client = Client(receiver)
    assert client.post(b"\x00 one") == (200, {"sequences": [0], "repeats": 0})
    lines = {"Content-Type": "application/x-ndjson"}
    assert client.post(b'{"a": 1}\n\n{"a":  2}\r\n', lines) == (200, {"sequences": [1, 2], "repeats": 0})
    assert client.post('[1, {"é": [2]}]'.encode(), {"Content-Type": "application/json"})[1]["sequences"] == [3, 4]
    assert client.post(b'{"b": 1}', {"Content-Type": "application/json"})[1]["sequences"] == [5]
    packed = {**lines, "Content-Encoding": "gzip"}
    assert client.post(gzip.compress(b"x\ny"), packed)[1]["sequences"] == [6, 7]
    assert client.get("/health") == (200, {"ok": True})
    assert values(tmp_path) == [b"\x00 one", b'{"a": 1}', b'{"a":  2}', b"1", '{"é": [2]}'.encode(), b'{"b": 1}', b"x", b"y"]


def test_key_and_headers_are_kept(tmp_path: Path, receiver: Receiver) -> None:
    Client(receiver).post(b"v", {"Penstock-Key": "k", "Penstock-Header-Trace": "t", "Penstock-Producer": "p"})
    reader = JournalReader(LocalStorage(), tmp_path / "journal")
    extent = reader.extent()
    assert extent is not None
    [record] = reader.read(0, 1, journal_id=extent.journal_id)
    assert (record.event.key, record.event.headers, record.event.producer) == (b"k", (("Trace", b"t"),), "p")
    assert (record.event.remote or "").startswith("127.0.0.1:")


def test_what_a_numbering_producer_sends_again_is_recognised(tmp_path: Path, receiver: Receiver) -> None:
    client = Client(receiver)
    numbered = {"Penstock-Producer": "p", "Penstock-Sequence": "1", "Content-Type": "application/x-ndjson"}
    assert client.post(b"1\n2\n3", numbered) == (200, {"sequences": [0, 1, 2], "repeats": 0})
    assert client.post(b"1\n2\n3", numbered) == (200, {"sequences": [None, None, 2], "repeats": 3})
    status, answer = client.post(b"9", {**numbered, "Penstock-Sequence": "9"})
    assert (status, "its last one here is 3" in answer["error"]) == (409, True)
    assert values(tmp_path) == [b"1", b"2", b"3"]


WRONG: tuple[tuple[bytes, dict[str, str], int], ...] = (
    (b"", {}, 400),
    (b"[]", {"Content-Type": "application/json"}, 400),
    (b"[1", {"Content-Type": "application/json"}, 400),
    (b"[" * 50_000, {"Content-Type": "application/json"}, 400),
    (b"x", {"Penstock-Sequence": "1"}, 400),
    (b"x", {"Penstock-Producer": "p", "Penstock-Sequence": "-1"}, 400),
    (b"x", {"Penstock-Producer": "p" * 300}, 400),
    (bytes(200_000), {}, 413),
    (gzip.compress(bytes(50_000_000)), {"Content-Encoding": "gzip"}, 413),
    (b"no gzip", {"Content-Encoding": "gzip"}, 400),
    (b"x", {"Penstock-Key": "k" * 40_000}, 400),
)


def test_what_is_wrong_is_refused_and_nothing_of_it_is_taken(tmp_path: Path, receiver: Receiver) -> None:
    assert [Client(receiver).post(body, headers)[0] for body, headers, _ in WRONG] == [status for _, _, status in WRONG]
    assert Client(receiver).post(b"good")[0] == 200
    assert values(tmp_path) == [b"good"]


def test_other_paths_and_methods_are_not_there(receiver: Receiver) -> None:
    assert Client(receiver).post(b"x", path="/events/../../etc/passwd")[0] == 404
    assert Client(receiver).post(b"x", path="/")[0] == 404
    assert Client(receiver).get("/health")[0] == 200


def test_only_who_shows_the_token_or_the_password_gets_in_and_tls_hides_it(tmp_path: Path) -> None:
    authority, certificate = tmp_path / "ca.pem", tmp_path / "server.pem"
    certify(authority, certificate)
    more = (
        "http: {listen: 127.0.0.1:0, token: '${TOKEN}', user: u, password: '${PASSWORD}', "
        f"tls: {{certificate_file: {certificate}, key_file: {certificate}}}}}"
    )
    started = Receiver(tmp_path, more, environment={"TOKEN": "t0ken", "PASSWORD": "passw0rd"})
    client = Client(started, context=ssl.create_default_context(cafile=str(authority)))
    basic = base64.b64encode(b"u:passw0rd").decode()
    for allowed in ("Bearer t0ken", f"Basic {basic}"):
        assert client.post(b"x", {"Authorization": allowed})[0] == 200
    for wrong in ({}, {"Authorization": "Bearer t0ke"}, {"Authorization": f"Bearer {basic}"}, {"Authorization": "Basic"}):
        assert client.post(b"x", wrong)[0] == 401
    assert client.get("/health")[0] == 200
    assert started.stop() == 0
    assert values(tmp_path) == [b"x", b"x"]


def test_a_full_journal_asks_clients_to_come_back(tmp_path: Path) -> None:
    started = Receiver(tmp_path, "http: {listen: 127.0.0.1:0}\n  max_size: 10kB")
    client = Client(started)
    answers = Counter(client.post(bytes(1_000))[0] for _ in range(15))
    assert answers.keys() == {200, 429}
    assert client.headers["Retry-After"] == "1"
    assert started.stop() == 0
    assert len(values(tmp_path)) == answers[200]


def test_more_events_a_second_than_may_be_are_asked_to_come_later(tmp_path: Path) -> None:
    started = Receiver(tmp_path, "http: {listen: 127.0.0.1:0, max_rate: 5}")
    client, lines = Client(started), {"Content-Type": "application/x-ndjson"}
    assert client.post(b"x\n" * 500, lines)[0] == 200
    status, answer = client.post(b"y")
    assert (status, answer) == (429, {"error": "Too many events a second."})
    assert 1 <= int(client.headers["Retry-After"]) <= 99
    assert started.stop() == 0
    assert values(tmp_path) == [b"x"] * 500


def test_more_lines_a_second_than_may_be_wait_to_be_read(tmp_path: Path) -> None:
    started = Receiver(tmp_path, "tcp: {listen: 127.0.0.1:0, max_rate: 400}")
    began = time.monotonic()
    with socket.create_connection(started.address("tcp"), timeout=30) as client:
        client.sendall(b"".join(b"%d\n" % number for number in range(600)))
        with client.makefile("rb") as answers:
            assert [next(answers) for _ in range(600)] == [b"OK %d\n" % number for number in range(600)]
    assert time.monotonic() - began > 0.4
    assert started.stop() == 0


@pytest.mark.parametrize("sent", [b"", b"POST /events HTTP/1.1\r\nHost: h\r\n"], ids=["nothing", "half of the headers"])
def test_a_client_that_sends_no_request_is_cut_off(tmp_path: Path, sent: bytes) -> None:
    started = Receiver(tmp_path, "http: {listen: 127.0.0.1:0, body_timeout: 200ms}")
    with socket.create_connection(started.address("http"), timeout=30) as silent:
        silent.sendall(sent)
        with suppress(ConnectionResetError):
            assert silent.recv(1) == b""
    assert Client(started).post(b"x")[0] == 200
    assert started.stop() == 0


def test_a_body_that_does_not_come_is_given_up(tmp_path: Path) -> None:
    started = Receiver(tmp_path, "http: {listen: 127.0.0.1:0, body_timeout: 200ms}")
    with socket.create_connection(started.address("http"), timeout=30) as slow:
        slow.sendall(b"POST /events HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nx")
        assert slow.recv(100).startswith(b"HTTP/1.1 408 ")
    assert started.stop() == 0
    assert values(tmp_path) == []


def test_more_clients_than_may_be_are_turned_away(tmp_path: Path) -> None:
    started = Receiver(
        tmp_path, "http: {listen: 127.0.0.1:0, max_connections: 1}\n  tcp: {listen: 127.0.0.1:0, max_connections: 1}"
    )
    with socket.create_connection(started.address("http"), timeout=30) as first:
        first.sendall(b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n")
        assert first.recv(100).startswith(b"HTTP/1.1 200 ")
        status, answer = Client(started).post(b"x")
        assert (status, answer) == (429, {"error": "Too many connections."})
    with socket.create_connection(started.address("tcp"), timeout=30) as one, one.makefile("rb") as answers:
        one.sendall(b"a\n")
        assert next(answers) == b"OK 0\n"
        with socket.create_connection(started.address("tcp"), timeout=30) as other, other.makefile("rb") as refused:
            assert refused.readlines() == [b"ERR too many connections\n"]
    assert started.stop() == 0
    assert values(tmp_path) == [b"a"]


def test_a_disk_that_fails_ends_the_receiver(tmp_path: Path) -> None:
    started = Receiver(tmp_path, HTTP, environment={"PENSTOCK_FAULTS": "journal.sync=error"})
    assert Client(started).post(b"x")[0] == 503
    code, errors = started.wait()
    assert code == 1
    assert "input/output error" in errors


def test_lines_are_answered_in_order_once_they_are_durable(tmp_path: Path) -> None:
    started = Receiver(tmp_path, "tcp: {listen: 127.0.0.1:0, token: t0ken, max_line: 1kB}")
    with socket.create_connection(started.address("tcp"), timeout=30) as client:
        client.sendall(b"AUTH t0ken\n" + b"".join(b"line %d\n" % number for number in range(3_000)))
        answers = client.makefile("rb")
        assert [next(answers) for _ in range(3_000)] == [b"OK %d\n" % number for number in range(3_000)]
        client.sendall(b"x" * 2_000 + b"\n")
        assert next(answers).startswith(b"ERR a line has more than 1000 bytes")
        answers.close()
    with socket.create_connection(started.address("tcp"), timeout=30) as client:
        client.sendall(b"line\n")
        with client.makefile("rb") as answers:
            assert answers.readlines() == [b"ERR wrong or missing token\n"]
    assert started.stop() == 0
    assert values(tmp_path) == [b"line %d" % number for number in range(3_000)]


def test_a_stop_answers_what_was_read(tmp_path: Path) -> None:
    started = Receiver(tmp_path, "tcp: {listen: 127.0.0.1:0}\n  linger: 300ms")
    with socket.create_connection(started.address("tcp"), timeout=30) as client:
        client.sendall(b"first\n")
        answers = client.makefile("rb")
        assert next(answers) == b"OK 0\n"
        client.sendall(b"second\nthird\n")
        assert started.stop() == 0
        answered = answers.readlines()
        answers.close()
    assert answered == [b"OK %d\n" % number for number in range(1, 1 + len(answered))]
    assert values(tmp_path)[: 1 + len(answered)] == [b"first", b"second", b"third"][: 1 + len(answered)]


def push_until_done(address: list[tuple[str, int]], name: str, until: int) -> None:
    """A client that numbers its lines, and after every cut sends again what was not answered."""
    answered = 0
    while answered < until:
        try:
            with socket.create_connection(address[-1], timeout=30) as client:
                lines = [f"{name} {number} {name}-{number}\n" for number in range(answered + 1, until + 1)]
                threading.Thread(target=_send, args=(client, "".join(lines).encode()), daemon=True).start()
                with client.makefile("rb") as answers:
                    for line in answers:
                        assert line.startswith(b"OK"), line
                        answered += 1
        except OSError:
            continue


def _send(client: socket.socket, data: bytes) -> None:
    try:
        client.sendall(data)
    except OSError:
        return


def test_receivers_that_are_killed_lose_no_acknowledged_line_and_double_none(tmp_path: Path) -> None:
    """Clients send again whatever was not answered, and the numbers tell what the journal has already."""
    generator, until, kills = random.Random(SEED), 1_000, 3
    more = "tcp: {listen: 127.0.0.1:0, numbered: true}\n  segment_size: 50kB"
    started = Receiver(tmp_path, more)
    addresses = [started.address("tcp")]
    clients = [threading.Thread(target=push_until_done, args=(addresses, f"c{number}", until)) for number in range(3)]
    for client in clients:
        client.start()
    for _ in range(kills):
        clients[0].join(generator.uniform(0.05, 0.4))
        started.kill()
        started = Receiver(tmp_path, more)
        addresses.append(started.address("tcp"))
    for client in clients:
        client.join(120)
    assert started.stop() == 0
    expected = [(f"c{who}-{number}".encode(), f"c{who}", number) for who in range(3) for number in range(1, until + 1)]
    assert Counter(content(tmp_path)) == Counter(expected), f"PENSTOCK_SEED={SEED}"
    for who in range(3):
        assert [number for _, name, number in content(tmp_path) if name == f"c{who}"] == list(range(1, until + 1))


def test_metrics_and_probes_say_how_the_receiver_is(tmp_path: Path) -> None:
    page = (
        (ROOT / "docs" / "howto" / "push.md")
        .read_text()
        .partition("## Metrics and health of the receiver")[2]
        .partition("\n## ")[0]
    )
    [shown] = re.findall(r"^receive:\n  journal: .*\n  (http: .*\n  metrics: .*)\n", page, re.MULTILINE)
    more = shown.replace("8080", "0").replace('9465"', '0", token: "${METRICS_TOKEN}"')
    tokens = {"CLICKS_TOKEN": "t0ken", "METRICS_TOKEN": "0ther"}
    started = Receiver(tmp_path, f"{more}\n  max_size: 10kB", environment=tokens)
    client = Client(started)
    allowed = {"Authorization": "Bearer t0ken"}
    answers = Counter(client.post(bytes(1_000), allowed)[0] for _ in range(15))
    with closing(http.client.HTTPConnection(*started.address("metrics"), timeout=30)) as connection:
        found = {}
        for path, headers in (("/metrics", {}), ("/livez", {}), ("/readyz", {}), ("/metrics", {"Authorization": "Bearer 0ther"})):
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            found[path, len(headers)] = (answer.status, answer.read().decode())
    assert [found["/metrics", 0][0], found["/livez", 0], found["/readyz", 0]] == [401, (200, "ok\n"), (200, "ok\n")]
    values = dict(re.findall(r"^(\w+) (\S+)$", found["/metrics", 1][1], re.MULTILINE))
    assert float(values["penstock_receiver_up"]) == 1
    assert float(values["penstock_receiver_events_total"]) == float(values["penstock_journal_next_sequence"]) == answers[200]
    assert float(values["penstock_receiver_refused_events_total"]) == answers[429]
    told = set(re.findall(r"^# TYPE (\w+) (?:gauge|counter)$", found["/metrics", 1][1], re.MULTILINE))
    assert {name for name in told if not name.endswith("_created")} == set(re.findall(r"`(penstock_\w+)`", page))
    assert started.stop() == 0


def test_a_wrong_receiver_is_told(tmp_path: Path) -> None:
    started = Receiver(tmp_path, HTTP)
    host, port = started.address("http")
    for more, message in (
        (f"http: {{listen: {host}:{port}}}", "has a writer already"),
        ("http: {listen: 127.0.0.1:99999}", "should be HOST:PORT"),
        ("copy_to: ./other", "listens to nothing"),
    ):
        with pytest.raises(AssertionError, match=message):
            Receiver(tmp_path, more)
    assert started.stop() == 0
