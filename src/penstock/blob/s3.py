"""Amazon S3 and stores with a compatible API.

Uploads are multipart uploads: invisible until `CompleteMultipartUpload`, which consumes them. It is sent without a condition.
With `If-None-Match` it may answer 409, after which AWS demands that all parts are uploaded again, and after the decision nobody
has them. Source: Amazon S3 API reference, CompleteMultipartUpload; Amazon S3 user guide, "Conditional requests".
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, ClassVar

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    TokenRetrievalError,
    UnauthorizedSSOTokenError,
)

from penstock.blob.check import expiries_of_s3
from penstock.blob.client import TAG, Failure, client_of_this_process, sent, unix_ms
from penstock.blob.store import BlobStore, Expiry, Found, Pending, RequestsEach

_PAGE = 1_000
_ABSENT = frozenset({"404", "NoSuchKey", "NotFound"})
_NO_UPLOAD = frozenset({"NoSuchUpload", "404", "NotFound", "NoSuchKey"})
_CONSUMED = frozenset({*_NO_UPLOAD, "403", "AccessDenied", "InvalidPart", "InternalError", "500"})
_NO_RULES = frozenset({"NoSuchLifecycleConfiguration"})
_TAKEN = frozenset({"PreconditionFailed", "412"})
_CREDENTIALS = frozenset(
    {"AccessDenied", "403", "Forbidden", "401", "ExpiredToken", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken"}
    | {"TokenRefreshRequired", "RequestExpired", "ExpiredTokenException", "AllAccessDisabled", "AccountProblem"}
)
_MISSING = frozenset({"NoSuchBucket"})
_UNCHANGED = frozenset(
    {"SlowDown", "503", "ServiceUnavailable", "TooManyRequests", "429", "ThrottlingException", "RequestLimitExceeded"}
)
_WITHOUT_CREDENTIALS = (
    *(NoCredentialsError, PartialCredentialsError, ProfileNotFound),
    *(TokenRetrievalError, UnauthorizedSSOTokenError),
)
"""Raised before a request is sent: credentials are missing, or a login has expired."""
_NEVER_SENT = (EndpointConnectionError, ConnectTimeoutError, CredentialRetrievalError)
"""Raised before a request is sent, and possibly passing: the service that provides a machine's credentials may recover, too."""


