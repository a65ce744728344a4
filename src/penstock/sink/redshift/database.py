"""The Redshift database: its URL, one session that publishes, and readers of one snapshot each."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from struct import error as TornAnswer  # noqa: N812 - it is what the driver raises for an answer that was cut off
from typing import Any, Final

import redshift_connector
from redshift_connector.error import Error

from penstock.sink.redshift import statements as sql
from penstock.sink.redshift.errors import is_conflict, reason_of, translate_error
from penstock.sql.session import LOCK_TIMEOUT_S, Sessions, closed_on_error
from penstock.sql.url import ServerAddress, UrlForm, one_of

_STYLE = "pyformat"

ERRORS: Final = (Error, OSError, TornAnswer)
"""Everything that the driver raises: server errors as its own, those of a broken network also unwrapped."""

_MODES = ("verify-full", "verify-ca", "disable")
_FORM = UrlForm(
    what="Redshift", schemes=("redshift",), port=5439, parameters=("connect_timeout", "sslmode"), connect_timeout_s=10.0
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address(ServerAddress):
    """Where the cluster or workgroup is, and how to log in."""

    sslmode: str


def address_of(url: str) -> Address:
    """Parse `url`. Raise Usage."""
    parts, parameters = _FORM.parts_of(url)
    return Address(**parts, sslmode=one_of(_MODES, parameters.get("sslmode", _MODES[0]), name="sslmode"))


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


class Database(Sessions[Connection]):
    """The database at `url`. Raises Usage."""

    _error_at = staticmethod(translate_error)
    _reason = staticmethod(reason_of)
    _rolled_back = staticmethod(is_conflict)

    def __init__(self, url: str, *, application: str, lock_timeout_s: float = LOCK_TIMEOUT_S) -> None:
        self._address, self._application = address_of(url), application
        super().__init__(place=self._address.place, errors=ERRORS, lock_timeout_s=lock_timeout_s)

    def begin(self, connection: Connection) -> None:
        """Begin a transaction. Its first statement must be the lock, which waits at most `lock_timeout_s`."""
        connection.execute(sql.BEGIN)
        connection.execute(sql.waiting_at_most(max(1, round(self._lock_timeout_s * 1000))))

    def commit(self, connection: Connection) -> None:
        connection.execute(sql.COMMIT)

    def _open(self) -> Connection:
        with closed_on_error(Connection(self._address, application=self._application)) as connection:
            for setting in sql.SESSION:
                connection.execute(setting)
        return connection

    def _begin_reading(self, session: Connection) -> None:
        session.execute(sql.BEGIN_READ)

    def _require_durable(self, session: Connection) -> None:
        """Accept every cluster: Redshift answers a COMMIT when it is durable, and has no setting that changes that."""
