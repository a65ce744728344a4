"""The journal over HTTP, for pipelines whose driver or executors do not see its directory: what it has, events, and readers.

Events are sent as the frames that are on the disk. Only some answers are in memory at a time; a reader that is too slow for one
is cut off, and asks again.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler

from penstock.errors import Failed, LedgerMismatch, PenstockError, Retryable
from penstock.journal.access import LocalJournal
from penstock.journal.reading import Extent, Frames, Place
from penstock.journal.wire import (
    BATCH,
    EVENTS,
    JOURNAL,
    NEXT,
    READERS,
    BadAnswer,
    document_in,
    encode_extent,
    encode_place,
    flag_in,
    number_in,
    text_in,
)
from penstock.receive.http_server import GuardedServer
from penstock.spec.receive import ReadListener
from penstock.support.error_transport import encode_error
from penstock.support.filesystem_errors import problem_of

ANSWER_BYTES = 4 << 20
_AT_A_TIME = 4
_TAKEN_WITHIN_S = 60.0
_LARGEST_REQUEST = 65_536
_T = TypeVar("_T")


class ReadEndpoint(GuardedServer):
    """Listens while it is started."""

    def __init__(self, settings: ReadListener, journal: LocalJournal) -> None:
        self._journal = journal
        self._room = asyncio.Semaphore(_AT_A_TIME)
        handlers = {JOURNAL: self._extent, BATCH: self._batch, EVENTS: self._events, READERS: self._registered}
        routes = [web.get(path, self.guarded(_answered(handler))) for path, handler in handlers.items()]
        routes.append(web.post(READERS, self.guarded(_answered(self._register))))
        super().__init__(settings, routes, largest_body=_LARGEST_REQUEST)

    async def _extent(self, _: web.Request) -> web.Response:
        return _json(encode_extent(await self._done(self._journal.extent)))

    async def _batch(self, request: web.Request) -> web.Response:
        asked = _numbers(request)
        first = number_in(asked, "first")
        next_, place = await self._done(
            lambda: self._journal.place_behind(first, records=asked.get("records"), size=asked.get("bytes"), at=_place_in(asked))
        )
        return web.Response(text=encode_place(next_, place))

    async def _events(self, request: web.Request) -> web.StreamResponse:
        asked, journal_id = _numbers(request), text_in(request.query, "journal")
        first, end = number_in(asked, "first"), number_in(asked, "end")
        if first >= end:
            raise BadAnswer("no range: first is not below end")
        async with self._room:
            found = await self._done(
                lambda: self._journal.frames(first, end, journal_id=journal_id, at=_place_in(asked), most_bytes=ANSWER_BYTES)
            )
            return await self._sent(request, found)

    async def _sent(self, request: web.Request, found: Frames) -> web.StreamResponse:
        response = web.StreamResponse(headers={NEXT: encode_place(found.next, found.place)})
        response.content_length, response.content_type = len(found.data), "application/octet-stream"
        await response.prepare(request)
        try:
            await asyncio.wait_for(response.write(found.data), _TAKEN_WITHIN_S)
        except asyncio.TimeoutError:
            if request.transport is not None:
                request.transport.abort()
        return response

    async def _registered(self, request: web.Request) -> web.Response:
        reader = text_in(request.query, "reader")
        return web.json_response({"is_registered": await self._done(lambda: self._journal.is_registered(reader))})

    async def _register(self, request: web.Request) -> web.Response:
        document = document_in(await request.read()) or {}
        act = _ACTS.get(text_in(document, "act"))
        if act is None:
            raise BadAnswer("an act that is unknown")
        return web.json_response(await self._done(lambda: act(self._journal, self._required_extent(document), document)))

    def _required_extent(self, document: Mapping[str, Any]) -> Extent:
        """Return what the journal has, which must be the one that the reader knows."""
        extent, wanted = self._journal.extent(), text_in(document, "journal")
        if extent is None:
            raise Retryable(f"The journal {self._journal.place} has no segment.", remedy="Look at its receiver.")
        if extent.journal_id != wanted:
            raise LedgerMismatch(
                f"The journal {self._journal.place} is {extent.journal_id}, and {wanted} was read before.",
                remedy="Bring back the journal that was there.",
            )
        return extent

    async def _done(self, look: Callable[[], _T]) -> _T:
        """Return what `look` does with files, in a thread."""
        try:
            return await asyncio.to_thread(look)
        except FileNotFoundError as error:
            raise Retryable(f"A file of the journal {self._journal.place} is gone: {error}.", remedy="Ask again.") from error
        except OSError as error:
            problem = problem_of(error)
            raise Failed(
                f"The journal {self._journal.place} cannot be read: {problem.reason}.", remedy=f"{problem.advice}."
            ) from error


def _begin(journal: LocalJournal, extent: Extent, asked: Mapping[str, Any]) -> object:
    return {"next": journal.begin(text_in(asked, "reader"), extent, at_end=flag_in(asked, "at_end"))}


def _hold(journal: LocalJournal, extent: Extent, asked: Mapping[str, Any]) -> object:
    needed, planned = number_in(asked, "needed"), number_in(asked, "planned")
    return {"changed": journal.hold(text_in(asked, "reader"), extent, needed=needed, planned=planned)}


def _plan(journal: LocalJournal, extent: Extent, asked: Mapping[str, Any]) -> object:
    journal.plan(text_in(asked, "reader"), extent, end=min(number_in(asked, "end"), extent.next))
    return {}


def _release(journal: LocalJournal, extent: Extent, asked: Mapping[str, Any]) -> object:
    journal.release(text_in(asked, "reader"), extent, below=min(number_in(asked, "below"), extent.next))
    return {}


_ACTS = {"begin": _begin, "hold": _hold, "plan": _plan, "release": _release}


def _answered(handler: Handler) -> Handler:
    """Return `handler` with errors as answers."""

    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except BadAnswer as bad:
            return web.Response(status=400, text=f"The request has {bad}.")
        except Retryable as error:
            return web.Response(status=503, text=encode_error(error))
        except PenstockError as error:
            return web.Response(status=409, text=encode_error(error))

    return answer


def _numbers(request: web.Request) -> Mapping[str, int]:
    """Return the numbers of a query. Raises BadAnswer."""
    names = [name for name in ("first", "end", "records", "bytes", "segment", "offset") if name in request.query]
    found = {name: request.query[name] for name in names}
    if wrong := [name for name, text in found.items() if not (text.isascii() and text.isdigit() and len(text) <= 18)]:
        raise BadAnswer(f"no number {wrong[0]}")
    return {name: int(text) for name, text in found.items()}


def _place_in(asked: Mapping[str, int]) -> Place | None:
    return Place(asked["segment"], asked["offset"]) if "segment" in asked and "offset" in asked else None


def _json(text: str) -> web.Response:
    return web.Response(text=text, content_type="application/json")
