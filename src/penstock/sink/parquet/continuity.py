"""Checks that new files can be read together with those in the account: an engine reads the directory as one table."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.model import AccountName
from penstock.errors import Refused
from penstock.sink.parquet.account import Area
from penstock.sink.parquet.hive import unescape
from penstock.sink.parquet.layout import order_of, owner_in
from penstock.sink.parquet.ownership import FILES_LOOKED_AT, REMEDY
from penstock.sink.parquet.reading import own_schema
from penstock.spark.schema import arrow_schema

_REMEDY = "in the pipeline file, or give the sink another name and new accounts."


def require_continued(area: Area, rows: "pa.Schema", partition_by: Sequence[str], *, account: AccountName, owner: str) -> None:
    """Raise Refused if `rows` do not fit the files of Penstock's that the account holds.

    A file must be of `owner`, have the same partition columns, and have no column of another type than in `rows`. Of
    FILES_LOOKED_AT files at most, the oldest and the newest speak for all: columns may come and go, and one that came since is in
    the newest.
    """
    seen = list(islice(area.files(), FILES_LOOKED_AT))
    # In an account that an older Penstock filled, only file names tell the owner.
    other = next((file.name for file in seen if owner_in(file.name) not in {None, owner}), None)
    if other is not None:
        raise Refused(f"Account {account!r} holds {other}, which another sink or pipeline delivered.", remedy=REMEDY)
    names = sorted((age, file.name) for file in seen if (age := order_of(file.name)) is not None)
    for _, name in dict.fromkeys((*names[:1], *names[-1:])):
        _require_alike(area, name, rows, partition_by, account=account)


def _require_alike(area: Area, name: str, rows: "pa.Schema", partition_by: Sequence[str], *, account: AccountName) -> None:
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
    """Return the file's columns; none if it cannot be read, which `penstock verify` reports."""
    with suppress(OSError, pa.ArrowException), area.open(name) as file:
        text = own_schema(pq.ParquetFile(file))
        return arrow_schema(text) if text is not None else pa.schema([])
    return pa.schema([])


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(columns) or "nothing"
