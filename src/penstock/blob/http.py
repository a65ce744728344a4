"""Plain HTTP connections for the clients that are built upon `requests`: counted, and their failures in a person's words."""

import re
from typing import Any

from requests import PreparedRequest, RequestException, Response, Session
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from penstock.blob.request_counter import sent


class CountedRequests(HTTPAdapter):
    """Mounted on a session, it counts what goes out."""

    def send(self, request: PreparedRequest, *args: Any, **settings: Any) -> Response:
        """As `HTTPAdapter.send`."""
        sent()
        return super().send(request, *args, **settings)


class AsSigned(AuthBase):
    """For a session whose requests come with who we are: without any, `requests` would put what a `.netrc` has for the host."""

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        """As it is."""
        return request


def read_refusals(session: Session) -> None:
    """Have `session` read the body of every answer with an error status at once, also where the caller asked for a stream.

    The clients of Azure and Google retry a refused download without reading it: each retry would open a new connection, and the
    old one would stay open until the garbage collector finds it.
    """
    session.hooks["response"].append(_read_refusal)


def _read_refusal(answer: Response, **_: Any) -> None:
    if not answer.ok:
        answer.content  # noqa: B018 - reads it


_SPEAKER = re.compile(r"^HTTPS?Connection(?:Pool)?\(host='(?P<host>[^']*)', port=(?P<port>\d+)\): ")


def never_sent(failure: BaseException) -> bool:
    """Whether there was no connection at all, so that nothing can have been changed."""
    return isinstance(_reason(failure), NewConnectionError | ConnectTimeoutError)


def first_line_of(failure: BaseException) -> str:
    """The first line of what went wrong, with the server's name in front; `requests` wraps it in what its pool did about it."""
    found = _reason(failure) if isinstance(failure, RequestException) else failure
    first = (str(found).splitlines() or [type(found).__name__])[0]
    return _SPEAKER.sub(lambda speaker: f"{speaker['host']}:{speaker['port']}: ", first)


def _reason(failure: BaseException) -> BaseException:
    wrapped = failure.args[0] if failure.args else None
    return getattr(wrapped, "reason", None) or failure
