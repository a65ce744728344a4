"""New files must be readable together with those that an account shows already: an engine reads the directory as one table."""

from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import Refused
from penstock.model import AccountName, Attempt
from penstock.sink.parquet.account import Area
from penstock.sink.parquet.hive import unescape
from penstock.sink.parquet.reading import own_schema
from penstock.sparkschema import arrow_schema

_REMEDY = "in the pipeline file, or give the sink another name and new accounts."


def require_continued(area: Area, rows: "pa.Schema", partition_by: Sequence[str], *, account: AccountName) -> None:
    """Raise Refused if a file of Penstock's has other partition columns, or a column of another type, than `rows` have now.

    The first file found speaks for all, since none got past here that differs. New columns may come and old ones go.
    """
    name = next((file.name for file in area.files() if Attempt.find(file.name) is not None), None)
    if name is None:
        return
    layout = [unescape(directory.partition("=")[0]) for directory in name.split("/")[:-1]]
    if layout != list(partition_by):
        raise Refused(
            f"The files of account {account!r} are partitioned by {_listed(layout)}, "
            f"and partition_by is {_listed(partition_by)}.",
            remedy=f"Put partition_by back {_REMEDY}",
        )
    for field in _columns(area, name):
        if field.name in rows.names and rows.field(field.name).type != field.type:
            raise Refused(
                f"Column {field.name!r} is {field.type} in the files of account {account!r}, "
                f"and {rows.field(field.name).type} in the rows: no reader could read both as one table.",
                remedy=f"Cast it in the transform to what it was, or put the schema back {_REMEDY}",
            )


def _columns(area: Area, name: str) -> "pa.Schema":
    """The file's columns; none if it cannot be read, which is for `penstock verify` to say."""
    with suppress(OSError, pa.ArrowException), area.open(name) as file:
        text = own_schema(pq.ParquetFile(file))
        return arrow_schema(text) if text is not None else pa.schema([])
    return pa.schema([])


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(columns) or "nothing"
