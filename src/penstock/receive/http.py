"""`POST /events` and `GET /health` over HTTP, by aiohttp. An answer with sequence numbers means that the events are durable."""

import asyncio
import math
import time
from base64 import b64encode
from collections.abc import Callable

from aiohttp import web

from penstock.errors import PenstockError, Retryable, Usage
from penstock.journal.group import GroupWriter
from penstock.journal.producers import NumberOutOfOrder
from penstock.receive.bodies import Bodies
from penstock.receive.http_server import HttpServer, is_allowed
from penstock.receive.rate import RateLimit
from penstock.receive.request import TooLarge, decompressed, events_of, request_of
from penstock.spec.receive import HttpListener

RETRY_AFTER_S = 1
_BODIES_BYTES = 256_000_000
"""Of the requests of all clients that are read and not answered: as many as may connect could not have `max_body` each."""
_RETRY = {"Retry-After": str(RETRY_AFTER_S)}


class HttpReceiver(HttpServer):
    """Listens while it is started; `stop` lets requests that were read be answered."""

    def __init__(self, settings: HttpListener, writer: GroupWriter) -> None:
        self._settings, self._writer = settings, writer
        self._expected = _logins(settings)
        self._bodies = Bodies(max(_BODIES_BYTES, settings.max_body))
        self._rate = RateLimit(settings.max_rate or math.inf, now_s=time.monotonic)
        routes = [web.post("/events", self._receive), web.get("/health", self._health)]
        super().__init__(
            routes,
            listen=settings.listen,
            tls=settings.tls,
            largest_body=settings.max_body,
            first_request_s=settings.body_timeout / 1000,
        )

    async def _health(self, _: web.Request) -> web.Response:
        failure = self._writer.failure
        if failure is not None:
            return web.json_response({"ok": False, "error": failure.message}, status=503)
        return web.json_response({"ok": True})

    async def _receive(self, request: web.Request) -> web.Response:
        if not is_allowed(request, self._expected):
            kind = "Bearer" if self._settings.token else "Basic"
            return _refused(401, "Wrong or missing credentials.", headers={"WWW-Authenticate": kind})
        if self.connections > self._settings.max_connections:
            return _refused(429, "Too many connections.", headers={**_RETRY, "Connection": "close"})
        if delay_s := self._rate.delay_s():
            return _refused(429, "Too many events a second.", headers={"Retry-After": str(math.ceil(delay_s))})
        with self._bodies.counted() as count:
            try:
                body = await asyncio.wait_for(self._body(request, count), self._settings.body_timeout / 1000)
                return await self._answered(request, body)
            except (web.RequestPayloadError, asyncio.TimeoutError, PenstockError) as error:
                return _refusal(error)

    async def _body(self, request: web.Request, count: Callable[[int], None]) -> bytes:
        """Return the body as it arrives. Raises TooLarge, Retryable where those of all clients take too much memory."""
        parts, size, most_bytes = list[bytes](), 0, self._settings.max_body
        async for part in request.content.iter_any():
            size += len(part)
            if size > most_bytes:
                raise TooLarge(f"The request has more than {most_bytes} bytes.", remedy="Send it in parts.")
            count(len(part))
            parts.append(part)
        return b"".join(parts)

    async def _answered(self, request: web.Request, body: bytes) -> web.Response:
        body = decompressed(body, request.headers.get("Content-Encoding"), most_bytes=self._settings.max_body)
        parsed = request_of(request.headers.items(), body, content_type=request.content_type, remote=_remote(request))
        events = events_of(parsed, most_bytes=self._settings.max_body)
        self._rate.count(len(events))
        receipts = await asyncio.wrap_future(self._writer.submit(events))
        repeats = sum(receipt.is_repeat for receipt in receipts)
        return web.json_response({"sequences": [receipt.sequence for receipt in receipts], "repeats": repeats})


_CLOSE = {"Connection": "close"}
_REFUSALS: tuple[tuple[type[Exception], int, dict[str, str], str | None], ...] = (
    (web.RequestPayloadError, 400, _CLOSE, "The body did not arrive as its headers say."),
    (asyncio.TimeoutError, 408, _CLOSE, "The request took too long to arrive."),
    (TooLarge, 413, {}, None),
    (NumberOutOfOrder, 409, {}, None),
    (Usage, 400, {}, None),
    (Retryable, 429, _RETRY, None),
    (PenstockError, 503, _RETRY, None),
)
"""What a request fails with, the status and the headers of the answer, and its text where the error's own is not for clients."""


def _refusal(error: Exception) -> web.Response:
    _, status, headers, text = next(each for each in _REFUSALS if isinstance(error, each[0]))
    return _refused(status, text or str(error), headers=headers)


def _logins(settings: HttpListener) -> tuple[bytes, ...]:
    """Return the values of `Authorization` that are let in; none if everybody is."""
    found = [f"Bearer {settings.token}".encode()] if settings.token is not None else []
    if settings.user is not None:
        found.append(b"Basic " + b64encode(f"{settings.user}:{settings.password}".encode()))
    return tuple(found)


def _remote(request: web.Request) -> str | None:
    found = None if request.transport is None else request.transport.get_extra_info("peername")
    return None if not found else f"{found[0]}:{found[1]}"


def _refused(status: int, error: str, *, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response({"error": error}, status=status, headers=headers)
