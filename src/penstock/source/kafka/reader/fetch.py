"""Reads in a task exactly the records of one piece, or raises. The only module that reads rows by the client library.

Records of aborted transactions and the markers of ended ones take offsets, so that the last record of a piece may never come. A
piece ends with a record behind it, or when the client reports that the readable log ends there or later.
"""

import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from penstock.errors import Failed, PenstockError, Retryable
from penstock.source.kafka.broker import ACCESS_ERRORS, Broker
from penstock.source.kafka.reader.plan import Piece
from penstock.source.kafka.reader.settings import ReaderSettings

_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)
_WITH_HEADERS = _SCHEMA.append(pa.field("headers", pa.list_(pa.field("element", _HEADER))))
_US_PER_MS = 1000

_ROWS, _BYTES = 10_000, 4 << 20
"""An Arrow batch is full at either limit. It has more than twice as many bytes only if it is a single record."""
_AT_ONCE, _WAIT_S = 2_000, 0.05
"""Records taken from the client's queue at a time, and seconds to wait: records may be large, and more arrive meanwhile."""
_DEFAULTS: Final[Mapping[str, Any]] = {
    "group.id": "penstock-reads",
    "isolation.level": "read_committed",
    "check.crcs": True,
    "fetch.wait.max.ms": 20,
    "queued.max.messages.kbytes": 16_384,
}
_FIXED: Final[Mapping[str, Any]] = {
    "log_level": 0,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "allow.auto.create.topics": False,
}
_GONE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})
_START_AGAIN = "Start again: nothing of the batch was decided. The start says what is missing, and what can be done."

_idle: dict[frozenset[tuple[str, str]], "_Clients"] = {}
"""Clients kept from one task of this worker process to the next; none that met an error."""


class _Clients:
    """The clients of one task. They serve tens of tasks in turn, since they cost as much as reading some thousand records."""

    def __init__(self, settings: ReaderSettings) -> None:
        self.broker = Broker(settings.name, settings.client)
        try:
            self.consumer = Consumer({**_DEFAULTS, **settings.client, **_FIXED})
        except KafkaException as error:
            raise Failed(
                f"The reader of source {settings.name!r} could not be made: {error.args[0].str()}.",
                remedy="Correct the options `kafka.…` and `client:`.",
            ) from error


def batches_of(piece: Piece, settings: ReaderSettings) -> Iterator[pa.RecordBatch]:
    """Yield the readable records of `piece`, in their order. Raises Retryable if any of it is not available, Failed."""
    which = frozenset(settings.client.items())
    clients = _idle.pop(which, None) or _Clients(settings)
    try:
        first = _first(piece, settings, clients.broker)
        for records in _gathered(_records(piece, first, clients.consumer, settings)):
            yield _record_batch(records, topic=piece.topic, partition=piece.partition, has_headers=settings.has_headers)
        _require_same(piece, clients.broker.topic_id(piece.topic))
        clients.consumer.unassign()
    except BaseException as error:
        clients.consumer.close()
        if isinstance(error, KafkaException):
            raise _error_for(piece, settings, error.args[0]) from error
        raise
    _idle[which] = clients


def _first(piece: Piece, settings: ReaderSettings, broker: Broker) -> int:
    """Return the first offset to read: the piece's own, or the first that the broker still has if loss may be passed over."""
    found = broker.place(piece.topic, piece.partition)
    _require_same(piece, None if found is None else found[0])
    assert found is not None
    retained = found[1]
    if piece.end > retained.high:
        raise Retryable(
            f"Partition {piece.partition} of topic {piece.topic!r} ends at {retained.high}, "
            f"but the batch reads up to {piece.end - 1}.",
            remedy=_START_AGAIN,
        )
    if piece.first < retained.low and settings.fails_on_loss:
        raise _gone(piece, f"the first that Kafka still has is {retained.low}")
    return max(piece.first, retained.low)


def _require_same(piece: Piece, topic_id: str | None) -> None:
    if topic_id is None or topic_id != (piece.topic_id or topic_id):
        what = "is not there any more" if topic_id is None else f"has the id {topic_id} now, and had {piece.topic_id}"
        raise Retryable(f"Topic {piece.topic!r}, of which a batch was planned, {what}.", remedy=_START_AGAIN)


