"""One connection of python-tds: statements one by one, streams of rows, and bulk load.

No other driver loads in bulk on the connection that also runs statements: `INSERT BULK` goes into a temporary table of the very
transaction that moves the rows on. The bulk copy of mssql-python opens a connection of its own, which sees neither that table
nor the transaction; pyodbc has none. That of pymssql, in FreeTDS, takes no times finer than milliseconds. The price is Python's
time for each row.
"""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import OpenSSL.SSL
import pytds
from pytds import tds_types

from penstock.sink.sqlserver import statements as sql
from penstock.sink.sqlserver.address import Address

Connect: TypeAlias = Callable[..., Any]
"""A function like `pytds.connect`."""

ERRORS: Final = (pytds.Error, OpenSSL.SSL.Error, OSError)
"""Everything that the driver raises; errors of the network and of TLS also come unwrapped."""

_FETCHED_ROWS = 5_000
_SIZED = re.compile(r"(\w+)\((\w+)(?:,(\d+))?\)")
_PLAIN: Mapping[str, Callable[[], Any]] = {
    "smallint": tds_types.SmallIntType,
    "int": tds_types.IntType,
    "bigint": tds_types.BigIntType,
    "real": tds_types.RealType,
    "float": tds_types.FloatType,
    "bit": tds_types.BitType,
    "date": tds_types.DateType,
    "nvarchar(max)": tds_types.NVarCharMaxType,
    "varbinary(max)": tds_types.VarBinaryMaxType,
}
_BY_SIZE: Mapping[str, Callable[..., Any]] = {
    "decimal": tds_types.DecimalType,
    "time": tds_types.TimeType,
    "datetime2": tds_types.DateTime2Type,
    "datetimeoffset": tds_types.DateTimeOffsetType,
    "nvarchar": tds_types.NVarCharType,
    "varbinary": tds_types.VarBinaryType,
}


class Connection:
    """A session that is open until an error or `close`. Each statement is a transaction, unless one was begun."""

    def __init__(self, address: Address, *, application: str, connect: Connect = pytds.connect) -> None:
        try:
            self._client = connect(
                address.host,
                database=address.database,
                user=address.user,
                password=address.password,
                port=address.port,
                login_timeout=address.connect_timeout_s,
                timeout=None,
                appname=application,
                autocommit=True,
                cafile=address.ca,
                validate_host=address.checks_host,
            )
        except TimeoutError as late:  # the driver retries until then, even if the answer stays the same
            if isinstance(late.__cause__, pytds.Error):
                raise late.__cause__ from None
            raise

    def execute(self, statement: str, values: "Mapping[str, Any] | None" = None) -> Any:
        """Run a statement and return the cursor with its result. It refers to values as `%(name)s`.

        With values it runs in a scope of its own, at whose end the temporary tables that it creates are dropped.
        """
        cursor = self._client.cursor()
        cursor.execute(statement, None if values is None else dict(values))
        return cursor

    def stream(self, query: str) -> Iterator[Sequence[tuple[Any, ...]]]:
        """Yield the rows of a query, some thousands at a time; nothing else can run on the connection meanwhile."""
        cursor = self.execute(query)
        while rows := cursor.fetchmany(_FETCHED_ROWS):
            yield rows

    def load(self, columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[Any]]) -> None:
        """Bulk load `rows` into the staging table, whose columns have these names and types."""
        described = [pytds.Column(name=name, type=bulk_type(kind), flags=pytds.Column.fNullable) for name, kind in columns]
        self._client.cursor().copy_to(data=rows, table_or_view=sql.STAGE, columns=described)

    @property
    def in_transaction(self) -> bool:
        """Whether the open transaction can still be committed."""
        return bool(self.execute(sql.STATE).fetchone()[0] == 1)

    def close(self) -> None:
        with contextlib.suppress(*ERRORS):
            self._client.close()


def bulk_type(declared: str) -> Any:
    """Return the driver's type for a column so declared."""
    if declared in _PLAIN:
        return _PLAIN[declared]()
    found = _SIZED.fullmatch(declared)
    assert found is not None, declared
    return _BY_SIZE[found[1]](*(int(size) for size in found.groups()[1:] if size is not None))
