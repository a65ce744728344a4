"""Clients of a receiver that is killed under them. Each keeps its own record of what it sent and what was acknowledged.

Numbered events are to be in a sink once, all of them. Events without a number have a text of their own in each try: a try that
was acknowledged is to be there once, another one may be there once, and what was never sent whole is not.
"""

import gzip
import http.client
import json
import random
import socket
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

_TIMEOUT_S, _AGAIN_S = 5.0, 0.05
_LINES = {"Content-Type": "application/x-ndjson"}
_REFUSED = frozenset({400, 401, 408, 409, 413})
"""Statuses by which nothing of a request was taken; by 429 and 503 it may have been, since the same is to be sent again."""
Row = tuple[str, str | None, int | None]
"""A sink's row: value, producer and the producer's number."""


@dataclass
class Record:
    """What clients know. `numbered`: the newest number of each producer that was acknowledged; the others by text."""

    numbered: dict[str, int] = field(default_factory=dict)
    acknowledged: set[str] = field(default_factory=set)
    unanswered: set[str] = field(default_factory=set)
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def problems(self, found: Counter[Row]) -> list[str]:
        """Return what is wrong with the rows of a sink."""
        numbered = Counter(
            (f"{name} {number}", name, number) for name, last in self.numbered.items() for number in range(1, last + 1)
        )
        plain = Counter({row: count for row, count in found.items() if row[1] is None})
        acknowledged = Counter((text, None, None) for text in self.acknowledged)
        differences = {
            "numbered, lost": numbered - (found - plain),
            "numbered, too many": (found - plain) - numbered,
            "acknowledged, lost": acknowledged - plain,
            "without a number, too many": plain - acknowledged - Counter((text, None, None) for text in self.unanswered),
        }
        return [f"{what}: {rows.total()}, such as {min(rows)}" for what, rows in differences.items() if rows]


