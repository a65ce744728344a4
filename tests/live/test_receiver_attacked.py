"""What hostile clients send to a real receiver: each is refused clearly, and nothing is written but what was acknowledged."""

import gzip
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from tests.live.receiver import Receiver
from tests.live.test_receiver import HTTP, Client, values

IDLE = int(os.environ.get("PENSTOCK_SOAK_KILLS", "3")) * 100
"""Connections that send nothing: 10,000 in `make soak`."""
_OWN_FILES = 500
HEAD = b"POST /events HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"

MALFORMED: tuple[tuple[bytes, bytes], ...] = (
    (b"\x00\xff\x16\x03\x01 no HTTP\r\n\r\n", b"400"),
    (b"GET\r\n\r\n", b"400"),
    (b"POST /events HTTP/9.9\r\nHost: h\r\nContent-Length: 3\r\n\r\nbad", b"400"),
    (HEAD + b"Content-Length: -3\r\n\r\nbad", b"400"),
    (HEAD + b"Content-Length: 3x\r\n\r\nbad", b"400"),
    (HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nbad", b"400"),
    (HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nbad\r\n0\r\n\r\n", b"400"),
    (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nbad\r\n0\r\n\r\n", b"400"),
    (HEAD + b"Transfer-Encoding: gzip\r\n\r\nbad", b"400"),
    (HEAD + b"Bad Name: x\r\nContent-Length: 3\r\n\r\nbad", b"400"),
    (HEAD + b"X: a\x00b\r\nContent-Length: 3\r\n\r\nbad", b"400"),
    (HEAD + b"Penstock-Key: " + b"k" * 40_000 + b"\r\nContent-Length: 3\r\n\r\nbad", b"400"),
    (HEAD + b"Content-Length: 99999999999999999999\r\n\r\nbad", b"4"),
    (HEAD + b"Content-Length: 3000000000\r\n\r\n" + b"x" * 200_000, b"413"),
    (b"POST /events/..%2f..%2fetc/passwd HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbad", b"404"),
    (b"POST http://other/events2 HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbad", b"40"),
    (b"PUT /events HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbad", b"405"),
)
"""Requests, and how the status of the answer begins."""


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    started = Receiver(tmp_path, HTTP)
    yield started
    assert started.stop() == 0


def answer(receiver: Receiver, data: bytes) -> bytes:
    """What a raw connection gets until the receiver closes it."""
    with socket.create_connection(receiver.address("http"), timeout=30) as client:
        with suppress(ConnectionError):
            client.sendall(data)
        found = b""
        with suppress(ConnectionError):
            while part := client.recv(65536):
                found += part
    return found


def peak_mb(receiver: Receiver) -> float:
    lines = Path(f"/proc/{receiver.pid}/status").read_text().splitlines()
    [peak] = [line.split()[1] for line in lines if line.startswith("VmHWM")]
    return int(peak) / 1000


def test_malformed_requests_are_answered_by_a_refusal_and_nothing_of_them_is_written(tmp_path: Path, receiver: Receiver) -> None:
    for data, status in MALFORMED:
        found = answer(receiver, data)
        assert found.startswith((b"HTTP/1.1 " + status, b"HTTP/1.0 " + status)), (data[:200], found[:200])
        assert b"Traceback" not in found
    assert Client(receiver).post(b"good")[0] == 200
    assert values(tmp_path) == [b"good"]


def test_a_request_behind_another_one_is_only_what_it_is(tmp_path: Path, receiver: Receiver) -> None:
    """A body that looks like a request is a body, and what follows a body is a request or nothing."""
    inner = HEAD + b"Content-Length: 5\r\n\r\ninner"
    found = answer(receiver, HEAD + b"Content-Length: %d\r\n\r\n%s" % (len(inner), inner))
    assert found.count(b"HTTP/1.1 200") == 1
    stays = HEAD.replace(b"Connection: close\r\n", b"")
    found = answer(receiver, stays + b"Content-Length: 5\r\n\r\nouter" + b"and more that is no request\r\n\r\n")
    assert b" 400 " in found
    assert values(tmp_path) == [inner, *([b"outer"] if b" 200 " in found else [])]


def test_what_takes_more_memory_than_bytes_is_refused(tmp_path: Path) -> None:
    """Bombs: of gzip, of many tiny events, and of headers that each of them gets."""
    started = Receiver(tmp_path, "http: {listen: 127.0.0.1:0, max_body: 16MB}")
    client, packed = Client(started), {"Content-Encoding": "gzip"}
    client.post(b"first")
    before = peak_mb(started)
    lines, array = {"Content-Type": "application/x-ndjson"}, {"Content-Type": "application/json"}
    bombs = (
        (gzip.compress(bytes(200_000_000)), packed),
        (gzip.compress(b"x\n" * 7_000_000), {**packed, **lines}),
        (gzip.compress(b"[" + b"0," * 7_000_000 + b"0]"), {**packed, **array}),
        (b"x\n" * 50_000, {**lines, "Penstock-Key": "k" * 8_000}),
    )
    assert [client.post(body, headers)[0] for body, headers in bombs] == [413] * len(bombs)
    assert peak_mb(started) - before < 200
    assert client.post(b"last")[0] == 200
    assert started.stop() == 0
    assert values(tmp_path) == [b"first", b"last"]


@pytest.mark.campaign
def test_idle_connections_keep_nobody_out_and_take_little_memory(tmp_path: Path) -> None:
    """They are cut off after a while; those who come meanwhile are answered."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _OWN_FILES
    count = min(IDLE, most)
    started = Receiver(tmp_path, f"http: {{listen: 127.0.0.1:0, max_connections: {2 * count}, body_timeout: 20s}}")
    address, before = started.address("http"), peak_mb(started)
    with ExitStack() as opened:
        idle = [opened.enter_context(socket.create_connection(address, timeout=60)) for _ in range(count)]
        for number, each in enumerate(idle):
            each.sendall(HEAD[: number % len(HEAD)])
        assert Client(started).post(b"beside")[0] == 200
        assert (peak_mb(started) - before) / count < 0.05, "of memory for each, in MB"
        for each in idle:
            with suppress(ConnectionResetError):
                while each.recv(1000):
                    pass
    print(f"{count} idle connections took {peak_mb(started) - before:.0f} MB")
    assert Client(started).post(b"behind")[0] == 200
    assert started.stop() == 0
    assert values(tmp_path) == [b"beside", b"behind"]
