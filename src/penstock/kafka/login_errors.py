"""A cluster that does not let us in, told at once: librdkafka would try again until the question's time is over.

Why a handshake failed the client tells beside all questions (`error_cb`), and the question itself ends with a time-out.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

HANDSHAKE_FAILED: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL})
HUNG_UP: Final = "isconnected"
"""In what a client says of a handshake that a broker broke off, as it does when it stops."""
_ANSWER_S: Final = 3.0
_OTHERS_S: Final = 1.0
"""For how long another broker may let us in after one did not."""
_LOOK_S: Final = 0.05
_RECENT_S: Final = 120.0


class Heard:
    """What clients tell beside all questions. They hold it, and it holds none of them: they end when nobody holds them."""

    def __init__(self) -> None:
        self._said: KafkaError | None = None
        self._at_s = 0.0

    def __call__(self, error: KafkaError) -> None:
        """That all brokers are gone says less than what was said of one of them before."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._said, self._at_s = error, time.monotonic()

    def recently(self) -> KafkaError | None:
        """The last thing."""
        return self._said if time.monotonic() - self._at_s < _RECENT_S else None


def is_refusal(error: KafkaError) -> bool:
    """Whether a broker said by it, in a handshake, that we are not let in."""
    return error.code() in HANDSHAKE_FAILED and HUNG_UP not in error.str()


def require_let_in(admin: AdminClient, heard: Callable[[], KafkaError | None]) -> None:
    """Raise KafkaException, with what was `heard`, if no broker lets `admin` in; for its first question.

    Whatever else keeps brokers from answering is left to the question itself.
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
        admin.poll(_LOOK_S)
