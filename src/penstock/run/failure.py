"""Translation of whatever ended a Spark query into the Penstock error that says in one sentence what to do.

A foreachBatch function may run in another process than the one that awaits the query (Spark Connect), and Spark keeps only the
text of its exception, so that text carries the error (penstock.support.error_transport).
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JNetworkError

from penstock.checkpoint.entries import RESTORE, Anomaly, Severity
from penstock.checkpoint.inspection import inspect_files
from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.errors import (
    BatchFailed,
    CheckpointDamaged,
    CheckpointMissing,
    Failed,
    Fenced,
    PenstockError,
    Retryable,
)
from penstock.spark.error import connector_remedy, lacks_penstock, penstock_missing, read_spark_failure
from penstock.support.error_transport import decode_error
from penstock.support.filesystem_errors import directory_problem
from penstock.support.secret import scrub

_FENCING = (
    "CONCURRENT_STREAM_LOG_UPDATE",
    "CONCURRENT_QUERY",
    "Multiple streaming jobs detected",  # a source's log
    "Multiple streaming queries are concurrently using",  # the checkpoint's `metadata`
)
_GONE = ("Answer from Java side is empty", "JAVA_GATEWAY_EXITED", "on a stopped SparkContext")
"""Signs that Spark's Java process has ended, or is ending: at SIGTERM it stops its context first."""
_STOPPED = "Cannot call methods on a stopped SparkContext"
_MOVED_INPUT = re.compile(r"Wrong basePath (\S+) for the root path: (\S+?)\.?(?=\s|$)")
_OVERFLOW = "java.lang.StackOverflowError"
_LATE_WORKER = "waiting for the Python worker to connect back"
_LOST_STATE = "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY"
_LOST_METADATA = "STREAMING_CHECKPOINT_MISSING_METADATA_FILE"


class Undelivered(RuntimeError):
    """The exception that Spark gets for a failed batch. Its text encodes the real error, or is STOPPED."""


STOPPED = "stopped on request"
"""Looked for only right behind the exception's name, because Spark's text also quotes the code that raised it."""


def is_spark_gone(error: BaseException) -> bool:
    """Return whether `error` was raised because Spark's Java process ended, by itself or by an error that it was raised from."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, Py4JNetworkError | ConnectionError) or any(sign in str(seen) for sign in _GONE):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


class StopRequested(BaseException):
    """Raised where a batch is dropped because the run is to stop. Nothing of the batch was decided."""


def error_from_exception(cause: BaseException) -> PenstockError:
    """Return the PenstockError for `cause`, an exception raised while a batch was delivered."""
    if isinstance(cause, PenstockError):
        return cause
    return from_text(str(cause)) or BatchFailed(
        f"The batch failed with {type(cause).__name__}: {read_spark_failure(scrub(str(cause))).sentence}",
        remedy="Mend the cause and start again: what was decided is published, anything else is delivered anew.",
    )


@contextmanager
def translate_start_errors() -> Iterator[None]:
    """Raise any exception from opening and recovering a run as a PenstockError with that exception as its cause."""
    try:
        yield
    except PenstockError:
        raise
    except Exception as cause:
        raise Failed(
            f"The start failed with {type(cause).__name__}: {read_spark_failure(scrub(str(cause))).sentence}",
            remedy="Mend the cause and start again: what was decided is published then.",
        ) from cause


_FORBIDDEN = {
    "TopicAuthorizationException": "the right Read on one of the topics",
    "GroupAuthorizationException": "the right Read on the consumer group that Spark's reader has (groupIdPrefix)",
}
"""Exceptions of Kafka's Java client, and the right that is missing then."""


def error_from_query(text: str, *, checkpoint: SparkCheckpoint, doing: str = "run") -> PenstockError:
    """Return the error behind the text of a Spark exception. `doing` is what Spark failed to do: `run` or `start` the query."""
    known = from_text(text)
    if known is not None:
        return known
    around = _around(text, doing=doing)
    if around is not None:
        return around
    spark_error = read_spark_failure(scrub(text))
    seen = directory_problem(checkpoint.location)
    damage = _damage_of(checkpoint)
    if seen is not None:
        return Failed(
            f"Spark cannot write the checkpoint {checkpoint.location}: {seen.reason} ({spark_error.message}).",
            remedy=f"{seen.advice} and start again: nothing was lost.",
        )
    if damage is not None:
        return CheckpointDamaged(
            f"Spark could not {doing} the query, since its checkpoint {checkpoint.location} is damaged: {damage.message} "
            f"(Spark says: {spark_error.message})",
            remedy=f"{damage.remedy} `penstock checkpoint explain` says more.",
        )
    return Failed(
        f"Spark could not {doing} the query: {spark_error.sentence}", remedy="Mend the cause and start again: nothing was lost."
    )


