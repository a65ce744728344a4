"""HTTP clients as anyone would write them: each numbers its events, and sends again whatever was not answered."""

import http.client
import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

FLIGHTS_PER_REQUEST = 100
_TIMEOUT_S = 30
_AGAIN_S = 0.1


@dataclass
class Counts:
    """What all clients together did. `repeats`: events that they sent again, and that had arrived at the first time."""

    requests: int = 0
    answered: int = 0
    unanswered: int = 0
    repeats: int = 0


class Clients:
    """Threads that each send a part of `events` in its order: together `events_per_s` at most, and no more than `allow` says."""

    def __init__(self, events: Sequence[bytes], *, clients: int, address: tuple[str, int], events_per_s: float) -> None:
        self._address, self._pause_s = address, FLIGHTS_PER_REQUEST * clients / events_per_s
        self._changed, self._allowed = threading.Condition(), 0
        self._is_ended, self._sent = threading.Event(), 0
        self.error = ""
        size = -(-len(events) // clients)
        parts = [events[begin : begin + size] for begin in range(0, len(events), size)]
        named = {f"client-{number}": part for number, part in enumerate(parts, 1)}
        self._threads = [threading.Thread(target=self._send, args=each, daemon=True) for each in named.items()]
        self.counts = Counts()

    def start(self) -> None:
        """Let them send as much as is allowed."""
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Let them end, also if not everything is sent."""
        self._is_ended.set()
        self.allow(0)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def allow(self, events: int) -> None:
        """Let clients go on until that many events are sent in all."""
        with self._changed:
            self._allowed = max(self._allowed, events)
            self._changed.notify_all()

    @property
    def is_done(self) -> bool:
        """Whether every event is answered. `error` says why a client gave up."""
        return not any(thread.is_alive() for thread in self._threads)

    def _send(self, name: str, events: Sequence[bytes]) -> None:
        """Send events 1, 2, 3 of the producer `name`: the next ones when these are answered."""
        connection = http.client.HTTPConnection(*self._address, timeout=_TIMEOUT_S)
        at, due_s = 0, time.monotonic()
        while at < len(events) and self._may_send(len(events[at : at + FLIGHTS_PER_REQUEST])):
            body = events[at : at + FLIGHTS_PER_REQUEST]
            while not self._is_answered(connection, name, at + 1, body):
                if self._is_ended.wait(_AGAIN_S):
                    return
            at += len(body)
            due_s = max(due_s, time.monotonic() - self._pause_s) + self._pause_s
            self._is_ended.wait(max(0.0, due_s - time.monotonic()))
        connection.close()

    def _may_send(self, events: int) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._is_ended.is_set() or self._sent + events <= self._allowed)
            self._sent += events
        return not self._is_ended.is_set()

    def _is_answered(self, connection: http.client.HTTPConnection, name: str, number: int, events: Sequence[bytes]) -> bool:
        headers = {"Content-Type": "application/x-ndjson", "Penstock-Producer": name, "Penstock-Sequence": str(number)}
        try:
            if connection.sock is None:
                connection.connect()
        except OSError:
            return False  # the receiver is not there: nothing was sent
        try:
            connection.request("POST", "/events", b"\n".join(events), headers)
            response = connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            self._count(Counts(requests=1, unanswered=1))
            return False
        if response.status in {429, 503}:
            self._count(Counts(requests=1))
            self._is_ended.wait(float(response.headers["Retry-After"]))
            return False
        if response.status != 200:
            self.error = f"{name} was refused: {response.status} {text.decode(errors='replace')}"
            self._is_ended.set()
            return False
        self._count(Counts(requests=1, answered=len(events), repeats=json.loads(text)["repeats"]))
        return True

    def _count(self, more: Counts) -> None:
        with self._changed:
            for name, number in vars(more).items():
                setattr(self.counts, name, getattr(self.counts, name) + number)
