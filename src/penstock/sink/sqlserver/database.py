"""The SQL Server database: its URL, one session that publishes, and readers of one snapshot each.

The driver is python-tds. No other one loads in bulk on the connection that also runs statements: `INSERT BULK` goes into a
temporary table of the very transaction that moves the rows on. The bulk copy of mssql-python opens a connection of its own,
which sees neither that table nor the transaction; pyodbc has none. That of pymssql, in FreeTDS, takes no times finer than
milliseconds. The price is Python's time for each row.
"""

import contextlib
import re
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import OpenSSL.SSL
import pytds
from pytds import tds_types

from penstock.errors import GuaranteeTooWeak, PublishFailed, Refused, Usage
from penstock.sink.sqlserver import statements as sql
from penstock.sink.sqlserver.errors import is_conflict, reason_of, translate_error
from penstock.sql.session import LOCK_TIMEOUT_S, Sessions, closed_on_error
from penstock.sql.url import ServerAddress, UrlForm, one_of

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

_MODES = ("verify_identity", "verify_ca", "disabled")
_FORM = UrlForm(
    what="SQL Server",
    schemes=("sqlserver",),
    port=1433,
    parameters=("connect_timeout", "ssl_ca", "ssl_mode"),
    connect_timeout_s=15.0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address(ServerAddress):
    """Where the server is, and how to log in. `ca`: the file of trusted certificates, None for no TLS."""

    ca: str | None = None
    checks_host: bool = True


def address_of(url: str) -> Address:
    """Parse `url`. Raise Usage."""
    parts, parameters = _FORM.parts_of(url)
    mode = one_of(_MODES, parameters.get("ssl_mode", _MODES[0]), name="ssl_mode")
    return Address(
        **parts,
        ca=None if mode == "disabled" else parameters.get("ssl_ca") or _trusted_by_the_system(),
        checks_host=mode == "verify_identity",
    )


def _trusted_by_the_system() -> str:
    paths = ssl.get_default_verify_paths()
    found = paths.cafile or paths.openssl_cafile
    if not found:
        raise Usage(
            "`url` asks for TLS, and this system has no file of trusted certificates.",
            remedy="Add ?ssl_ca=/path/to/ca.pem, or ?ssl_mode=disabled.",
        )
    return found


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
    """Return the driver's type for a column of type `declared`."""
    if declared in _PLAIN:
        return _PLAIN[declared]()
    found = _SIZED.fullmatch(declared)
    assert found is not None, declared
    return _BY_SIZE[found[1]](*(int(size) for size in found.groups()[1:] if size is not None))


class Database(Sessions[Connection]):
    """The database at `url`. Raises Usage."""

    _error_at = staticmethod(translate_error)
    _reason = staticmethod(reason_of)
    _rolled_back = staticmethod(is_conflict)

    def __init__(
        self, url: str, *, application: str, lock_timeout_s: float = LOCK_TIMEOUT_S, connect: Connect = pytds.connect
    ) -> None:
        self._address, self._application, self._connect = address_of(url), application, connect
        super().__init__(place=self._address.place, errors=ERRORS, lock_timeout_s=lock_timeout_s)

    def begin(self, connection: Connection) -> None:
        connection.execute(sql.BEGIN)

    def commit(self, connection: Connection) -> None:
        """Commit, within `unknown_if_cut`. Raise PublishFailed if the transaction has already ended by itself."""
        if not connection.in_transaction:
            raise PublishFailed(
                f"The transaction in {self.place} ended before its COMMIT.",
                remedy="Look for a trigger that commits or rolls back, then compare: penstock verify.",
            )
        connection.execute(sql.COMMIT)

    def _open(self) -> Connection:
        with closed_on_error(Connection(self._address, application=self._application, connect=self._connect)) as connection:
            connection.execute(sql.SESSION)
            connection.execute(sql.waiting_at_most(max(1, round(self._lock_timeout_s * 1000))))
        return connection

    def _begin_reading(self, session: Connection) -> None:
        _, _, snapshots = session.execute(sql.SERVER).fetchone()
        session.execute(sql.SNAPSHOT if snapshots == 1 else sql.SERIALIZABLE)
        session.execute(sql.BEGIN)

    def _require_durable(self, session: Connection) -> None:
        writable, delayed, _ = session.execute(sql.SERVER).fetchone()
        if writable != "READ_WRITE":
            raise Refused(f"{self.place} is {writable}, as replicas are.", remedy="Name the primary replica in `url`.")
        if delayed == "FORCED":
            raise GuaranteeTooWeak(
                f"{self.place} has DELAYED_DURABILITY = FORCED, so a crash could lose what it committed.",
                remedy="ALTER DATABASE … SET DELAYED_DURABILITY = ALLOWED or DISABLED.",
            )
