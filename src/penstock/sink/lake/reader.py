"""Reads files of a table as rows of a batch's schema."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO
from urllib.parse import unquote

import pyarrow as pa

from penstock.core.model import RowDigest, Totals
from penstock.sink.lake.log import TableFile
from penstock.sink.lake.staging import piece_name
from penstock.sink.parquet.account import Area
from penstock.sink.parquet.table import filled_columns, read_content, read_rows


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
            return read_content(data, name=name, schema=self.schema, row_digest=self.row_digest)

    def rows(self, file: TableFile, columns: Sequence[str] | None = None) -> Iterator["pa.RecordBatch"]:
        """Yield the rows in their order, with those columns, all by default."""
        with open_file(self.area, file) as data:
            yield from read_rows(data, name=piece_name(file.path, file.values), schema=self.schema, columns=columns)

    def filled_column(self, files: Iterable[TableFile], columns: Sequence[str]) -> str | None:
        """Return a column that has a value in one of the files, None if none has. Without columns no file is opened."""
        for file in files if columns else ():
            with open_file(self.area, file) as data:
                for name in filled_columns(data, columns):
                    return name
        return None


def open_file(area: Area, file: TableFile) -> BinaryIO:
    """Open a file of a table. Delta demands that its path is URL-quoted, but some writers do not quote it."""
    try:
        return area.open(unquote(file.path))
    except FileNotFoundError:
        return area.open(file.path)
