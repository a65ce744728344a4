"""An HTTP server by aiohttp, as the receiver's listeners need one: with TLS, and an end for clients that send nothing."""

import asyncio
import hmac
import logging
import time
from collections.abc import Collection, Iterable
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler
from aiohttp.web_protocol import RequestHandler

from penstock.spec.listening import GuardedEndpoint, ServerTls
from penstock.support.listening import host_and_port, server_context

_STOP_S = 30.0
_IDLE_S = 75.0
_LARGEST_HEADERS = 16_384
_FIRST_REQUEST_S = 30.0


class HttpServer:
    """Listens while it is started; `stop` lets requests that were read be answered.

    `first_request_s`: how long a client may take from its connection to its first request.
    """

    def __init__(
        self, routes: Iterable[web.RouteDef], *, listen: str, tls: ServerTls | None, largest_body: int, first_request_s: float
    ) -> None:
        self._routes, self._listen, self._tls = routes, listen, tls
        self._largest_body, self._first_request_s = largest_body, first_request_s
        self._runner: web.AppRunner | None = None
        self._heard: set[asyncio.BaseTransport | None] = set()
        self._watching: asyncio.Task[None] | None = None

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        server = None if self._runner is None else self._runner.server
        return 0 if server is None else len(server.connections)

    async def start(self) -> str:
        """Begin to listen; return the address. Raises OSError, Usage."""
        logging.getLogger("aiohttp").setLevel(logging.CRITICAL)  # it logs what clients do wrong, who are told
        application = web.Application(client_max_size=self._largest_body, middlewares=[self._hear])
        application.add_routes(self._routes)
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
        host, port = host_and_port(self._listen)
        tls = self._tls
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

    @web.middleware
    async def _hear(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._heard.add(request.transport)
        return await handler(request)

    async def _cut_silent_off(self) -> None:
        """End connections whose first request does not arrive in time. Between requests aiohttp does."""
        since: dict[RequestHandler, float] = {}
        while True:
            await asyncio.sleep(min(self._first_request_s / 2, 1))
            assert self._runner is not None
            assert self._runner.server is not None
            now, open_now = time.monotonic(), self._runner.server.connections
            since = {connection: since.get(connection, now) for connection in open_now}
            self._heard &= {connection.transport for connection in open_now}
            for connection, began in since.items():
                transport = connection.transport
                if transport is not None and transport not in self._heard and now - began > self._first_request_s:
                    transport.abort()


class GuardedServer(HttpServer):
    """An HTTP server that shows something to whoever sends its token, if it has one."""

    def __init__(self, settings: GuardedEndpoint, routes: Iterable[web.RouteDef], *, largest_body: int) -> None:
        super().__init__(
            routes, listen=settings.listen, tls=settings.tls, largest_body=largest_body, first_request_s=_FIRST_REQUEST_S
        )
        self._expected = () if settings.token is None else (f"Bearer {settings.token}".encode(),)

    def guarded(self, handler: Handler) -> Handler:
        """Return `handler` for those who have the token; everybody else is answered with 401."""

        async def answer(request: web.Request) -> web.StreamResponse:
            if not is_allowed(request, self._expected):
                return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"})
            return await handler(request)

        return answer


def is_allowed(request: web.Request, expected: Collection[bytes]) -> bool:
    """Return whether the request has one of the `expected` values of `Authorization`; without any, everybody may."""
    given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
    return not expected or any(hmac.compare_digest(given, each) for each in expected)
