"""How many requests this process has sent to each store: what the store's bill counts.

Clients are shared by the stores of a process, so a request is told apart by the thread that sends it: a store names itself
around each call, and the client's own hook counts every attempt of it, retries and redirects included.
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
    """Until it ends, requests of this thread are to the store at `url`."""
    before = getattr(_asking, "url", None)
    _asking.url = url
    try:
        yield
    finally:
        _asking.url = before


def sent(*_: object, **__: object) -> None:
    """Called by the clients' hooks, once for each request that goes out."""
    url = getattr(_asking, "url", None)
    if url is not None:
        with _lock:
            _sent[url] += 1


def requests_to(url: str) -> int:
    """How many were sent to the store at `url` since this process began; it only grows."""
    with _lock:
        return _sent[url]
