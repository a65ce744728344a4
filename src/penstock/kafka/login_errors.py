"""Fails fast where a Kafka cluster rejects the login: librdkafka alone would try again until the request times out.

The client reports why a handshake failed through `error_cb` only. The request itself ends with a time-out.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

HANDSHAKE_FAILED: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL})
DISCONNECTED: Final = "isconnected"
"""Part of the client's error when a broker closed the connection during a handshake, as it does when it stops."""
_ANSWER_S: Final = 3.0
_OTHERS_S: Final = 1.0
"""How long another broker may still accept the login after one rejected it."""
_LOOK_S: Final = 0.05
_RECENT_S: Final = 120.0


class ClientErrors:
    """An `error_cb` that remembers the client's newest error.

    Clients reference it, and it references no client: a client ends when nobody else references it.
    """

    def __init__(self) -> None:
        self._newest: KafkaError | None = None
        self._at_s = 0.0

    def __call__(self, error: KafkaError) -> None:
        """Remember `error`, unless it only says that all brokers are down: an earlier error of one broker says more."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._newest, self._at_s = error, time.monotonic()

    def newest(self) -> KafkaError | None:
        """Return the newest error, None if it is older than `_RECENT_S` seconds."""
        return self._newest if time.monotonic() - self._at_s < _RECENT_S else None


def is_refusal(error: KafkaError) -> bool:
    """Return whether a broker rejected the login by `error`, in a handshake."""
    return error.code() in HANDSHAKE_FAILED and DISCONNECTED not in error.str()


def require_login(admin: AdminClient, heard: Callable[[], KafkaError | None]) -> None:
    """Raise KafkaException with the error that `heard` returns if no broker accepts the login of `admin`.

    Called before the client's first request. Brokers that do not answer for any other reason are left to that request.
    """
    before = heard()
    answer = admin.describe_cluster(request_timeout=_ANSWER_S)
    _await(answer, admin, lambda: heard() is not before, wait_s=_ANSWER_S)
    error = heard()
    if answer.done() or error is None or not is_refusal(error):
        return
    _await(answer, admin, bool, wait_s=_OTHERS_S)
    if not answer.done():
        raise KafkaException(error)


def _await(answer: "Future[Any]", admin: AdminClient, is_over: Callable[[], bool], *, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while not answer.done() and not is_over() and time.monotonic() < deadline:
        wait([answer], _LOOK_S)  # returns with the answer, which `poll` would not
        admin.poll(0)
