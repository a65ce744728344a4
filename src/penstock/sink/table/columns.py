"""The columns of an existing table, as the server's catalog declares them, compared with the columns of the rows."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import Refused, Usage
from penstock.sink.table.nested import is_text
from penstock.sink.table.target import is_wider, require_distinct_fields, require_key_in, types_between
from penstock.sql.table_name import in_double_quotes

_CASTS: Final[Mapping[str, pa.DataType]] = {
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
}
"""Types of Spark SQL that a person casts to, in the order in which they are proposed: SQLite keeps times as texts, too."""


class DeclaresColumn(Protocol):
    """How values are stored, as far as a column's declaration is concerned; see `ColumnStorage`."""

    @property
    def declared(self) -> Callable[[Any], str]: ...
    @property
    def takes(self) -> Callable[[str, Any], bool]: ...
    @property
    def also(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """One column of an existing table. An INSERT may leave it out if `fills_itself`, and must leave it out if `generated`."""

    name: str
    declared: str
    not_null: bool
    generated: bool
    fills_itself: bool
    collation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogTable:
    """An existing table or view as the catalog declares it."""

    kind: str
    columns: tuple[TableColumn, ...]

    @staticmethod
    def fold(name: str, /) -> str:
        """Return the name as the database compares it."""
        return name

    @property
    def by_name(self) -> Mapping[str, TableColumn]:
        """The columns by their folded names."""
        return {self.fold(column.name): column for column in self.columns}

    @property
    def required(self) -> frozenset[str]:
        """The folded names of the columns that take no NULL."""
        return frozenset(name for name, column in self.by_name.items() if column.not_null)

    def sizes(self, size_of: Callable[[str], int | None]) -> Mapping[str, int]:
        """Return the size of each column, by its folded name, for which `size_of` knows one by its declared type."""
        sizes = {name: size_of(column.declared) for name, column in self.by_name.items()}
        return {name: size for name, size in sizes.items() if size is not None}

    def text_lengths(self, rows: "pa.Schema", length_of: Callable[[str], int | None]) -> Mapping[str, int]:
        """Return the maximum length of each text column of `rows` for which `length_of` knows one by its declared type."""
        sizes = self.sizes(length_of)
        texts = [field.name for field in rows if is_text(field.type)]
        return {name: sizes[self.fold(name)] for name in texts if self.fold(name) in sizes}


def require_keyed(schema: "pa.Schema", key: Sequence[str], *, most: int) -> None:
    """Raise Usage for no columns or more than `most`, repeated struct fields, or a key that is nested or missing in the rows."""
    if not 0 < len(schema.names) <= most:
        raise Usage(f"The rows have {len(schema.names)} columns, expected 1 to {most}.", remedy="Select others in the transform.")
    require_key_in(schema, tuple(key), schema.names)
    for name in key:
        if pa.types.is_nested(schema.field(name).type):
            raise Usage(f"The key's column {name!r} is stored as JSON, which has no order.", remedy="Use plain columns as key.")
    require_distinct_fields(schema)


def require_distinct_names(folded: Sequence[str], *, database: str | None = None) -> None:
    """Raise Usage if a folded name occurs twice. `database`: the name of one that compares names regardless of case."""
    twice = sorted({name for name in folded if folded.count(name) > 1})
    if twice:
        why = f"; {database} does not tell upper from lower case" if database else ""
        raise Usage(f"The rows have column {twice[0]!r} twice{why}.", remedy="Rename one of them in the transform.")


def require_exact_key(schema: "pa.Schema", key: Sequence[str]) -> None:
    """Raise Usage for a key with a floating-point column: such values do not always equal themselves."""
    for name in key:
        if pa.types.is_floating(schema.field(name).type):
            raise Usage(
                f"The key's column {name!r} is a {schema.field(name).type}.", remedy="Use columns with exact values as key."
            )


def as_code(statement: str) -> str:
    """Return `statement` as inline code for a message, in double backticks if it contains a backtick itself."""
    return f"``{statement}``" if "`" in statement else f"`{statement}`"


UNIQUE_INDEX = "CREATE UNIQUE INDEX {index} ON {table} ({columns})"
_INDEX_NAME = 60
"""The most characters of an index's name that every database takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alter:
    """A database's statements that change a column, None where it has none.

    They are templates with `{table}`, `{column}` and `{declared}`. `nullable` lets the column be NULL; `retype` gives it
    another type. `quoted` quotes a column's name: unquoted, a keyword or a name with capital letters or blanks would name
    another column.
    """

    add: str = "ALTER TABLE {table} ADD {column} {declared}"
    nullable: str | None = "ALTER TABLE {table} ALTER {column} DROP NOT NULL"
    retype: str | None = "ALTER TABLE {table} ALTER {column} TYPE {declared}"
    quoted: Callable[[str], str] = in_double_quotes


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The comparison of the rows' columns with the table's, and its errors. `named` is the table as a statement names it.

    `decided`: the rows are those of a decided batch, which no transform changes, so the remedy changes the table.
    """

    table: str
    named: str
    alter: Alter
    decided: bool

    def require_same(
        self, ours: Mapping[str, str], theirs: Mapping[str, str], *, missing: Sequence[str], demanded: Sequence[str]
    ) -> None:
        """Raise Refused if columns are missing in the table, or demanded by the table but not in the rows.

        `ours` and `theirs` map names to declared types. `missing` are names of `ours`, `demanded` are names of `theirs`.
        """
        if not (missing or demanded):
            return
        rows = "The rows of the decided batch" if self.decided else "The rows"
        raise Refused(
            f"{rows} have the columns {', '.join(ours)}, table {self.table!r} has {', '.join(theirs)} (missing in the "
            f"table: {', '.join(missing) or 'none'}; only in the table and without a default: {', '.join(demanded) or 'none'}).",
            remedy=self._old_names(missing, [name for name in theirs if name.lower() not in {each.lower() for each in ours}])
            + self._remedy(
                *(
                    f"{self._run(self.alter.add, name, ours[name])}; or, if the table has it under another name by now, "
                    "rename it back"
                    for name in missing
                ),
                *(self._run(self.alter.nullable, name, theirs[name], otherwise="without NOT NULL") for name in demanded),
                else_=f"Or let the start add columns that are no part of a key: `schema_changes: add` of the sink. Rows that are "
                f"there have NULL in them. Or leave them out: `exclude: [{', '.join(missing)}]` of the sink."
                if missing
                else "Rows that lack a column are NULL in it. Or change the transform.",
            ),
        )

    def _old_names(self, missing: Sequence[str], lacking: Sequence[str]) -> str:
        """Return what to do about columns that have another name in the rows by now: a start would refuse that next."""
        if self.decided or not (missing and lacking):
            return ""
        return f"If the transform has {', '.join(lacking)} under another name by now, give back the old one. "

    def other_type(
        self, column: str, found: str, kind: "pa.DataType", *, expected: str, declared: str, cast: str | None
    ) -> Refused:
        """Return the error for a column whose type does not keep every value of the rows. `expected` describes those that do.

        `cast` is the type of Spark SQL that the column does keep, None if it is not known.
        """
        fitting = f", or in `select` of the sink, as in `CAST({column} AS {cast}) AS {column}`" if cast is not None else ""
        change = self._run(self.alter.retype, column, declared, otherwise=f"as {declared}")
        altered = (
            "If somebody altered the column since rows were published there, if there are none yet, or with `write: replace`"
        )
        return Refused(
            f"Column {column!r} of table {self.table!r} is {found}, which does not keep every value of type {kind}; "
            f"expected {expected}.",
            remedy=self._remedy(change, else_="")
            if self.decided
            else f"{altered}: {change}. Else cast the column in the transform{fitting}.",
        )

    def not_plain(self, column: str, found: str, *, declared: str) -> Refused:
        """Return the error for a narrow column that is not as Penstock makes it: altering could drop what it has besides."""
        change = self._run(self.alter.retype, column, declared, otherwise=f"as {declared}")
        return Refused(
            f"Column {column!r} of table {self.table!r} is {found}, which is too narrow for the rows. `schema_changes: widen` "
            "alters only columns as Penstock makes them: without NOT NULL, a default, a comment or a CHECK.",
            remedy=f"Cast the column in the transform; or {change}, with what the column has besides, and start again.",
        )

    def too_long(self, column: str, found: int, most: str, *, declared: str) -> Refused:
        """Return the error for a column that takes at most `most`, where a value of the decided batch has the length `found`."""
        change = self._run(self.alter.retype, column, declared, otherwise=f"as {declared}")
        return Refused(
            f"Column {column!r} of table {self.table!r} takes {most}, and a value of the decided batch has {found}.",
            remedy=self._remedy(change, else_=""),
        )

    def takes_no_null(self, column: str, declared: str) -> Refused:
        """Return the error for NULLs of the decided batch in a NOT NULL column, for which the database could make up a value."""
        change = self._run(self.alter.nullable, column, declared, otherwise="without NOT NULL")
        return Refused(
            f"Column {column!r} of table {self.table!r} takes no NULL, and rows of the decided batch have NULL there.",
            remedy=self._remedy(change, else_=""),
        )

    def no_unique_index(self, key: Sequence[str], *, create: str = UNIQUE_INDEX, which: str = "") -> Refused:
        """Return the error for a table without a unique index on the key.

        `create` is the statement that makes one, a template with `{table}`, `{columns}` and `{index}`, which is a name for it.
        `which`: what else the index must be.
        """
        columns = ", ".join(map(self.alter.quoted, key))
        name = self.alter.quoted("_".join([re.sub(r"\W+", "_", self.table).strip("_"), *key, "key"])[:_INDEX_NAME])
        statement = as_code(create.format(table=self.named, columns=columns, index=name))
        return Refused(
            f"Table {self.table!r} has no unique index on exactly ({columns}), so its rows cannot be told apart by this key.",
            remedy=self._remedy(
                f"run {statement}{which}", else_="If it fails, the table has rows with the same key: keep one of each."
            ),
        )

    def require_not_generated(self, column: str, *, generated: bool) -> None:
        """Raise Refused if the database generates the values of a column that the rows have."""
        if generated:
            raise Refused(
                f"Column {column!r} of table {self.table!r} is generated by the database, and the rows "
                f"{'of the decided batch ' if self.decided else ''}have one of that name.",
                remedy=self.made_anew(column, "as an ordinary one") if self.decided else "Leave it out in the transform.",
            )

    def made_anew(self, column: str, how: str) -> str:
        """Return the remedy for a column that no statement can change: create the table again, then publish the decided batch."""
        return self._remedy(self._run(None, column, "", otherwise=how), else_="")

    def statement(self, template: str, column: str, declared: str) -> str:
        """Return one of the statements of `alter` for a column."""
        return template.format(table=self.named, column=self.alter.quoted(column), declared=declared)

    def _run(self, template: str | None, column: str, declared: str, *, otherwise: str = "") -> str:
        if template is None:
            return f"create the table again with column {column!r} {otherwise}, and copy the rows into it"
        return f"run {as_code(self.statement(template, column, declared))}"

    def _remedy(self, *changes: str, else_: str) -> str:
        change = ". ".join(f"{change[0].upper()}{change[1:]}" for change in changes)
        if not self.decided:
            return f"{change}. {else_}".rstrip()
        return f"{change}. Then run `penstock recover`, which publishes the batch with the columns that it has, and start again."


def require_columns(
    table: CatalogTable, schema: "pa.Schema", *, of: Columns, storage_of: Callable[["pa.DataType"], DeclaresColumn]
) -> None:
    """Raise Refused unless the table has the rows' columns, keeps their values, and fills the others by a default or NULL."""
    there, wanted = table.by_name, set(map(table.fold, schema.names))
    left = [column for name, column in there.items() if name not in wanted]
    of.require_same(
        {field.name: storage_of(field.type).declared(field.type) for field in schema},
        {column.name: column.declared for column in table.columns},
        missing=[name for name in schema.names if table.fold(name) not in there],
        demanded=[column.name for column in left if column.not_null and not column.fills_itself],
    )
    for field in schema:
        _require_lossless(there[table.fold(field.name)], field, of=of, storage_of=storage_of)


def missing_columns(
    table: CatalogTable, schema: "pa.Schema", *, of: Columns, storage_of: Callable[["pa.DataType"], DeclaresColumn]
) -> Mapping[str, str]:
    """Return the columns of `schema` that the table lacks, each with the statement that adds it."""
    there = table.by_name
    return {
        field.name: of.statement(of.alter.add, field.name, storage_of(field.type).declared(field.type))
        for field in schema
        if table.fold(field.name) not in there
    }


def types_there(
    table: CatalogTable, schema: "pa.Schema", filled: "pa.Schema", *, storage_of: Callable[["pa.DataType"], DeclaresColumn]
) -> "pa.Schema":
    """Return `filled`, the schema of the rows that are there, with the types in which they lie by now.

    An earlier start may have made a column wider without a batch since, as for a table that no row names meanwhile.
    """
    there, now = table.by_name, {field.name: field.type for field in schema}

    def lying(field: "pa.Field") -> "pa.Field":
        column = there.get(table.fold(field.name))
        kinds = types_between(field.type, now.get(field.name, field.type))
        if len(kinds) == 1:  # nothing lies in between, and not every type has a plain declaration
            return field
        return field.with_type(
            next((kind for kind in kinds if column and storage_of(kind).declared(kind) == column.declared), field.type)
        )

    return pa.schema([lying(field) for field in filled])


def wider_columns(
    table: CatalogTable,
    schema: "pa.Schema",
    filled: "pa.Schema",
    *,
    of: Columns,
    storage_of: Callable[["pa.DataType"], DeclaresColumn],
) -> Mapping[str, str]:
    """Return the columns that are too narrow for `schema`, each with the statement that widens it. Raise Refused.

    `filled` is the schema of the rows that are there, which lie in no narrower type.
    """
    there, before, found = table.by_name, {field.name: field.type for field in filled}, {}
    for field in schema:
        column, old = there.get(table.fold(field.name)), before.get(field.name, field.type)
        if column is None or not is_wider(field.type, old) or storage_of(field.type).takes(column.declared, field.type):
            continue
        declared = storage_of(field.type).declared(field.type)
        if of.alter.retype is None or column.not_null or column.fills_itself or column.declared != storage_of(old).declared(old):
            raise of.not_plain(column.name, column.declared, declared=declared)
        found[field.name] = of.statement(of.alter.retype, field.name, declared)
    return found


def _require_lossless(
    column: TableColumn, field: "pa.Field", *, of: Columns, storage_of: Callable[["pa.DataType"], DeclaresColumn]
) -> None:
    of.require_not_generated(column.name, generated=column.generated)
    storage = storage_of(field.type)
    if not storage.takes(column.declared, field.type):
        declared = storage.declared(field.type)
        also = f" (or {storage.also})" if storage.also else ""
        cast = next((name for name, kind in _CASTS.items() if storage_of(kind).takes(column.declared, kind)), None)
        raise of.other_type(column.name, column.declared, field.type, expected=f"{declared}{also}", declared=declared, cast=cast)


# --- columns that were shortened after the tasks had checked the rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """The maximum lengths of some columns in `unit`, which `measure` counts. `declared` is a type that takes any text.

    Several databases silently cut a text that is too long by blanks alone, as the SQL standard specifies.
    """

    of: Columns
    most: Mapping[str, int]
    measure: Callable[["pa.Array"], "pa.Array"]
    unit: str
    declared: str

    def required(self, batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        """Yield `batches` unchanged. Raise Refused at the first one with a text that is longer than its column takes."""
        for batch in batches:
            for name, most in self.most.items():
                found = pc.max(self.measure(batch.column(name))).as_py()
                if found is not None and found > most:
                    raise self.of.too_long(name, found, f"{most} {self.unit}", declared=self.declared)
            yield batch
