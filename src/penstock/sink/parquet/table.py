"""`Table`, one account as its readers see it: the files up to some batch, where they are, and their rows, restored and hashed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa

from penstock.core.high_water_mark import Marker
from penstock.core.model import AccountName, BatchId, Generation, Position, RowDigest, SinkName, Staged, Totals
from penstock.core.partition_term import is_term
from penstock.core.row_hash import digest, row_hashes
from penstock.errors import Failed
from penstock.sink.parquet.account import Account, Area, StoredFile
from penstock.sink.parquet.encoding import is_text
from penstock.sink.parquet.field_ids import require_found
from penstock.sink.parquet.layout import PartitionColumn, Value, is_parquet, order_of, owner_in, unescape
from penstock.sink.parquet.part_file import stored_schema
from penstock.sink.parquet.row_file import RowFile, opened, opened_for_hashing, own_schema
from penstock.spark.schema import arrow_schema


def read_content(
    file: BinaryIO, *, name: str, schema: str, row_digest: RowDigest, field_ids: Mapping[str, int] | None = None
) -> Totals:
    """Return the number of rows of a whole file and their digest. `name` is the path below the root, with partition values.

    The values in `name` count even if another writer put the partition columns into the file: readers take them, too.

    `schema` is Spark's JSON of the rows. A schema in the file's footer takes precedence: the file may be of an unknown batch. A
    file of another writer has none, and may be merged from older files: it may lack columns, and have others without any value.
    `field_ids` are the table's numbers of columns, where readers find columns by number. Raises ValueError with the reason for a
    file in which readers do not find such rows, pa.ArrowException and OSError for one that cannot be read.
    """
    parquet = opened_for_hashing(file)
    own = own_schema(parquet)
    if own is not None and field_ids is not None:
        require_found(parquet.schema_arrow, field_ids)
    stored = RowFile.of(parquet, field_ids if own is None else None)  # its own schema has its own names
    rows = arrow_schema(own or schema)
    values = _partition_values(name, rows)
    missing = [column for column in rows.names if column not in values and column not in stored.columns]
    surplus = [column for column in stored.columns if column not in rows.names]
    if (missing or surplus) and (own is not None or not stored.are_null(surplus) or len(missing) == len(rows)):
        raise ValueError(f"its columns are {', '.join(stored.columns)}, expected {', '.join(rows.names)}")
    found = Totals()
    for batch in stored.batches():
        found += Totals(rows=batch.num_rows, digest=digest(row_hashes(_restored(batch, rows, values), row_digest)))
    return found


def read_table(file: BinaryIO, *, name: str, schema: str) -> "pa.Table":
    """Return all rows of a file with the columns of `schema`: a later column is null, a removed one is left out.

    Raises ValueError, pa.ArrowException and OSError as `read_content`.
    """
    parquet = opened(file)
    values = _partition_values(name, arrow_schema(own_schema(parquet) or schema))
    found = parquet.read(use_threads=False)
    wanted = table_schema(schema)
    columns = [_column(found, field, values) for field in wanted]
    return pa.Table.from_arrays(columns, schema=wanted)


def read_rows(
    file: BinaryIO,
    *,
    name: str,
    schema: str,
    columns: Sequence[str] | None = None,
    field_ids: Mapping[str, int] | None = None,
) -> Iterator["pa.RecordBatch"]:
    """Yield the rows of a file in their order, with those columns of `table_schema(schema)`, all of them by default.

    A column that the file lacks is NULL: it was added later. But if columns go by name, and the file has values in one outside
    the schema, that one may have been renamed, which raises ValueError. `field_ids` and other errors as for `read_content`.
    """
    parquet = opened(file)
    stored = RowFile.of(parquet, field_ids)
    values = _partition_values(name, arrow_schema(own_schema(parquet) or schema))
    fields = [field for field in table_schema(schema) if columns is None or field.name in columns]
    wanted = [field.name for field in fields if field.name not in values]
    there = [column for column in wanted if column in stored.columns]
    if len(there) < len(wanted) and not stored.is_numbered:
        _require_none_renamed(stored, wanted, schema)
    for batch in stored.batches(there):
        yield pa.RecordBatch.from_arrays([_in_file(batch, field, values) for field in fields], schema=pa.schema(fields))


def _require_none_renamed(stored: RowFile, wanted: Sequence[str], schema: str) -> None:
    """Raise ValueError if the file lacks a wanted column and has values in one that is not in the schema."""
    known = table_schema(schema).names
    if not stored.are_null([column for column in stored.columns if column not in known]):
        missing = next(column for column in wanted if column not in stored.columns)
        raise ValueError(f"its columns are {', '.join(stored.columns)}, expected {missing} among them")


def _in_file(batch: "pa.RecordBatch", field: "pa.Field", values: "dict[str, Value]") -> "pa.Array":
    if field.name in values:
        return pa.repeat(pa.scalar(values[field.name], field.type), batch.num_rows)
    column = _in_batch(batch, field)
    return column if column.type == field.type else column.cast(field.type)


def _in_batch(batch: "pa.RecordBatch", field: "pa.Field") -> "pa.Array":
    index = batch.schema.get_field_index(field.name)
    return pa.nulls(batch.num_rows, field.type) if index < 0 else batch.column(index)


def filled_columns(file: BinaryIO, columns: Sequence[str], *, field_ids: Mapping[str, int] | None = None) -> Sequence[str]:
    """Return those of the table's columns that have a value in the file. Raises as `read_content`."""
    stored = RowFile.of(opened(file), field_ids)
    return [column for column in columns if column in stored.columns and not stored.are_null([column])]


