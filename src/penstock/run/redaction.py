"""Patterns for what Spark redacts in its UI, event log and plans: every setting and option that holds a secret."""

import re
from collections.abc import Callable, Iterable, Mapping

from penstock.spec.pipeline import PipelineSettings
from penstock.spec.sink import Parquet
from penstock.support.secret import SHORTEST_SCRUBBED, holds_secret, values_in

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


def secret_items(options: Mapping[str, str]) -> Mapping[str, str]:
    """Return those of `options` that hold a secret."""
    return {name: value for name, value in options.items() if holds_secret(name, value)}


def secrets_of(settings: PipelineSettings) -> Mapping[str, str]:
    """Return the secrets that Spark gets with a pipeline's query, by option name, or by a name that no option has."""
    options = {name: value for source in settings.sources.values() for name, value in secret_items(source.options).items()}
    routes = [sink.route.sql for sink in settings.sinks.values() if isinstance(sink, Parquet) and sink.route]
    queries = [*routes, settings.transform.sql if settings.transform else None]
    values = sorted({value for sql in queries if sql for value in values_in(sql)})
    return {**options, **{f"value {number} in SQL": value for number, value in enumerate(values)}}


def redactions(settings: Mapping[str, str], options: Mapping[str, str], *, running: Lookup) -> Mapping[str, str]:
    """Return the patterns for a new session: for secrets in its `settings`, and for those `options` of sources that hold one.

    Each begins with that of `settings`, or that is `running`: it never redacts less than the user's own. Settings and options are
    matched by name. Plans name options in ways of their own, so texts are matched by value; that pattern is itself hidden.
    """
    secret = secret_items(settings)
    if not secret and not options:
        return {}
    names = {TEXTS, *secret, *(name for key in secret for name in _in_hadoop(key)), *options}
    ours = {SETTINGS: _is_one_of(names), OPTIONS: _is_one_of(names), TEXTS: _is_part_of({*secret.values(), *options.values()})}
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
