"""Serves metrics, health and the page over HTTP: `/metrics` for Prometheus, `/livez`, `/readyz` and `/healthz` for probes.

Needs the extra `metrics`.
"""

import hmac
import sys
from base64 import b64decode
from collections.abc import Callable, Iterable, Sequence
from socket import AF_INET6
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from penstock.errors import Failed, Usage
from penstock.observe.batch_metrics import BatchCollector
from penstock.observe.listening import Listening
from penstock.observe.look import Look, looks
from penstock.observe.metrics import StatusCollector
from penstock.observe.page import serving
from penstock.observe.page.watched import Watched
from penstock.support.listening import server_context

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

TEXT = ("Content-Type", "text/plain; charset=utf-8")
SLOWEST_CLIENT_S = 30.0
"""A client that sends its request more slowly is cut off."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """Without `WSGIServer`'s look-up of the machine's name, which can take seconds."""
        super(WSGIServer, self).server_bind()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that went away, or that speaks no TLS; print what else went wrong."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _ServerIPv6(_Server):
    address_family = AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = SLOWEST_CLIENT_S

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the name is the base class's
        """Say nothing of each request: a scraper asks every few seconds."""


def server_of(listening: Listening, pipelines: Sequence[Watched]) -> WSGIServer:
    """Return the server, which listens already; `serve_forever` answers, until another thread calls `shutdown`. Raises Failed."""
    kind = _ServerIPv6 if ":" in listening.host else _Server
    try:
        server = kind((listening.host, listening.port), _Handler)
    except OSError as cause:
        raise Failed(
            f"Cannot listen on {listening.host}:{listening.port}: {cause.strerror}.",
            remedy="Give another one to listen on, or end what listens there (`ss -ltnp` names it).",
        ) from cause
    server.set_app(application(pipelines, token=listening.token))
    if listening.certificate is not None:
        try:
            context = server_context(listening.certificate, listening.key)
        except Usage:
            server.server_close()
            raise
        # The handshake is the client's part, too: it belongs into the thread of its connection, not into the one that accepts.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    return server


def application(pipelines: Sequence[Watched], *, token: str | None) -> "WSGIApplication":
    """Return what answers. A probe is answered to everyone, in a word per pipeline; all else is for those who send `token`."""

    def look() -> list[Look]:
        return looks([watched.reader for watched in pipelines])

    registry = CollectorRegistry()
    registry.register(StatusCollector(look))
    registry.register(BatchCollector(pipelines))
    metrics: WSGIApplication = make_wsgi_app(registry)
    page = serving.application(pipelines)
    probes: dict[str, Callable[[Look], bool]] = {
        "/readyz": lambda found: found.status is not None,
        "/healthz": lambda found: found.is_healthy,
    }

    def answer(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if environ.get("REQUEST_METHOD") not in {"GET", "HEAD"}:
            return _text(start_response, "405 Method Not Allowed", "Only GET and HEAD are answered.", ("Allow", "GET, HEAD"))
        is_known = token is not None and _has(environ, token)
        if path == "/livez":
            return _text(start_response, "200 OK", "ok")
        if path in probes:
            return _health(start_response, look(), fine=probes[path], with_reasons=is_known or token is None)
        if path not in {"/", "/metrics"} and not path.startswith("/pipelines/"):
            return _text(start_response, "404 Not Found", "Here are a page at /, and /metrics, /livez, /readyz and /healthz.")
        if token is not None and not is_known:
            asked = [("WWW-Authenticate", f'{scheme} realm="penstock"') for scheme in ("Bearer", "Basic")]
            return _text(start_response, "401 Unauthorized", "Send the token: Authorization: Bearer TOKEN.", *asked)
        return (metrics if path == "/metrics" else page)(environ, start_response)

    return answer


def _has(environ: "WSGIEnvironment", token: str) -> bool:
    """Return whether a request has the token: as programs send it, or as the password that a browser asked a person for."""
    scheme, _, given = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    sent = given.strip().encode()
    if scheme.lower() == "basic":
        try:
            sent = b64decode(sent, validate=True).partition(b":")[2]
        except ValueError:
            return False
    return scheme.lower() in {"bearer", "basic"} and hmac.compare_digest(sent, token.encode())


def _health(
    start_response: "StartResponse", found: Sequence[Look], *, fine: Callable[[Look], bool], with_reasons: bool
) -> Iterable[bytes]:
    lines = []
    for look in found:
        word = "unreadable" if look.status is None else look.status.health
        lines.append(f"{look.pipeline} {word}: {look.text}" if with_reasons else word)
    return _text(start_response, "200 OK" if all(map(fine, found)) else "503 Service Unavailable", "\n".join(lines))


def _text(start_response: "StartResponse", status: str, text: str, *headers: tuple[str, str]) -> Iterable[bytes]:
    body = f"{text}\n".encode()
    start_response(status, [TEXT, ("Content-Length", str(len(body))), *headers])
    return [body]
