"""`sequence_by`: which columns put rows in an order, and how rows of a batch are left out that are older than others."""

from collections.abc import Callable, Collection, Mapping

import pyarrow as pa

from penstock.core.model import Totals
from penstock.errors import Conflict, Usage
from penstock.sink.table.history import HISTORY
from penstock.sink.table.table_statements import StagedTableStatements
from penstock.sink.table.target import Target

_ORDERED: Mapping[str, Callable[["pa.DataType"], bool]] = {
    "a whole number": pa.types.is_integer,
    "DATE": pa.types.is_date,
    "TIMESTAMP": pa.types.is_timestamp,
    "DECIMAL": pa.types.is_decimal,
    "STRING": pa.types.is_string,
}
"""The types whose values have an order of their own, that of texts by their code points; NaN is in none."""


def require_sequence(write: str, sequence_by: str | None, *, deletes: bool) -> None:
    """Raise Usage for `sequence_by` where no row replaces another, or where rows delete: a row that is gone has no value."""
    if sequence_by is not None and write != HISTORY and (write != "upsert" or deletes):
        raise Usage(
            "`sequence_by` is for `write: upsert` without rows that delete.",
            remedy="Leave it out, or keep a deleted row with a column that says so.",
        )


def require_sequence_in(
    schema: "pa.Schema", target: Target, *, fold: Callable[[str], str] = str, unordered: Collection[str] = ()
) -> None:
    """Raise Usage unless the rows have the column of `sequence_by`, with values that have an order.

    `fold` returns a name as the database compares it. `unordered`: types that the database stores without their order.
    """
    if target.sequence_by is None:
        return
    kinds, column = {fold(field.name): field.type for field in schema}, fold(target.sequence_by)
    if column not in kinds:
        raise Usage(
            f"sequence_by names column {target.sequence_by!r}, but the rows have {', '.join(schema.names)}.",
            remedy="Correct `sequence_by:` of the sink.",
        )
    ordered = {name: is_kind for name, is_kind in _ORDERED.items() if name not in unordered}
    if not any(is_kind(kinds[column]) for is_kind in ordered.values()):
        *names, last = ordered
        raise Usage(
            f"The column {target.sequence_by!r} of sequence_by has the type {kinds[column]}, expected {', '.join(names)} or "
            f"{last}, which compare exactly.",
            remedy="Cast it in the transform to BIGINT or TIMESTAMP, or choose another column.",
        )


def is_sequence_text(rows: "pa.Schema", target: Target, *, fold: Callable[[str], str] = str) -> bool:
    """Return whether the values of `sequence_by` are texts, which a database would compare by the collation of their column."""
    column = None if target.sequence_by is None else fold(target.sequence_by)
    return any(fold(field.name) == column and pa.types.is_string(field.type) for field in rows)


# --- in a database with a staging table


def take_out_outdated(statements: StagedTableStatements, totals: Callable[[str], Totals], delete: Callable[[str], int]) -> Totals:
    """Take the rows out that are older than others of their key, in the batch or in the table. Return their totals.

    Without a sequence, that is none. `totals` counts the rows of a query, `delete` runs a statement and returns how many rows it
    deleted. Raise Conflict if another session changed the table in between.
    """
    if statements.sequence_by is None:
        return Totals()
    outdated, deleted = totals(statements.read_outdated()), delete(statements.delete_outdated())
    if deleted != outdated.rows:
        raise Conflict(f"{deleted} rows of the batch were older than the table's where {outdated.rows} had been")
    return outdated


def require_none_outdated(statements: StagedTableStatements, totals: Callable[[str], Totals]) -> None:
    """Raise Conflict if another session has written newer rows meanwhile. Called once the rows to be replaced are locked."""
    if statements.sequence_by is not None and (outdated := totals(statements.read_outdated())).rows:
        raise Conflict(f"{outdated.rows} rows of the batch became older than the table's")
