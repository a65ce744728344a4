"""The user's table as the settings name it, and what every database demands of the rows."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.core.model import NEWEST_ROW_DIGEST, RowDigest
from penstock.core.update_condition import UpdateCondition
from penstock.errors import Refused, Usage
from penstock.sink.table.history import HISTORY
from penstock.sink.table.script import Script, Syntax, script_of

MERGE = "merge"
WRITES = ("append", "upsert", "insert_if_absent", "replace")
BY_KEY = frozenset({"upsert", "insert_if_absent", HISTORY})
_PRIVILEGES: Mapping[str, tuple[str, ...]] = {
    "append": ("SELECT", "INSERT"),
    "upsert": ("SELECT", "INSERT", "UPDATE"),
    "insert_if_absent": ("SELECT", "INSERT"),
    HISTORY: ("SELECT", "INSERT", "UPDATE"),
    "replace": ("SELECT", "INSERT", "DELETE"),
    MERGE: (),
}


class NotStoredError(ValueError):
    """A value in the table that Penstock cannot have written there: someone else did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The table and how rows are written into it. `case_counts`: whether names that differ only in case are two tables.

    `merge`: the user's SQL, which alone determines what becomes of the rows; None unless `write` is `merge`. `row_digest`: how
    rows are hashed, as the ledger states. `partition`: the first columns of the key that are Cassandra's partition key; empty
    elsewhere. `has_staged`: whether this run has staged a batch; what is published before that was decided by an earlier run,
    perhaps with other settings. `deletes`: rows come with the column of `core.deletes`; only with `write: upsert`. `sequence_by`:
    the column by whose values `upsert` takes the newest row of each key, whether it is there or in the batch, and by which
    `history` puts versions in order. `update_when`: where the table has a row with the key, `upsert` replaces it only if this
    holds. `widens`: the rows
    may have wider types than those with which the table was filled. `batch_column`: the column of the table
    that holds the ledger's position of the batch that wrote a row; only with `write: append`.
    """

    table: str
    write: str
    key: tuple[str, ...]
    merge: Script | None = None
    case_counts: bool = False
    row_digest: RowDigest = NEWEST_ROW_DIGEST
    partition: tuple[str, ...] = ()
    has_staged: bool = False
    deletes: bool = False
    sequence_by: str | None = None
    update_when: UpdateCondition | None = None
    widens: bool = False
    batch_column: str | None = None

    @property
    def privileges(self) -> tuple[str, ...]:
        """The privileges on the table that publishing needs, where databases have users; none for `merge`, which is rehearsed."""
        takes_away = (self.deletes and not self.keeps_history) or self.batch_column
        return (*_PRIVILEGES[self.write], *(("DELETE",) if takes_away else ()))

    @property
    def keeps_history(self) -> bool:
        """Whether every version of a row stays. The last column of `key` is then the time from which a version is valid."""
        return self.write == HISTORY

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns by which rows of a batch are told apart."""
        return self.key[:-1] if self.keeps_history else self.key

    @property
    def chooses_rows(self) -> bool:
        """Whether a row of the table may stay although the batch has one with its key, which older Penstocks do not know."""
        return self.sequence_by is not None or self.update_when is not None

    @property
    def compares(self) -> bool:
        """Whether rows are compared with the table's before they are written, by the driver."""
        return self.keeps_history or self.update_when is not None

    @property
    def filled(self) -> tuple[str, ...]:
        """The columns in which no row of a batch has NULL: those by which rows are told apart and compared."""
        return self.row_key if self.sequence_by is None else (*self.row_key, self.sequence_by)

    def is_table(self, name: str) -> bool:
        """Return whether `name` is a name of this table."""
        return name == self.table or (not self.case_counts and name.lower() == self.table.lower())


def require_write(write: str, key: Sequence[str], *, merges: bool) -> None:
    """Raise Usage for an unknown `write`, or one that lacks its key. `merges`: whether the sink knows `merge`."""
    writes = (*WRITES, MERGE) if merges else WRITES
    if write not in writes:
        raise Usage(f"`write` is {write!r}, expected one of {', '.join(writes)}.", remedy="Correct it.")
    if write in BY_KEY and not key:
        raise Usage(f"`write: {write}` needs a key.", remedy="Add `key: [columns that identify a row]`.")


def merge_of(write: str, text: str | None, syntax: Syntax | None) -> Script | None:
    """Return the user's parsed SQL, None if `write` is not `merge`. Raise Usage."""
    if (write == MERGE) != (text is not None):
        found = "but there is none" if text is None else f"but `write` is {write!r}"
        raise Usage(f"`merge` is the SQL of `write: merge`, {found}.", remedy="Give both or neither.")
    return None if text is None or syntax is None else script_of(text, syntax)


def require_key_in(schema: "pa.Schema", key: tuple[str, ...], names: Sequence[str]) -> None:
    """Raise Usage unless every column of `key` is one of `names`."""
    missing = [name for name in key if name not in names]
    if missing:
        raise Usage(
            f"The key names column {missing[0]!r}, but the rows have {', '.join(schema.names)}.",
            remedy="Correct `key:` of the sink.",
        )


