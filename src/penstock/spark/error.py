"""Condition, sentence, position and remedy in the text of a Spark exception, without its stack. Works without pyspark."""

import re
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from penstock.errors import DependencyMissing

_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]\s*")
_POSITION = re.compile(r"line (\d+),? pos (\d+)")
_END = re.compile(r"\s*(?:SQLSTATE:|\n|\(line \d+, pos \d+\))")
_JAVA_CLASS = re.compile(r"^: (?:[a-z]\w*\.)+[A-Z]\w*: ")
_LINK = re.compile(r"^(?:: |Caused by: )((?:[a-z]\w*\.)+[A-Z][\w$]*)(?:: (.*))?$", re.MULTILINE)
_ABORTED = re.compile(r"^Job aborted due to stage failure: .*?Lost task [^:]*: (?:(?:[a-z]\w*\.)+[A-Z][\w$]*: )?")
_WAITED = "Exception thrown in awaitResult:"
_TRACEBACK = "Traceback (most recent call last):\n"
_FRAME = re.compile(r'^ *File "([^"]+)", line (\d+)', re.MULTILINE)
_RAISED = re.compile(r"^(?! |File |Traceback)(\w[\w.]*(?:: .*)?)$", re.MULTILINE)
_LINKS_SHOWN = 3
_LIMIT = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkError:
    """One error of Spark. `line` and `column` count from 1 within the SQL text; None where Spark gives no position."""

    message: str
    condition: str | None = None
    line: int | None = None
    column: int | None = None

    @property
    def sentence(self) -> str:
        """The message as one sentence, with the name of Spark's error condition."""
        message = self.message.rstrip(" .;:")
        return f"{message} ({self.condition})." if self.condition else f"{message}."


def read_spark_error(text: str) -> SparkError:
    """Return the error in `text`, the text of an exception of Spark, py4j or Spark Connect."""
    found = _CONDITION.search(text)
    start = text[found.end() :] if found else _without_java(text)
    position = _POSITION.search(text)
    return SparkError(
        message=_first_sentence(start),
        condition=found[1] if found else None,
        line=int(position[1]) if position else None,
        column=int(position[2]) + 1 if position else None,
    )


def read_spark_failure(text: str) -> SparkError:
    """Return the error of a failed job: what Spark was doing and why it failed, down to the innermost cause."""
    if _TRACEBACK in text:
        return SparkError(message=_of_python(text))
    links = [read_spark_error(_ABORTED.sub("", message)) for message in map(_message_in, _LINK.finditer(text)) if message]
    if not links:
        return read_spark_error(text)
    sentences: list[str] = []
    for link in links:
        message = link.message.rstrip(" .;:")
        if not any(message in other or other in message for other in sentences):
            sentences.append(message)
    causes = sentences if len(sentences) <= _LINKS_SHOWN else [*sentences[: _LINKS_SHOWN - 1], sentences[-1]]
    condition = next((link.condition for link in links if link.condition), None)
    return SparkError(message=": ".join(causes)[:_LIMIT], condition=condition)


_NO_MODULE = re.compile(r"No module named '(penstock|pyarrow)\b")


def lacks_penstock(text: str) -> bool:
    """Return whether a Python worker of Spark failed because Penstock, or pyarrow, which it needs, is not installed there."""
    return _NO_MODULE.search(text) is not None


def penstock_missing(what: str, text: str) -> DependencyMissing:
    """Return the error for `what`, which failed with `text` since `lacks_penstock` is true of it."""
    found = _NO_MODULE.search(text)
    lacking = "pyarrow, which Penstock needs," if found is not None and found[1] == "pyarrow" else "Penstock"
    return DependencyMissing(
        f"{what}: {lacking} is not installed where Spark runs Python.",
        remedy="Install it, of the same version, on every executor and at the server of Spark Connect. On one machine have Spark "
        f"run the Python that has it, before the session starts: PYSPARK_PYTHON={sys.executable}.",
    )


def _message_in(link: re.Match[str]) -> str:
    """Return the message of one exception of the chain, empty if it only reports that another thread failed."""
    return (link[2] or link[1]).removeprefix(_WAITED).strip()


def _of_python(text: str) -> str:
    """Return the exception that Python code raised in a task, with the innermost line of that code."""
    last = text.rpartition(_TRACEBACK)[2]
    raised = _RAISED.search(last)
    frames = _FRAME.findall(last[: raised.start()] if raised else last)
    place = f" at {frames[-1][0]} line {frames[-1][1]}" if frames else ""
    return f"Python code raised {raised[1] if raised else 'an exception'}{place}"[:_LIMIT]


def _without_java(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    java = next((line for line in lines if _JAVA_CLASS.match(line)), None)
    return _JAVA_CLASS.sub("", java) if java is not None else "\n".join(lines)


def _first_sentence(text: str) -> str:
    end = _END.search(text)
    message = text[: end.start()] if end else text
    return " ".join(message.split())[:_LIMIT] or "Spark gave no message"


_LACKS = re.compile(r"Class org\.apache\.hadoop\.fs\.(s3a|gs|azurebfs)\.[\w.$]+ not found|No FileSystem for scheme \"?(\w+)")
_AWS = "org.apache.hadoop:hadoop-aws:{hadoop}"
_BY_CLASS = {"s3a": _AWS, "gs": "org.apache.hadoop:hadoop-gcp:{hadoop}", "azurebfs": "org.apache.hadoop:hadoop-azure:{hadoop}"}
"""Hadoop's own connectors: Hadoop names their classes whether they are installed or not."""
_BY_SCHEME = {"s3": _AWS, "s3n": _AWS, "gs": "com.google.cloud.bigdataoss:gcs-connector:VERSION"}
_LIBRARY = re.compile(r"hadoop-client-api-(.+)\.jar")


def connector_remedy(text: str) -> str | None:
    """Return how to give Spark the connector that `text`, an exception of Spark's, reports missing; None if it reports none."""
    found = _LACKS.search(text)
    package = None if found is None else _BY_CLASS.get(found[1]) or _BY_SCHEME.get(found[2])
    if found is None or package is None:
        return None
    spelled = f"Write s3a:// for {found[2]}://, and give" if found[2] in {"s3", "s3n"} else "Give"
    given = f"spark: {{packages: [{package.format(hadoop=_hadoop_version())}]}}"
    return f"{spelled} Spark its connector, `{given}` in the pipeline file, and its credentials below `conf`."


def _hadoop_version() -> str:
    """Return the version of the Hadoop bundled with Spark here, which connectors must match."""
    spark = find_spec("pyspark")
    jars = Path(spark.origin).parent / "jars" if spark is not None and spark.origin is not None else Path()
    versions = [found[1] for jar in jars.glob("hadoop-client-api-*.jar") if (found := _LIBRARY.fullmatch(jar.name))]
    return versions[0] if versions else "VERSION"
