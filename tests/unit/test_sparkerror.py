"""What Spark says, without what surrounds it. The texts are what Spark 4.3 prints."""

import pytest

from penstock.spark.error import SparkError, read_spark_error, read_spark_failure

PARSE = """
[PARSE_SYNTAX_ERROR] Syntax error at or near end of input. SQLSTATE: 42601 (line 3, pos 12)

== SQL ==
select n
------------^^^
"""
COLUMN = """[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `nn` cannot be resolved. \
Did you mean one of the following? [`n`, `t`]. SQLSTATE: 42703; line 1 pos 7;
'Project ['nn]
+- ~SubqueryAlias a"""
JAVA = """An error occurred while calling o60.load.
: org.apache.spark.SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] Failed to find the data source: cvs. SQLSTATE: 42K02
\tat org.apache.spark.Frame"""
UNNAMED = """An error occurred while calling o60.load.
: java.lang.IllegalStateException: It broke
\tat org.apache.spark.Frame"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PARSE, SparkError(message="Syntax error at or near end of input.", condition="PARSE_SYNTAX_ERROR", line=3, column=13)),
        (
            COLUMN,
            SparkError(
                message="A column with name `nn` cannot be resolved. Did you mean one of the following? [`n`, `t`].",
                condition="UNRESOLVED_COLUMN.WITH_SUGGESTION",
                line=1,
                column=8,
            ),
        ),
        (JAVA, SparkError(message="Failed to find the data source: cvs.", condition="DATA_SOURCE_NOT_FOUND")),
        (UNNAMED, SparkError(message="It broke")),
        ('For input string: "x"', SparkError(message='For input string: "x"')),
        ("", SparkError(message="Spark gave no message")),
    ],
)
def test_reading(text: str, expected: SparkError) -> None:
    assert read_spark_error(text) == expected


def test_a_sentence_ends_once() -> None:
    assert read_spark_error(PARSE).sentence == "Syntax error at or near end of input (PARSE_SYNTAX_ERROR)."
    assert SparkError(message="It broke;").sentence == "It broke."


MALFORMED = """An error occurred while calling o197.collectToPython.
: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///a.csv.  SQLSTATE: KD001
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.cannotReadFilesError(QueryExecutionErrors.scala:863)
Caused by: org.apache.spark.SparkException: [MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed records are detected \
in record parsing: [null,EWR].
Parse Mode: FAILFAST. To process malformed records as null result, try setting the option 'mode'.  SQLSTATE: 22023
\t... 45 more
Caused by: java.lang.NumberFormatException: For input string: "abc"
\t... 45 more
"""
ABORTED = """An error occurred while calling o9.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 3.0 failed 4 times, most recent failure: \
Lost task 1.3 in stage 3.0 (TID 12) (127.0.0.2 executor 0): java.lang.RuntimeException: It broke
\tat org.apache.spark.Frame
Caused by: java.lang.RuntimeException: It broke
"""
WAITED = """An error occurred while calling o140.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:\x20
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:53)
Caused by: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file \
file:///a.csv.gz.  SQLSTATE: KD001
Caused by: java.io.IOException: not a gzip file
"""
PYTHON = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/jobs/clean.py", line 4, in boom
    def boom(x): raise ValueError(f"bad row {x}")
                 ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
ValueError: bad row 50
"""


def test_a_failed_job_is_told_down_to_its_cause() -> None:
    said = read_spark_failure(MALFORMED)
    assert said.condition == "FAILED_READ_FILE.NO_HINT"
    assert said.message == (
        "Encountered error while reading file file:///a.csv: Malformed records are detected in record parsing: [null,EWR]: "
        'For input string: "abc"'
    )
    assert read_spark_failure(ABORTED) == SparkError(message="It broke")
    assert read_spark_failure(WAITED).message == "Encountered error while reading file file:///a.csv.gz: not a gzip file"
    assert read_spark_failure(PARSE) == read_spark_error(PARSE)
    assert read_spark_failure("seven") == SparkError(message="seven")


def test_an_exception_of_python_code_is_told_with_its_line() -> None:
    assert read_spark_failure(PYTHON).message == "Python code raised ValueError: bad row 50 at /jobs/clean.py line 4"
    assert read_spark_failure("Traceback (most recent call last):\n").message == "Python code raised an exception"
