"""Connections to a Cassandra cluster, whose statements are prepared once, and retries for when it does not answer."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, TypeVar

from cassandra import ConsistencyLevel, DriverException
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.concurrent import execute_concurrent
from cassandra.policies import ConstantReconnectionPolicy, DCAwareRoundRobinPolicy, TokenAwarePolicy
from cassandra.query import BatchStatement, BatchType, BoundStatement, tuple_factory
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from penstock.core.model import SinkName
from penstock.errors import Failed, NotPublishedYet, PenstockError, PublishFailed, Retryable
from penstock.sink.cassandra.address import CONSISTENCIES, Address, address_of
from penstock.sink.cassandra.errors import DRIVER_ERRORS, translate_error
from penstock.sql.session import Connections
from penstock.support.connection import ServerConnection

Row = tuple[Any, ...]
Around = Callable[[], AbstractContextManager[None]]
T = TypeVar("T")

REQUEST_TIMEOUT_S = 20.0
_CONNECT_TIMEOUT_S = 10.0
_RECONNECT_S = 1.0
_LONGEST_PAUSE_S = 5.0
_AT_ONCE = 64
_FETCHED_ROWS = 5_000

logging.getLogger("cassandra").addHandler(logging.NullHandler())  # else the driver's own retries appear on the terminal


class Connection:
    """One session. Raises the driver's own errors."""

    def __init__(self, address: Address, *, application: str) -> None:
        self._cluster = _cluster(address, application)
        self._serial = ConsistencyLevel.name_to_value[CONSISTENCIES[address.consistency].upper()]
        self._prepared: dict[str, Any] = {}
        try:
            self._session = self._cluster.connect()
            self._session.set_keyspace(address.keyspace)
            with suppress(DriverException):  # without it, a write goes to any node, which hands it on
                self._cluster.refresh_keyspace_metadata(address.keyspace, max_schema_agreement_wait=0)
        except BaseException:
            self._cluster.shutdown()
            raise
        self.keyspace = address.keyspace

    def execute(
        self, statement: str, values: Sequence[Any] = (), *, serial: bool = False, around: Around = nullcontext
    ) -> list[Row]:
        """Run a statement within `around()` and return all rows. `serial`: the read sees every conditional change."""
        bound = self._bound(statement, values)
        if serial:
            bound.consistency_level = self._serial
        with around():
            return list(self._session.execute(bound))

    def define(self, statement: str) -> None:
        """Run a statement unprepared; what it creates is known to all nodes on return."""
        self._session.execute(statement)

    def scan(self, statement: str) -> Iterator[list[Row]]:
        """Yield the rows of a query, some thousands at a time."""
        bound = self._bound(statement, ())
        bound.fetch_size = _FETCHED_ROWS
        found = self._session.execute(bound)
        while True:
            yield found.current_rows
            if not found.has_more_pages:
                return
            found.fetch_next_page()

    def ask(self, statement: str, several: Sequence[Sequence[Any]]) -> Iterator[list[Row]]:
        """Yield the rows of one query for each of `several` values, asked at the same time."""
        bound = [(self._bound(statement, values), None) for values in several]
        for _, answer in execute_concurrent(self._session, bound, concurrency=_AT_ONCE):
            yield list(answer)

    def write(self, statement: str, chunks: Sequence[Sequence[Row]]) -> list[tuple[Sequence[Row], Exception]]:
        """Write rows, one request for each chunk, many at a time; return the unacknowledged chunks with their errors."""
        requests = [(self._concurrently(statement, chunk), None) for chunk in chunks]
        answers = execute_concurrent(self._session, requests, concurrency=_AT_ONCE, raise_on_first_error=False)
        return [(chunk, error) for chunk, (done, error) in zip(chunks, answers, strict=True) if not done]

    def close(self) -> None:
        """End the session, and with it the driver's threads."""
        self._cluster.shutdown()

    def _bound(self, statement: str, values: Sequence[Any]) -> BoundStatement:
        bound: BoundStatement = self._prepare(statement).bind(values)
        return bound

    def _concurrently(self, statement: str, chunk: Sequence[Row]) -> Any:
        prepared = self._prepare(statement)
        if len(chunk) == 1:
            return prepared.bind(chunk[0])
        batch = BatchStatement(batch_type=BatchType.UNLOGGED)
        for row in chunk:
            batch.add(prepared, row)
        return batch

    def _prepare(self, statement: str) -> Any:
        if statement not in self._prepared:
            prepared = self._prepared[statement] = self._session.prepare(statement)
            prepared.is_idempotent = True
        return self._prepared[statement]


