"""Compares the columns of a table with those of rows that are to be added, whatever the format."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.core.model import Json
from penstock.errors import Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column's type, as the format writes it but without metadata and field ids, and whether values may be null.

    `shown` is the type for people.
    """

    kind: Json
    shown: str
    may_be_null: bool


def require_partitions(table: Sequence[str], wanted: Sequence[str], *, where: str) -> None:
    """Raise Refused unless the table is partitioned by the `wanted` columns, in that order."""
    if tuple(wanted) != tuple(table):
        raise Refused(
            f"The table {where} is partitioned by {', '.join(table) or 'nothing'}, and partition_by is "
            f"{', '.join(wanted) or 'nothing'}.",
            remedy="Set partition_by to what the table has, or name another table.",
        )


def same_but_for_case(name: str, names: Iterable[str]) -> str | None:
    """Return the one of `names` that differs from `name` only in case, None if there is none."""
    return next((other for other in names if other != name and other.casefold() == name.casefold()), None)


def require_columns(
    may_be_null: Mapping[str, bool], table: Mapping[str, Column], rows: Mapping[str, Column], *, where: str
) -> None:
    """Raise Refused unless files of such rows may be added as they are to a table with columns of these names, in any order.

    `may_be_null` has all columns of the table, `table` those of them that the rows have, too. Files may lack a column that may
    be null: readers find NULL there.
    """
    difference = next(_differences(may_be_null, table, rows), None)
    if difference is not None:
        what, remedy = difference
        raise Refused(f"The table {where} {what}.", remedy=f"{remedy}, or name another table.")


def _differences(
    may_be_null: Mapping[str, bool], table: Mapping[str, Column], rows: Mapping[str, Column]
) -> Iterator[tuple[str, str]]:
    """Yield what differs, and what somebody can do about it."""
    for name, column in rows.items():
        if name not in table:
            yield _missing(name, same_but_for_case(name, may_be_null))
        elif table[name].kind != column.kind:
            there = table[name].shown
            yield (
                f"has the type {there} in column {name!r}, and the rows have {column.shown}",
                f"Cast the column in the transform to {there}",
            )
        elif column.may_be_null and not table[name].may_be_null:
            yield (
                f"has the column {name!r}, which must not be null, and in the rows it may be",
                "Give it no NULL in the transform, by coalesce(…), let the table's column be null",
            )
    for name, is_free in may_be_null.items():
        if name not in rows and not is_free:
            yield (
                f"has a column {name!r}, which must not be null and which the rows lack",
                "Give the rows that column in the transform, let the table's column be null",
            )


def _missing(name: str, similar: str | None) -> tuple[str, str]:
    if similar is not None:
        return (
            f"has no column {name!r}, which the rows have, but {similar!r}, which many readers take for the same",
            f"Name it {similar!r} in the transform",
        )
    return (
        f"has no column {name!r}, which the rows have",
        "Set schema_changes: add, and the next start adds it, unless it is the key's; leave it out in the transform",
    )
