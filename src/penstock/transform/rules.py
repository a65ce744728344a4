"""The rules of sources: the rows that meet them are what the transform gets."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.core.model import SourceName
from penstock.errors import Usage
from penstock.spec.rule import Rule, violated_sql
from penstock.transform.plan import plan_of
from penstock.transform.selection import RowAnalysis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OF_NOW = re.compile(r"\b(current_timestamp|current_date|current_time|localtimestamp|now)\(", re.IGNORECASE)
_LITERAL_OF_NOW = re.compile(
    r"""\b(?:date|time|timestamp(?:_[ln]tz)?)(?:\s|/\*.*?\*/|--[^\n]*\n)*r?['"]\s*(now|today|tomorrow|yesterday)\b""",
    re.IGNORECASE | re.DOTALL,
)
"""A literal such as `DATE 'today'`. Spark takes its value when it parses the rule: once for the query, and for each count."""
_STEERING = (
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
    "spark.sql.ansi.doubleQuotedIdentifiers",
    "spark.sql.caseSensitive",
    "spark.sql.legacy.timeParserPolicy",
    "spark.sql.parser.escapedStringLiterals",
    "spark.sql.timestampType",
)
"""Settings of the session by which a predicate that is analysed later can mean something else."""


def meeting_rules(name: SourceName, rows: "DataFrame", rules: Mapping[str, Rule]) -> "DataFrame":
    """Return the rows of source `name` that meet all of its rules.

    Raises Usage for a rule that Spark does not understand, that looks at other rows than its own, or that can give another value
    when it is computed again: a batch's input is read twice, and both reads must agree.
    """
    if not rules:
        return rows
    none = rows.sparkSession.createDataFrame([], rows.schema)
    for rule, settings in rules.items():
        where = f"sources.{name}.expect"
        RowAnalysis(none, where, remedy="correct it").require_predicate(settings.sql, rule)
        computed = plan_of(none.selectExpr(f"({settings.sql}\n) AS met"))
        found = _OF_NOW.search(computed.detail) or _LITERAL_OF_NOW.search(settings.sql)
        if found is not None:
            raise Usage(
                f"{where}.{rule} asks for the time by {found[1]}, which is another one each time it is computed, expected one "
                "value for each row.",
                remedy="Compare with a column of the source, or filter in the transform.",
            )
    return rows.where(f"({violated_sql(rules)}) IS NULL")


def settings_of_rules(spark: "SparkSession") -> Mapping[str, str | None]:
    """Return the settings of the session by which rules are analysed."""
    return {name: spark.conf.get(name, None) for name in _STEERING}


def require_settings(spark: "SparkSession", before: Mapping[str, str | None]) -> None:
    """Raise Usage for a session with other settings than `before`, when the rules of the query were analysed.

    Those of a batch are analysed with the settings of now: a row could be on both sides, or on none.
    """
    changed = next((name for name, value in settings_of_rules(spark).items() if value != before[name]), None)
    if changed is not None:
        raise Usage(
            f"The transform sets {changed}, after the rules of `expect` were read by its old value ({before[changed]}).",
            remedy="Set it by `spark: {conf: …}` in the pipeline file, or in the session before the pipeline.",
        )
