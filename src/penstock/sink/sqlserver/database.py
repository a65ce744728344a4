"""The SQL Server database: one session that publishes, and readers of one snapshot each."""

import pytds

from penstock.errors import Conflict, Failed, GuaranteeTooWeak, PenstockError, PublishFailed, Refused
from penstock.sink.sqlserver import statements as sql
from penstock.sink.sqlserver.address import address_of
from penstock.sink.sqlserver.connection import ERRORS, Connect, Connection
from penstock.sink.sqlserver.errors import is_conflict, reason_of, translate_error
from penstock.sql.session import LOCK_TIMEOUT_S, Sessions


class Database(Sessions[Connection]):
    """The database at `url`. Raises Usage."""

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
        connection = Connection(self._address, application=self._application, connect=self._connect)
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

    def _translate_error(self, cause: Exception, kind: type[Failed]) -> PenstockError | Conflict:
        return translate_error(cause, self.place, kind)

    def _reason(self, cause: Exception) -> str:
        return reason_of(cause)

    def _rolled_back(self, cause: Exception) -> bool:
        return is_conflict(cause)
