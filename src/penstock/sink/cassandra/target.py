"""The Cassandra table as the sink's settings name it, and what its rows must be."""

import re
from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import Usage
from penstock.sink.cassandra.statements import OWN_TABLES, TableStatements
from penstock.sink.table.columns import require_keyed
from penstock.sink.table.target import Target

WRITES = ("append", "upsert")
MAX_COLUMNS = 60_000
_NAME = re.compile(r"\w{1,48}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class CassandraTarget(Target):
    """A `Target` with its partition key: the columns of the key that say on which nodes a row is."""

    partition: tuple[str, ...]

    def statements(self, rows: "pa.Schema") -> TableStatements:
        return TableStatements(self.table, tuple(rows.names), self.key)


def target_of(*, table: str, write: str, key: tuple[str, ...], partition_by: tuple[str, ...]) -> CassandraTarget:
    """Return the target. Raises Usage for settings that no table could satisfy."""
    if write not in WRITES:
        raise Usage(
            f"`write` is {write!r}, which Cassandra cannot do exactly; expected one of {', '.join(WRITES)}.",
            remedy="Use upsert: a row replaces the one with its key.",
        )
    if not key:
        raise Usage("Rows of Cassandra need a key.", remedy="Add `key: [columns that identify a row]`.")
    if partition_by and key[: len(partition_by)] != partition_by:
        raise Usage(
            f"`partition_by` is {', '.join(partition_by)}, expected the first columns of the key, {', '.join(key)}.",
            remedy="Write them first in `key`, in the same order.",
        )
    if not _NAME.fullmatch(table):
        raise Usage(f"`table` is {table!r}, expected 1 to 48 letters, digits and `_`.", remedy="Correct it.")
    if table in OWN_TABLES:
        raise Usage(f"Table {table!r} is Penstock's own.", remedy="Choose another name for `table:`.")
    return CassandraTarget(table=table, write=write, key=key, partition=partition_by or key[:1], case_counts=True)


def require_storable(rows: "pa.Schema", target: CassandraTarget) -> None:
    """Raise Usage for rows that no table could store."""
    if not all(rows.names):
        raise Usage("The rows have a column without a name.", remedy="Name it in the transform.")
    require_keyed(rows, target.key, most=MAX_COLUMNS)
    for name in target.key:
        kind = rows.field(name).type
        if pa.types.is_floating(kind) or pa.types.is_null(kind):
            raise Usage(f"The key's column {name!r} is {kind}, which identifies nothing.", remedy="Use other columns as key.")
