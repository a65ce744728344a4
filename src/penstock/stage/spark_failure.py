"""Reading the errors of Spark's jobs: a task's own, which Spark keeps the text of, and Spark's."""

from penstock.errors import PenstockError, StageFailed
from penstock.spark.error import SparkError, read_spark_failure
from penstock.support.error_transport import from_task


def from_spark(cause: Exception) -> PenstockError:
    """The task's own error if `cause` carries one, else StageFailed with Spark's reason."""
    if isinstance(cause, PenstockError):
        return cause
    carried = from_task(str(cause))
    if carried is not None:
        return carried
    said = read_spark_failure(str(cause))
    return StageFailed(
        f"Spark could not compute the batch: {said.sentence}", remedy=f"{_advice(said)} Nothing of the batch was decided."
    )


def _advice(said: SparkError) -> str:
    if said.condition is not None and said.condition.startswith("FAILED_READ_FILE"):
        return (
            "Put a good file of that name in its place, with the modification time of the bad one (touch -r BAD GOOD; "
            "mv GOOD BAD), or correct the schema or the options of the source; then start again."
        )
    return "Mend the cause (in the transform, or in the data) and start again."
