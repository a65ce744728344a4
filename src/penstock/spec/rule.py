"""Settings of the rules that the rows of a source have to meet."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from penstock.spec.complaint import complaint_error, described
from penstock.spec.settings import Settings
from penstock.spec.sql import SQL

OnViolation = Literal["fail", "drop", "quarantine"]


class Rule(Settings):
    """One rule: which rows meet it, and what becomes of the others."""

    sql: SQL = Field(
        description="A Spark SQL predicate over the columns of the source. A row meets the rule if it is true; NULL is not true."
    )
    on_violation: OnViolation = Field(
        default="fail",
        description="What to do with a row that does not meet it: `fail` the batch, `drop` the row and count it, or put it aside "
        "(`quarantine`).",
    )

    if TYPE_CHECKING:

        def __init__(self, *, sql: str, on_violation: OnViolation = "fail") -> None: ...


def _rule(value: Any) -> Any:
    if isinstance(value, Mapping | Settings):
        return value
    if not isinstance(value, str):
        remedy = "Write a predicate, or a mapping of sql and on_violation."
        raise complaint_error(f"should be a Spark SQL predicate, found {described(value)}", remedy=remedy)
    return {"sql": value}


ShortRule = Annotated[Rule, BeforeValidator(_rule, json_schema_input_type=str | Rule)]
"""A rule, or just its predicate."""


def violated_sql(rules: Mapping[str, Rule]) -> str:
    """Return the expression that gives the name of the first rule that a row does not meet, NULL if it meets all."""
    cases = (f"WHEN NOT coalesce(({rule.sql}\n), false) THEN '{name}'" for name, rule in rules.items())
    return f"CASE {' '.join(cases)} END"
