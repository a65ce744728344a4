"""A network that fails: an HTTP proxy before a real server that loses answers, says to slow down, or breaks off in a request.

It can also answer in the server's stead what the real store would answer, where the server has no such thing.
"""

import http.client
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from tests.servers.serving import serving

Matches = Callable[[str, str], bool]
"""Of a method and a path with its query."""

Answer = tuple[int, list[tuple[str, str]], bytes]
"""Status, headers and body."""

KINDS = ("lost", "slow down", "reset")
NOT_FOUND = "not found"
"""As a gateway answers that has lost its way; what the store itself says of a part that is gone looks the same."""
BAD_GATEWAY = "bad gateway"
"""The server did what it was asked for, and a gateway answers that it does not know."""
_UNAUTHORIZED = b'{"error": {"message": "no such token", "type": "NotAuthorizedException", "code": 401}}'
_REDIRECT = 307
_PER_HOP = {"connection", "transfer-encoding", "keep-alive", "content-length"}


class Proxy(ThreadingHTTPServer):
    """Fails the first `times` requests that match, in one of KINDS, as NOT_FOUND or as a BAD_GATEWAY."""

    daemon_threads = True

    def __init__(self, target: str, *, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.target = urlsplit(target).netloc
        self.kind, self.matches, self.left = "", _nothing, 0
        self.hits = 0
        self.seen: list[tuple[str, str]] = []
        """Method and path of every request, also of those that fail."""
        self.connections = 0
        self.redirected = 0
        """Answers that send the client elsewhere, past this proxy."""
        self.through = False
        """Whether they are changed to send it through this proxy."""
        self.elsewhere: dict[str, str] = {}
        self.told: tuple[Matches, bytes] | None = None
        self.token = ""
        """What clients must bear, if anything."""
        self._lock = threading.Lock()

    @property
    def endpoint(self) -> str:
        """To be given instead of the server's."""
        return f"{self._scheme}://127.0.0.1:{self.server_address[1]}"

    def arm(self, kind: str, matches: Matches, *, times: int) -> None:
        """From now on."""
        self.kind, self.matches, self.left, self.hits = kind, matches, times, 0

    def tell(self, matches: Matches, answer: bytes) -> None:
        """From now on, in the server's stead."""
        self.told = (matches, answer)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections += 1
        super().process_request(request, client_address)

    def due(self, method: str, path: str) -> str:
        """The kind of fault for this request, empty for none."""
        with self._lock:
            self.seen.append((method, path))
            if self.left == 0 or not self.matches(method, path):
                return ""
            self.left -= 1
            self.hits += 1
            return self.kind


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each body waits for the acknowledgement of its headers
    server: Proxy

    def _handle(self) -> None:
        kind = self.server.due(self.command, self.path)
        length = int(self.headers.get("Content-Length") or 0)
        if kind == "reset":
            self.rfile.read(length // 2)
            self._break_off()
            return
        body = self.rfile.read(length)
        instead = self._instead(kind)
        if instead is not None:
            self._answer(*instead)
            return
        status, headers, data = self._forward(body)
        if self.server.through and status == _REDIRECT:
            headers = [(name, self._through(value) if name.lower() == "location" else value) for name, value in headers]
        if kind == "lost":
            self._break_off()
            return
        if kind == BAD_GATEWAY:
            status, headers, data = 502, [("Content-Type", "text/plain")], b"Bad Gateway"
        self._answer(status, headers, data)

    def _instead(self, kind: str) -> Answer | None:
        """What is answered in the server's stead, if it is not asked."""
        if self.server.token and self.headers.get("Authorization") != f"Bearer {self.server.token}":
            return 401, [("Content-Type", "application/json")], _UNAUTHORIZED
        if self.server.told is not None and self.server.told[0](self.command, self.path):
            return 200, [("Content-Type", "application/json")], self.server.told[1]
        if kind == "slow down":
            return 503, [("Retry-After", "1"), ("Content-Type", "text/plain")], b"slow down"
        return (404, [("Content-Type", "text/plain")], b"Not Found") if kind == NOT_FOUND else None

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _handle  # noqa: N815 - named by http.server

    def _forward(self, body: bytes) -> Answer:
        target = self.server.elsewhere.pop(self.path, self.server.target)
        there = http.client.HTTPConnection(target, timeout=30)
        try:
            there.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() != "expect":
                    there.putheader(name, value)
            there.endheaders(body or None)
            answer = there.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            there.close()

    def _through(self, location: str) -> str:
        there = urlsplit(location)
        path = there._replace(scheme="", netloc="").geturl()
        self.server.elsewhere[path] = there.netloc
        return self.server.endpoint + path

    def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes) -> None:
        self.server.redirected += status == _REDIRECT
        self.send_response_only(status)
        lengths = [value for name, value in headers if name.lower() == "content-length"]
        for name, value in headers:
            if name.lower() not in _PER_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", lengths[0] if self.command == "HEAD" and lengths else str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _break_off(self) -> None:
        """With a reset, not a polite end."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True
        self.rfile = self.wfile = _Closed()

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - named by http.server
        """Silence."""


class _Closed:
    """For the handler to finish with."""

    closed = True

    def flush(self) -> None: ...

    def close(self) -> None: ...


def _nothing(method: str, path: str) -> bool:
    return False


@contextmanager
def before(target: str, *, tls: ssl.SSLContext | None = None) -> Iterator[Proxy]:
    """A proxy before the server at `target`, which itself is asked without TLS."""
    proxy = Proxy(target, tls=tls)
    with serving(proxy):
        yield proxy