@dataclass(frozen=True, kw_only=True)
class S3Store(BlobStore):
    """A `BlobStore` in one bucket."""

    failures: ClassVar = (ClientError, BotoCoreError)
    requests_each: ClassVar = RequestsEach(begin=1)
    known_options: ClassVar = (
        "region", "endpoint", "profile", "access_key_id", "secret_access_key", "session_token", "addressing_style",
        "attempts", "timeout_s",
    )  # fmt: skip
    dates_requests: bool = True

    def for_delta(self) -> Mapping[str, str]:
        """Return endpoint, region and credentials as this client has them now. Raises Failed."""
        with self._translate_errors("find the credentials for", ""):
            client, found = self._client, client_of_this_process(_session, self._settings).get_credentials()
            if found is None:
                raise NoCredentialsError
            keys = found.get_frozen_credentials()
        options = {
            "AWS_ENDPOINT_URL": client.meta.endpoint_url,
            "AWS_REGION": client.meta.region_name,
            "AWS_ACCESS_KEY_ID": keys.access_key,
            "AWS_SECRET_ACCESS_KEY": keys.secret_key,
            "AWS_SESSION_TOKEN": keys.token or "",
            "AWS_ALLOW_HTTP": str(client.meta.endpoint_url.startswith("http://")).lower(),
            "AWS_CONDITIONAL_PUT": "etag",
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
        }
        return {name: value for name, value in options.items() if value}

    def put(self, key: str, data: bytes, *, tag: str) -> None:
        with self._translate_errors("write", key, changes=True):
            self._client.put_object(**self._object(key), Body=data, Metadata={TAG: tag})

    def put_if_absent(self, key: str, data: bytes, *, tag: str) -> bool:
        with self._translate_errors("create", key, changes=True):
            put = partial(self._client.put_object, Body=data, Metadata={TAG: tag}, IfNoneMatch="*")
            return _unless(_TAKEN, put, **self._object(key)) is not None

    def get(self, key: str) -> bytes | None:
        with self._translate_errors("read", key):
            found = _unless(_ABSENT, self._client.get_object, **self._object(key))
            return None if found is None else bytes(found["Body"].read())

    def head(self, key: str) -> Found | None:
        with self._translate_errors("look at", key):
            found = _unless(_ABSENT, self._client.head_object, **self._object(key))
        if found is None:
            return None
        written_ms = unix_ms(found["LastModified"])
        return Found(key=key, size_bytes=found["ContentLength"], tag=found["Metadata"].get(TAG), modified_ms=written_ms)

    def delete(self, key: str) -> None:
        with self._translate_errors("delete", key, changes=True):
            _unless(_ABSENT, self._client.delete_object, **self._object(key))

    def list(self, folder: str = "", *, limit: int | None = None) -> Iterator[Found]:
        pages = self._client.get_paginator("list_objects_v2")
        bounds = {"MaxItems": limit, "PageSize": min(limit or _PAGE, _PAGE)}
        asked = pages.paginate(Bucket=self.place.bucket, Prefix=self.place.key(folder), PaginationConfig=bounds)
        for page in self._each("list", folder, asked):
            for found in page.get("Contents", []):
                yield self._found(found)

    def children(self, folder: str = "") -> Iterator[Found]:
        """Skips the object with the folder's own name, by which Hadoop marks an empty directory."""
        prefix = self.place.key(folder)
        pages = self._client.get_paginator("list_objects_v2")
        for page in self._each("list", folder, pages.paginate(Bucket=self.place.bucket, Prefix=prefix, Delimiter="/")):
            yield from (Found(key=self.place.name(below["Prefix"]), size_bytes=0) for below in page.get("CommonPrefixes", []))
            yield from (self._found(found) for found in page.get("Contents", []) if found["Key"] != prefix)

    def begin(self, key: str, *, tag: str) -> str:
        with self._translate_errors("begin an upload of", key, changes=True):
            return str(self._client.create_multipart_upload(**self._object(key), Metadata={TAG: tag})["UploadId"])

    def put_part(self, key: str, upload: str, number: int, data: bytes) -> str:
        """Return the part's ETag."""
        with self._translate_errors("upload a part of", key, changes=True):
            answer = self._client.upload_part(**self._object(key), UploadId=upload, PartNumber=number + 1, Body=data)
            return str(answer["ETag"])

    def complete(self, key: str, upload: str, parts: Sequence[str], *, tag: str) -> None:  # noqa: ARG002 - noted at `begin`
        """Servers answer 200, 403, 404 or 500 for an upload that was completed before."""
        listed = [{"PartNumber": number, "ETag": part} for number, part in enumerate(parts, 1)]
        with self._translate_errors("complete", key, changes=True):
            complete = partial(self._client.complete_multipart_upload, UploadId=upload, MultipartUpload={"Parts": listed})
            _unless(_CONSUMED, complete, **self._object(key))

    def is_pending(self, key: str, upload: str) -> bool:
        with self._translate_errors("look at an upload of", key):
            return _unless(_NO_UPLOAD, self._client.list_parts, **self._object(key), UploadId=upload, MaxParts=1) is not None

    def pending(self, folder: str) -> Iterator[Pending]:
        pages = self._client.get_paginator("list_multipart_uploads")
        asked = pages.paginate(Bucket=self.place.bucket, Prefix=self.place.key(folder))
        for page in self._each("list uploads of", folder, asked):
            for found in page.get("Uploads", []):
                yield Pending(key=self.place.name(found["Key"]), upload=found["UploadId"])

    def discard(self, pending: Pending) -> None:
        with self._translate_errors("end an upload of", pending.key, changes=True):
            abort = partial(self._client.abort_multipart_upload, UploadId=pending.upload)
            _unless(_NO_UPLOAD, abort, **self._object(pending.key))

    def deletes_by_itself(self, folder: str = "") -> Sequence[Expiry]:
        with self._translate_errors("read the lifecycle rules for", folder):
            asked = self._client.get_bucket_lifecycle_configuration
            found = _unless(_NO_RULES, asked, Bucket=self.place.bucket) or {"Rules": []}
        return [rule for rule in expiries_of_s3(found["Rules"]) if rule.covers(self.place.key(folder))]

    # --- steps

    @property
    def _client(self) -> Any:
        with self._connecting():
            return client_of_this_process(_client, self._settings)

    def _range(self, key: str, start: int, length: int) -> bytes | None:
        asked = f"bytes={start}-{start + length - 1}"
        found = _unless(_ABSENT, self._client.get_object, **self._object(key), Range=asked)
        return None if found is None else bytes(found["Body"].read())

    def _found(self, listed: "Mapping[str, Any]") -> Found:
        written_ms = unix_ms(listed["LastModified"])
        return Found(key=self.place.name(listed["Key"]), size_bytes=listed["Size"], modified_ms=written_ms)

    def _object(self, key: str) -> dict[str, str]:
        return {"Bucket": self.place.bucket, "Key": self.place.key(key)}

    @staticmethod
    def _failure_of(cause: Exception) -> tuple[Failure, str]:
        reason = str(cause)
        if isinstance(cause, ClientError):
            code = _code_of(cause)
            if code in _CREDENTIALS:
                return Failure.CREDENTIALS, reason
            if code in _MISSING:
                return Failure.MISSING, reason
            return Failure.UNCHANGED if code in _UNCHANGED else Failure.UNKNOWN, reason
        if isinstance(cause, _WITHOUT_CREDENTIALS):
            return Failure.CREDENTIALS, reason
        if isinstance(cause, ParamValidationError):
            return Failure.MISSING, "no bucket can have this name"
        return Failure.UNCHANGED if isinstance(cause, _NEVER_SENT) else Failure.UNKNOWN, reason


@lru_cache(maxsize=64)
def _client(process: int, given: tuple[tuple[str, str], ...]) -> Any:
    options, session = dict(given), _session(process, given)
    timeout_s = float(options.get("timeout_s", "60"))
    config = Config(
        retries={"mode": "standard", "total_max_attempts": int(options.get("attempts", "5"))},
        connect_timeout=min(timeout_s, 10.0),
        read_timeout=timeout_s,
        max_pool_connections=32,
        s3={"addressing_style": options.get("addressing_style", "auto")},
    )
    client = session.client("s3", endpoint_url=options.get("endpoint"), config=config)
    client.meta.events.register("before-send.s3", sent)
    return client


@lru_cache(maxsize=64)
def _session(process: int, given: tuple[tuple[str, str], ...]) -> Any:  # noqa: ARG001 - a fork must not share connections
    """Return the session of the client. It refreshes credentials that expire; a new one would log in again."""
    options = dict(given)
    return boto3.session.Session(
        profile_name=options.get("profile"),
        region_name=options.get("region"),
        aws_access_key_id=options.get("access_key_id"),
        aws_secret_access_key=options.get("secret_access_key"),
        aws_session_token=options.get("session_token"),
    )


def _unless(codes: "frozenset[str]", call: "Callable[..., Any]", **asked: Any) -> Any:
    try:
        return call(**asked)
    except ClientError as error:
        if _code_of(error) in codes:
            return None
        raise


def _code_of(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
