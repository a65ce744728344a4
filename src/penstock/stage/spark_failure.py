"""Taking a task's error through Spark, which keeps only its text, and reading Spark's own errors."""

import re

from penstock.carried import carried, carried_in
from penstock.errors import PenstockError, StageFailed
from penstock.sparkerror import SparkError, read_spark_failure

_RESERVED = re.compile(r"[%|\[\]]")
_SHIELDED = re.compile(r"%(25|7C|5B|5D)")


def through_spark(error: PenstockError) -> str:
    """The text of an exception that brings `error` to `from_spark` with its class, message and remedy."""
    return carried(type(error)(_shield(error.message), remedy=_shield(error.remedy)))


def from_spark(cause: Exception) -> PenstockError:
    """The task's own error if `cause` carries one, else StageFailed with Spark's reason."""
    if isinstance(cause, PenstockError):
        return cause
    told = carried_in(str(cause))
    if told is not None:
        return type(told)(_unshield(told.message), remedy=_unshield(told.remedy))
    said = read_spark_failure(str(cause))
    return StageFailed(
        f"Spark could not compute the batch: {said.sentence}", remedy=f"{_advice(said)} Nothing of the batch was decided."
    )


def _advice(said: SparkError) -> str:
    if said.condition is not None and said.condition.startswith("FAILED_READ_FILE"):
        return "Put a good file of that name in its place, or correct the schema or the options of the source; then start again."
    return "Mend the cause (in the transform, or in the data) and start again."


def _shield(text: str) -> str:
    """Without the characters that separate the parts of what is carried: a message may quote any text of the user's."""
    return _RESERVED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def _unshield(text: str) -> str:
    return _SHIELDED.sub(lambda found: chr(int(found[1], 16)), text)
