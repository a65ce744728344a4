"""Delivery into Kafka without transactions: each record has a permanent name, by which its readers recognise repetitions."""

from collections.abc import Iterable, Iterator
from itertools import count, islice, zip_longest
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from penstock.core.model import Publication
from penstock.sink.kafka.clients import Clients
from penstock.sink.kafka.errors import translate_errors
from penstock.sink.kafka.records import records_of

if TYPE_CHECKING:
    import pyarrow as pa

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
