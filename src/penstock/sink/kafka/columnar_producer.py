"""A Kafka producer that takes the rows of an Arrow batch as they lie in memory: one call of librdkafka for many records.

A loop over records in Python would hold the GIL, for which Spark's callbacks and other lanes wait.
"""

import logging
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, TopicPartition
from numpy.typing import NDArray

from penstock.sink.kafka import librdkafka as c
from penstock.sink.kafka.librdkafka import Librdkafka
from penstock.sink.kafka.records import BY_KEY
from penstock.sink.kafka.target import HEADERS, KEY, PARTITION, TOPIC, VALUE

_FULL_MS: Final = 10
_LEVELS: Final = (50, 50, 50, 40, 30, 20, 20, 10)
"""Levels of `logging`, indexed by syslog's."""
_32_BITS: Final = 0xFFFFFFFF
_EMPTY: Final = np.zeros(1, "u1")
"""Address of values of zero bytes: without an address librdkafka would take them for NULL."""

_FIRST_ANSWER_MS: Final = 1_000
_SENT_MS: Final = 1_000

_log = logging.getLogger("penstock.kafka")


class ColumnarProducer:
    """A transactional producer with the calls of the client's `Producer`, for one thread at a time. Raises KafkaException."""

    def __init__(self, library: Librdkafka, settings: Mapping[str, str | int], *, heard: Callable[[KafkaError], None]) -> None:
        self._library, self._heard = library, heard
        self._client = library.producer(settings)
        self._errors = library.queue_get_main(self._client)
        self._logs = library.queue_new(self._client)
        library.set_log_queue(self._client, self._logs)  # calls that wait empty the main queue, too
        self._topics: dict[str, int] = {}
        queues = self._errors, self._logs
        self._ending = weakref.finalize(self, _end, library, self._client, queues, self._topics, sent_ms=_SENT_MS)
        self._ending.atexit = False  # at exit another thread may still be in a call

    def init_transactions(self, timeout_s: float) -> None:
        """Call init_transactions once a broker has answered: a client that knows none yet retries only half a second later."""
        self._library.await_broker(self._client, _FIRST_ANSWER_MS)
        self._require(self._library.init_transactions(self._client, int(timeout_s * 1000)))

    def begin_transaction(self) -> None:
        self._require(self._library.begin_transaction(self._client))

    def commit_transaction(self, timeout_s: float) -> None:
        """Commit; fails where any record failed."""
        self._require(self._library.commit_transaction(self._client, int(timeout_s * 1000)))

    def abort_transaction(self, timeout_s: float) -> None:
        self._require(self._library.abort_transaction(self._client, int(timeout_s * 1000)))

    def let_go(self) -> None:
        """End the client now, since the traceback of an error that it raised may hold a reference for long.

        What was not committed is left to the broker. Waits until it has what was sent, a second at most.
        """
        self._ending()

    def are_settled(self, places: Sequence[TopicPartition]) -> bool:
        """Return whether no transaction is open in `places`: each one's last stable offset is its end.

        False if the leaders do not say so at once. Costs a tenth of what the client's own `list_offsets` does.
        """
        both = self._library.ends(self._client, places, (c.WRITTEN, c.COMMITTED), timeout_ms=_FIRST_ANSWER_MS)
        return both is not None and both[0] == both[1]

    def send(self, rows: "pa.RecordBatch", *, topic: str) -> None:
        """Enqueue a record for each row, to `topic` unless the rows have a topic column; in order within each partition."""
        for named, of_topic in _by(rows, TOPIC, other=topic):
            for partition, group in _by(of_topic, PARTITION, other=BY_KEY):
                send = self._send_with_headers if HEADERS in group.schema.names else self._send
                send(group, self._topic(named), partition)

    def _send(self, rows: "pa.RecordBatch", topic: int, partition: int) -> None:
        messages = np.zeros(rows.num_rows, c.MESSAGE)
        messages["payload"], messages["len"] = _placed(rows.column(VALUE))
        if KEY in rows.schema.names:
            messages["key"], messages["key_len"] = _placed(rows.column(KEY))
        while len(messages):
            taken = self._library.produce_batch(topic, partition, c.COPY, messages.ctypes.data, len(messages))
            if taken == len(messages):
                return
            codes = messages["err"]
            first = int(np.flatnonzero(codes)[0])
            self._make_room(int(codes[first]))
            messages = messages[first:].copy()  # the client took none after the first that found no room

    def _send_with_headers(self, rows: "pa.RecordBatch", topic: int, partition: int) -> None:
        parts, counts, _alive = _described(rows, topic, partition)
        at = parts.ctypes.data
        for size in counts.tolist():
            while error := self._library.produceva(self._client, at, size):
                self._make_room(self._library.error_code(error), error)
            at += size * c.PART.itemsize

    def _make_room(self, code: int, error: int | None = None) -> None:
        """Wait a moment if the client's queue is full. Raises KafkaException for any other error."""
        if code != KafkaError._QUEUE_FULL:
            self._library.require(error)
            raise self._library.refused(code)
        if error is not None:
            self._library.error_destroy(error)
        self._listen(_FULL_MS)

    def _topic(self, name: str) -> int:
        if name not in self._topics:
            self._topics[name] = self._library.topic(self._client, name)
        return self._topics[name]

    def _require(self, error: int | None) -> None:
        self._listen(0)
        self._library.require(error)

    def _listen(self, wait_ms: int) -> None:
        """Handle the errors and log lines that the client has reported as events."""
        self._serve(self._errors, wait_ms)
        self._serve(self._logs, 0)

    def _serve(self, queue: int, wait_ms: int) -> None:
        while event := self._library.queue_poll(queue, wait_ms):
            try:
                self._on_event(event)
            finally:
                self._library.event_destroy(event)
            wait_ms = 0

    def _on_event(self, event: int) -> None:
        library = self._library
        if library.event_type(event) == c.ERROR:
            reason = library.event_error_string(event).decode(errors="replace")
            self._heard(KafkaError(library.event_error(event), reason))
        else:
            level, sentence = library.logged(event)
            _log.log(_LEVELS[level], "%s", sentence)


