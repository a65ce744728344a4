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
    from pyspark.sql import DataFrame

_OF_NOW = re.compile(r"\b(current_timestamp|current_date|current_time|localtimestamp|now)\(", re.IGNORECASE)


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
        found = _OF_NOW.search(computed.detail)
        if found is not None:
            raise Usage(
                f"{where}.{rule} asks for the time by {found[1]}, which is another one each time it is computed, expected one "
                "value for each row.",
                remedy="Compare with a column of the source, or filter in the transform.",
            )
    return rows.where(f"({violated_sql(rules)}) IS NULL")
