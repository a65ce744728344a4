"""The start of Spark's JVM, such that no other user of the machine reads a secret of its settings or reaches its UI.

Every user of a machine can read command lines, and PySpark puts all settings of a session there. So the JVM is started with
those that hold no secret. The others that SparkSubmit itself may need (a key of the store that `spark.jars` lie in) it reads
from a file of mode 0600, which is removed once the JVM answers.
"""

import logging
import os
import re
import shlex
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pyspark import SparkConf, SparkContext

from penstock.errors import Usage
from penstock.source.kafka.options import is_kafka
from penstock.source.kafka.reader.opening import data_source_options
from penstock.spec.kafka import Kafka
from penstock.spec.pipeline import PipelineSettings
from penstock.spec.sql import secrets_in_sql
from penstock.support.listening import is_loopback
from penstock.support.secret import SHORTEST_SCRUBBED, Secret, holds_secret

_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_PROPERTIES_FILE, _WITH_DEFAULTS = "--properties-file", "--load-spark-defaults"
_BIND_UI = "SPARK_LOCAL_IP"
_ADDRESSES = ("spark.driver.bindAddress", "spark.driver.host")
_LOOPBACK = "127.0.0.1"
_ON_COMMAND_LINES = ("JavaOptions", "java-options")
_log = logging.getLogger(__name__)


def start_jvm(settings: Mapping[str, str]) -> Callable[[str], str | None]:
    """Start the JVM of this process, or find the running one. Return a function that looks up the settings that it began with.

    Its SparkConf may lack the secrets of `settings`: set them before the SparkContext is made.
    """
    secret = {key for key, value in settings.items() if holds_secret(key, value) or is_redacted(key, settings)}
    _warn_of_java_options(settings)
    with _environment(settings, {key: settings[key] for key in secret}):
        public = [(key, value) for key, value in settings.items() if key not in secret]
        SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(public))
    running = SparkConf()
    return lambda key: running.get(key, None)


@contextmanager
def _environment(settings: Mapping[str, str], secret: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in (_ARGUMENTS, _BIND_UI)}
    arguments = before[_ARGUMENTS] or "pyspark-shell"
    words = shlex.split(arguments)
    with _properties_file({} if _PROPERTIES_FILE in words else secret) as file:
        if file is not None:
            os.environ[_ARGUMENTS] = f"{_PROPERTIES_FILE} {shlex.quote(file)} {_WITH_DEFAULTS} {arguments}"
        if before[_BIND_UI] is None and is_for_this_machine(settings, words):
            os.environ[_BIND_UI] = _LOOPBACK
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


@contextmanager
def _properties_file(settings: Mapping[str, str]) -> Iterator[str | None]:
    """Yield a file that only this user can read, and remove it afterwards. None if nothing is to be written."""
    lines = [f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings.items() if key.startswith("spark.")]
    if not lines:
        yield None
        return
    handle, name = tempfile.mkstemp(prefix="penstock-", suffix=".properties")
    try:
        with open(handle, "w", encoding="ascii") as file:
            file.writelines(lines)
        yield name
    finally:
        Path(name).unlink(missing_ok=True)


def _escaped(text: str) -> str:
    units = text.encode("utf-16-be")
    codes = [int.from_bytes(units[start : start + 2], "big") for start in range(0, len(units), 2)]
    return "".join(chr(code) if chr(code).isascii() and chr(code).isalnum() else f"\\u{code:04x}" for code in codes)


def is_for_this_machine(settings: Mapping[str, str], words: "list[str]") -> bool:
    """Return whether Spark shall listen on the loopback address: it runs in this JVM alone, and nobody gave it another address.

    Executors, and the proxy of YARN, must reach the driver of a cluster; there Spark's own rules apply.
    """
    given = dict(word.split("=", 1) for word in words if word.startswith("spark.") and "=" in word)
    whole = {**settings, **given}
    master = words[words.index("--master") + 1] if "--master" in words[:-1] else whole.get("spark.master", "")
    return master.startswith("local") and all(is_loopback(whole[key]) for key in _ADDRESSES if key in whole)


def _warn_of_java_options(settings: Mapping[str, str]) -> None:
    for key, value in settings.items():
        if key.endswith(_ON_COMMAND_LINES) and isinstance(value, Secret):
            _log.warning(
                "spark.conf.%s holds a value of the environment, and Java options stand on command lines, which every user of "
                "the machine can read. Name a file in it that holds the secret, or use another setting.",
                key,
            )


