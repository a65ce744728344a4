"""A server that takes what a run sends, and keeps it; it may refuse, or hang as a broken one does."""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Request:
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """`answers`: the statuses of the next answers, then 200. `hangs`: no request is answered before it is released."""

    url: str = ""
    answers: list[tuple[int, Mapping[str, str]]] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    hangs: bool = False
    released: threading.Event = field(default_factory=threading.Event)
    came: threading.Condition = field(default_factory=threading.Condition)

    def take(self, request: Request) -> tuple[int, Mapping[str, str]]:
        with self.came:
            self.requests.append(request)
            self.came.notify_all()
            answer = self.answers.pop(0) if self.answers else (200, {})
        if self.hangs:
            self.released.wait(60)
        return answer

    def wait_for(self, count: int) -> Sequence[Request]:
        """All requests, once there are `count` of them."""
        with self.came:
            assert self.came.wait_for(lambda: len(self.requests) >= count, 30), f"{len(self.requests)} of {count} requests came"
            return list(self.requests)


@contextmanager
def receiving(*, hangs: bool = False) -> Iterator[Receiver]:
    """A receiver that answers while the body runs."""
    receiver = Receiver(hangs=hangs)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, more = receiver.take(Request(self.path, headers, body))
            try:
                self.send_response(status)
                for name, value in {"Content-Length": "0", **more}.items():
                    self.send_header(name, value)
                self.end_headers()
            except OSError:  # the client went
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Nothing goes to the terminal."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A client that went is no error here."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield receiver
    finally:
        receiver.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


def closed_url() -> str:
    """A URL at which nobody listens."""
    with receiving() as gone:
        return gone.url
