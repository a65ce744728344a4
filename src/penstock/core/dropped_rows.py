"""Counts of rows that rules of sources dropped, which reached neither the transform nor a sink."""

from collections.abc import Mapping
from typing import TypeAlias

from penstock.core.topics import SourceName

DroppedRows: TypeAlias = Mapping[SourceName, Mapping[str, int]]
"""How many rows were dropped, by source and by the rule that they did not meet."""


def sum_of(one: DroppedRows, other: DroppedRows) -> DroppedRows:
    """Return the counts added up."""
    sums = {source: dict(rules) for source, rules in one.items()}
    for source, rules in other.items():
        of_source = sums.setdefault(source, {})
        for rule, rows in rules.items():
            of_source[rule] = of_source.get(rule, 0) + rows
    return sums


def total(dropped: DroppedRows) -> int:
    """Return how many rows were dropped, whatever the source and the rule."""
    return sum(rows for rules in dropped.values() for rows in rules.values())
