"""Translation of a failed Spark job into the task's own error, whose text Spark keeps, or into StageFailed."""

from penstock.errors import PenstockError, StageFailed
from penstock.spark.error import SparkError, read_spark_failure
from penstock.support.error_transport import from_task


def from_spark(cause: Exception) -> PenstockError:
    """Return the task's own error if `cause` is or carries one, else StageFailed with Spark's reason."""
    if isinstance(cause, PenstockError):
        return cause
    transported = from_task(str(cause))
    if transported is not None:
        return transported
    spark_error = read_spark_failure(str(cause))
    return StageFailed(
        f"Spark could not compute the batch: {spark_error.sentence}",
        remedy=f"{_advice(spark_error)} Nothing of the batch was decided.",
    )


def _advice(spark_error: SparkError) -> str:
    if spark_error.condition is not None and spark_error.condition.startswith("FAILED_READ_FILE"):
        return (
            "Put a good file of that name in its place, with the modification time of the bad one (touch -r BAD GOOD; "
            "mv GOOD BAD), or correct the schema or the options of the source; then start again."
        )
    return "Mend the cause (in the transform, or in the data) and start again."
