"""Translates errors of Kafka and its client into Penstock's. Messages name the servers and never an option's value."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from penstock.errors import Failed, OutcomeUnknown, PenstockError, PublishFailed, Retryable, Usage
from penstock.kafka.login_errors import DISCONNECTED
from penstock.sink.kafka.clients import Clients


def command(right: str, option: str) -> str:
    """Return the command by which an administrator grants `right`."""
    return f"kafka-acls --add --allow-principal User:NAME --operation {right} {option}"


_STARTS = "and start again: what was decided is published then."
LOOK_INTO_LOGS = "Look into the logs of its brokers, and try again."
_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError._FATAL}
"""A producer that has learned before that it is fenced reports only the last one."""
_SECURITY = {
    KafkaError._AUTHENTICATION: ("refuses the login", "Correct the credentials in `options`"),
    KafkaError.SASL_AUTHENTICATION_FAILED: ("refuses the login", "Correct the credentials in `options`"),
    KafkaError._SSL: ("cannot be reached by TLS", "Correct the `ssl.` keys in `options`"),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: (
        "does not let the user write or read a topic",
        "Give it the rights of docs/howto/kafka.md,",
    ),
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "does not let the user write with this transactional.id",
        f"Give it the right Write on such: {command('Write', '--resource-pattern-type prefixed --transactional-id penstock.')};",
    ),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: (
        "does not let the user write idempotently, which is a right of its own before Kafka 2.8",
        f"Give it the right IdempotentWrite: {command('IdempotentWrite', '--cluster')};",
    ),
}
_TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_MSG_SIZE}
_GONE = {
    *(KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION),
    KafkaError.INCONSISTENT_TOPIC_ID,
}
_FINAL = {
    **dict.fromkeys(_TOO_LARGE, ("found a record too large", "Raise max.message.bytes of the topic")),
    **dict.fromkeys(_GONE, ("lacks a topic or a partition", "Restore it")),
    KafkaError.INVALID_RECORD: ("refuses a record", "A compacted topic takes no record without a key: correct cleanup.policy"),
    KafkaError.INVALID_TRANSACTION_TIMEOUT: (
        "allows no transaction so long",
        "Lower `transaction_timeout`, or raise transaction.max.timeout.ms of the brokers,",
    ),
    KafkaError.UNSUPPORTED_VERSION: ("is too old for transactions", "Use Kafka 2.5 or newer"),
    **_SECURITY,
}
"""Errors that repeat however often the request is sent."""


_SILENCE = {
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._WAIT_COORD,
}
"""Errors of a request that got no answer; the client reports the reason through `error_cb`."""


def not_allowed(right: str, what: str, option: str) -> Failed:
    """Return the error for a missing right, with the command that grants it."""
    return Failed(f"The user of this sink lacks the right {right} on {what}.", remedy=f"{command(right, option)}.")


class Overtaken(Retryable):
    """Another producer of this lane started: a newer run's, or one that publishes the same batch. The marker shows which."""


def overtaken(place: str) -> Overtaken:
    """Return the error for a fenced producer."""
    return Overtaken(f"Another run publishes into {place} as this sink.", remedy="Let one of them work, and stop the other one.")


def connection_lost(point: str) -> KafkaException:
    """Return the exception that the client raises where no answer comes."""
    return KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{point} was cut off", retriable=True))


def code_of(cause: BaseException) -> int | None:
    """Return the client's code of an error, None for an exception that has none."""
    error = cause.args[0] if cause.args else None
    return error.code() if isinstance(error, KafkaError) else None


def is_of_group(error: KafkaError | None) -> bool:
    """Return whether `error` only denies membership of a consumer group, which the client requests and no consumer here needs."""
    return error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def is_gone(cause: BaseException) -> bool:
    """Return whether `cause` says that a topic or partition does not exist."""
    return code_of(cause) in _GONE


def is_forbidden(cause: Exception) -> bool:
    """Return whether `cause` says that the user lacks a right on the topic or the cluster."""
    return code_of(cause) in {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}


@contextmanager
def translate_errors(
    of: Clients, kind: type[Failed] = PublishFailed, *, in_doubt: bool = False, timed_out: Callable[[], bool] = bool
) -> Iterator[None]:
    """Raise the client's errors as Penstock's.

    `in_doubt`: the request may have taken effect all the same. `timed_out`: whether the transaction has exceeded its timeout, so
    that being fenced does not mean that another producer started.
    """
    try:
        yield
    except KafkaException as cause:
        why = cause if in_doubt else _cause(cause, of)  # no error from `error_cb` says what became of a commit
        raise translate_error(why, of.place, kind, in_doubt=in_doubt, timed_out=timed_out()) from cause
    except BufferError as cause:
        raise Retryable(f"{of.place} takes no more records: {cause}.", remedy=LOOK_INTO_LOGS) from cause


def _cause(raised: KafkaException, of: Clients) -> KafkaException:
    """Return the login error from `error_cb` if `raised` only says that no answer came, else `raised`."""
    reason = of.heard() if code_of(raised) in _SILENCE else None
    return raised if reason is None or reason.code() not in _SECURITY or DISCONNECTED in reason.str() else KafkaException(reason)


def translate_error(cause: KafkaException, place: str, kind: type[Failed], *, in_doubt: bool, timed_out: bool) -> PenstockError:
    """Return Penstock's error for `cause`; the arguments are those of `translate_errors`."""
    code, reason = code_of(cause), reason_of(cause)
    if code in _FENCED and timed_out:
        return Retryable(
            f"A transaction in {place} took longer than `transaction_timeout` and was ended by the broker.",
            remedy="Raise `transaction_timeout` if this happens again; the transaction is repeated now.",
        )
    if code in _FENCED:
        return overtaken(place)
    if code in _FINAL:
        what, remedy = _FINAL[code]
        return kind(f"{place} {what}: {reason}.", remedy=f"{remedy} {_STARTS}")
    if code == KafkaError._INVALID_ARG:
        return Usage(
            f"The client of Kafka refuses its settings: {reason}.", remedy="Correct `options` or `bootstrap` of the sink."
        )
    if in_doubt:
        return OutcomeUnknown(f"{place} did not confirm what was sent: {reason}.", remedy=LOOK_INTO_LOGS)  # I12
    return Retryable(
        f"{place} does not answer as it should: {reason}.", remedy="Start its brokers or mend the network, and try again."
    )


def reason_of(cause: Exception) -> str:
    """Return the client's own message, in one line."""
    error = cause.args[0] if cause.args else cause
    reason = error.str() if isinstance(error, KafkaError) else str(error)
    return " ".join(str(reason).split()).rstrip(".") or type(cause).__name__
