"""Azure Blob Storage, with and without hierarchical namespace, always through the blob endpoint.

Uploads are uncommitted blocks: invisible until `Put Block List`, which consumes them. They expire a week after the last one was
staged, and cannot be removed before. Source: Azure Storage REST API, Put Block and Put Block List.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
    ServiceRequestError,
)
from azure.core.pipeline.transport import RequestsTransport
from azure.storage.blob import BlobBlock, BlobPrefix, BlobServiceClient, ContainerClient, ExponentialRetry
from typing_extensions import Self

from penstock.blob.client import TAG, Failure, client_of_this_process, is_address, sent, unix_ms
from penstock.blob.http import KeepClientAuth, read_refusals
from penstock.blob.store import BlobStore, Expiry, Found, Pending
from penstock.blob.url import BlobUrl
from penstock.errors import DependencyMissing, Usage
from penstock.support.extras import install_command
from penstock.support.secret import scheme_only

_SCOPE = "https://storage.azure.com/.default"
_FOLDER = "hdi_isfolder"
"""Metadata of the directories that a hierarchical namespace lists among its blobs."""
_PAGE = 5_000
_CONNECTIONS = 32
"""Pool size for all threads. The library's default of ten would drop the others' connections, each with a warning."""
_PAUSE_S = 20.0
"""The longest pause before a retry: the library doubles its pauses without limit."""
_BLOCKS_STAY_DAYS = 7
_CONSUMED = frozenset({"InvalidBlockList", "InvalidBlobOrBlock", "BlobNotFound"})
_UNCHANGED = frozenset({429, 503})
_MISSING = frozenset({"ContainerNotFound", "ContainerBeingDeleted", "ContainerDisabled"})
_FORBIDDEN = frozenset({401, 403})
_T = TypeVar("_T")
logging.getLogger("azure").addHandler(logging.NullHandler())  # else stderr shows every credential tried in vain


@dataclass(frozen=True, kw_only=True)
class AzureStore(BlobStore):
    """A `BlobStore` in one container."""

    failures: ClassVar = (AzureError,)
    known_options: ClassVar = (
        "connection_string", "account_key", "sas_token", "endpoint", "api_version", "attempts", "timeout_s",
    )  # fmt: skip

    @classmethod
    def at(cls, place: BlobUrl, options: Mapping[str, str]) -> Self:
        store = super().at(place, options)
        if "connection_string" in options:
            _require_one_account(options["connection_string"], options, place=place)
        # Azure refuses requests after a quarter of an hour only with Shared Key.
        signs = "account_key" in options or "accountkey=" in options.get("connection_string", "").lower()
        return replace(store, dates_requests=signs)

    def for_delta(self) -> Mapping[str, str]:
        """Return account, endpoint and credentials as this client has them now. Raises DependencyMissing, Failed."""
        with self._translate_errors("find the credentials for", ""):
            service = self._service
            address = urlsplit(service.url)
            return {
                "azure_storage_account_name": self.place.host.partition(".")[0],
                **_endpoint_for_delta(f"{address.scheme}://{address.netloc}", is_emulator=address.path.strip("/") != ""),
                **_credential_for_delta(service.credential, sas_token=address.query),
            }

    def put(self, key: str, data: bytes, *, tag: str) -> None:
        with self._translate_errors("write", key, changes=True):
            self._blob(key).upload_blob(data, overwrite=True, metadata={TAG: tag})

    def put_if_absent(self, key: str, data: bytes, *, tag: str) -> bool:
        with self._translate_errors("create", key, changes=True):
            try:
                self._blob(key).upload_blob(data, overwrite=False, metadata={TAG: tag})
            except ResourceExistsError:
                return False
        return True

    def get(self, key: str) -> bytes | None:
        with self._translate_errors("read", key):
            return _unless_absent(lambda: bytes(self._blob(key).download_blob().readall()))

    def head(self, key: str) -> Found | None:
        with self._translate_errors("look at", key):
            found = _unless_absent(self._blob(key).get_blob_properties)
        return None if found is None else self._found(found, key)

    def delete(self, key: str) -> None:
        with self._translate_errors("delete", key, changes=True):
            _unless_absent(self._blob(key).delete_blob)

    def list(self, folder: str = "", *, limit: int | None = None) -> Iterator[Found]:
        prefix, page = self.place.key(folder), min(limit or _PAGE, _PAGE)
        blobs = self._container.list_blobs(name_starts_with=prefix, results_per_page=page, include=["metadata"])
        files = (found for found in self._each("list", folder, blobs) if not _is_folder(found))
        for found in islice(files, limit):
            yield self._found(found, self.place.name(found.name))

    def children(self, folder: str = "") -> Iterator[Found]:
        blobs = self._container.walk_blobs(name_starts_with=self.place.key(folder), include=["metadata"], delimiter="/")
        for found in self._each("list", folder, blobs):
            if isinstance(found, BlobPrefix):
                yield Found(key=self.place.name(str(found.name)), size_bytes=0)
            elif not _is_folder(found):
                yield self._found(found, self.place.name(found.name))

    def put_part(self, key: str, upload: str, number: int, data: bytes) -> str:
        """Return the block's id; all ids have the same length, as Azure demands."""
        block = f"{upload}-{number:05d}"
        with self._translate_errors("upload a part of", key, changes=True):
            self._blob(key).stage_block(block, data, length=len(data))
        return block

    def complete(self, key: str, upload: str, parts: Sequence[str], *, tag: str) -> None:  # noqa: ARG002 - the parts say it
        """Raises ValueError without parts, of which Azure would create an empty blob."""
        if not parts:
            raise ValueError(f"an upload of {key} without parts")
        with self._translate_errors("complete", key, changes=True):
            try:
                self._blob(key).commit_block_list([BlobBlock(part) for part in parts], metadata={TAG: tag})
            except HttpResponseError as error:
                if _code_of(error) not in _CONSUMED:
                    raise

    def is_pending(self, key: str, upload: str) -> bool:
        with self._translate_errors("look at an upload of", key):
            blocks = _unless_absent(lambda: self._blob(key).get_block_list("uncommitted"))
        return blocks is not None and any(str(block.id).startswith(upload) for block in blocks[1])

    def pending(self, folder: str) -> Iterator[Pending]:  # noqa: ARG002 - one signature
        """Yield nothing: Azure ends uploads by itself."""
        return iter(())

    def discard(self, pending: Pending) -> None:
        """Do nothing: uncommitted blocks cannot be removed, and expire."""

    def deletes_by_itself(self, folder: str = "") -> Sequence[Expiry]:  # noqa: ARG002 - one signature
        """Return the expiry of blocks. The account's own rules are visible only to Azure's management plane."""
        return [Expiry(rule="of every storage account", of_uploads=True, days=_BLOCKS_STAY_DAYS)]

    # --- steps

    @property
    def _container(self) -> ContainerClient:
        return self._service.get_container_client(self.place.bucket)

    @property
    def _service(self) -> BlobServiceClient:
        with self._connecting():
            return client_of_this_process(_client, self.place.host, self._settings)

    def _range(self, key: str, start: int, length: int) -> bytes | None:
        return _unless_absent(lambda: bytes(self._blob(key).download_blob(offset=start, length=length).readall()))

    def _blob(self, key: str) -> Any:
        return self._container.get_blob_client(self.place.key(key))

    @staticmethod
    def _found(blob: Any, key: str) -> Found:
        tag = (blob.metadata or {}).get(TAG)
        return Found(key=key, size_bytes=blob.size, tag=tag, modified_ms=unix_ms(blob.last_modified))

    @staticmethod
    def _failure_of(cause: Exception) -> tuple[Failure, str]:
        reason = (str(cause).splitlines() or [type(cause).__name__])[0]
        if isinstance(cause, HttpResponseError):
            if isinstance(cause, ClientAuthenticationError) or cause.status_code in _FORBIDDEN:
                return Failure.CREDENTIALS, reason
            if _code_of(cause) in _MISSING:
                return Failure.MISSING, reason
            return Failure.UNCHANGED if cause.status_code in _UNCHANGED else Failure.UNKNOWN, reason
        return Failure.UNCHANGED if isinstance(cause, ServiceRequestError) else Failure.UNKNOWN, reason


