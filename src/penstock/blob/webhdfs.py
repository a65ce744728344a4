"""Requests and responses of the WebHDFS protocol. Source: Hadoop WebHDFS REST API."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import requests
from urllib3.util.retry import Retry

from penstock.blob.http import CountedRequests, never_sent

_REDIRECT = 307
_STANDBY = frozenset({"StandbyException", "RetriableException"})


class RefusedError(Exception):
    """The error response of a NameNode or DataNode. `exception` is the name of the Java exception."""

    def __init__(self, answer: "requests.Response") -> None:
        self.status = answer.status_code
        try:
            exception = answer.json()["RemoteException"]
        except (ValueError, KeyError, TypeError):
            exception = {}
        self.exception = str(exception.get("exception", ""))
        self.reason = str(exception.get("message") or f"HTTP {self.status} {answer.reason}").splitlines()[0]
        super().__init__(f"{self.exception}: {self.reason}")


class WebHdfs:
    """The connection pool of a process to the NameNodes of a cluster; the first active one answers."""

    def __init__(self, endpoints: tuple[str, ...], *, asked: Mapping[str, str], attempts: int, timeout_s: float) -> None:
        self._endpoints = endpoints
        self._asked = asked
        self._timeout_s = timeout_s
        self._session = requests.Session()
        again = Retry(
            total=attempts - 1,
            allowed_methods=["GET"],
            status_forcelist=[429, 503],
            backoff_factor=0.2,
            respect_retry_after_header=False,  # it may be an hour, whatever our time limit says
        )
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, CountedRequests(max_retries=again, pool_maxsize=32))

    def ask(
        self, method: str, operation: str, path: str, query: "Mapping[str, str] | None" = None, *, body: bytes | None = None
    ) -> bytes:
        """Return the cluster's response to `operation` on the absolute `path`. Raises RefusedError, requests.RequestException.

        A request that may have changed something is not sent to another NameNode: a part would be appended twice.
        """
        for number, endpoint in enumerate(self._endpoints, 1):
            try:
                return self._ask_one(method, f"{endpoint}/webhdfs/v1{quote(path)}", {"op": operation, **(query or {})}, body)
            except RefusedError as refused:
                if refused.exception not in _STANDBY or number == len(self._endpoints):
                    raise
            except requests.ConnectionError as broken:
                if number == len(self._endpoints) or (method != "GET" and not never_sent(broken)):
                    raise
        raise AssertionError("there is at least one endpoint")

    def _ask_one(self, method: str, url: str, query: Mapping[str, str], body: bytes | None) -> bytes:
        """Send one request. Data goes in a second request, to the DataNode that the first response names."""
        answer = self._send(method, url, params={**self._asked, **query})
        if answer.status_code == _REDIRECT:
            headers = {} if body is None else {"Content-Type": "application/octet-stream"}
            answer = self._send(method, answer.headers["Location"], data=body, headers=headers)
        if answer.status_code >= 300:
            raise RefusedError(answer)
        return bytes(answer.content)

    def _send(self, method: str, url: str, **what: Any) -> "requests.Response":
        return self._session.request(method, url, timeout=self._timeout_s, allow_redirects=False, **what)
