"""The SQL about markers that several databases share, and the columns of Penstock's own tables."""

# ruff: noqa: S608 - every name in a statement is our own, every value is bound

from collections.abc import Sequence

from penstock.sink.table.marker_store import MarkerStatements

MARKER_COLUMNS = (
    *("format_version", "table_name", "write", "position", "generation", "query_id", "batch_id", "offsets", "schema"),
    *("rows_decided", "digest_decided", "rows_before", "digest_before", "rows_after", "digest_after", "ledger_id"),
)
"""Columns of a marker, in the order of `marker_from`. A table of an older Penstock lacks the last one."""
_OWNER = ("pipeline", "sink")
_IDENTITY = ("query_id", "batch_id", "offsets", "rows", "digest")
_PLACE = ("position", "generation")


def marker_statements(*, schema: str, value: str, now: str, owners: str) -> MarkerStatements[str]:
    """Return the statements for a database that has `INSERT OR REPLACE`. `owners` is that statement, which compares names.

    `schema` precedes the names of tables, `value` the name of a value to bind; `now` is the time of the transaction.
    """

    def insert(table: str, columns: Sequence[str]) -> str:
        values = ", ".join(value + name for name in columns)
        return f"INTO {schema}{table} ({', '.join(columns)}, published_at) VALUES ({values}, {now})"

    own = f"WHERE pipeline = {value}pipeline AND sink = {value}sink"
    unnamed = f"SELECT {', '.join(MARKER_COLUMNS[:-1])}"
    read_marker = f"{unnamed}, {MARKER_COLUMNS[-1]} FROM {schema}penstock_marker {own}"
    return MarkerStatements(
        read_marker=read_marker,
        read_unnamed=f"{unnamed}, NULL FROM {schema}penstock_marker {own}",
        lock_marker=read_marker,
        write_marker=f"INSERT OR REPLACE {insert('penstock_marker', _OWNER + MARKER_COLUMNS)}",
        owners=owners,
        newest_batch=f"SELECT max(position) FROM {schema}penstock_batch {own}",
        read_batch=f"SELECT {', '.join(_IDENTITY)} FROM {schema}penstock_batch {own} AND position = {value}position",
        write_batch=f"INSERT {insert('penstock_batch', _OWNER + _PLACE + _IDENTITY)}",
        forget_batches=f"DELETE FROM {schema}penstock_batch {own} AND position <= {value}position",
    )
