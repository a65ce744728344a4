"""Clients that send events and await their acknowledgements: so many at a time, or so many events a second. Run in a process.

Every event is sent once, and begins with the number of its client and its own: a receiver's content is known.
"""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer

from bench.measuring import SPOILT

_GROUP_MS = 10
"""At a steady rate each client sends so many milliseconds' events at once."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """`clients` send events of `size` bytes for `seconds`; each awaits its answer, or sends its part of `rate` events a second.

    `address`: `HOST:PORT` of a receiver or of a broker. `spoilt`: an event is changed on its way.
    """

    address: str
    clients: int
    size: int
    seconds: float
    rate: int = 0
    topic: str = ""
    spoilt: bool = False

    def event(self, client: int, number: int) -> bytes:
        """Return the event as it is sent."""
        shown = -1 if self.spoilt and number == SPOILT else number
        return expected_event(client, shown, self.size)


@dataclass(frozen=True, kw_only=True)
class Sent:
    """How many events of each client were acknowledged, how late each answer was, and how long it took in all."""

    counts: tuple[int, ...]
    late_ms: Sequence[float]
    seconds: float

    @property
    def events(self) -> int:
        return sum(self.counts)


def expected_event(client: int, number: int, size: int) -> bytes:
    return b"%d-%d-" % (client, number) + b"x" * (size - len(b"%d-%d-" % (client, number)))


Send = Callable[[Load], Sent]


def http(load: Load) -> Sent:
    """An event a request, or at a steady rate lines of them, on connections that stay."""
    return asyncio.run(_connections(load, _HttpClient))


def tcp(load: Load) -> Sent:
    """Lines that are answered."""
    return asyncio.run(_connections(load, _LineClient))


class _Client(asyncio.Protocol):
    """One connection. `expected` has the time of sending of what is not answered yet, with its number of events."""

    def __init__(self, load: Load, number: int, until: float) -> None:
        self._load, self._number, self._until = load, number, until
        self._sent, self._late, self._expected = 0, list[float](), list[tuple[float, int]]()
        self._received, self._is_all_sent = b"", False
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    async def send(self) -> tuple[int, list[float]]:
        """Send until the end, and return how many were answered, and how late."""
        if self._load.rate:
            for due, events in _schedule(self._load, self._until):
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                self._write(due, events)
            self._is_all_sent = True
            self._end()
        else:
            self._write(time.perf_counter(), 1)
        await self.done
        self._transport.close()
        return self._sent, self._late

    def data_received(self, data: bytes) -> None:
        *answers, self._received = self._split(self._received + data)
        now = time.perf_counter()
        for answer in answers:
            self._require(answer)
            at, events = self._expected.pop(0)
            self._late += [(now - at) * 1000] * events
            if not self._load.rate and now < self._until:
                self._write(now, 1)
        self._is_all_sent |= not self._load.rate and now >= self._until
        self._end()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(AssertionError(f"the receiver cut the connection: {error}"))

    def _end(self) -> None:
        if self._is_all_sent and not self._expected and not self.done.done():
            self.done.set_result(None)

    def _write(self, at: float, events: int) -> None:
        bodies = [self._load.event(self._number, self._sent + number) for number in range(events)]
        self._sent += events
        self._transport.write(self._message(bodies, at))

    def _message(self, bodies: Sequence[bytes], at: float) -> bytes:
        raise NotImplementedError

    def _split(self, data: bytes) -> list[bytes]:
        raise NotImplementedError

    def _require(self, answer: bytes) -> None:
        raise NotImplementedError


class _HttpClient(_Client):
    def _message(self, bodies: Sequence[bytes], at: float) -> bytes:
        self._expected.append((at, len(bodies)))
        body, kind = b"\n".join(bodies), b"application/x-ndjson" if len(bodies) > 1 else b"application/octet-stream"
        return b"POST /events HTTP/1.1\r\nHost: h\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s" % (kind, len(body), body)

    def _split(self, data: bytes) -> list[bytes]:
        found = []
        while (end := data.find(b"\r\n\r\n")) >= 0:
            head = data[:end].lower()
            end += 4 + int(head[head.index(b"content-length:") + 15 :].split(b"\r\n")[0])
            if len(data) < end:
                break
            found.append(data[:end])
            data = data[end:]
        return [*found, data]

    def _require(self, answer: bytes) -> None:
        assert answer.startswith(b"HTTP/1.1 200 "), answer


class _LineClient(_Client):
    def _message(self, bodies: Sequence[bytes], at: float) -> bytes:
        self._expected += [(at, 1)] * len(bodies)
        return b"".join(body + b"\n" for body in bodies)

    def _split(self, data: bytes) -> list[bytes]:
        return data.split(b"\n")

    def _require(self, answer: bytes) -> None:
        assert answer.startswith(b"OK "), answer


def _schedule(load: Load, until: float) -> Iterator[tuple[float, int]]:
    """Yield when a client sends, and how many events; clients take turns."""
    began, events = until - load.seconds, max(1, load.rate * _GROUP_MS // 1000 // load.clients)
    pause_s = events * load.clients / load.rate
    for turn in range(int(load.seconds / pause_s)):
        yield began + turn * pause_s, events


async def _connections(load: Load, client: "type[_Client]") -> Sent:
    host, _, port = load.address.rpartition(":")
    loop, began = asyncio.get_running_loop(), time.perf_counter()
    until = began + load.seconds
    opened = [
        (await loop.create_connection(lambda number=number: client(load, number, until), host, int(port)))[1]  # type: ignore[misc]
        for number in range(load.clients)
    ]
    parts = await asyncio.gather(*(each.send() for each in opened))
    return _sent(parts, time.perf_counter() - began)


def _sent(parts: Sequence[tuple[int, list[float]]], seconds: float) -> Sent:
    return Sent(counts=tuple(count for count, _ in parts), late_ms=[each for _, late in parts for each in late], seconds=seconds)


# --- Kafka


def _producer(load: Load, linger_ms: int) -> Producer:
    settings = {"bootstrap.servers": load.address, "acks": "all", "linger.ms": linger_ms, "socket.nagle.disable": True}
    return Producer({**settings, "log_level": 0})


def kafka_alone(load: Load) -> Sent:
    """Each client has a producer, and awaits the acknowledgement of its only record: each message is flushed by itself."""
    parts: dict[int, tuple[int, list[float]]] = {}

    def send(number: int, until: float) -> None:
        producer, late, sent = _producer(load, 0), list[float](), 0
        while (at := time.perf_counter()) < until:
            producer.produce(load.topic, load.event(number, sent), partition=0)
            assert producer.flush(60) == 0
            late.append((time.perf_counter() - at) * 1000)
            sent += 1
        parts[number] = (sent, late)

    began = time.perf_counter()
    threads = [threading.Thread(target=send, args=(number, began + load.seconds)) for number in range(load.clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return _sent([parts[number] for number in range(load.clients)], time.perf_counter() - began)


def kafka_grouped(load: Load) -> Sent:
    """All clients share a producer, which sends what waits together: a group is flushed at once."""
    shared = _SharedProducer(load)
    if load.rate:
        shared.produce_at_rate()
    else:
        for client in range(load.clients):
            shared.produce(client, time.perf_counter())
    return shared.finish()


class _SharedProducer:
    def __init__(self, load: Load) -> None:
        self._load, self._producer, self._began = load, _producer(load, 1), time.perf_counter()
        self._until = self._began + load.seconds
        self._sent, self._late = [0] * load.clients, list[float]()

    def produce(self, client: int, at: float) -> None:
        """Send a client's next event; at no rate its answer brings the one after it."""

        def answered(error: Any, _: Any) -> None:
            assert error is None, error
            now = time.perf_counter()
            self._late.append((now - at) * 1000)
            if not self._load.rate and now < self._until:
                self.produce(client, now)

        event = self._load.event(client, self._sent[client])
        self._producer.produce(self._load.topic, event, partition=0, on_delivery=answered)
        self._sent[client] += 1

    def produce_at_rate(self) -> None:
        for due, events in _schedule(self._load, self._until):
            while (wait_s := due - time.perf_counter()) > 0:
                self._producer.poll(wait_s)
            for client in range(self._load.clients):
                for _ in range(events):
                    self.produce(client, due)

    def finish(self) -> Sent:
        while len(self._late) < sum(self._sent):
            self._producer.poll(1)
        return Sent(counts=tuple(self._sent), late_ms=self._late, seconds=time.perf_counter() - self._began)


class LineClient:
    """A connection whose lines are sent and whose answers are read at the end."""

    def __init__(self, host: str, port: int) -> None:
        self._socket, self._lines = socket.create_connection((host, port)), 0

    def send(self, lines: Sequence[str]) -> None:
        self._lines += len(lines)
        self._socket.sendall("".join(f"{line}\n" for line in lines).encode())

    def close(self) -> None:
        """Read the answers: all lines are durable then."""
        with self._socket, self._socket.makefile("rb") as answers:
            for _ in range(self._lines):
                assert next(answers).startswith(b"OK ")
