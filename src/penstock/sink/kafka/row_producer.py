"""A producer that hands the client each row as a record of its own, where there is no `ColumnarProducer`: slower, not weaker."""

from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Producer

from penstock.sink.kafka.records import Record, records_of

if TYPE_CHECKING:
    import pyarrow as pa

_FULL_S: Final = 0.1


class OneByOneProducer(Producer):  # type: ignore[misc]  # it has no types
    """The client's own."""

    def let_go(self) -> None:
        """It ends when nobody holds it; to close it would abort a transaction."""

    def send(self, rows: "pa.RecordBatch", *, topic: str) -> None:
        """As `ColumnarProducer.send`."""
        for record in records_of(rows, topic=topic):
            self.hand_over(record)

    def hand_over(self, record: Record, **more: Any) -> None:
        """One record, as soon as there is room for it. `more`: of the client's `produce`."""
        *placed, headers = record  # by place: a call with names takes the client twice as long
        if headers is not None:
            more["headers"] = headers
        while True:
            try:
                self.produce(*placed, **more)
            except BufferError:
                self.poll(_FULL_S)
            else:
                return