def _end(library: Librdkafka, client: int, queues: Sequence[int], topics: Mapping[str, int], *, sent_ms: int) -> None:
    """End `client`. Uses nothing but its arguments: Python may call it when this module's names are gone."""
    library.flush(client, sent_ms)  # destroyed while it adds a partition to the transaction, librdkafka aborts the process
    for topic in topics.values():
        library.topic_destroy(topic)
    for queue in queues:
        library.queue_destroy(queue)
    library.destroy(client)


def _by(rows: "pa.RecordBatch", name: str, *, other: Any) -> "Iterator[tuple[Any, pa.RecordBatch]]":
    """Yield the rows of each value of column `name`, in their order; all for `other` if there is no such column."""
    if name not in rows.schema.names:
        yield other, rows
        return
    column = rows.column(name)
    assert not column.null_count, "no task admits a NULL there"
    for value in pc.unique(column):
        yield value.as_py(), rows.filter(pc.equal(column, value))


def _placed(column: "pa.Array") -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the address of each value, zero for NULL, and its size."""
    if not len(column):  # an empty column may have no buffers
        return np.zeros(0, "u8"), np.zeros(0, "u8")
    _, ends, data = column.buffers()
    is_wide = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
    found = np.frombuffer(ends, "i8" if is_wide else "i4")[column.offset : column.offset + len(column) + 1].astype("u8")
    places = found[:-1] + np.uint64(data.address if data is not None and data.address else _EMPTY.ctypes.data)
    if column.null_count:
        places[column.is_null().to_numpy(zero_copy_only=False)] = 0
    return places, np.diff(found)


def _described(rows: "pa.RecordBatch", topic: int, partition: int) -> tuple[NDArray[np.void], NDArray[np.int64], object]:
    """Return the arguments of all records in one array, their number per record, and the objects that own the memory."""
    column = rows.column(HEADERS)
    headers = column.flatten()
    in_each = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    fixed: list[tuple[int, Any, Any]] = [
        (c.OF_TOPIC, topic, 0),
        (c.OF_PARTITION, partition & _32_BITS, 0),
        (c.OF_FLAGS, c.COPY, 0),
    ]
    fixed += [(c.OF_VALUE, *_placed(rows.column(VALUE)))]
    fixed += [(c.OF_KEY, *_placed(rows.column(KEY)))] if KEY in rows.schema.names else []
    counts = in_each.astype("i8") + len(fixed)
    begins = np.cumsum(counts) - counts
    parts = np.zeros(int(counts.sum()), c.PART)
    for at, (kind, first, second) in enumerate(fixed):
        parts["type"][begins + at], parts["first"][begins + at], parts["second"][begins + at] = kind, first, second
    ends = [pa.scalar(end, headers.field(0).type) for end in ("", "\0")]
    names = pc.binary_join_element_wise(headers.field(0), *ends)
    of_headers = parts["type"] == 0  # the elements not filled yet
    parts["type"][of_headers] = c.OF_HEADER
    parts["first"][of_headers], _ = _placed(names)
    parts["second"][of_headers], parts["third"][of_headers] = _placed(headers.field(1))
    return parts, counts, (rows, headers, names)
