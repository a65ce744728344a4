"""Checks of the table's rules (CREATE RULE), by which PostgreSQL rewrites a statement before it runs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.errors import Refused
from penstock.sink.table.target import BY_KEY, Target
from penstock.sql.postgres.names import quoted_table
from penstock.sql.table_name import in_double_quotes

_EVENTS = {"2": "UPDATE", "3": "INSERT", "4": "DELETE"}
_INSERTS = frozenset({"INSERT"})
_RUN_BY = {"replace": frozenset({"INSERT", "DELETE"})}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule on statements of the kind `event`. `is_instead`: other statements run in place of them."""

    name: str
    event: str
    is_instead: bool


def rules_of(found: Iterable[Sequence[str | bool]]) -> tuple[Rule, ...]:
    """Build the rules from their arrays in the result of `TABLE_SCHEMA`."""
    return tuple(Rule(name=str(name), event=_EVENTS[str(event)], is_instead=bool(instead)) for name, event, instead in found)


def require_no_rewriting_rules(rules: Iterable[Rule], target: Target) -> None:
    """Raise Refused for a rule that runs something else in place of our INSERT or DELETE, or that rules out an INSERT by key.

    PostgreSQL counts such rows as if they had been written or deleted.
    """
    for rule in rules:
        if target.write in BY_KEY and rule.event != "DELETE":
            raise _refused(rule, target, "with which PostgreSQL takes no INSERT by key")
        if rule.is_instead and rule.event in _RUN_BY.get(target.write, _INSERTS):
            raise _refused(rule, target, f"which does something else in place of each {rule.event}")


def _refused(rule: Rule, target: Target, why: str) -> Refused:
    return Refused(
        f"Table {target.table!r} has the rule {rule.name!r}, {why}.",
        remedy=f"DROP RULE {in_double_quotes(rule.name)} ON {quoted_table(target.table)}, or use a trigger.",
    )
