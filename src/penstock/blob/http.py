"""HTTP connections for clients built on `requests`: request counting, authentication and readable failures."""

import re
from typing import Any

from requests import PreparedRequest, RequestException, Response, Session
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from penstock.blob.client import sent


class CountedRequests(HTTPAdapter):
    """A session adapter that counts the requests sent."""

    def send(self, request: PreparedRequest, *args: Any, **settings: Any) -> Response:
        """Count the request and send it."""
        sent()
        return super().send(request, *args, **settings)


class KeepClientAuth(AuthBase):
    """Leaves the client's own credentials in place: without an `auth`, `requests` would replace them by those in `.netrc`."""

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        return request


def read_refusals(session: Session) -> None:
    """Make `session` read the body of every error response at once, even where the caller asked for a stream.

    The clients of Azure and Google retry a refused download without reading it: each retry would open a new connection, and the
    old one would stay open until it is garbage-collected.
    """

    def read(answer: Response, **_: Any) -> None:
        if not answer.ok:
            answer.content  # noqa: B018 - reads it

    session.hooks["response"].append(read)


_SPEAKER = re.compile(r"^HTTPS?Connection(?:Pool)?\(host='(?P<host>[^']*)', port=(?P<port>\d+)\): ")


def never_sent(failure: BaseException) -> bool:
    """Return whether no connection was made, so that nothing can have been changed."""
    return isinstance(_reason(failure), NewConnectionError | ConnectTimeoutError)


def first_line_of(failure: BaseException) -> str:
    """Return the first line of the failure after the server's name, without what `requests` adds about its connection pool."""
    found = _reason(failure) if isinstance(failure, RequestException) else failure
    first = (str(found).splitlines() or [type(found).__name__])[0]
    return _SPEAKER.sub(lambda speaker: f"{speaker['host']}:{speaker['port']}: ", first)


def _reason(failure: BaseException) -> BaseException:
    wrapped = failure.args[0] if failure.args else None
    return getattr(wrapped, "reason", None) or failure