class Database(ServerConnection, Connections[Connection]):
    """A keyspace of a cluster; each new connection asks the cluster anew. Not thread-safe by itself."""

    errors = DRIVER_ERRORS

    def __init__(self, url: str, *, application: str) -> None:
        self._address, self._application = address_of(url), application
        self.place = self._address.place
        self._connection: Connection | None = None

    def writable(self, kind: type[Failed] = PublishFailed) -> Connection:
        if self._connection is None:
            with self.translate_errors(kind):
                self._connection = Connection(self._address, application=self._application)
        return self._connection

    def drop(self) -> None:
        """Close the connection. Requests already sent may still take effect, at the time stamp that they were sent with."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()

    @contextmanager
    def reader(self) -> Iterator[Connection]:
        with self.translate_errors(Failed):
            connection = Connection(self._address, application=self._application)
            try:
                yield connection
            finally:
                connection.close()

    def _translate_error(self, cause: Exception, kind: type[Failed]) -> PenstockError:
        return translate_error(cause, self.place, kind)


def database_of(url: str, sink: SinkName) -> Database:
    """Return the keyspace at `url`, where sessions give their name as that of `sink`."""
    return Database(url, application=f"penstock:{sink}")


class StepRetry:
    """Retries a step, on a new connection, until it succeeds or `wait_s` have passed.

    A step must be repeatable: a request that was not answered may have taken effect, and does no harm twice.
    """

    def __init__(self, database: Database, *, wait_s: float) -> None:
        self._database, self._wait_s = database, wait_s
        self._retrying = Retrying(
            retry=retry_if_exception_type(Retryable),
            stop=stop_after_delay(wait_s),
            wait=wait_random_exponential(multiplier=0.1, max=_LONGEST_PAUSE_S),
            reraise=True,
        )

    def __call__(self, step: Callable[[Connection], T]) -> T:
        """Return what `step` returns. Raises NotPublishedYet after `wait_s`, and at once PublishFailed for an error that lasts.

        Raises nothing that the coordinator would retry: the step has been retried for long enough.
        """
        try:
            done: T = self._retrying(self._once, step)
        except Retryable as error:
            raise NotPublishedYet(
                f"{error.message.rstrip('.')}; publishing was tried for {self._wait_s:g} s.",
                remedy=f"{error.remedy} The batch is decided; the next start publishes it.",
            ) from error
        return done

    def _once(self, step: Callable[[Connection], T]) -> T:
        connection = self._database.writable()
        try:
            with self._database.translate_errors():
                return step(connection)
        except Retryable:
            self._database.drop()
            raise


def _cluster(address: Address, application: str) -> Cluster:
    """Return a cluster whose driver does not read the schema of every table when it connects, and again after each change.

    All that the driver needs is how the keyspace is replicated, to send a write to a node that holds the row: see `Connection`.
    """
    near = DCAwareRoundRobinPolicy(local_dc=address.local_dc or "")
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(near),
        consistency_level=ConsistencyLevel.name_to_value[address.consistency.upper()],
        serial_consistency_level=ConsistencyLevel.name_to_value[CONSISTENCIES[address.consistency].upper()],
        request_timeout=REQUEST_TIMEOUT_S,
        row_factory=tuple_factory,
    )
    return Cluster(
        list(address.nodes),
        auth_provider=PlainTextAuthProvider(address.user, address.password) if address.user else None,
        ssl_context=address.tls,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        reconnection_policy=ConstantReconnectionPolicy(_RECONNECT_S, max_attempts=None),
        connect_timeout=_CONNECT_TIMEOUT_S,
        control_connection_timeout=_CONNECT_TIMEOUT_S,
        application_name=application,
        monitor_reporting_enabled=False,
        schema_metadata_enabled=False,
        schema_event_refresh_window=-1,  # never
    )
