"""Google Cloud Storage, through its JSON API.

An upload is a folder of parts outside the root, in the same bucket. Completing it composes the parts into the object atomically
and then removes them, the first one first: from then on nobody can compose them again. Source: Cloud Storage JSON API,
`objects.compose`; preconditions of `objects.insert`.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import Any, ClassVar, TypeVar

import requests
from google.api_core import exceptions as google
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import GoogleAuthError, TransportError
from google.cloud import storage

from penstock.blob.check import expiries_of_gcs
from penstock.blob.client import STAGING, TAG, Failure, client_of_this_process, unix_ms
from penstock.blob.http import CountedRequests, KeepClientAuth, first_line_of, never_sent, read_refusals
from penstock.blob.store import BlobStore, Expiry, Found, Pending, RequestsEach

_COMPOSED_AT_ONCE = 32
_NOBODY = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
"""By which the library for Delta tables sends no credentials. Its option `google_skip_signature` holds for reads only."""
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class GcsStore(BlobStore):
    """A `BlobStore` in one bucket, below a prefix."""

    failures: ClassVar = (google.GoogleAPIError, GoogleAuthError, requests.RequestException)
    requests_each: ClassVar = RequestsEach(complete=2)
    known_options: ClassVar = ("project", "credentials_file", "endpoint", "timeout_s")
    stages_in: ClassVar = "bucket"
    part_bytes: int = 16 << 20

    def for_delta(self) -> Mapping[str, str]:
        """Return endpoint and credentials as this client takes them; without options those of the environment."""
        endpoint, key_file = self.options.get("endpoint"), self.options.get("credentials_file")
        found = {"allow_http": "true"} if endpoint is not None and endpoint.startswith("http://") else {}
        if endpoint is not None and key_file is None:
            return found | {"google_service_account_key": json.dumps({**_NOBODY, "gcs_base_url": endpoint})}
        if endpoint is not None:
            found["google_base_url"] = endpoint
        if key_file is not None:
            return found | {"google_service_account": key_file}
        default = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
        return found if default is None else found | {"google_application_credentials": default}

    def put(self, key: str, data: bytes, *, tag: str) -> None:
        with self._translate_errors("write", key, changes=True):
            self._upload(self.place.key(key), data, tag=tag)

    def put_if_absent(self, key: str, data: bytes, *, tag: str) -> bool:
        with self._translate_errors("create", key, changes=True):
            try:
                self._upload(self.place.key(key), data, tag=tag, if_generation_match=0)
            except google.PreconditionFailed:
                return False
        return True

    def get(self, key: str) -> bytes | None:
        with self._translate_errors("read", key):
            return _unless_absent(lambda: bytes(self._blob(self.place.key(key)).download_as_bytes(timeout=self._timeout_s)))

    def head(self, key: str) -> Found | None:
        with self._translate_errors("look at", key):
            found = self._bucket.get_blob(self.place.key(key), timeout=self._timeout_s)
        return None if found is None else _found(found, key)

    def delete(self, key: str) -> None:
        with self._translate_errors("delete", key, changes=True):
            self._delete(self.place.key(key))

    def list(self, folder: str = "", *, limit: int | None = None) -> Iterator[Found]:
        for found in self._each("list", folder, self._listed(self.place.key(folder), limit=limit)):
            yield _found(found, self.place.name(found.name))

    def children(self, folder: str = "") -> Iterator[Found]:
        """Skips the object with the folder's own name, by which Hadoop marks an empty directory."""
        prefix = self.place.key(folder)
        pages = self._bucket.list_blobs(prefix=prefix, delimiter="/", timeout=self._timeout_s).pages
        for page in self._each("list", folder, pages):
            yield from (Found(key=self.place.name(name), size_bytes=0) for name in page.prefixes)
            yield from (_found(blob, self.place.name(blob.name)) for blob in page if blob.name != prefix)

    def put_part(self, key: str, upload: str, number: int, data: bytes) -> str:
        with self._translate_errors("upload a part of", key, changes=True):
            self._upload(self._part(key, upload, number), data, tag=upload)
        return str(number)

    def complete(self, key: str, upload: str, parts: Sequence[str], *, tag: str) -> None:
        names = [self._part(key, upload, int(part)) for part in parts]
        with self._translate_errors("complete", key, changes=True):
            if not self._composed(names, key, upload, tag):
                return
            for name in names if len(names) <= _COMPOSED_AT_ONCE else self._names_in(self._folder(key, upload)):
                self._delete(name)

    def is_pending(self, key: str, upload: str) -> bool:
        """Looks for the first part only, because it is removed first."""
        with self._translate_errors("look at an upload of", key):
            return bool(self._blob(self._part(key, upload, 0)).exists(timeout=self._timeout_s))

    def pending(self, folder: str) -> Iterator[Pending]:
        parts = self._each("list uploads of", folder, self._listed(f"{self._staging}/"))
        for place, found in groupby(parts, lambda part: part.name[len(self._staging) + 1 :].rpartition("/")[0]):
            key, _, upload = place.rpartition(".")
            if key.startswith(folder):
                yield Pending(key=key, upload=upload, size_bytes=sum(part.size for part in found))

    def discard(self, pending: Pending) -> None:
        with self._translate_errors("end an upload of", pending.key, changes=True):
            for name in self._names_in(self._folder(pending.key, pending.upload)):
                self._delete(name)

    def deletes_by_itself(self, folder: str = "") -> Sequence[Expiry]:
        """Return the bucket's lifecycle rules. Parts of uploads are ordinary objects."""
        with self._translate_errors("read the lifecycle rules for", folder):
            bucket = self._bucket
            bucket.reload(timeout=self._timeout_s)
            rules = [*expiries_of_gcs(list(bucket.lifecycle_rules))]
        staged = [replace(rule, of_uploads=True) for rule in rules if rule.covers(f"{self._staging}/{folder}")]
        return [*staged, *(rule for rule in rules if rule.covers(self.place.key(folder)))]

    # --- where things are

    @property
    def _staging(self) -> str:
        """A folder outside the root, so that listings of the table do not show it."""
        above, slash, name = self.place.prefix.rpartition("/")
        return f"{above}{slash}{STAGING}/{name}"

    def _folder(self, key: str, upload: str) -> str:
        return f"{self._staging}/{key}.{upload}/"

    def _part(self, key: str, upload: str, number: int) -> str:
        return f"{self._folder(key, upload)}{number:05d}"

    # --- steps

    @property
    def _timeout_s(self) -> float:
        return float(self.options.get("timeout_s", "60"))

    @property
    def _bucket(self) -> Any:
        with self._connecting():
            return client_of_this_process(_client, self._settings).bucket(self.place.bucket)

    def _range(self, key: str, start: int, length: int) -> bytes | None:
        part = {"start": start, "end": start + length - 1, "timeout": self._timeout_s}
        return _unless_absent(lambda: bytes(self._blob(self.place.key(key)).download_as_bytes(**part)))

    def _blob(self, name: str) -> Any:
        return self._bucket.blob(name)

    def _listed(self, prefix: str, *, limit: int | None = None) -> Iterator[Any]:
        return iter(self._bucket.list_blobs(prefix=prefix, max_results=limit, timeout=self._timeout_s))

    def _names_in(self, folder: str) -> Sequence[str]:
        return [found.name for found in self._listed(folder)]

    def _upload(self, name: str, data: bytes, *, tag: str, **condition: int) -> None:
        blob = self._blob(name)
        blob.metadata = {TAG: tag}
        blob.upload_from_string(data, content_type="application/octet-stream", timeout=self._timeout_s, **condition)

    def _composed(self, names: Sequence[str], key: str, upload: str, tag: str) -> bool:
        """Return whether this call composed the object. If not, remaining parts may be the only copy: a sweep decides."""
        try:
            done = _unless_absent(lambda: self._compose(names, self.place.key(key), tag, aside=self._folder(key, upload)))
        except google.InternalServerError:  # an emulator's answer when the parts are gone
            if self.is_pending(key, upload):
                raise
            return False
        return done is not None

    def _compose(self, names: Sequence[str], target: str, tag: str, *, aside: str) -> str:
        """Compose `names` into `target`, above the store's limit through objects in `aside`. `target` appears complete."""
        while len(names) > _COMPOSED_AT_ONCE:
            first = f"{aside}composed-{len(names):05d}"
            self._compose_few(names[:_COMPOSED_AT_ONCE], first, tag)
            names = [first, *names[_COMPOSED_AT_ONCE:]]
        self._compose_few(names, target, tag)
        return target

    def _compose_few(self, names: Sequence[str], target: str, tag: str) -> None:
        blob = self._blob(target)
        blob.metadata = {TAG: tag}
        blob.content_type = "application/octet-stream"
        blob.compose([self._blob(name) for name in names], timeout=self._timeout_s)

    def _delete(self, name: str) -> None:
        _unless_absent(lambda: self._blob(name).delete(timeout=self._timeout_s))

    @staticmethod
    def _failure_of(cause: Exception) -> tuple[Failure, str]:
        reason = first_line_of(cause.cause if isinstance(cause, google.RetryError) else cause)
        if isinstance(cause, google.Forbidden | google.Unauthorized):
            return Failure.CREDENTIALS, reason
        if isinstance(cause, GoogleAuthError) and not isinstance(cause, TransportError):
            return Failure.CREDENTIALS, reason
        if isinstance(cause, google.NotFound):
            return Failure.MISSING, reason
        busy = isinstance(cause, google.TooManyRequests | google.ServiceUnavailable | TransportError) or never_sent(cause)
        return Failure.UNCHANGED if busy else Failure.UNKNOWN, reason


