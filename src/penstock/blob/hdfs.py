"""HDFS through WebHDFS, without Java or libhdfs.

An upload is a file in a staging directory outside the root, on the same file system. Completing it is `RENAME` with the option
NONE, which refuses to replace and consumes the staged file. Without options, RENAME answers 200 to a failure and moves into
directories. Source: Hadoop WebHDFS REST API; `FileContext.rename` with `Options.Rename.NONE`.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from posixpath import normpath
from typing import Any, ClassVar
from urllib.parse import quote

import requests
from typing_extensions import Self
from urllib3.util.retry import Retry

from penstock.blob.client import STAGING, TAG, Failure, client_of_this_process
from penstock.blob.http import CountedRequests, first_line_of, never_sent
from penstock.blob.store import BlobStore, Found, Pending, RequestsEach
from penstock.blob.url import BlobUrl
from penstock.core.model import new_nonce
from penstock.errors import Usage

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


_XATTR = f"user.{TAG}"
_HTTP_PORT = 9870
_ABSENT = frozenset({"FileNotFoundException"})
_TAKEN = frozenset({"FileAlreadyExistsException"})
_FORBIDDEN = frozenset(
    {"AccessControlException", "SecurityException", "InvalidToken", "AuthenticationException", "AuthorizationException"}
)
_UNCHANGED = frozenset({"StandbyException", "SafeModeException", "RetriableException"})


@dataclass(frozen=True, kw_only=True)
class HdfsStore(BlobStore):
    """A `BlobStore` in one directory. Directories are created on demand and never removed."""

    failures: ClassVar = (RefusedError, requests.RequestException)
    requests_each: ClassVar = RequestsEach(put=5, get=2, look=2, part=2, complete=3)
    known_options: ClassVar = ("webhdfs", "user", "delegation_token", "staging", "attempts", "timeout_s")
    stages_in: ClassVar = "file system"
    part_bytes: int = 16 << 20
    parts_at_once: int = 1

    @classmethod
    def at(cls, place: BlobUrl, options: Mapping[str, str]) -> Self:
        store = super().at(place, options)
        staging = options.get("staging")
        if staging is not None and (not staging.startswith("/") or _plain(staging).startswith(_plain(store._root))):
            raise Usage(
                f"The option 'staging' of {place} is {staging!r}, expected an absolute path outside of {store._root}, where "
                "readers would see what is not published.",
                remedy=f"Leave it out: then it is beside {store._root}. Or give a directory of its own on the same HDFS.",
            )
        return store

    def put(self, key: str, data: bytes, *, tag: str) -> None:
        """Writes to another name and renames, since readers see a file while it is written."""
        aside = self._written_aside("write", key, data, tag)
        with self._translate_errors("write", key, changes=True):
            self._place(aside, key, how="OVERWRITE")

    def put_if_absent(self, key: str, data: bytes, *, tag: str) -> bool:
        aside = self._written_aside("create", key, data, tag)
        with self._translate_errors("create", key, changes=True):
            if _unless(_TAKEN, lambda: self._place(aside, key, how="NONE")) is not None:
                return True
            self._delete(aside)
            return False

    def get(self, key: str) -> bytes | None:
        with self._translate_errors("read", key):
            return _unless(_ABSENT, lambda: self._hdfs.ask("GET", "OPEN", self._path(key)))

    def head(self, key: str) -> Found | None:
        with self._translate_errors("look at", key):
            status = self._file_status(self._path(key))
            return None if status is None else _found(key, status, tag=self._tag(self._path(key)))

    def delete(self, key: str) -> None:
        with self._translate_errors("delete", key, changes=True):
            self._delete(self._path(key))

    def list(self, folder: str = "", *, limit: int | None = None) -> Iterator[Found]:
        files = self._files_below(self._path(folder.rstrip("/")))
        for path, status in self._each("list", folder, islice(files, limit)):
            yield _found(path[len(self._root) + 1 :], status)

    def children(self, folder: str = "") -> Iterator[Found]:
        """Empty directories are included."""
        with self._translate_errors("list", folder):
            statuses = self._statuses(self._path(folder.rstrip("/")))
        for status in statuses:
            key = folder + status["pathSuffix"]
            if status["type"] == "DIRECTORY":
                yield Found(key=f"{key}/", size_bytes=0)
            elif status["pathSuffix"]:  # else `folder` is a file
                yield _found(key, status)

    def put_part(self, key: str, upload: str, number: int, data: bytes) -> str:
        """Parts are uploaded one after the other; the first creates the file."""
        path = self._staged(key, upload)
        with self._translate_errors("upload a part of", key, changes=True):
            if number == 0:
                self._hdfs.ask("PUT", "CREATE", path, {"overwrite": "true"}, body=data)
            else:
                self._hdfs.ask("POST", "APPEND", path, body=data)
        return str(number)

    def complete(self, key: str, upload: str, parts: Sequence[str], *, tag: str) -> None:  # noqa: ARG002 - the file has them
        path = self._staged(key, upload)

        def tag_and_place() -> bytes:
            self._hdfs.ask("PUT", "SETXATTR", path, _tagged(tag))
            return self._place(path, key, how="NONE")

        with self._translate_errors("complete", key, changes=True):
            _unless(_ABSENT | _TAKEN, tag_and_place)

    def is_pending(self, key: str, upload: str) -> bool:
        with self._translate_errors("look at an upload of", key):
            return self._file_status(self._staged(key, upload)) is not None

    def pending(self, folder: str) -> Iterator[Pending]:
        for path, status in self._each("list uploads of", folder, self._files_below(self._staging)):
            key, _, upload = path[len(self._staging) + 1 :].rpartition(".")
            if key.startswith(folder):
                yield Pending(key=key, upload=upload, size_bytes=int(status["length"]))

    def discard(self, pending: Pending) -> None:
        with self._translate_errors("end an upload of", pending.key, changes=True):
            self._delete(self._staged(pending.key, pending.upload))

    # --- where things are

    @property
    def _root(self) -> str:
        return f"/{self.place.prefix}"

    @property
    def _staging(self) -> str:
        """A directory outside the root, so that listings of the table do not show it, and for this root only, for its sweep."""
        above, _, name = self._root.rpartition("/")
        given = self.options.get("staging")
        if given is None:
            return f"{above}/{STAGING}/{name}"
        return f"{given.rstrip('/')}/{name}-{hashlib.sha256(self._root.encode()).hexdigest()[:16]}"

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}" if key else self._root

    def _staged(self, key: str, upload: str) -> str:
        return f"{self._staging}/{key}.{upload}"

    # --- steps

    @property
    def _hdfs(self) -> WebHdfs:
        return client_of_this_process(_client, self.place.host, self._settings)

    def _range(self, key: str, start: int, length: int) -> bytes | None:
        part = {"offset": str(start), "length": str(length)}
        return _unless(_ABSENT, lambda: self._hdfs.ask("GET", "OPEN", self._path(key), part))

    def _written_aside(self, act: str, key: str, data: bytes, tag: str) -> str:
        """Write `data` under a new name: whatever becomes of it, nothing that readers see was changed."""
        path = self._staged(key, new_nonce())
        with self._translate_errors(act, key):
            self._hdfs.ask("PUT", "CREATE", path, {"overwrite": "false"}, body=data)
            self._hdfs.ask("PUT", "SETXATTR", path, _tagged(tag))
        return path

    def _place(self, path: str, key: str, *, how: str) -> bytes:
        target = self._path(key)
        self._hdfs.ask("PUT", "MKDIRS", target.rpartition("/")[0])
        return self._hdfs.ask("PUT", "RENAME", path, {"destination": target, "renameoptions": how})

    def _delete(self, path: str) -> None:
        _unless(_ABSENT, lambda: self._hdfs.ask("DELETE", "DELETE", path, {"recursive": "false"}))

    def _file_status(self, path: str) -> Mapping[str, Any] | None:
        answer = _unless(_ABSENT, lambda: self._hdfs.ask("GET", "GETFILESTATUS", path))
        status: Mapping[str, Any] | None = None if answer is None else json.loads(answer)["FileStatus"]
        return status if status is not None and status["type"] == "FILE" else None

    def _tag(self, path: str) -> str | None:
        answer = _unless(_ABSENT, lambda: self._hdfs.ask("GET", "GETXATTRS", path, {"encoding": "text"}))
        found = [] if answer is None else json.loads(answer)["XAttrs"]
        value = next((one["value"] for one in found if one["name"] == _XATTR), None)
        return None if value is None else str(value).strip('"')

    def _statuses(self, directory: str) -> Sequence[Mapping[str, Any]]:
        answer = _unless(_ABSENT, lambda: self._hdfs.ask("GET", "LISTSTATUS", directory))
        found: Sequence[Mapping[str, Any]] = [] if answer is None else json.loads(answer)["FileStatuses"]["FileStatus"]
        return found

    def _files_below(self, directory: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield files in ascending order of whole paths: a directory sorts as its name with a slash."""
        found = self._statuses(directory)
        for status in sorted(found, key=lambda one: one["pathSuffix"] + ("/" if one["type"] == "DIRECTORY" else "")):
            path = f"{directory}/{status['pathSuffix']}"
            if status["type"] == "DIRECTORY":
                yield from self._files_below(path)
            elif status["pathSuffix"]:
                yield path, status

    @staticmethod
    def _failure_of(cause: Exception) -> tuple[Failure, str]:
        if isinstance(cause, RefusedError):
            if cause.exception in _FORBIDDEN or (cause.status in {401, 403} and not cause.exception):
                return Failure.CREDENTIALS, cause.reason
            return Failure.UNCHANGED if cause.exception in _UNCHANGED else Failure.UNKNOWN, cause.reason
        return Failure.UNCHANGED if never_sent(cause) else Failure.UNKNOWN, first_line_of(cause)