def _require_one_account(connection: str, options: Mapping[str, str], *, place: BlobUrl) -> None:
    """Raise Usage if `connection` has a wrong endpoint, or if the URL or another option contradicts it: it alone is followed."""
    other = next((name for name in ("endpoint", "account_key", "sas_token") if name in options), None)
    if other is not None:
        raise Usage(
            f"{place} has the option 'connection_string' and {other!r} too, expected one of them.",
            remedy="Keep one of them: a connection string has the endpoint and the credentials in it.",
        )
    parts = {name.strip().lower(): value for name, _, value in (part.partition("=") for part in connection.split(";"))}
    wrong = next((value for name, value in parts.items() if name.endswith("endpoint") and not is_address(value)), None)
    if wrong is not None:
        raise Usage(
            f"The connection_string of {place} has the endpoint {scheme_only(wrong)}, expected a URL without user and password.",
            remedy="Copy the string from the storage account's access keys.",
        )
    ours, theirs = place.host.partition(".")[0], _account_of(parts)
    if theirs and theirs.lower() != ours.lower():
        raise Usage(
            f"The connection_string of {place} is of the storage account {theirs!r}, expected {ours!r}.",
            remedy="Give the connection string of the URL's account, or correct the URL.",
        )


def _account_of(parts: Mapping[str, str]) -> str:
    """Return the storage account that a connection string of these parts leads to, empty where it names none."""
    account, blob, _ = parts.get("blobendpoint", "").partition("://")[2].partition("/")[0].partition(".blob.")
    return parts.get("accountname") or (account if blob else "")