@lru_cache(maxsize=64)
def _client(process: int, given: tuple[tuple[str, str], ...]) -> Any:  # noqa: ARG001 - a fork must not share connections
    client = _new_client(dict(given))
    client._bucket_metadata_cache = (
        None  # else it requests the bucket for trace labels, in threads of its own, again after each 404
    )
    for scheme in ("http://", "https://"):
        client._http.mount(scheme, CountedRequests(pool_maxsize=32))
    for session in (client._http, client._http._auth_request.session):  # the other one fetches tokens
        session.auth = KeepClientAuth()
    read_refusals(client._http)
    return client


def _new_client(options: Mapping[str, str]) -> Any:
    client_options = {"api_endpoint": options["endpoint"]} if "endpoint" in options else None
    project = options.get("project")
    if "credentials_file" in options:
        return storage.Client.from_service_account_json(
            options["credentials_file"], project=project, client_options=client_options
        )
    credentials = AnonymousCredentials() if client_options is not None else None  # type: ignore[no-untyped-call]
    return storage.Client(project=project, credentials=credentials, client_options=client_options)


def _found(blob: Any, key: str) -> Found:
    return Found(key=key, size_bytes=blob.size, tag=(blob.metadata or {}).get(TAG), modified_ms=unix_ms(blob.updated))


def _unless_absent(call: Callable[[], _T]) -> _T | None:
    try:
        return call()
    except google.NotFound as error:
        if "bucket" in str(error).lower() and "object" not in str(error).lower():
            raise
        return None