def require_distinct_fields(schema: "pa.Schema") -> None:
    """Raise Usage for a struct, at any depth, with two fields of one name: its JSON would keep only one of them."""
    for field in schema:
        _require_distinct_fields(field.type, field.name)


def _require_distinct_fields(kind: "pa.DataType", path: str) -> None:
    children = [kind.field(index) for index in range(kind.num_fields)]
    names = [child.name for child in children]
    if len(set(names)) < len(names):
        raise Usage(f"Column {path!r} holds a struct with two fields of one name.", remedy="Rename one of them in the transform.")
    for child in children:
        _require_distinct_fields(child.type, f"{path}.{child.name}")


def require_continued(old: "pa.Schema", new: "pa.Schema", table: str, *, widens: bool = False) -> None:
    """Raise Refused if the published rows would no longer have the content digest with which they were published.

    New columns may appear anywhere, since a column that is NULL in a row does not count in its hash; others keep type and order.
    `widens`: types may become wider, since the publication then hashes the rows that are there with both.
    """
    kinds = {field.name: field.type for field in new}
    for field in old:
        now = kinds.get(field.name, field.type)
        wider = is_wider(now, field.type)
        if not (_same_stored(field.type, now) or (widens and wider)):
            raise Refused(
                f"Column {field.name!r} was {field.type} when table {table!r} was filled and is {now} now.",
                remedy="Cast it in the transform to what it was, or give the sink another name and a new table."
                + (" SQLite, DuckDB, PostgreSQL and MySQL take the wider type with `schema_changes: widen`." if wider else ""),
            )
    before = [name for name in old.names if name in kinds]
    after = [name for name in new.names if name in set(old.names)]
    if before != after:
        raise Refused(
            f"The columns of table {table!r} came in the order {', '.join(before)} and come in the order {', '.join(after)} now.",
            remedy="Keep the order in the transform's SELECT.",
        )


def _same_stored(one: "pa.DataType", other: "pa.DataType") -> bool:
    if pa.types.is_timestamp(one) and pa.types.is_timestamp(other):
        return (one.tz is None) is (other.tz is None)
    return bool(one.equals(other))


def is_wider(kind: "pa.DataType", than: "pa.DataType") -> bool:
    """Return whether `kind` has every value of `than` and more: integers or floats of more bits, decimals of more digits."""
    if pa.types.is_decimal(kind) and pa.types.is_decimal(than):
        return bool(kind.scale == than.scale and kind.precision > than.precision)
    return any(
        is_sort(kind) and is_sort(than) and kind.bit_width > than.bit_width
        for is_sort in (pa.types.is_signed_integer, pa.types.is_floating)
    )


def types_between(old: "pa.DataType", new: "pa.DataType") -> "list[pa.DataType]":
    """Return `old` and the types that are wider than it and narrower than `new`, the narrowest first."""
    scales = [pa.decimal128(digits, old.scale) for digits in range(old.precision, 39)] if pa.types.is_decimal(old) else []
    known = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), *scales]
    return [old, *(kind for kind in known if is_wider(kind, old) and is_wider(new, kind))]


def widened(old: "pa.Schema", new: "pa.Schema") -> "pa.Schema":
    """Return the columns of `old` with their types in `new`, where these are wider; `old` itself if none is."""
    kinds = {field.name: field.type for field in new}
    wider = {field.name: kinds[field.name] for field in old if is_wider(kinds.get(field.name, field.type), field.type)}
    return pa.schema([field.with_type(wider.get(field.name, field.type)) for field in old]) if wider else old


def may_add(missing: Collection[str], columns: Collection[str], key: Collection[str]) -> bool:
    """Return whether a start may add `missing` columns of the rows' `columns` to the table.

    A key is never added, nor all columns at once: that is another table.
    """
    return 0 < len(missing) < len(columns) and set(missing).isdisjoint(key)


def no_table(table: str) -> Refused:
    """Return the error for a missing table that may not be created."""
    return Refused(f"There is no table {table!r} in the database.", remedy="Create it, or set `create: true`.")


def not_a_table(name: str, what: str, *, expected: str = "a table") -> Refused:
    """Return the error for a view or another object that has the table's name; `what` describes it with its article."""
    return Refused(
        f"{name!r} is {what}, expected {expected}.",
        remedy="Name a table in `table:`. If it came in the place of the table that this sink filled, drop it, or rename it, and "
        "give that table its name back.",
    )


def table_gone(table: str) -> Refused:
    """Return the error for a missing table for which a batch is decided."""
    return Refused(
        f"Table {table!r}, for which a batch is decided, does not exist.",
        remedy="If the table was renamed, rename it back. Else start the pipeline: that creates the table and publishes the "
        "batch, or says how many published rows are lost.",
    )


def merge_fails(table: str, reason: str) -> Refused:
    """Return the error for SQL of `merge` that the server refuses before it reads any row, at every try."""
    return Refused(
        f"The SQL of `merge` for table {table!r} fails even without rows: {reason}.",
        remedy="Correct it, or the table; the columns of {staged} are those of the rows.",
    )
