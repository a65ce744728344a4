"""Answers requests for the page: an overview, one pipeline, its history, one batch. The endpoint asks for its token before."""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from penstock.core.model import Decided
from penstock.errors import PenstockError
from penstock.observe.history_page import entry_page, history_page
from penstock.observe.page.links import ServedLinks
from penstock.observe.page.rendering import content_policy, render
from penstock.observe.page.report import SHARED_VALUES, summary
from penstock.observe.page.views import view_of, views_of
from penstock.observe.page.watched import Watched
from penstock.support.secret import scrub

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_PIPELINE = re.compile(r"/pipelines/(?P<name>[^/]+)(?P<rest>/history|/positions/(?P<position>\d{1,15}))?")
_REFRESH_S = 30
_MOST_PIECES = 200
_LONGEST_WANTED = 64


class PageMissingError(Exception):
    """There is no such page, pipeline or batch; the text says which."""


class Pages:
    """Makes the pages of some pipelines. Any thread may ask."""

    def __init__(self, pipelines: Sequence[Watched], *, now_ms: Callable[[], int]) -> None:
        self._pipelines, self._now_ms = {watched.name: watched for watched in pipelines}, now_ms

    def page(self, path: str, asked: Mapping[str, str]) -> str:
        """Return the HTML for a path and the parameters of its query. Raises PageMissingError, and what reading raises."""
        links = ServedLinks(path=path, is_live="live" in asked)
        if path == "/":
            return self._overview(links)
        found = _PIPELINE.fullmatch(path)
        watched = None if found is None else self._pipelines.get(found["name"])
        if found is None or watched is None:
            raise PageMissingError("There is no such page.")
        links = ServedLinks(path=links.pipeline(watched.name), is_live=links.is_live)
        if found["position"]:
            return self._entry(watched, int(found["position"]), links)
        return self._history(watched, asked, links) if found["rest"] else self._pipeline(watched, links)

    def _overview(self, links: ServedLinks) -> str:
        now_ms = self._now_ms()
        views = views_of(list(self._pipelines.values()), now_ms=now_ms)
        return render("overview.html", {"views": views, "summary": summary(views), "links": links}, now_ms=now_ms)

    def _pipeline(self, watched: Watched, links: ServedLinks) -> str:
        now_ms = self._now_ms()
        view = view_of(watched, now_ms=now_ms)
        return render("pipeline.html", SHARED_VALUES | {"view": view, "links": links}, now_ms=now_ms)

    def _history(self, watched: Watched, asked: Mapping[str, str], links: ServedLinks) -> str:
        up_to = asked.get("up_to", "")
        with closing(watched.open_ledger()) as ledger:
            wanted = asked.get("wanted", "")[:_LONGEST_WANTED]
            page = history_page(ledger, up_to=int(up_to) if up_to.isdecimal() and len(up_to) < 16 else None, wanted=wanted)
            lives = watched.lives(ledger, page.rows)
        values = {"name": watched.name, "page": page, "lives": lives, "links": links}
        return render("history.html", SHARED_VALUES | values, now_ms=self._now_ms())

    def _entry(self, watched: Watched, position: int, links: ServedLinks) -> str:
        with closing(watched.open_ledger()) as ledger:
            found = entry_page(ledger, position)
            lives = [] if found is None else watched.lives(ledger, [found[1]])
        if found is None or not isinstance(found[0].body, Decided):
            raise PageMissingError(f"The ledger retains no batch at position {position}.")
        entry, row = found
        assert isinstance(entry.body, Decided)
        pieces = entry.body.decision.staged
        (life,) = lives
        values = {"name": watched.name, "file": watched.file, "life": life, "gaps": row.gaps, "links": links}
        values |= {"pieces": pieces[:_MOST_PIECES], "number": len(pieces)}
        return render("entry.html", SHARED_VALUES | values | {"longest": 4_000}, now_ms=self._now_ms())


def application(pipelines: Sequence[Watched]) -> "WSGIApplication":
    """Return what answers with pages, 404 for what is not there, and 503 while a ledger does not answer."""
    pages = Pages(pipelines, now_ms=_now_ms)

    def answer(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "").encode("latin-1").decode("utf-8", "replace")
        asked = {name: values[0] for name, values in parse_qs(environ.get("QUERY_STRING", "")[:1_000]).items()}
        code, headers = "200 OK", []
        try:
            body = pages.page(path, asked)
            headers = [("Refresh", str(_REFRESH_S))] if "live" in asked else []
        except PageMissingError as missing:
            code, body = "404 Not Found", _problem(str(missing))
        except PenstockError as error:
            code, body = "503 Service Unavailable", _problem(scrub(str(error)))
        data = body.encode()
        start_response(code, [*_HEADERS, ("Content-Security-Policy", _policy()), ("Content-Length", str(len(data))), *headers])
        return [data]

    return answer


def _problem(text: str) -> str:
    return render("problem.html", {"text": text, "links": ServedLinks()}, now_ms=_now_ms())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _policy() -> str:
    return f"{content_policy()}; frame-ancestors 'none'"


_HEADERS = (
    ("Content-Type", "text/html; charset=utf-8"),
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
