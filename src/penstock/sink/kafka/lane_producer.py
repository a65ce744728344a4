"""The producer of a lane, with transactions or without.

With transactions: one at a time, and dropped after any call whose outcome is unknown. Without: each record has a permanent name,
by which its readers recognise repetitions.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import count, islice, zip_longest
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from penstock.core.faults import FaultPoint
from penstock.core.model import Publication
from penstock.sink.kafka.clients import Clients
from penstock.sink.kafka.columnar_producer import ColumnarProducer
from penstock.sink.kafka.errors import connection_lost, translate_errors
from penstock.sink.kafka.records import records_of
from penstock.sink.kafka.topics import await_settled

if TYPE_CHECKING:
    import pyarrow as pa


INIT = FaultPoint("kafka.init", "A lane fences its older producers, and ends what they left open.")
COMMIT = FaultPoint("kafka.commit", "A transaction with rows and marker is committed.")

_ANSWER_S = 30.0
_ABORT_S = 5.0


def try_transactions(clients: Clients, name: str, *, timeout_ms: int) -> None:
    """Raise KafkaException unless the user may run transactions under `name`. Fences older producers of that name."""
    producer = clients.transactional_producer(transactional_id=name, transaction_timeout_ms=timeout_ms)
    try:
        producer.init_transactions(_ANSWER_S)
    finally:
        producer.let_go()


class Transactions:
    """One transactional producer. Once anything but `drop` has raised, it must not be used again."""

    def __init__(self, clients: Clients, *, name: str, timeout_ms: int, max_record_bytes: int) -> None:
        self._clients, self._timeout_s = clients, timeout_ms / 1000
        self._began_s: float | None = None
        self._is_committing = False
        with translate_errors(self._clients):
            self._producer = clients.transactional_producer(
                transactional_id=name, transaction_timeout_ms=timeout_ms, message_max_bytes=max_record_bytes
            )
            self._init()

    def are_settled(self, places: Sequence[TopicPartition]) -> bool:
        """Return whether no transaction is open in `places`, whoever began it; False if that cannot be said soon."""
        if isinstance(self._producer, ColumnarProducer):
            return self._producer.are_settled(places)
        return await_settled(self._clients.admin, places, wait_s=0)

    @property
    def is_open(self) -> bool:
        return self._began_s is not None

    @property
    def is_due(self) -> bool:
        """Whether more than half of the transaction's timeout has passed, so that it should be committed."""
        return self._age_s > self._timeout_s / 2

    def timed_out(self) -> bool:
        """Return whether the transaction's timeout has passed, so that the broker may have ended it."""
        return self._age_s >= self._timeout_s

    @property
    def _age_s(self) -> float:
        return 0.0 if self._began_s is None else time.monotonic() - self._began_s

    def begin(self) -> None:
        """Open a transaction, unless one is open."""
        if self._began_s is None:
            self._producer.begin_transaction()
            self._began_s = time.monotonic()

    def send(self, rows: "pa.RecordBatch", *, topic: str, names: Iterable[bytes] = ()) -> None:  # noqa: ARG002 - as KeyedProducer
        """Enqueue a record for each row, without its name; `commit` reports what became of them."""
        self._producer.send(rows, topic=topic)

    def settle(self) -> None:
        """Do nothing: rows and marker become visible together."""

    def commit(self) -> None:
        """Make all records visible. Raises OutcomeUnknown where no answer comes."""
        self._is_committing = True
        with (
            translate_errors(self._clients, in_doubt=True, timed_out=self.timed_out),
            COMMIT.around(error=connection_lost, lost=connection_lost),
        ):
            self._producer.commit_transaction(self._timeout_s)  # I6: rows and marker become visible together
        self._is_committing = False
        self._began_s = None

    def _init(self) -> None:
        """Fence older producers. If that fails, end this one: kept alive by the error, it would go on and fence the next one."""
        try:
            with INIT.around(error=connection_lost, lost=connection_lost):
                self._producer.init_transactions(_ANSWER_S)  # I9: older producers of this id are fenced
        except BaseException:
            self.drop()
            raise

    def drop(self) -> None:
        """Drop the producer. Abort an open transaction if that is quick, since readers wait for it.

        A transaction that may be committed is left alone; closing the client would abort it.
        """
        if self._began_s is not None and not self._is_committing:
            with suppress(KafkaException):
                self._producer.abort_transaction(_ABORT_S)
        self._producer.let_go()
        del self._producer


HEADER = "penstock-id"


class KeyedProducer:
    """Has the calls of `Transactions` but undoes nothing: rows are acknowledged before their marker is sent."""

    is_due = False

    def __init__(self, clients: Clients, *, timeout_ms: int, max_record_bytes: int) -> None:
        self._clients, self._timeout_s = clients, timeout_ms / 1000
        self.is_open = False
        self._failed: list[KafkaError] = []
        with translate_errors(self._clients):
            self._producer = clients.producer(message_max_bytes=max_record_bytes)

    def timed_out(self) -> bool:
        return False

    def begin(self) -> None:
        self.is_open = True

    def send(self, rows: "pa.RecordBatch", *, topic: str, names: Iterable[bytes] = ()) -> None:
        """Enqueue a record for each row, with its name in a header; `settle` reports what became of them."""
        for record, name in zip_longest(records_of(rows, topic=topic), islice(names, rows.num_rows)):
            named = record if name is None else (*record[:4], [*(record[4] or ()), (HEADER, name)])
            self._producer.enqueue(named, on_delivery=self._delivered)
            self._producer.poll(0)

    def settle(self) -> None:
        """Return when every record was acknowledged. Raises OutcomeUnknown, PublishFailed."""
        with translate_errors(self._clients, in_doubt=True):
            left = self._producer.flush(self._timeout_s)
            if self._failed or left:
                raise KafkaException(self._failed[0] if self._failed else KafkaError(KafkaError._TIMED_OUT))

    def commit(self) -> None:
        """Wait until the marker is acknowledged, too."""
        self.settle()
        self.is_open = False

    def drop(self) -> None:
        del self._producer

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self._failed.append(error)


def names_of(publication: Publication, *, lane: int, first: int) -> Iterator[bytes]:
    """Yield the names of a lane's records from number `first` on.

    A name consists of pipeline, sink, position of the batch, lane, and the record's number in the lane's share.
    """
    begin = f"{publication.pipeline}={publication.sink}={publication.position:012d}={lane}="
    return (f"{begin}{number}".encode() for number in count(first))