def _moved_input(text: str, *, doing: str) -> PenstockError | None:
    """Return the error of a query whose input, or whose pipeline file, was moved to another directory, None if it was not."""
    found = _MOVED_INPUT.search(text)
    if found is None:
        return None
    return Failed(
        f"Spark could not {doing} the query: it knows input files by their absolute path, such as {found[2]}, and the source "
        f"reads {found[1]} now.",
        remedy="Set `path` of the source to the directory that held that file, and put the input back there. To go on in another "
        f"directory, keep delivered files out of it, and write it as a pattern: `path: {found[1].rstrip('/')}/*`.",
    )


def _stopped_session(text: str, *, doing: str) -> PenstockError | None:
    """Return the error of a query over a session that was stopped, as by a cell of a notebook, None if it was not."""
    if _STOPPED not in text:
        return None
    return Failed(
        f"Spark could not {doing} the query: its session was stopped.",
        remedy="Make a session, and the streaming DataFrame by it, and start the delivery again: nothing was lost.",
    )


def _around(text: str, *, doing: str) -> PenstockError | None:
    """Return an error that lies neither in the query nor in its checkpoint: rights, a busy machine, a missing package."""
    forbidden = next((right for sign, right in _FORBIDDEN.items() if sign in text), None)
    if forbidden is not None:
        return Failed(
            f"Kafka does not let Spark read a source: its user lacks {forbidden}.",
            remedy="Grant it: `penstock check` names the topic, and docs/howto/kafka.md the rights that are needed.",
        )
    if _LATE_WORKER in text:
        return Retryable(
            f"Spark could not {doing} the query: a Python worker did not connect within ten seconds.",
            remedy="Start again: nothing was lost. If it happens again, the machine that Spark's driver runs on is too busy.",
        )
    if lacks_penstock(text):
        return penstock_missing(f"Spark could not {doing} the query", text)
    if _OVERFLOW in text:
        return Failed(
            f"Spark could not {doing} the query: its own thread ended with StackOverflowError, as in a search of a long text.",
            remedy="Start again: nothing was lost. If it happens again, give Spark's threads more stack, before its Java starts: "
            "`spark: {conf: {spark.driver.extraJavaOptions: -Xss16m}}` in the pipeline file.",
        )
    connector = connector_remedy(text)
    if connector is None:
        return _moved_input(text, doing=doing) or _stopped_session(text, doing=doing)
    lacks = read_spark_failure(text).message.rpartition(": ")[2]
    return Failed(f"Spark could not {doing} the query, since it lacks a connector: {lacks}.", remedy=connector)


def _damage_of(checkpoint: SparkCheckpoint) -> Anomaly | None:
    """Return what keeps Spark from starting on the checkpoint, as far as its files show."""
    try:
        found = inspect_files(checkpoint.files).anomalies
    except PenstockError:  # it cannot be read from here: Spark's own message must do
        return None
    return next((anomaly for anomaly in found if anomaly.severity is Severity.STOPS), None)


def from_text(text: str) -> PenstockError | None:
    """Return the error whose class or Spark condition stands in `text`, None if there is none."""
    known = decode_error(text)
    if known is not None:
        return known
    if any(condition in text for condition in _FENCING):
        return Fenced(
            "Another run of this query writes to the same checkpoint.",
            remedy="Let the newer run work, or stop it before you start another.",
        )
    if _LOST_STATE in text:
        return CheckpointDamaged(
            "The checkpoint has lost the state of the query: its directory `state` is missing or empty, so Spark does not start.",
            remedy=RESTORE,
        )
    if _LOST_METADATA in text:
        return CheckpointMissing(
            "The checkpoint holds offsets but its `metadata` file is gone, so Spark does not know which query it belongs to.",
            remedy="If it is the checkpoint of that query, `penstock checkpoint repair FILE --yes` writes the file again.",
        )
    return None
