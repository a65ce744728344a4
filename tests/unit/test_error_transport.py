"""Errors through Spark, which keeps only their text: readable in its tracebacks, and restored from them."""

import pytest

from penstock.errors import BatchFailed, DependencyMissing, Fenced, PenstockError, StageFailed
from penstock.spark.error import lacks_penstock
from penstock.stage.staging import from_spark
from penstock.support.error_transport import TaskFailed, decode_error, encode_error, errors_through_spark, from_task

SPARK = """[STREAM_FAILED] Query [id = 1] terminated with exception: An exception was raised by the Python Proxy. Return Message:
Traceback (most recent call last):
  File "delivery.py", line 230, in __call__
    raise Undelivered(encode_error(error)) from None
penstock.run.failure.Undelivered: {}
 SQLSTATE: XXKST
"""


@pytest.mark.parametrize("around", ["{}", SPARK, "penstock.errors.StageFailed: a traceback of before\n{}"])
def test_what_spark_passes_on_is_restored(around: str) -> None:
    text = around.format(encode_error(Fenced("A newer run (7) works.\nSee there.", remedy="Let it: 50% [are] done | or not.")))
    error = decode_error(text)
    assert type(error) is Fenced
    assert (error.message, error.remedy) == ("A newer run (7) works.\nSee there.", "Let it: 50% [are] done | or not.")


def test_it_reads_as_a_sentence() -> None:
    text = encode_error(BatchFailed("The batch failed.", remedy="Mend the cause."))
    assert text == "penstock.errors.BatchFailed: The batch failed. What to do: Mend the cause. (penstock.errors.BatchFailed)"


@pytest.mark.parametrize(
    "quoted",
    ["x What to do: y", "penstock.errors.Fenced: z", "(penstock.errors.StageFailed)", "100%", "%2E", "What to do%3A"],
)
def test_rows_that_a_task_quotes_are_no_delimiters(quoted: str) -> None:
    with pytest.raises(TaskFailed) as raised, errors_through_spark():
        raise StageFailed(f"A row has {quoted!r}.", remedy=f"Remove {quoted!r}.")
    error = from_task(f"org.apache.spark.SparkException: {raised.value}\n")
    assert type(error) is StageFailed
    assert (error.message, error.remedy) == (f"A row has {quoted!r}.", f"Remove {quoted!r}.")


@pytest.mark.parametrize(
    "text", ["", "penstock.errors.Fenced: cut What to do: off", "[penstock Fenced] as older ones | wrote it [/penstock]"]
)
def test_other_texts_have_no_error(text: str) -> None:
    assert decode_error(text) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ModuleNotFoundError: No module named 'penstock'", ": Penstock is not installed where Spark runs Python."),
        ("ModuleNotFoundError: No module named 'penstock.stage'", ": Penstock is not installed"),
        ("ModuleNotFoundError: No module named 'pyarrow'", ": pyarrow, which Penstock needs, is not installed"),
    ],
)
def test_workers_that_lack_penstock_are_told(text: str, says: str) -> None:
    error: PenstockError = from_spark(RuntimeError(text))
    assert isinstance(error, DependencyMissing)
    assert says in error.message
    assert "PYSPARK_PYTHON=" in error.remedy
    assert not lacks_penstock("ModuleNotFoundError: No module named 'pyarrow_hotfix'")
    assert isinstance(from_spark(RuntimeError("ModuleNotFoundError: No module named 'my_job'")), StageFailed)
