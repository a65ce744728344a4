"""The Spark session of a run: the active one, or a new one, classic or Connect, from the pipeline file's `spark:` section."""

import logging
import os
import re
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO

import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from penstock.errors import Failed, Retryable
from penstock.run.connect import REMOTE, connect_session
from penstock.run.java import use_java
from penstock.run.jvm import QuerySecrets, redactions, secrets_of, start_jvm
from penstock.source.kafka.connector import PACKAGES, ConnectorMissing, connector_settings, not_found
from penstock.source.kafka.options import is_kafka
from penstock.source.kafka.reader.settings import require_client
from penstock.spark.error import read_spark_failure
from penstock.spec.pipeline import PipelineSettings
from penstock.support.filesystem_errors import problem_of
from penstock.support.private_files import make_private_directory, open_private, stderr_to
from penstock.support.reachable import why_unreachable
from penstock.support.secret import scrub

_CONTEXTS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers that, like py4j's, print tracebacks of errors that Penstock reports in a sentence."""

_log = logging.getLogger(__name__)
_QUIET = {"spark.ui.showConsoleProgress": "false"}


def session_of(settings: PipelineSettings) -> SparkSession:
    """Return the active session with the file's `conf` added where nothing is set, or a new one.

    Where SPARK_REMOTE names a server of Spark Connect, the new session is there, and gets what of `conf` a session may set. Under
    spark-submit the settings only add. The JVM of a new classic session writes its log to `<home>/spark.log` and not over the
    terminal. It gets Spark's Kafka connector if a source has `reader: spark`, or, for `reader: auto`, where it can be had.
    Settings of `conf`, options of sources and SQL that hold a secret are redacted in Spark's UI and event log. Raises
    DependencyMissing, Failed, Retryable.
    """
    conf, packages, secrets = settings.spark.conf, settings.spark.packages, secrets_of(settings)
    active = SparkSession.getActiveSession()
    if active is not None:
        for key, value in conf.items():
            if active.conf.get(key, None) is None and active.conf.isModifiable(key):
                active.conf.set(key, value)
        return _redacting(active, secrets)
    if REMOTE in os.environ:
        return _redacting(connect_session(conf, packages), secrets)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    start = partial(_started, log=Path(settings.home) / "spark.log", secrets=secrets)
    master = settings.spark.master
    named = {"spark.app.name": settings.pipeline, **({} if master is None else {"spark.master": master})}
    plain = _joined({**_QUIET, **conf}, {PACKAGES: ",".join(packages)})
    readers = {source.reader for source in settings.sources.values() if is_kafka(source)}
    if readers.isdisjoint({"spark", "auto"}) or _is_elsewhere():
        return start({**named, **plain})
    try:
        home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
        submitted = os.environ.get("PYSPARK_SUBMIT_ARGS", "")
        connector = connector_settings(home=home, conf=plain, submitted=submitted, environment=os.environ)
        return start({**named, **_joined(plain, connector)})
    except ConnectorMissing as missing:
        if "spark" in readers:
            raise
        require_client()
        _log.warning("%s Kafka is read by Penstock's own reader.", missing.message)
        return start({**named, **plain})


def _is_elsewhere() -> bool:
    """Return whether the JVM runs already, so that no jar can be given to it."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _joined(settings: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Return both, with lists of jars and packages concatenated."""
    lists = {key: ",".join(filter(None, (settings.get(key), value))) for key, value in more.items()}
    return {**settings, **{key: value for key, value in lists.items() if value}}


def _started(settings: Mapping[str, str], *, log: Path, secrets: QuerySecrets) -> SparkSession:
    submitted = _submitted()
    adding = {key: value for key, value in settings.items() if key not in submitted}
    if _is_elsewhere():
        return _created(adding, secrets)
    use_java()
    logging.getLogger("py4j").propagate = False
    for name in _CONTEXTS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    require_master(adding.get("spark.master", ""))
    before = log.stat().st_size if log.exists() else 0
    try:
        with stderr_to(_opened(log)):
            session = _created(adding, secrets)
            quiet_when_java_ends(session)
            return session
    except (PySparkException, Py4JError) as error:
        missing = not_found(log.read_bytes()[before:].decode(errors="replace"))
        if missing is not None:
            raise missing from error
        if _UNRESPONSIVE in log.read_bytes()[before:].decode(errors="replace"):
            raise _no_master(adding.get("spark.master", ""), "it did not answer to Spark") from error
        reason = why_java_ended(log.read_bytes()[before:].decode(errors="replace"))
        if reason is not None:
            raise Failed(f"Spark did not start: {scrub(reason)}", remedy=_CORRECT.format(log)) from error
        reason = read_spark_failure(scrub(str(error))).sentence
        raise Failed(f"Spark did not start: {reason}", remedy=f"Its log {log} says why.") from error


def quiet_when_java_ends(session: SparkSession) -> None:
    """Keep PySpark's server of accumulators from printing a traceback when Java is killed: the query raises that by itself."""
    server = getattr(session.sparkContext, "_accumulatorServer", None)
    if server is None:
        return
    print_traceback = server.handle_error

    def handle_error(*of_request: object) -> None:
        if not isinstance(sys.exc_info()[1], EOFError | OSError):
            print_traceback(*of_request)

    server.handle_error = handle_error


_CORRECT = "Correct `spark` in the pipeline file; all that Spark said is in {}."
_JAVA_ENDED = re.compile(r'^(?:Exception in thread "main" [\w.$]+: (.+)|(Invalid .+|Error: .+))$', re.MULTILINE)


def why_java_ended(log: str) -> str | None:
    """Return what ended Spark's Java process before a driver could reach it, by its log; None if the log does not tell."""
    found = _JAVA_ENDED.search(log)
    return None if found is None else f"{(found[1] or found[2]).rstrip('. ')}."


_MASTER = "spark://"
_MASTER_PORT = 7077
_MASTER_ANSWERS_S = 5.0
_UNRESPONSIVE = "All masters are unresponsive"


def require_master(master: str) -> None:
    """Raise Retryable if no standalone master of the URL answers: Spark would try for two minutes, and then end with a traceback.

    Such a URL names one or several, `spark://one:7077,other:7077`. Others than standalone masters are not looked at.
    """
    if not master.startswith(_MASTER):
        return
    reason = why_unreachable(master.removeprefix(_MASTER).split(","), port=_MASTER_PORT, answer_s=_MASTER_ANSWERS_S)
    if reason is not None:
        raise _no_master(master, reason)


def _no_master(master: str, reason: str) -> Retryable:
    return Retryable(
        f"No Spark master answers at {master}: {reason}.",
        remedy="Start it, or correct `spark.master` in the pipeline file, such as `local[*]` for this machine alone.",
    )


def _created(settings: Mapping[str, str], secrets: QuerySecrets) -> SparkSession:
    """Return a session in a JVM that starts without the secrets of `settings`: they reach it over PySpark's own connection."""
    running = start_jvm(settings)
    builder = SparkSession.builder
    for key, value in {**settings, **redactions(settings, secrets, running=running)}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _redacting(session: SparkSession, secrets: QuerySecrets) -> SparkSession:
    """Redact what a running session still can: SparkConf, and so the names of its settings, cannot change any more."""
    for key, pattern in redactions({}, secrets, running=lambda key: session.conf.get(key, None)).items():
        if session.conf.isModifiable(key):
            session.conf.set(key, pattern)
    return session


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
