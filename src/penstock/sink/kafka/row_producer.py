"""A Kafka producer that sends rows one by one, where `ColumnarProducer` cannot run: slower, with the same guarantees."""

from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Producer

from penstock.sink.kafka.records import Record, records_of

if TYPE_CHECKING:
    import pyarrow as pa

_FULL_S: Final = 0.1


class OneByOneProducer(Producer):  # type: ignore[misc]  # it has no types
    """The client's own producer, with the calls of `ColumnarProducer`."""

    def let_go(self) -> None:
        """Do nothing: the client ends with its last reference, and closing it would abort a transaction."""

    def send(self, rows: "pa.RecordBatch", *, topic: str) -> None:
        for record in records_of(rows, topic=topic):
            self.enqueue(record)

    def enqueue(self, record: Record, **more: Any) -> None:
        """Enqueue one record as soon as there is room for it. `more`: further arguments of the client's `produce`."""
        *placed, headers = record  # positional: keyword arguments take the client twice as long
        if headers is not None:
            more["headers"] = headers
        while True:
            try:
                self.produce(*placed, **more)
            except BufferError:
                self.poll(_FULL_S)
            else:
                return
