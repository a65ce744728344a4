"""A journal behind the read endpoint of its receiver. Every request may be repeated: all of them have an effect once."""

import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn, TypeVar
from urllib.parse import urlencode, urlsplit

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from penstock.errors import Failed, PenstockError, Retryable
from penstock.journal.event import Record
from penstock.journal.reading import Extent, Place
from penstock.journal.wire import (
    BATCH,
    EVENTS,
    JOURNAL,
    NEXT,
    READERS,
    BadAnswer,
    decode_extent,
    decode_place,
    document_in,
    flag_in,
    number_in,
    records_in,
)
from penstock.support.error_transport import decode_error
from penstock.support.printable import printable

_TIMEOUT_S = 30.0
_LONGEST_PAUSE_S = 3.0
_SHOWN = 200
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_KEPT_OUT = frozenset({401, 403})
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where receivers are read. `patience_s`: how long one that does not answer is asked again."""

    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    patience_s: float = 30.0


class _Unanswered(Exception):
    """A request that is to be repeated. `error` is what to raise if it never is answered."""

    def __init__(self, error: PenstockError) -> None:
        super().__init__(error.message)
        self.error = error


class RemoteJournal:
    """The journal that the receiver at `url` writes. Raises Failed, Retryable, and what the receiver raises."""

    def __init__(self, url: str, endpoint: Endpoint) -> None:
        self._url, self._endpoint = url.rstrip("/"), endpoint

    @property
    def place(self) -> str:
        return self._url

    def extent(self) -> Extent | None:
        return self._understood(decode_extent, self._get(JOURNAL, {})[0])

    def place_behind(self, first: int, *, records: int | None, size: int | None, at: Place | None) -> tuple[int, Place]:
        query = {"first": first, **_given("records", records), **_given("bytes", size), **_place(at)}
        return self._understood(lambda data: decode_place(data.decode("ascii", "replace")), self._get(BATCH, query)[0])

    def read(self, first: int, end: int, *, journal_id: str, at: Place | None) -> Iterator[Record]:
        """Yield the events, an answer of some megabytes after the other; each is held whole and checked before any of it is."""
        with closing(self._connection()) as connection:
            while first < end:
                ask = partial(self._events, connection, journal_id, first, end, at)
                records, first, at = self._tried(ask)
                yield from records

    def is_registered(self, reader: str) -> bool:
        data, _ = self._get(READERS, {"reader": reader})
        return self._understood(lambda data: flag_in(document_in(data) or {}, "is_registered"), data)

    def begin(self, reader: str, extent: Extent, *, at_end: bool) -> int:
        data, _ = self._post({"act": "begin", "reader": reader, "journal": extent.journal_id, "at_end": at_end})
        return self._understood(lambda data: number_in(document_in(data) or {}, "next"), data)

    def hold(self, reader: str, extent: Extent, *, needed: int, planned: int) -> bool:
        numbers = {"needed": needed, "planned": planned}
        data, tries = self._post({"act": "hold", "reader": reader, "journal": extent.journal_id, **numbers})
        changed = self._understood(lambda data: flag_in(document_in(data) or {}, "changed"), data)
        return changed or tries > 1  # an answer that was lost may have told of the change

    def plan(self, reader: str, extent: Extent, *, end: int) -> None:
        self._post({"act": "plan", "reader": reader, "journal": extent.journal_id, "end": end})

    def release(self, reader: str, extent: Extent, *, below: int) -> None:
        self._post({"act": "release", "reader": reader, "journal": extent.journal_id, "below": below})

    # --- requests

    def _events(
        self, connection: http.client.HTTPConnection, journal_id: str, first: int, end: int, at: Place | None
    ) -> tuple[list[Record], int, Place]:
        query = urlencode({"journal": journal_id, "first": first, "end": end, **_place(at)})
        data, headers = self._answer(connection, "GET", f"{EVENTS}?{query}", None)
        try:
            next_, place = decode_place(headers.get(NEXT, ""))
            return list(records_in(data, next_, first=first, end=end, journal_id=journal_id)), next_, place
        except BadAnswer as bad:
            connection.close()
            raise _Unanswered(self._not_understood(bad)) from bad

    def _get(self, path: str, query: Mapping[str, object]) -> tuple[bytes, int]:
        return self._asked("GET", f"{path}?{urlencode(query)}" if query else path, None)

    def _post(self, document: Mapping[str, object]) -> tuple[bytes, int]:
        return self._asked("POST", READERS, json.dumps(document).encode())

    def _asked(self, method: str, path: str, body: bytes | None) -> tuple[bytes, int]:
        """Return the answer, and how many tries it took."""
        tries = 0

        def once() -> bytes:
            nonlocal tries
            tries += 1
            with closing(self._connection()) as connection:
                return self._answer(connection, method, path, body)[0]

        return self._tried(once), tries

    def _tried(self, ask: Callable[[], _T]) -> _T:
        """Ask until there is an answer, for `patience_s` at most. Raises what the last answer means."""

        def is_last(state: RetryCallState) -> bool:
            return (state.seconds_since_start or 0.0) >= self._endpoint.patience_s

        waits = wait_random_exponential(multiplier=0.1, max=_LONGEST_PAUSE_S)
        retrying = Retrying(stop=is_last, wait=waits, retry=retry_if_exception_type(_Unanswered), reraise=True, sleep=time.sleep)
        try:
            return retrying(ask)
        except _Unanswered as unanswered:
            raise unanswered.error from unanswered.__cause__

    def _connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self._url)
        assert parts.hostname is not None
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.hostname, parts.port, timeout=_TIMEOUT_S)
        return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=_TIMEOUT_S, context=self._tls())

    def _tls(self) -> ssl.SSLContext:
        endpoint = self._endpoint
        try:
            context = ssl.create_default_context(cafile=endpoint.ca_file)
            if endpoint.certificate_file is not None:
                context.load_cert_chain(endpoint.certificate_file, endpoint.key_file, password=lambda: "")
        except (OSError, ValueError) as cause:  # an SSLError is an OSError
            raise Failed(
                f"The certificates for {self._url} cannot be used: {cause}.",
                remedy="Give PEM files that driver and executors can read.",
            ) from cause
        return context

    def _answer(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None
    ) -> tuple[bytes, Mapping[str, str]]:
        """Return body and headers of one answer. Raises _Unanswered, and what an answer means that is none."""
        headers = {} if self._endpoint.token is None else {"Authorization": f"Bearer {self._endpoint.token}"}
        try:
            connection.request(method, urlsplit(self._url).path + path, body, headers)
            response = connection.getresponse()
            data = response.read()
        except ssl.SSLCertVerificationError as error:
            raise Failed(
                f"{self._url} is not trusted: {error.verify_message}.", remedy="Name its authority by `tls: {ca_file: …}`."
            ) from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise _Unanswered(
                Retryable(
                    f"The receiver at {self._url} does not answer: {error or type(error).__name__}.",
                    remedy="Start it; the batch waits, and no event is lost.",
                )
            ) from error
        if response.status != http.client.OK:
            self._judge(response.status, data)
        return data, dict(response.getheaders())

    def _judge(self, status: int, data: bytes) -> NoReturn:
        """Raise what an answer means that has not what was asked for."""
        error = decode_error(data.decode("utf-8", "replace"))
        found = error or Retryable(f"The receiver at {self._url} answers HTTP {status}.", remedy="Look into its log.")
        if status in _PASSING:
            raise _Unanswered(found)
        if error is not None:
            raise error
        if status in _KEPT_OUT:
            raise Failed(
                f"The receiver at {self._url} does not take the token of the source.",
                remedy="Give the source the `token` that `receive.read` has.",
            )
        shown = printable(data[:_SHOWN].decode("utf-8", "replace"), keep="").strip()
        raise Failed(
            f"{self._url} is no read endpoint of a receiver: HTTP {status}{f': {shown}' if shown else ''}.",
            remedy="Name the address at which `receive.read` listens.",
        )

    def _understood(self, decode: Callable[[bytes], _T], data: bytes) -> _T:
        try:
            return decode(data)
        except BadAnswer as bad:
            raise self._not_understood(bad) from bad

    def _not_understood(self, bad: BadAnswer) -> Retryable:
        return Retryable(
            f"The receiver at {self._url} sent what cannot be read: {bad}.",
            remedy="See that this address is that of `receive.read`, and that nothing between changes what it sends.",
        )


def _given(name: str, value: int | None) -> Mapping[str, object]:
    return {} if value is None else {name: value}


def _place(at: Place | None) -> Mapping[str, object]:
    return {} if at is None else {"segment": at.segment, "offset": at.offset}
