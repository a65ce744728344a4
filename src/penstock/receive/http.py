"""`POST /events` and `GET /health` over HTTP, by aiohttp. An answer with sequence numbers means that the events are durable."""

import asyncio
import hmac
import logging
import math
import time
from base64 import b64encode
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler
from aiohttp.web_protocol import RequestHandler

from penstock.errors import PenstockError, Retryable, Usage
from penstock.journal.group import GroupWriter
from penstock.journal.producers import NumberOutOfOrder
from penstock.receive.rate import RateLimit
from penstock.receive.request import TooLarge, decompressed, events_of, request_of
from penstock.spec.receive import HttpListener
from penstock.support.listening import host_and_port, server_context

RETRY_AFTER_S = 1
_STOP_S = 30.0
_IDLE_S = 75.0
_LARGEST_HEADERS = 16_384
_RETRY = {"Retry-After": str(RETRY_AFTER_S)}


class HttpReceiver:
    """Listens while it is started; `stop` lets requests that were read be answered."""

    def __init__(self, settings: HttpListener, writer: GroupWriter) -> None:
        self._settings, self._writer = settings, writer
        self._expected = _logins(settings)
        self._rate = RateLimit(settings.max_rate or math.inf, now_s=time.monotonic)
        self._runner: web.AppRunner | None = None
        self._heard: set[asyncio.BaseTransport | None] = set()
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> str:
        """Begin to listen; return the address. Raises OSError, Usage."""
        logging.getLogger("aiohttp").setLevel(logging.CRITICAL)  # it logs what clients do wrong, who are told
        application = web.Application(client_max_size=self._settings.max_body, middlewares=[self._hear])
        application.router.add_post("/events", self._receive)
        application.router.add_get("/health", self._health)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=_STOP_S,
            keepalive_timeout=_IDLE_S,
            max_line_size=_LARGEST_HEADERS,
            max_field_size=_LARGEST_HEADERS,
            handler_cancellation=False,
            auto_decompress=False,
        )
        await self._runner.setup()
        host, port = host_and_port(self._settings.listen)
        tls = self._settings.tls
        context = None if tls is None else server_context(Path(tls.certificate_file), Path(tls.key_file))
        await web.TCPSite(self._runner, host, port, ssl_context=context).start()
        self._watching = asyncio.create_task(self._cut_silent_off())
        return "{}:{}".format(*self._runner.addresses[0][:2])

    async def stop(self) -> None:
        """Listen no more, and answer what was read."""
        if self._watching is not None:
            self._watching.cancel()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _health(self, _: web.Request) -> web.Response:
        failure = self._writer.failure
        if failure is not None:
            return web.json_response({"ok": False, "error": failure.message}, status=503)
        return web.json_response({"ok": True})

    @web.middleware
    async def _hear(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._heard.add(request.transport)
        return await handler(request)

    async def _cut_silent_off(self) -> None:
        """End connections whose first request does not arrive in time. Between requests aiohttp does."""
        timeout_s = self._settings.body_timeout / 1000
        since: dict[RequestHandler, float] = {}
        while True:
            await asyncio.sleep(min(timeout_s / 2, 1))
            assert self._runner is not None
            assert self._runner.server is not None
            now, open_now = time.monotonic(), self._runner.server.connections
            since = {connection: since.get(connection, now) for connection in open_now}
            self._heard &= {connection.transport for connection in open_now}
            for connection, began in since.items():
                transport = connection.transport
                if transport is not None and transport not in self._heard and now - began > timeout_s:
                    transport.abort()

    async def _receive(self, request: web.Request) -> web.Response:
        if not self._is_allowed(request):
            kind = "Bearer" if self._settings.token else "Basic"
            return _refused(401, "Wrong or missing credentials.", headers={"WWW-Authenticate": kind})
        if self._is_crowded():
            return _refused(429, "Too many connections.", headers={**_RETRY, "Connection": "close"})
        if delay_s := self._rate.delay_s():
            return _refused(429, "Too many events a second.", headers={"Retry-After": str(math.ceil(delay_s))})
        try:
            body = await asyncio.wait_for(request.read(), self._settings.body_timeout / 1000)
        except web.RequestPayloadError:
            return _refused(400, "The body did not arrive as its headers say.", headers={"Connection": "close"})
        except asyncio.TimeoutError:
            return _refused(408, "The request took too long to arrive.", headers={"Connection": "close"})
        return await self._answered(request, body)

    async def _answered(self, request: web.Request, body: bytes) -> web.Response:
        try:
            body = decompressed(body, request.headers.get("Content-Encoding"), most_bytes=self._settings.max_body)
            parsed = request_of(request.headers.items(), body, content_type=request.content_type, remote=_remote(request))
            events = events_of(parsed)
            self._rate.count(len(events))
            receipts = await asyncio.wrap_future(self._writer.submit(events))
        except TooLarge as error:
            return _refused(413, str(error))
        except NumberOutOfOrder as error:
            return _refused(409, str(error))
        except Usage as error:
            return _refused(400, str(error))
        except Retryable as error:
            return _refused(429, str(error), headers=_RETRY)
        except PenstockError as error:
            return _refused(503, str(error), headers=_RETRY)
        repeats = sum(receipt.is_repeat for receipt in receipts)
        return web.json_response({"sequences": [receipt.sequence for receipt in receipts], "repeats": repeats})

    def _is_allowed(self, request: web.Request) -> bool:
        given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        return not self._expected or any(hmac.compare_digest(given, each) for each in self._expected)

    def _is_crowded(self) -> bool:
        server = None if self._runner is None else self._runner.server
        return server is not None and len(server.connections) > self._settings.max_connections


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
