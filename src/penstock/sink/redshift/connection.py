"""One connection of redshift_connector: statements one by one, and streams of rows."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from struct import error as TornAnswer  # noqa: N812 - it is what the driver raises for an answer that was cut off
from typing import Any, Final

import redshift_connector
from redshift_connector.error import Error

from penstock.sink.redshift import statements as sql
from penstock.sink.redshift.address import Address

_STYLE = "pyformat"

ERRORS: Final = (Error, OSError, TornAnswer)
"""Everything that the driver raises: server errors as its own, those of a broken network also unwrapped."""


class Connection:
    """A session that is open until an error or `close`. Each statement is a transaction, unless one was begun.

    The driver caches prepared statements by their text, and Redshift binds them to the tables that existed then. No more than
    one is cached, since a staging table is dropped and created again under its name.
    """

    def __init__(self, address: Address, *, application: str) -> None:
        self._client = redshift_connector.connect(
            host=address.host,
            port=address.port,
            database=address.database,
            user=address.user,
            password=address.password,
            ssl=address.sslmode != "disable",
            sslmode="verify-ca" if address.sslmode == "disable" else address.sslmode,
            timeout=round(address.connect_timeout_s),
            tcp_keepalive=True,
            tcp_keepalive_idle=30,
            tcp_keepalive_interval=10,
            tcp_keepalive_count=3,
            max_prepared_statements=0,
            application_name=application,
        )
        self._client._usock.settimeout(None)  # else it limits each answer, and a COMMIT may take any time
        self._client.autocommit = True

    def execute(self, statement: str, values: "Mapping[str, Any] | None" = None) -> Any:
        """Run a statement and return the cursor with its result. It refers to values as `%(name)s`."""
        return self._cursor(_STYLE).execute(statement, values)

    def insert(self, statement: str, values: Sequence[Any]) -> int:
        """Run a statement with `%s` for each value, and return the number of rows."""
        return int(self._cursor("format").execute(statement, values).rowcount)

    def stream(self, query: str) -> Iterator[Sequence[Sequence[Any]]]:
        """Yield the rows of a query in the open transaction, some at a time."""
        self.execute(sql.declare(query))
        while rows := self.execute(sql.FETCH).fetchall():
            yield rows
        self.execute(sql.CLOSE)

    def close(self) -> None:
        with contextlib.suppress(*ERRORS):
            self._client.close()

    def _cursor(self, style: str) -> Any:
        cursor = self._client.cursor()
        cursor.paramstyle = style
        return cursor