class Clients:
    """Threads that send until `finish`; each then gets its last event acknowledged. `http` and `tcp` say where, now."""

    def __init__(self, seed: int, *, http: Callable[[], tuple[str, int]], tcp: Callable[[], tuple[str, int]]) -> None:
        self.record = Record()
        self._http, self._tcp, self._ends = http, tcp, threading.Event()
        kinds: Mapping[str, tuple[int, Callable[[str, random.Random], None]]] = {
            "http": (3, self._numbered),
            "tcp": (2, self._lines),
            "plain": (2, self._plain),
            "slow": (2, self._slow),
            "liar": (2, self._lie),
        }
        named = {f"{kind}{number}": send for kind, (count, send) in kinds.items() for number in range(count)}
        self._threads = [
            threading.Thread(target=self._guarded, args=(send, name, random.Random(f"{seed} {name}")), name=name, daemon=True)
            for name, send in named.items()
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self, within_s: float = 120) -> None:
        """Let each end with an acknowledgement."""
        self._ends.set()
        for thread in self._threads:
            thread.join(within_s)
            assert not thread.is_alive(), f"{thread.name} got no answer in {within_s} s"
        assert self.record.wrong == []

    def storm(self, generator: random.Random, connections: int = 100) -> None:
        """Connect many times at once, and go again: some have sent half a request."""
        opened: list[socket.socket] = []
        for _ in range(connections):
            with suppress(OSError):
                opened.append(socket.create_connection(generator.choice((self._http, self._tcp))(), timeout=_TIMEOUT_S))
                opened[-1].sendall(b"POST /events HTTP/1.1\r\nContent-Le"[: generator.randint(0, 33)])
        for each in opened:
            each.close()

    def _guarded(self, send: Callable[[str, random.Random], None], name: str, generator: random.Random) -> None:
        try:
            send(name, generator)
        except Exception as error:  # noqa: BLE001 - shown by `finish`
            self.record.wrong.append(f"{name}: {error!r}")

    # --- numbered events

    def _numbered(self, name: str, generator: random.Random) -> None:
        """By HTTP, several at a time. Some are sent again though they were acknowledged, and some too early."""
        last = self.record.numbered[name] = 0
        while not self._ends.is_set():
            count = generator.randint(1, 20)
            while self._answer(name, last + 1, count) != 200:
                self._ends.wait(_AGAIN_S)
            last = self.record.numbered[name] = last + count
            if generator.random() < 0.1:
                self._require(self._answer(name, last - count + 1, count), {200, 0, 429, 503}, name)
            if generator.random() < 0.1:
                self._require(self._answer(name, last + 2, 1), {409, 0, 429, 503}, name)
            self._ends.wait(generator.uniform(0, 0.1))

    def _answer(self, name: str, first: int, count: int) -> int:
        body = "\n".join(f"{name} {number}" for number in range(first, first + count)).encode()
        return self._post(body, {**_LINES, "Penstock-Producer": name, "Penstock-Sequence": str(first)})

    def _lines(self, name: str, generator: random.Random) -> None:
        """By TCP, many lines ahead of their answers. After a cut it sends again what was not answered, and some more."""
        last = self.record.numbered[name] = 0
        while not self._ends.is_set():
            until = last + generator.randint(1, 60)
            while last < until:
                again = max(1, last + 1 - generator.randint(0, 3))
                last = self.record.numbered[name] = max(last, self._pushed(name, again, until))
                if last < until:
                    self._ends.wait(_AGAIN_S)
            self._ends.wait(generator.uniform(0, 0.2))

    def _pushed(self, name: str, first: int, until: int) -> int:
        """Return the newest number that was answered."""
        answered = first - 1
        with suppress(OSError), socket.create_connection(self._tcp(), timeout=_TIMEOUT_S) as client:
            client.sendall("".join(f"{name} {number} {name} {number}\n" for number in range(first, until + 1)).encode())
            with client.makefile("rb") as answers:
                while answered < until and answers.readline().startswith(b"OK"):
                    answered += 1
        return answered

    def _slow(self, name: str, generator: random.Random) -> None:
        """By HTTP, a request in pieces, some of them so late that the receiver gives it up."""
        last = self.record.numbered[name] = 0
        while not self._ends.is_set() or last == 0:
            number, pause_s = last + 1, 0 if self._ends.is_set() else generator.choice((0.02, 0.1, 0.6))
            body = f"{name} {number}".encode()
            head = f"POST /events HTTP/1.1\r\nHost: h\r\nPenstock-Producer: {name}\r\nPenstock-Sequence: {number}\r\n"
            data = head.encode() + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
            if self._sent_slowly(data, pause_s, pieces=generator.randint(1, 6)):
                last = self.record.numbered[name] = number
            else:
                self._ends.wait(_AGAIN_S)

    def _sent_slowly(self, data: bytes, pause_s: float, *, pieces: int) -> bool:
        size = -(-len(data) // pieces)
        with suppress(OSError), socket.create_connection(self._http(), timeout=_TIMEOUT_S) as client:
            for at in range(0, len(data), size):
                client.sendall(data[at : at + size])
                if pause_s:
                    self._ends.wait(pause_s)
            return client.recv(100).startswith(b"HTTP/1.1 200 ")
        return False

    # --- without a number

    def _plain(self, name: str, generator: random.Random) -> None:
        """By HTTP, each try with a text of its own."""
        tries = 0
        while not self._ends.is_set():
            tries += 1
            texts = [f"{name} try {tries} line {line}" for line in range(generator.randint(1, 5))]
            self.record.unanswered.update(texts)
            packed = generator.random() < 0.3
            body = "\n".join(texts).encode()
            status = self._post(
                gzip.compress(body) if packed else body, {**_LINES, **({"Content-Encoding": "gzip"} if packed else {})}
            )
            if status in _REFUSED or status == 200:
                self.record.unanswered.difference_update(texts)
            if status == 200:
                self.record.acknowledged.update(texts)
            self._ends.wait(generator.uniform(0, 0.1))

    def _lie(self, name: str, generator: random.Random) -> None:
        """Requests that do not have what they say. What is shorter than it says ends where it says."""
        tries = 0
        while not self._ends.is_set():
            tries += 1
            text = f"{name} try {tries}"
            body, request = text.encode(), b"POST /events HTTP/1.1\r\nHost: h\r\n"
            cut = gzip.compress(body)[: -generator.randint(1, 8)]
            lies: Sequence[tuple[bytes, bool]] = (
                (request + b"Content-Length: %d\r\n\r\n%s" % (len(body) + 9, body), False),
                (request + b"Content-Length: %d\r\n\r\n%s and more" % (len(body), body), True),
                (request + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s" % (len(body) + 5, body), False),
                (request + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n%s" % body, False),
                (request + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s" % (len(cut), cut), False),
                (request + b"Penstock-Sequence: 1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body), False),
                (request + b"Content-Length: -1\r\n\r\n" + body, False),
                (b"%s\r\n\r\n" % body, False),
            )
            data, is_event = generator.choice(lies)
            if is_event:
                self.record.unanswered.add(text)
            if self._is_taken(data, waits=is_event):
                assert is_event, data
                self.record.unanswered.discard(text)
                self.record.acknowledged.add(text)
            self._ends.wait(generator.uniform(0, 0.1))

    def _is_taken(self, data: bytes, *, waits: bool) -> bool:
        """Send, and end the sending side unless the answer is awaited: the receiver sees that no more comes."""
        with suppress(OSError), socket.create_connection(self._http(), timeout=_TIMEOUT_S) as client:
            client.sendall(data)
            if not waits:
                client.shutdown(socket.SHUT_WR)
            return client.recv(100).startswith(b"HTTP/1.1 200 ")
        return False

    def _post(self, body: bytes, headers: Mapping[str, str]) -> int:
        """Return the status of the answer, 0 without one."""
        status = 0
        connection = http.client.HTTPConnection(*self._http(), timeout=_TIMEOUT_S)
        with suppress(OSError, http.client.HTTPException, json.JSONDecodeError):
            connection.request("POST", "/events", body, headers)
            response = connection.getresponse()
            answer = response.read()
            if response.status == 200:
                json.loads(answer)
            status = response.status
        connection.close()
        self.record.statuses[status] += 1
        return status

    def _require(self, status: int, allowed: set[int], name: str) -> None:
        if status not in allowed:
            self.record.wrong.append(f"{name} was answered by {status}")
