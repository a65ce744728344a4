"""The Spark session of a run: the given one, the active one, or a new one from the pipeline file's `spark:` section."""

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias

import pyspark
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from penstock.diskreason import trouble_of
from penstock.errors import Failed
from penstock.run.connect import REMOTE, connect_session
from penstock.run.java import use_java
from penstock.source.kafka.connector import PACKAGES, ConnectorMissing, connector_settings, not_found

_CONTEXTS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers that, as py4j's, print tracebacks of errors which Penstock tells in a sentence."""

Connector: TypeAlias = Literal["none", "wanted", "needed"]
_log = logging.getLogger(__name__)

_QUIET = {"spark.ui.showConsoleProgress": "false"}


def session(
    *,
    app: str,
    master: str | None,
    conf: Mapping[str, str],
    log: Path | None,
    packages: Sequence[str] = (),
    connector: Connector = "none",
) -> SparkSession:
    """The active session with `conf` added where nothing is set, or a new one. Under spark-submit the settings only add.

    Where SPARK_REMOTE names a server of Spark Connect the new one is there, and gets what of `conf` a session may set.

    A new classic session's JVM writes its log to the file `log` and not over the terminal. It gets Spark's Kafka `connector` if
    that is needed, or, if it is wanted, where it can be had. Raises DependencyMissing, Failed, Retryable.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        _add_missing(active, conf)
        return active
    if REMOTE in os.environ:
        return connect_session(conf, packages)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    submitted = _submitted()
    builder = _builder(app, master, submitted)
    settings = _joined({**_QUIET, **conf}, {PACKAGES: ",".join(packages)})
    if connector == "none" or _is_elsewhere():
        return _started(_told(builder, settings, submitted), log)
    whole = _joined(settings, _connector(settings))
    try:
        return _started(_told(builder, whole, submitted), log)
    except ConnectorMissing as missing:
        if connector == "needed":
            raise
        _log.warning("%s Kafka is read by Penstock's own reader.", missing.message)
        return _started(_told(_builder(app, master, submitted), settings, submitted), log)


def _builder(app: str, master: str | None, submitted: Set[str]) -> SparkSession.Builder:
    builder = SparkSession.builder.appName(app)
    if master is None or "spark.master" in submitted:
        return builder
    return builder.master(master)


def _told(builder: SparkSession.Builder, settings: Mapping[str, str], submitted: Set[str]) -> SparkSession.Builder:
    for key, value in settings.items():
        if key not in submitted:
            builder = builder.config(key, value)
    return builder


def _is_elsewhere() -> bool:
    """Whether the JVM runs already, so that no jar can be given to it."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _connector(settings: Mapping[str, str]) -> Mapping[str, str]:
    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    submitted = os.environ.get("PYSPARK_SUBMIT_ARGS", "")
    return connector_settings(home=home, conf=settings, submitted=submitted, environment=os.environ)


def _joined(settings: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Both, with lists of jars and packages put together."""
    lists = {key: ",".join(filter(None, (settings.get(key), value))) for key, value in more.items()}
    return {**settings, **{key: value for key, value in lists.items() if value}}


def _started(builder: SparkSession.Builder, log: Path | None) -> SparkSession:
    if _is_elsewhere():
        return builder.getOrCreate()
    use_java()
    logging.getLogger("py4j").propagate = False
    for name in _CONTEXTS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    before = log.stat().st_size if log is not None and log.exists() else 0
    try:
        with _stderr_to(log):
            return builder.getOrCreate()
    except PySparkException as error:
        missing = None if log is None else not_found(log.read_bytes()[before:].decode(errors="replace"))
        if missing is not None:
            raise missing from error
        raise Failed(
            f"Spark did not start: {error}", remedy=f"Its log {log} says why." if log else "See what it printed above."
        ) from error


@contextmanager
def _stderr_to(log: Path | None) -> Iterator[None]:
    """A process started meanwhile inherits the log as its standard error; this one's is as before afterwards."""
    if log is None:
        yield
        return
    with _opened(log) as file:
        ours = os.dup(2)
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


def _opened(log: Path) -> BinaryIO:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        return log.open("ab")
    except OSError as cause:
        trouble = trouble_of(cause)
        raise Failed(
            f"The home {log.parent} of the pipeline cannot be written: {trouble.reason}.",
            remedy=f"{trouble.advice}, or name another `home:`; then start again.",
        ) from cause


def _submitted() -> frozenset[str]:
    """Settings that spark-submit gave; they win over the pipeline file's."""
    arguments = os.environ.get("PYSPARK_SUBMIT_ARGS", "").split()
    keys = {argument.partition("=")[0] for argument in arguments if argument.startswith("spark.")}
    return frozenset(keys | ({"spark.master"} if "--master" in arguments else set()))


def _add_missing(active: SparkSession, conf: Mapping[str, str]) -> None:
    for key, value in conf.items():
        if active.conf.get(key, None) is None and active.conf.isModifiable(key):
            active.conf.set(key, value)
