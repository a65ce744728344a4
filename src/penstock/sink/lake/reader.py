"""Reads files of a table as rows of a batch's schema."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO
from urllib.parse import unquote

import pyarrow as pa

from penstock.core.model import RowDigest, Totals
from penstock.core.row_hash import digest, row_hashes
from penstock.sink.lake.log import TableFile
from penstock.sink.lake.staging import piece_name
from penstock.sink.parquet.account import Area
from penstock.sink.parquet.field_ids import has_numbers
from penstock.sink.parquet.row_file import RowFile, opened, own_schema
from penstock.sink.parquet.table import filled_columns, read_content, read_rows
from penstock.spark.schema import arrow_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReader:
    """Reads files in `area` as rows of Spark's `schema`. All methods raise ValueError, pa.ArrowException and OSError."""

    area: Area
    schema: str
    row_digest: RowDigest

    def content(self, file: TableFile) -> Totals:
        """Return the number of rows and their digest."""
        with open_file(self.area, file) as data:
            name = piece_name(file.path, file.values)
            return read_content(data, name=name, schema=self.schema, row_digest=self.row_digest, field_ids=file.field_ids)

    def rows(self, file: TableFile, columns: Sequence[str] | None = None) -> Iterator["pa.RecordBatch"]:
        """Yield the rows in their order, with those columns, all by default."""
        with open_file(self.area, file) as data:
            name = piece_name(file.path, file.values)
            yield from read_rows(data, name=name, schema=self.schema, columns=columns, field_ids=file.field_ids)

    def totals(self, rows: "pa.RecordBatch") -> Totals:
        """Return the number of rows that `rows` yielded, and their digest."""
        return Totals(rows=rows.num_rows, digest=digest(self.hashes(rows)))

    def hashes(self, rows: "pa.RecordBatch") -> "pa.UInt64Array":
        """Return the hash of each row."""
        return row_hashes(rows, self.row_digest)

    def filled_column(self, files: Iterable[TableFile], columns: Sequence[str]) -> str | None:
        """Return a column that has a value in one of the files, None if none has. Without columns no file is opened."""
        for file in files if columns else ():
            with open_file(self.area, file) as data:
                for name in filled_columns(data, columns, field_ids=file.field_ids):
                    return name
        return None

    def hashes_alike(self, file: TableFile) -> bool:
        """Return whether rows of the file have the same hashes here as in `content`, which takes them as they were written.

        For that the columns that it was written with have their names, types and order still. Others may have come.
        """
        with open_file(self.area, file) as data:
            parquet = opened(data)
            written, stored = own_schema(parquet), RowFile.of(parquet, file.field_ids)
        if written is None:
            return True
        before = {field.name: field.type for field in arrow_schema(written)}
        now = {field.name: field.type for field in arrow_schema(self.schema) if field.name in before}
        return [*before.items()] == [*now.items()] and all(name == own for name, own in stored.columns.items())

    def finds_all(self, file: TableFile) -> bool:
        """Return whether Penstock wrote the file, and readers find all that it has, at any depth, under the names of then."""
        with open_file(self.area, file) as data:
            parquet = opened(data)
            is_own, there = own_schema(parquet) is not None, parquet.schema_arrow
        return is_own and (file.field_ids is None or has_numbers(there, file.field_ids))


def open_file(area: Area, file: TableFile) -> BinaryIO:
    """Open a file of a table. Delta demands that its path is URL-quoted, but some writers do not quote it."""
    try:
        return area.open(unquote(file.path))
    except FileNotFoundError:
        return area.open(file.path)