class _RetryPolicy(ExponentialRetry):
    """Limits retries of every kind to `attempts`: any kind that is not given would stay at three retries."""

    def __init__(self, attempts: int) -> None:
        again = attempts - 1
        super().__init__(1, 2, retry_total=again, retry_connect=again, retry_read=again, retry_status=again)

    def get_backoff_time(self, settings: dict[str, Any]) -> float:
        return min(super().get_backoff_time(settings), _PAUSE_S)


@lru_cache(maxsize=64)
def _client(process: int, host: str, given: tuple[tuple[str, str], ...]) -> BlobServiceClient:  # noqa: ARG001 - never shared by a fork
    options = dict(given)
    timeout_s = float(options.get("timeout_s", "60"))
    transport = RequestsTransport(connection_timeout=min(timeout_s, 10.0), read_timeout=timeout_s)
    transport.open()
    transport.session.auth = KeepClientAuth()
    read_refusals(transport.session)
    for adapter in transport.session.adapters.values():
        adapter.init_poolmanager(_CONNECTIONS, _CONNECTIONS)
    settings: dict[str, Any] = {
        "retry_policy": _RetryPolicy(int(options.get("attempts", "5"))),
        "transport": transport,
        "raw_request_hook": sent,
    }
    if "api_version" in options:
        settings["api_version"] = options["api_version"]
    if "connection_string" in options:
        return BlobServiceClient.from_connection_string(options["connection_string"], **settings)
    endpoint = options.get("endpoint", f"https://{host if '.' in host else f'{host}.blob.core.windows.net'}")
    return BlobServiceClient(endpoint, credential=_credential(host, options), **settings)


def _credential(host: str, options: Mapping[str, str]) -> Any:
    """Return a SAS or account key where given, else this process's own identity: workload, managed identity, CLI login."""
    if "sas_token" in options:
        return options["sas_token"]
    if "account_key" in options:
        return {"account_name": host.partition(".")[0], "account_key": options["account_key"]}
    try:
        from azure.identity import DefaultAzureCredential  # noqa: PLC0415 - not needed by those who give a key
    except ImportError as cause:
        raise DependencyMissing(
            f"{host} has neither account_key, sas_token nor connection_string, and azure-identity is not installed.",
            remedy=f"Give one of the options, or install it on the driver and on every executor: {install_command('azure')}",
        ) from cause
    return DefaultAzureCredential()


def _endpoint_for_delta(endpoint: str, *, is_emulator: bool) -> dict[str, str]:
    """Return the options that lead the library for Delta tables to `endpoint`.

    An emulator, whose URL has the account in its path, always lists a folder from its beginning. The library allows for that once
    it is told, and then takes the address from the environment alone.
    """
    if is_emulator:
        os.environ["AZURITE_BLOB_STORAGE_URL"] = endpoint
        return {"azure_storage_use_emulator": "true"}
    return {"azure_storage_endpoint": endpoint, "allow_http": str(endpoint.startswith("http://")).lower()}


def _credential_for_delta(credential: Any, *, sas_token: str) -> dict[str, str]:
    """Return the one option by which the library for Delta tables signs as a client with `credential` does."""
    if sas_token:
        return {"azure_storage_sas_token": sas_token}
    if hasattr(credential, "account_key"):
        return {"azure_storage_account_key": str(credential.account_key)}
    return {"azure_storage_token": str(credential.get_token(_SCOPE).token)}


def _is_folder(blob: Any) -> bool:
    return (blob.metadata or {}).get(_FOLDER) == "true"


def _unless_absent(call: Callable[[], _T]) -> _T | None:
    try:
        return call()
    except ResourceNotFoundError as error:
        if _code_of(error) in _MISSING:
            raise
        return None


def _code_of(error: HttpResponseError) -> str:
    code = getattr(error, "error_code", None)
    return str(getattr(code, "value", code or ""))
