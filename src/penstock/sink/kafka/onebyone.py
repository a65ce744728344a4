"""A producer that hands the client each row as a record of its own, where there is no `ColumnarProducer`: slower, not weaker."""

from typing import TYPE_CHECKING, Final

from confluent_kafka import Producer

from penstock.sink.kafka.records import records_of

if TYPE_CHECKING:
    import pyarrow as pa

_FULL_S: Final = 0.1


class OneByOneProducer(Producer):  # type: ignore[misc]  # it has no types
    """The client's own."""

    def let_go(self) -> None:
        """It ends when nobody holds it; to close it would abort a transaction."""

    def send(self, rows: "pa.RecordBatch", *, topic: str) -> None:
        """As `ColumnarProducer.send`."""
        produce = self.produce  # by place: a call with names takes the client twice as long
        for named, value, key, partition, headers in records_of(rows, topic=topic):
            while True:
                try:
                    if headers is None:
                        produce(named, value, key, partition)
                    else:
                        produce(named, value, key, partition, headers=headers)
                except BufferError:
                    self.poll(_FULL_S)
                else:
                    break
