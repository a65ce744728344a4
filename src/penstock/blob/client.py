"""What the stores have in common around their client libraries: request counting, the errors of requests, the options."""

import difflib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from enum import Enum
from threading import Lock, local
from typing import Final, TypeVar

from penstock.blob.url import BlobUrl
from penstock.errors import Failed, OutcomeUnknown, PenstockError, Retryable, Usage
from penstock.support.connection import is_untrusted_certificate
from penstock.support.secret import scheme_only, scrub

_C = TypeVar("_C")
_making: dict[int, Lock] = {}
"""By process: one may be forked while another thread holds the lock, which nobody would release in the child."""

# All stores of a process share the clients, so a request is attributed by the thread that sends it. A store names itself around
# each call, and the client's hook counts every request of that call, retries and redirects included.
_lock = Lock()
_sent: Counter[str] = Counter()
_asking = local()


@contextmanager
def asking(url: str) -> Iterator[None]:
    """Attribute this thread's requests to the store at `url` while the context is open."""
    before = getattr(_asking, "url", None)
    _asking.url = url
    try:
        yield
    finally:
        _asking.url = before


def sent(*_: object, **__: object) -> None:
    """Count one request. The clients' hooks call it for each request sent."""
    url = getattr(_asking, "url", None)
    if url is not None:
        with _lock:
            _sent[url] += 1


def requests_to(url: str) -> int:
    """Return how many requests were sent to the store at `url` since this process began. Never decreases."""
    with _lock:
        return _sent[url]


def client_of_this_process(make: Callable[..., _C], *settings: object) -> _C:
    """Return `make(process, *settings)`, which caches. Threads call it one after the other.

    Else all threads that publish the first files would each make a client, of which one is kept.
    """
    process = os.getpid()
    with _making.setdefault(process, Lock()):
        return make(process, *settings)


_QUERY = re.compile(r"(?<=\S)\?\w[\w.~%+&=/;,@!$*-]*")
"""The query of a request's URL: long, useless to people, and some clients write credentials there."""


_RENEW_ACCESS: Final = (
    "Renew or correct the account's credentials and permissions, then start again: what was decided is not lost."
)
_TRY_AGAIN: Final = "Try again. If it fails again, check the network, the account's URL and its options."
_COULD_NOT: Final = re.compile(r"Could not [\w ]+ ([a-z0-9]+://)(?:[^/@\s]+@)?([^/@\s]+)")


def concerns_store(message: str) -> str | None:
    """Return what is wrong with which store, if `message`, with its remedy, is of a store that refuses access or is away.

    It is the same for everything in one bucket, and for all containers of one account of Azure: these share credentials.
    """
    remedy = next((each for each in (_RENEW_ACCESS, _TRY_AGAIN) if message.endswith(each)), None)
    found = None if remedy is None else _COULD_NOT.search(message)
    return None if found is None else f"{found[1]}{found[2]} {remedy}"


class Failure(Enum):
    """What a client library's exception means for the request."""

    CREDENTIALS = "the store does not know the caller or denies access: nothing was changed"
    MISSING = "the bucket, container or file system does not exist"
    UNCHANGED = "the store was not reached, or asked to retry later: nothing was changed"
    UNKNOWN = "anything else: an answer that was lost or makes no sense"


def error_for(failure: Failure, reason: str, *, act: str, where: str, changes: bool) -> PenstockError:
    """Return the error for a failed attempt to `act` on `where`. `changes`: the operation was to change something.

    `reason` is the client library's own text.
    """
    message = f"Could not {act} {where}: {scrub(_QUERY.sub('', reason)).rstrip('.')}."
    if is_untrusted_certificate(reason):
        return Failed(
            message,
            remedy="Have this machine trust the authority that signed the store's certificate, or correct the store's address "
            "in the options, then start again: what was decided is not lost.",
        )
    if failure is Failure.CREDENTIALS:
        return Failed(message, remedy=_RENEW_ACCESS).lacking("access")
    if failure is Failure.MISSING:
        return Failed(message, remedy="Create the bucket or container, or correct the account's URL, then start again.")
    if failure is Failure.UNKNOWN and changes:
        return OutcomeUnknown(message, remedy="Start again: Penstock reads what is there before it writes.")
    return Retryable(message, remedy=_TRY_AGAIN)


_NUMBERS: Mapping[str, type[int] | type[float]] = {"attempts": int, "timeout_s": float}
_ADDRESS = re.compile(r"https?://([^\s/@:?#\[\]]+|\[[0-9a-fA-F:.]+\])(:\d+)?(/[^\s?#@]*)?")
_ADDRESSES = frozenset({"endpoint", "webhdfs"})


def require_known(options: Mapping[str, str], known: tuple[str, ...], *, place: BlobUrl) -> None:
    """Raise Usage for an unknown option, and for one that must be a number or an address and is not."""
    unknown = next((name for name in options if name not in known), None)
    if unknown is not None:
        close = difflib.get_close_matches(unknown, known, n=1)
        meant = f"Did you mean {close[0]}? " if close else ""
        raise Usage(f"{place} has no option {unknown!r}.", remedy=f"{meant}It has {', '.join(known)}.")
    for name in _NUMBERS.keys() & options.keys():
        kind, given = _NUMBERS[name], options[name]
        try:
            fine = 0 < kind(given) < float("inf")
        except ValueError:
            fine = False
        if not fine:
            what = "a whole number above 0" if kind is int else "a number above 0"
            raise Usage(f"The option {name!r} of {place} is {given!r}, expected {what}.", remedy="Correct it.")
    for name in _ADDRESSES & options.keys():
        if not all(map(is_address, options[name].split(","))):
            raise Usage(
                f"The option {name!r} of {place} is {scheme_only(options[name])}, expected a URL without user and password.",
                remedy="Write http://HOST:PORT or https://HOST.",
            )


def is_address(text: str) -> bool:
    """Return whether `text` is the URL of a server, without user and password."""
    return _ADDRESS.fullmatch(text.strip()) is not None


TAG = "penstock"
"""Name of the metadata entry that holds the writer's tag on an object."""
STAGING = ".penstock-staging"
"""Folder beside a table for uploads, on stores without uploads of their own."""


def unix_ms(moment: datetime) -> int:
    """Return a store's time in milliseconds, truncated to seconds: not every store has more."""
    return int(moment.timestamp()) * 1000