def table_schema(schema: str) -> "pa.Schema":
    """Return the columns of rows of Spark's `schema` as they are read back: all nullable, as in every Parquet file of Spark's."""
    rows = arrow_schema(schema)
    kinds = [
        stored.type if pa.types.is_nested(field.type) else field.type
        for field, stored in zip(rows, stored_schema(rows), strict=True)
    ]
    return pa.schema(list(zip(rows.names, kinds, strict=True)))


def _partition_values(name: str, rows: "pa.Schema") -> dict[str, Value]:
    values: dict[str, Value] = {}
    for directory in name.split("/")[:-1]:
        key, equals, text = directory.partition("=")
        column = unescape(key)
        index = rows.get_field_index(unescape(key))
        if equals and index < 0 and is_term(column):
            continue  # made of a column that is in the file
        if not equals or index < 0:
            raise ValueError(f"it lies in the directory {directory!r}, which stands for no value of a column")
        kind = rows.field(index).type
        values[column] = PartitionColumn(name=column, index=index, kind=kind).value_in(text)
    return values


def _column(found: "pa.Table", field: "pa.Field", values: dict[str, Value]) -> "pa.Array | pa.ChunkedArray":
    if field.name in values:
        return pa.repeat(pa.scalar(values[field.name], field.type), found.num_rows)
    if field.name not in found.column_names:
        return pa.nulls(found.num_rows, field.type)
    column = found.column(field.name)
    return column if column.type == field.type else column.cast(field.type)


def _restored(batch: "pa.RecordBatch", rows: "pa.Schema", values: dict[str, Value]) -> "pa.RecordBatch":
    columns = [
        _repeated(pa.scalar(values[field.name], field.type), batch.num_rows)
        if field.name in values
        else _as(field.type, _in_batch(batch, field))
        for field in rows
    ]
    return pa.RecordBatch.from_arrays(columns, names=rows.names)


def _as(kind: "pa.DataType", column: "pa.Array") -> "pa.Array":
    """Return the column in the decided type, where the file stores another one. A nested column has the same hash as it is."""
    if pa.types.is_dictionary(column.type) and column.type.value_type == kind:
        return column
    return column if column.type == kind or pa.types.is_nested(kind) else column.cast(kind)


def _repeated(value: "pa.Scalar", rows: int) -> "pa.Array":
    """Return a column of one value; a text as a dictionary, whose hash costs less."""
    if not value.is_valid or not is_text(value.type):
        return pa.repeat(value, rows)
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), rows), pa.repeat(value, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFile:
    """One file of a table; `url` is where readers find it: a path if the account is a directory, else the store's URL.

    `rows` is None if no manifest was read, or none knows the file; `batch_id` and `generation`, which decided it, are None if the
    file's name tells no batch.
    """

    sink: SinkName
    account: AccountName
    url: str
    name: str
    rows: int | None
    size_bytes: int
    batch_id: BatchId | None
    generation: Generation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The table in one account of a sink."""

    sink: SinkName
    name: AccountName
    account: Account
    area: Area
    owner: str
    """The owner in the names of the table's files. Another pipeline's files below the same root count their own batches."""

    def marker(self) -> Marker | None:
        """Return the account's own newest marker, None without one. Raises PublishFailed, Retryable, LedgerMismatch."""
        marker = self.area.marker()
        return None if marker is None or marker.account != self.name else marker

    def marked_at(self) -> Position | None:
        """Return the position up to which the account shows everything, by its marker; None without one. Raises as `marker`."""
        marker = self.marker()
        return None if marker is None else marker.position

    def files(self, generation: Generation, batch_id: BatchId, *, counted: bool) -> list[PublishedFile]:
        """Return, sorted by name, the files of all decisions up to that batch of that generation, and those that name no batch.

        `counted` also reads every retained manifest for the number of rows, which takes a request each in a store.
        """
        manifests = self.area.manifests() if counted else ()
        rows = {file.name: file.rows for marker in manifests for file in marker.files or ()}
        shown = (
            self._file(file, rows.get(file.name))
            for file in self.area.files()
            if is_parquet(file.name)
            if (order := order_of(file.name)) is None
            or (owner_in(file.name) in {None, self.owner} and order <= (generation, batch_id))
        )
        return sorted(shown, key=lambda file: file.name)

    def file_of(self, piece: Staged) -> PublishedFile:
        return self._file(StoredFile(name=piece.name, size_bytes=piece.totals.size_bytes), piece.totals.rows)

    def read(self, file: PublishedFile, *, schema: str) -> "pa.Table":
        """Return all rows of `file` with the columns of Spark's `schema`. Raises Failed."""
        try:
            with self.area.open(file.name) as data:
                return read_table(data, name=file.name, schema=schema)
        except (pa.ArrowException, OSError, ValueError) as cause:
            reason = str(cause).split("\n", maxsplit=1)[0]
            raise Failed(
                f"{file.url} cannot be read: {reason}.",
                remedy="If maintenance removed or rewrote it meanwhile, ask for the files again; else run `penstock verify`.",
            ) from cause

    def _file(self, file: StoredFile, rows: int | None) -> PublishedFile:
        order = order_of(file.name)
        return PublishedFile(
            sink=self.sink,
            account=self.name,
            url=f"{self.account.root_for_readers}/{file.name}",
            name=file.name,
            rows=rows,
            size_bytes=file.size_bytes,
            batch_id=None if order is None else order[1],
            generation=None if order is None else order[0],
        )