SETTINGS = "spark.redaction.regex"
OPTIONS = "spark.sql.redaction.options.regex"
TEXTS = "spark.sql.redaction.string.regex"
_DEFAULTS: Mapping[str, str | None] = {
    SETTINGS: "(?i)secret|password|token|access[.]?key",
    OPTIONS: "(?i)url",
    TEXTS: None,
}
"""What Spark redacts by default."""

Lookup = Callable[[str], str | None]


def is_redacted(name: str, settings: Mapping[str, str]) -> bool:
    """Return whether the user's own pattern in `settings` hides the setting `name`. True if only Java understands the pattern."""
    try:
        return SETTINGS in settings and re.search(settings[SETTINGS], name) is not None
    except re.error:
        return True


@dataclass(frozen=True, slots=True)
class QuerySecrets:
    """What Spark gets with a query and shall not show: the names of options that hold a secret, and the secrets themselves."""

    names: frozenset[str] = frozenset()
    values: frozenset[str] = frozenset()


def secrets_of(settings: PipelineSettings) -> QuerySecrets:
    """Return the secrets in the options and in the SQL that Spark gets with a pipeline's query."""
    secret = [(name, value) for name, value in _options_for_spark(settings) if holds_secret(name, value)]
    return QuerySecrets(
        names=frozenset(name for name, _ in secret),
        values=frozenset(value for _, value in secret) | secrets_in_sql(settings),
    )


def _options_for_spark(settings: PipelineSettings) -> Iterator[tuple[str, str]]:
    """Yield names and values. Several sources may have options of one name."""
    for name, source in settings.sources.items():
        yield from source.options.items()
        if source.path is not None and "@" in source.path:  # a user and a password; `?` is a wildcard
            yield "path", source.path
        if is_kafka(source):
            with suppress(Usage):  # an option that Penstock's own reader does not take, so it reads nothing
                yield from data_source_options(name, source).items()
    for sink in settings.sinks.values():
        if isinstance(sink, Kafka) and not settings.trigger.batches_have_identity:
            yield from ((f"kafka.{name}", value) for name, value in sink.options.items())


def redactions(settings: Mapping[str, str], secrets: QuerySecrets, *, running: Lookup) -> Mapping[str, str]:
    """Return the patterns for a new session: for secrets in its `settings`, and for the `secrets` of a query.

    Each begins with that of `settings`, or that is `running`: it never redacts less than the user's own. Settings and options are
    matched by name. Plans name options in ways of their own, so texts are matched by value; that pattern is itself hidden.

    Spark searches whole plans. No group of ours is repeated: Java's search of `(a|b)*` overflows its stack in a long text.
    """
    secret = {name: value for name, value in settings.items() if holds_secret(name, value)}
    if not secret and not secrets.values:
        return {}
    names = {TEXTS, *secret, *(name for key in secret for name in _in_hadoop(key)), *secrets.names}
    values = {*secret.values(), *secrets.values}
    ours = {SETTINGS: _is_one_of(names), OPTIONS: _is_one_of(names), TEXTS: _is_part_of(values)}
    given = {key: settings.get(key) or running(key) or _DEFAULTS[key] for key in ours}
    return {key: _combined(given[key], pattern) for key, pattern in ours.items() if pattern is not None}


def _in_hadoop(key: str) -> Iterable[str]:
    """Yield the shorter names under which Spark hands such a setting to Hadoop; Spark shows all of Hadoop's settings."""
    return (key.removeprefix(prefix) for prefix in ("spark.hadoop.", "spark.") if key.startswith(prefix))


def _combined(pattern: str | None, ours: str) -> str:
    if pattern is None or pattern == ours:
        return ours
    return pattern if pattern.endswith(f"|{ours}") else f"(?:{pattern})|{ours}"


def _is_one_of(names: Iterable[str]) -> str:
    """Return a pattern for these names in any case: Spark lowers the letters of an option's name in some places."""
    return f"(?i:^(?:{_any_of(names)})$)"


def _is_part_of(secrets: Iterable[str]) -> str | None:
    """Return a pattern for text with one of these secrets. Very short ones are left out: they would be found in every text."""
    return _any_of(secret for secret in secrets if len(secret) >= SHORTEST_SCRUBBED) or None


def _any_of(texts: Iterable[str]) -> str:
    """Return a Java pattern, which takes `re.escape` as Python does. The longest comes first, as it may begin with another."""
    return "|".join(map(re.escape, sorted(texts, key=lambda text: (-len(text), text))))
