"""The Spark session of a run: the active one, or a new one, classic or Connect, from the pipeline file's `spark:` section."""

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias

import pyspark
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from penstock.errors import Failed
from penstock.run.connect import REMOTE, connect_session
from penstock.run.java import use_java
from penstock.run.jvm import start_jvm
from penstock.run.redaction import redactions
from penstock.source.kafka.connector import PACKAGES, ConnectorMissing, connector_settings, not_found
from penstock.support.filesystem_errors import problem_of
from penstock.support.private_files import make_private_directory, open_private

_CONTEXTS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers that, like py4j's, print tracebacks of errors that Penstock reports in a sentence."""

Connector: TypeAlias = Literal["none", "wanted", "needed"]
_log = logging.getLogger(__name__)

_NOTHING: Mapping[str, str] = {}
_QUIET = {"spark.ui.showConsoleProgress": "false"}


def session(
    *,
    app: str,
    master: str | None,
    conf: Mapping[str, str],
    log: Path | None,
    packages: Sequence[str] = (),
    connector: Connector = "none",
    secret_options: Mapping[str, str] = _NOTHING,
) -> SparkSession:
    """Return the active session with `conf` added where nothing is set, or a new one. Under spark-submit the settings only add.

    Where SPARK_REMOTE names a server of Spark Connect, the new session is there, and gets what of `conf` a session may set.

    A new classic session's JVM writes its log to the file `log` and not over the terminal. It gets Spark's Kafka `connector` if
    that is needed, or, if it is wanted, where it can be had. Spark's UI and event log redact the settings of `conf` that hold a
    secret, and the `secret_options` of sources. Raises DependencyMissing, Failed, Retryable.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        _add_missing(active, conf)
        _redact_options(active, secret_options)
        return active
    if REMOTE in os.environ:
        remote = connect_session(conf, packages)
        _redact_options(remote, secret_options)
        return remote
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    start = partial(_started, log=log, secret_options=secret_options)
    named = {"spark.app.name": app, **({} if master is None else {"spark.master": master})}
    settings = _joined({**_QUIET, **conf}, {PACKAGES: ",".join(packages)})
    if connector == "none" or _is_elsewhere():
        return start({**named, **settings})
    whole = _joined(settings, _connector(settings))
    try:
        return start({**named, **whole})
    except ConnectorMissing as missing:
        if connector == "needed":
            raise
        _log.warning("%s Kafka is read by Penstock's own reader.", missing.message)
        return start({**named, **settings})


def _is_elsewhere() -> bool:
    """Return whether the JVM runs already, so that no jar can be given to it."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _connector(settings: Mapping[str, str]) -> Mapping[str, str]:
    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    submitted = os.environ.get("PYSPARK_SUBMIT_ARGS", "")
    return connector_settings(home=home, conf=settings, submitted=submitted, environment=os.environ)


def _joined(settings: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Return both, with lists of jars and packages concatenated."""
    lists = {key: ",".join(filter(None, (settings.get(key), value))) for key, value in more.items()}
    return {**settings, **{key: value for key, value in lists.items() if value}}


def _started(settings: Mapping[str, str], *, log: Path | None, secret_options: Mapping[str, str]) -> SparkSession:
    submitted = _submitted()
    adding = {key: value for key, value in settings.items() if key not in submitted}
    if _is_elsewhere():
        return _created(adding, secret_options)
    use_java()
    logging.getLogger("py4j").propagate = False
    for name in _CONTEXTS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    before = log.stat().st_size if log is not None and log.exists() else 0
    try:
        with _stderr_to(log):
            return _created(adding, secret_options)
    except PySparkException as error:
        missing = None if log is None else not_found(log.read_bytes()[before:].decode(errors="replace"))
        if missing is not None:
            raise missing from error
        raise Failed(
            f"Spark did not start: {error}", remedy=f"Its log {log} says why." if log else "See what it printed above."
        ) from error


def _created(settings: Mapping[str, str], secret_options: Mapping[str, str]) -> SparkSession:
    """Return a session in a JVM that starts without the secrets of `settings`: they reach it over PySpark's own connection."""
    running = start_jvm(settings)
    builder = SparkSession.builder
    for key, value in {**settings, **redactions(settings, secret_options, running=running)}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _redact_options(session: SparkSession, secret_options: Mapping[str, str]) -> None:
    """Redact what a running session still can: SparkConf, and so the names of its settings, cannot change any more."""
    for key, pattern in redactions({}, secret_options, running=lambda key: session.conf.get(key, None)).items():
        if session.conf.isModifiable(key):
            session.conf.set(key, pattern)


@contextmanager
def _stderr_to(log: Path | None) -> Iterator[None]:
    """Redirect standard error to the log, also for processes started meanwhile, and restore it afterwards."""
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
        make_private_directory(log.parent)
        return open_private(log, "ab")
    except OSError as cause:
        problem = problem_of(cause)
        raise Failed(
            f"The home {log.parent} of the pipeline cannot be written: {problem.reason}.",
            remedy=f"{problem.advice}, or name another `home:`; then start again.",
        ) from cause


def _submitted() -> frozenset[str]:
    """Return the names of settings that spark-submit gave; they win over the pipeline file's."""
    arguments = os.environ.get("PYSPARK_SUBMIT_ARGS", "").split()
    keys = {argument.partition("=")[0] for argument in arguments if argument.startswith("spark.")}
    return frozenset(keys | ({"spark.master"} if "--master" in arguments else set()))


def _add_missing(active: SparkSession, conf: Mapping[str, str]) -> None:
    for key, value in conf.items():
        if active.conf.get(key, None) is None and active.conf.isModifiable(key):
            active.conf.set(key, value)
