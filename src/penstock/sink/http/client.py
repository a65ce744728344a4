"""Sends one request, and says what its answer means for the batch."""

import base64
import hashlib
import hmac
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

import requests
from requests.auth import AuthBase, HTTPBasicAuth

from penstock.errors import ContentConflict, Failed, OutcomeUnknown, PublishFailed, Retryable
from penstock.support.printable import printable

KEY_HEADER = "Idempotency-Key"
_MOST_OF_AN_ANSWER = 16 << 10
_SHOWN_OF_AN_ANSWER = 300
_LONGEST_WAIT_S = 3_600.0
_IN_WORK, _OTHER_BODY = 409, 422
_MAY_PASS = frozenset({408, 425, 429})
_KEEPS_US_OUT = frozenset({401, 403, 502, 503, 504})
"""Answers to OPTIONS that mean more than that the endpoint does not know this method."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where requests go, and who they say they are from. `name` is the URL as it may be shown.

    `signing_key`: requests are signed as Standard Webhooks says (https://www.standardwebhooks.com), by HMAC-SHA256.
    """

    url: str = field(repr=False)
    name: str
    timeout_s: float = 30.0
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    signing_key: bytes | None = field(default=None, repr=False)
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None


class Client:
    """A client of one endpoint. Thread-safe: each thread has connections of its own."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._auth = _auth_of(endpoint)
        self._of_thread = threading.local()
        self._wait_until_s = 0.0

    def post(self, body: bytes, *, key: str, headers: Mapping[str, str]) -> None:
        """Post `body` under `key`, once, and return when the endpoint says that it has it.

        Raises Retryable if it did not take the request, or if the time that it asked to wait is not over; OutcomeUnknown if it
        may have taken it: the caller repeats the same request, key and all. Raises PublishFailed for a request that it refuses,
        ContentConflict if it has other rows under that key, Failed if it must not be spoken to.
        """
        left_s = self._wait_until_s - time.monotonic()
        if left_s > 0:
            raise self._not_now(f"it asked to wait, for another {left_s:.0f} s")
        self._judge(*self._sent("POST", body, {**headers, KEY_HEADER: key, **self._signature(body, key)}))

    def probe(self) -> None:
        """Send a request that changes nothing (OPTIONS). Raises Failed, Retryable unless something answers that lets us in."""
        status, text = self._sent("OPTIONS", b"", {})
        if status in _KEEPS_US_OUT:
            self._judge(status, text)

    def _sent(self, method: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, str]:
        """Return status and text of the answer, noting how long it asks to wait."""
        endpoint = self._endpoint
        certificate = endpoint.certificate_file
        try:
            with self._session().request(
                method,
                endpoint.url,
                data=body,
                headers={**endpoint.headers, **headers},
                auth=self._auth,
                timeout=endpoint.timeout_s,
                verify=endpoint.ca_file or True,
                cert=(certificate, endpoint.key_file) if certificate and endpoint.key_file else certificate,
                allow_redirects=False,  # rows and credentials go where the settings say
                stream=True,
            ) as answer:
                if not 200 <= answer.status_code < 300:  # of a success it says when to ask for the result, which nobody does
                    self._note_wait(answer.headers.get("Retry-After"))
                return answer.status_code, self._text(answer)
        except requests.exceptions.SSLError as error:
            raise Failed(
                f"{endpoint.name} is not trusted: {_reason(error)}.",
                remedy="Name its authority by `ca_file`, and the client certificate that it asks for by `certificate_file`.",
            ) from error
        except (requests.exceptions.ConnectTimeout, requests.exceptions.ConnectionError) as error:
            raise self._unanswered(error, connected=not _never_connected(error)) from error
        except requests.RequestException as error:
            raise self._unanswered(error, connected=True) from error
        except OSError as error:  # a file of a certificate is missing
            raise Failed(
                f"{endpoint.name} cannot be asked: {error}.",
                remedy="Correct `ca_file`, `certificate_file` and `key_file` of the sink.",
            ) from error

    def _session(self) -> requests.Session:
        session: requests.Session | None = getattr(self._of_thread, "session", None)
        if session is None:
            session = self._of_thread.session = requests.Session()
        return session

    def _text(self, answer: requests.Response) -> str:
        """Return the beginning of the answer if it is for programs or people; an endless one is cut off after `timeout_s`."""
        found, end_s = bytearray(), time.monotonic() + self._endpoint.timeout_s
        for chunk in answer.iter_content(1 << 10):
            found += chunk
            if len(found) >= _MOST_OF_AN_ANSWER or time.monotonic() > end_s:
                break
        if "html" in answer.headers.get("Content-Type", ""):
            return ""
        return printable(bytes(found[:_SHOWN_OF_AN_ANSWER]).decode("utf-8", "replace"), keep="").strip()

    def _judge(self, status: int, text: str) -> None:
        """Return for an answer that means yes; raise what any other means."""
        name, found = self._endpoint.name, f"HTTP {status}" + (f": {text}" if text else "")
        if 200 <= status < 300:
            return
        if status == _IN_WORK:
            raise OutcomeUnknown(f"{name} answers {found}. It may still work on this request.", remedy="Start again.")
        if status in _MAY_PASS or status >= 500:
            raise self._not_now(found)
        if status == _OTHER_BODY:
            raise ContentConflict(
                f"{name} answers {found}. With an {KEY_HEADER} this means: it has other rows under this key.",
                remedy="If it means something else there, let it answer 400. Otherwise find out who else posts there under keys "
                "of this pipeline.",
            )
        if status in {401, 403}:
            raise Failed(
                f"{name} refuses access: {found}.", remedy="Correct `token`, or `user` and `password`, or `headers`."
            ).lacking("access")
        if 300 <= status < 400:
            raise Failed(f"{name} is somewhere else: {found}.", remedy="Write the URL that it redirects to; it is not followed.")
        raise PublishFailed(
            f"{name} refuses the request: {found}.",
            remedy="The batch is decided and stays so: let the endpoint take it, and start again. Filter such rows by `where` "
            "for the batches to come.",
        )

    def _not_now(self, reason: str) -> Retryable:
        return Retryable(f"{self._endpoint.name} does not take requests now: {reason}.", remedy="Start again when it does.")

    def _unanswered(self, error: requests.RequestException, *, connected: bool) -> Retryable:
        kind = OutcomeUnknown if connected else Retryable
        return kind(f"{self._endpoint.name} does not answer: {_reason(error)}.", remedy="Start again when it does.")

    def _note_wait(self, header: str | None) -> None:
        seconds = None if header is None else _seconds(header)
        if seconds is not None:
            self._wait_until_s = time.monotonic() + min(seconds, _LONGEST_WAIT_S)

    def _signature(self, body: bytes, key: str) -> Mapping[str, str]:
        if self._endpoint.signing_key is None:
            return {}
        at = str(int(time.time()))
        mac = hmac.new(self._endpoint.signing_key, f"{key}.{at}.".encode() + body, hashlib.sha256).digest()
        return {"webhook-id": key, "webhook-timestamp": at, "webhook-signature": f"v1,{base64.b64encode(mac).decode()}"}


class _Own(AuthBase):
    """Our own header or none: `requests` would otherwise take the host's entry in `.netrc`."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._token is not None:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def _auth_of(endpoint: Endpoint) -> AuthBase:
    if endpoint.user is None:
        return _Own(endpoint.token)
    return HTTPBasicAuth(endpoint.user.encode(), (endpoint.password or "").encode())


def _seconds(retry_after: str) -> float | None:
    """Return how long `Retry-After` asks to wait, None if it says nothing that can be read (RFC 9110, 10.2.3)."""
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        at = parsedate_to_datetime(retry_after)
    except (ValueError, OverflowError):
        return None
    return (at - datetime.now(timezone.utc if at.tzinfo else None)).total_seconds()


def _never_connected(error: requests.RequestException) -> bool:
    """Return whether no connection was made, so that nothing was sent."""
    wrapped = error.args[0] if error.args else None
    reason = getattr(wrapped, "reason", wrapped)
    return type(reason).__name__ in {"NewConnectionError", "NameResolutionError", "ConnectTimeoutError"}


def _reason(error: requests.RequestException) -> str:
    """Return the innermost reason in one line, without URL: its path may be a secret."""
    wrapped = error.args[0] if error.args else None
    reason = getattr(wrapped, "reason", None) or wrapped or error
    first = (str(reason).splitlines() or [type(reason).__name__])[0].rpartition(">: ")[2]
    return first.rpartition("): ")[2].rstrip(".") or type(error).__name__
