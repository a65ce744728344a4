"""The Redshift database: one session that publishes, and readers of one snapshot each."""

from penstock.errors import Conflict, Failed, PenstockError
from penstock.sink.redshift import statements as sql
from penstock.sink.redshift.address import address_of
from penstock.sink.redshift.connection import ERRORS, Connection
from penstock.sink.redshift.errors import is_conflict, reason_of, translate_error
from penstock.sql.session import LOCK_TIMEOUT_S, Sessions


class Database(Sessions[Connection]):
    """The database at `url`. Raises Usage."""

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
        connection = Connection(self._address, application=self._application)
        for setting in sql.SESSION:
            connection.execute(setting)
        return connection

    def _begin_reading(self, session: Connection) -> None:
        session.execute(sql.BEGIN_READ)

    def _require_durable(self, session: Connection) -> None:
        """Accept every cluster: Redshift answers a COMMIT when it is durable, and has no setting that changes that."""

    def _translate_error(self, cause: Exception, kind: type[Failed]) -> PenstockError | Conflict:
        return translate_error(cause, self.place, kind)

    def _reason(self, cause: Exception) -> str:
        return reason_of(cause)

    def _rolled_back(self, cause: Exception) -> bool:
        return is_conflict(cause)