def _records(piece: Piece, first: int, consumer: Consumer, settings: ReaderSettings) -> Iterator[Sequence[Any]]:
    """Yield the records from offset `first` on, some at a time."""
    if first >= piece.end:
        return
    consumer.assign([TopicPartition(piece.topic, piece.partition, first)])
    reached = first
    deadline = time.monotonic() + settings.patience_s
    while reached < piece.end:
        messages = consumer.consume(min(_AT_ONCE, piece.end - reached), _WAIT_S)  # waits until it has so many
        records = [message for message in messages if message.error() is None]
        reached = max([reached, *(_behind(piece, message) for message in messages)])
        if reached >= piece.end:
            records = [record for record in records if record.offset() < piece.end]
        if records:
            yield records
        if messages:
            deadline = time.monotonic() + settings.patience_s
        elif time.monotonic() > deadline:
            raise Retryable(
                f"Kafka sent nothing of topic {piece.topic!r}, partition {piece.partition}, from offset {reached} on for "
                f"{settings.patience_s:.0f} s, but the batch reads up to offset {piece.end - 1}.",
                remedy="See whether the brokers are up, then start again; kafkaConsumer.pollTimeoutMs lets it wait for longer.",
            )


def _behind(piece: Piece, message: Any) -> int:
    """Return the offset below which nothing more comes. Raises Retryable, KafkaException."""
    error = message.error()
    if error is None:
        return int(message.offset()) + 1
    if error.code() == KafkaError._PARTITION_EOF:
        return int(message.offset())
    if error.code() in _GONE:
        raise _gone(piece, "Kafka removed them while they were read")
    raise KafkaException(error)


def _gathered(parts: Iterator[Sequence[Any]]) -> Iterator[Sequence[Any]]:
    """Join parts until a batch is full, and cut them where large records came all at once."""
    held: list[Any] = []
    size = 0
    for part in parts:
        held += part
        size += sum(map(len, part))
        if len(held) >= _ROWS or size >= _BYTES:
            yield from _cut(held)
            held = []
            size = 0
    if held:
        yield held


def _cut(records: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield runs of at most twice `_BYTES`, or of one record."""
    ends = list(accumulate(map(len, records)))
    start = sent = 0
    while start < len(records):
        stop = max(start + 1, bisect_right(ends, sent + 2 * _BYTES, lo=start))
        yield records[start:stop]
        start, sent = stop, ends[stop - 1]


def _gone(piece: Piece, why: str) -> Retryable:
    return Retryable(
        f"Records of topic {piece.topic!r}, partition {piece.partition}, that a batch was planned with from offset {piece.first} "
        f"to {piece.end - 1} are gone: {why}.",
        remedy=_START_AGAIN,
    )


def _error_for(piece: Piece, settings: ReaderSettings, error: KafkaError) -> PenstockError:
    message = (
        f"Topic {piece.topic!r} of source {settings.name!r} could not be read from "
        f"{settings.client.get('bootstrap.servers')}: {error.str()}."
    )
    if error.code() in ACCESS_ERRORS:
        group = settings.client.get("group.id", _DEFAULTS["group.id"])
        return Failed(
            message, remedy=f"Correct the credentials, or give the right Read on the topic and on the consumer group {group!r}."
        )
    return Retryable(
        message,
        remedy="See whether the brokers are up and let us read, then start again.",
    )


def _record_batch(records: Sequence[Any], *, topic: str, partition: int, has_headers: bool) -> pa.RecordBatch:
    """Return the client's messages of one partition, in their order, with the columns of Spark's connector."""
    times = [record.timestamp() for record in records]
    arrays = [
        pa.array([record.key() for record in records], pa.binary()),
        pa.array([record.value() for record in records], pa.binary()),
        pa.repeat(pa.scalar(topic), len(records)),
        pa.repeat(pa.scalar(partition, pa.int32()), len(records)),
        pa.array([record.offset() for record in records], pa.int64()),
        pa.array([time_ms * _US_PER_MS for _, time_ms in times], pa.int64()).cast(_SCHEMA.field("timestamp").type),
        pa.array([kind - 1 for kind, _ in times], pa.int32()),  # Java's client counts them from -1, librdkafka from 0
    ]
    if not has_headers:
        return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
    headers = pa.array([record.headers() for record in records], _WITH_HEADERS.field("headers").type)
    return pa.RecordBatch.from_arrays([*arrays, headers], schema=_WITH_HEADERS)