def _plain(directory: str) -> str:
    return f"/{normpath(directory).strip('/')}/"


@lru_cache(maxsize=64)
def _client(process: int, host: str, given: tuple[tuple[str, str], ...]) -> WebHdfs:  # noqa: ARG001 - never shared by a fork
    options = dict(given)
    endpoints = options.get("webhdfs", f"http://{host.partition(':')[0]}:{_HTTP_PORT}")
    asked = {}  # a delegation token, else the user's name, which only an unsecured cluster accepts
    if "delegation_token" in options:
        asked["delegation"] = options["delegation_token"]
    elif "user" in options:
        asked["user.name"] = options["user"]
    return WebHdfs(
        tuple(endpoint.strip().rstrip("/") for endpoint in endpoints.split(",")),
        asked=asked,
        attempts=int(options.get("attempts", "5")),
        timeout_s=float(options.get("timeout_s", "60")),
    )


def _found(key: str, status: Mapping[str, Any], *, tag: str | None = None) -> Found:
    return Found(key=key, size_bytes=int(status["length"]), tag=tag, modified_ms=int(status["modificationTime"]))


def _tagged(tag: str) -> Mapping[str, str]:
    """Return the query that sets the tag. It replaces the tag of an earlier try."""
    return {"xattr.name": _XATTR, "xattr.value": f'"{tag}"', "flag": "CREATE,REPLACE"}


def _unless(exceptions: "frozenset[str]", call: Any) -> bytes | None:
    try:
        answer: bytes = call()
    except RefusedError as refused:
        if refused.exception in exceptions:
            return None
        raise
    return answer
