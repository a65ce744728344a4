"""The rigs of the HTTP sink: an endpoint that remembers keys, and says what it was given."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any
from urllib.request import Request, urlopen

from tests.conformance.in_tasks import run_in_turn

from penstock.core.model import SinkName
from penstock.sink.http.client import KEY_HEADER, Endpoint
from penstock.sink.http.layout import Layout
from penstock.sink.http.sink import HttpSink
from penstock.sink.own import from_json_lines
from penstock.spark.schema import arrow_schema
from penstock.testing.conformance import Row, SinkRig


@dataclass
class Received:
    """What an endpoint was given, by key, in its order."""

    bodies: dict[str, bytes] = field(default_factory=dict)
    repeated: int = 0
    headers: list[dict[str, str]] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def take(self, key: str, body: bytes, headers: dict[str, str]) -> int:
        """Return the status that the request is answered with."""
        with self.lock:
            self.headers.append(headers)
            if key in self.bodies:
                self.repeated += 1
                return 200 if sha256(self.bodies[key]).digest() == sha256(body).digest() else 422
            self.bodies[key] = body
            return 201

    def lines(self) -> list[str]:
        """All rows, whatever the bodies are made of."""
        with self.lock:
            bodies = list(self.bodies.values())
        return [line for body in bodies for line in _lines(body)]


def _lines(body: bytes) -> list[str]:
    text = body.decode()
    if text.startswith("["):
        return [json.dumps(row) for row in json.loads(text)]
    return text.splitlines() if text.endswith("\n") else [text]


class Handler(BaseHTTPRequestHandler):
    """Answers as `answer` says, a status, or by what was `received`."""

    protocol_version = "HTTP/1.1"
    received: Received

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.reply(self.received.take(self.headers[KEY_HEADER], body, dict(self.headers)))

    def do_OPTIONS(self) -> None:
        self.reply(204)

    def do_DELETE(self) -> None:
        self.received.bodies.popitem()
        self.reply(204)

    def do_GET(self) -> None:
        self.reply(200, "".join(f"{line}\n" for line in self.received.lines()).encode())

    def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def endpoint(handler: type[Handler] = Handler) -> Iterator[tuple[str, Received]]:
    """Run an endpoint of this process, and yield its URL and what it was given."""
    received = Received()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (handler,), {"received": received}))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/rows", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class HttpRig(SinkRig):
    """A batch is one request, so that a reader sees a batch at once."""

    inline_limit_bytes = 0
    layout = Layout(body="json_lines", rows=1000, size_bytes=1_000_000, lanes=1)

    def __init__(self, directory: Path, url: str) -> None:
        super().__init__(directory)
        self.url = url

    def make(self) -> HttpSink:
        return HttpSink(
            name=SinkName("posted"),
            spool=str(self.directory / "spool"),
            endpoint=Endpoint(url=self.url, name=self.url),
            layout=self.layout,
            remembers_keys=True,
            inline_limit_bytes=self.inline_limit_bytes,
        )

    def read_back(self) -> Sequence[Row]:
        with urlopen(self.url) as answer:
            lines = answer.read().decode().splitlines()
        rows: list[Row] = from_json_lines(lines, arrow_schema(self.schema)).to_pylist()
        return rows

    def damage(self, kind: str) -> None:
        assert kind == "lost"
        with urlopen(Request(self.url, method="DELETE")):
            pass

    def leftovers(self) -> Sequence[str]:
        return [str(path) for path in self.directory.glob("spool/**/*") if path.is_file() and path.suffix != ".id"]

    def lose_staging(self) -> None:
        for path in self.leftovers():
            Path(path).unlink()


class RecordRig(HttpRig):
    """A row is a request, four at a time."""

    layout = Layout(body="record", rows=1, size_bytes=1_000_000, lanes=4)
    whole_batches = False

    def unit_of(self, row: Row) -> object:
        return row["id"]


class KeyedRig(RecordRig):
    """Rows of one place are sent in their order; pieces are inline."""

    layout = Layout(body="json_array", rows=1, size_bytes=1_000_000, lanes=3, key=("place",))
    inline_limit_bytes = 100_000


class LanesInTasksRig(RecordRig):
    """Each lane is a task."""

    def make(self) -> HttpSink:
        sink = super().make()
        sink.publish_by(run_in_turn)
        return sink


class KeysInTasksRig(LanesInTasksRig):
    """Rows of one place are in one lane; what a lane sends does not depend on the rows of others."""

    layout = Layout(body="json_lines", rows=7, size_bytes=300, lanes=3, key=("place",))
