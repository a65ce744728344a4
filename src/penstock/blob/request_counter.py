"""Counts of the requests that this process has sent to each store, as the store bills them.

All stores of a process share the clients, so a request is attributed by the thread that sends it. A store names itself around
each call, and the client's hook counts every request of that call, retries and redirects included.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, local

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
