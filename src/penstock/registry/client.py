"""HTTP client of a schema registry: looks up schemas by id, or by subject and version."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any
from urllib.parse import quote

import requests
from requests.auth import AuthBase
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from penstock.errors import Failed, PenstockError, Retryable, Usage
from penstock.registry.wire import Reference, Registered, RegistryPlace

_POOL = re.compile(r"^HTTPS?Connection(?:Pool)?\([^)]*\): ")
_TYPE = "application/vnd.schemaregistry.v1+json"
_TRIES = 4
_MAY_PASS = (429, 500, 502, 503, 504)
_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA = 40401, 40402, 40403
_OF_REFERENCE = {"name", "subject", "version"}
_AVRO = "AVRO"
"""The kind that a registry means when it names none."""


class SchemaUnknown(Exception):
    """The registry itself answers that it has no such schema. Any other answer, such as a proxy's 404, does not count."""


class Registry:
    """Client of one registry, for one thread. A schema with an id never changes, so each id is requested once."""

    def __init__(self, place: RegistryPlace) -> None:
        self._place = place
        self._session = requests.Session()
        self._session.headers["Accept"] = f"{_TYPE}, application/json"
        if place.user is not None:
            self._session.auth = (place.user, place.password or "")
        elif place.token is not None:
            self._session.auth = _Bearer(place.token)
        if place.certificate_file is not None:
            self._session.cert = (place.certificate_file, place.key_file) if place.key_file else place.certificate_file
        self._verify = place.ca_file  # passed with each request: REQUESTS_CA_BUNDLE overrides that of a session
        self._by_id: dict[int, Registered] = {}

    def by_id(self, schema_id: int) -> Registered:
        """Return the schema with that id. Raises SchemaUnknown, Retryable, Failed."""
        if schema_id not in self._by_id:
            found = self._get(f"schemas/ids/{schema_id}")
            self._by_id[schema_id] = self._registered(found, schema_id=schema_id)
        return self._by_id[schema_id]

    def of_subject(self, subject: str, version: int | None) -> Registered:
        """Return the subject's schema of that version, or its newest. Raises Usage if there is none, Retryable, Failed."""
        wanted = "latest" if version is None else str(version)
        try:
            found = self._get(f"subjects/{quote(subject, safe='')}/versions/{wanted}")
        except SchemaUnknown as unknown:
            what = f"a subject {subject!r}" if version is None else f"version {version} of a subject {subject!r}"
            raise Usage(
                f"The schema registry {self._place.name} does not have {what}: {unknown}.",
                remedy="Register the schema first, or name another `subject` or `version`; without one it is "
                "<topic>-value or <topic>-key.",
            ) from unknown
        if not isinstance(found.get("id"), int):
            raise self._is_none("a schema without its id")
        return self._registered(found, schema_id=found["id"])

    def _registered(self, found: Mapping[str, Any], *, schema_id: int) -> Registered:
        references: dict[str, Reference] = {}
        for reference in self._referred(found):
            references.setdefault(reference.name, reference)
        return Registered(
            schema_id=schema_id,
            kind=found.get("schemaType") or _AVRO,
            text=found["schema"],
            references=tuple(references.values()),
            version=found.get("version"),
        )

    def _referred(self, found: Mapping[str, Any]) -> Iterator[Reference]:
        """Yield each referenced schema before those that refer to it. References name versions, so no schema refers to itself."""
        for one in found.get("references") or ():
            inner = self._get(f"subjects/{quote(one['subject'], safe='')}/versions/{one['version']}")
            yield from self._referred(inner)
            yield Reference(name=one["name"], text=inner["schema"])

    def _get(self, path: str) -> Mapping[str, Any]:
        patient = Retrying(
            stop=stop_after_attempt(_TRIES),
            wait=wait_random_exponential(multiplier=0.2, max=2),
            retry=retry_if_exception_type(Retryable),
            reraise=True,
        )
        return patient(self._get_once, path)

    def _get_once(self, path: str) -> Mapping[str, Any]:
        """Return the answer of the first URL that has it: other nodes may not know yet what was registered.

        Raises SchemaUnknown only if no node knows the schema.
        """
        failure: PenstockError | None = None
        unknown: SchemaUnknown | None = None
        for url in self._place.urls:
            try:
                return self._answered(self._session.get(f"{url}/{path}", timeout=self._place.timeout_s, verify=self._verify))
            except SchemaUnknown as error:
                unknown = error
            except requests.exceptions.SSLError as error:
                raise Failed(
                    f"The schema registry {self._place.name} is not trusted: {_innermost_reason(error)}.",
                    remedy="Name its authority by `ca_file`, and the client certificate that it asks for by `certificate_file`.",
                ) from error
            except (requests.RequestException, Retryable) as error:
                reason = error.message if isinstance(error, Retryable) else _innermost_reason(error)
                failure = Retryable(
                    f"The schema registry {self._place.name} does not answer: {reason}.",
                    remedy="Start again when it does: no record was skipped.",
                )
            except OSError as error:  # `requests` raises it for a missing file
                raise Failed(
                    f"The schema registry {self._place.name} cannot be asked: {error}.",
                    remedy="Put the files that `registry` names on every machine: here and on the executors.",
                ) from error
        raise failure or unknown or AssertionError("a registry without a URL")

    def _answered(self, answer: requests.Response) -> Mapping[str, Any]:
        try:
            found = answer.json()
        except ValueError:
            found = None
        body = found if isinstance(found, dict) else None
        if answer.ok and body is not None and _is_schema(body):
            return body
        code = None if body is None else body.get("error_code")
        if answer.status_code == 404 and code in {_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA}:
            raise SchemaUnknown(str((body or {}).get("message", code)))
        reason = f"HTTP {answer.status_code} {answer.reason}" + (f", {body['message']}" if body and "message" in body else "")
        if answer.status_code in _MAY_PASS:
            raise Retryable(reason, remedy="")
        if answer.status_code in {401, 403}:
            raise Failed(
                f"The schema registry {self._place.name} refuses access: {reason}.",
                remedy="Correct `user` and `password`, or `token`, of `registry`.",
            )
        raise self._is_none(f"{reason}, without a schema" if answer.ok else reason)

    def _is_none(self, reason: str) -> Failed:
        return Failed(
            f"What answers at the URL {self._place.name} is not a schema registry: {reason}.",
            remedy="Correct `url` of `registry`; that of Apicurio ends in /apis/ccompat/v7.",
        )


@cache
def registry(place: RegistryPlace) -> Registry:
    """Return this process's client of a registry: a Python worker of Spark runs many tasks one after the other."""
    return Registry(place)


class _Bearer(AuthBase):
    """Authentication by a bearer token. `requests` would replace a session's own header by the host's entry in `.netrc`."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def _is_schema(body: Mapping[str, Any]) -> bool:
    references = body.get("references") or []
    named = isinstance(references, list) and all(isinstance(one, dict) and one.keys() >= _OF_REFERENCE for one in references)
    return named and isinstance(body.get("schema"), str) and isinstance(body.get("schemaType") or _AVRO, str)


def _innermost_reason(error: Exception) -> str:
    """Return the innermost reason in one line; `requests` wraps it in the actions of its connection pool."""
    wrapped = error.args[0] if error.args else None
    reason = getattr(wrapped, "reason", None) or error
    first = (str(reason).splitlines() or [type(reason).__name__])[0].rpartition(">: ")[2]
    return _POOL.sub("", first).rstrip(".")
