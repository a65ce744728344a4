"""librdkafka's C functions, called by ctypes in the library that confluent-kafka ships, for what that package has no call.

Only functions and structures that rdkafka.h makes public are used: those of librdkafka 1.5, DescribeCluster of 2.3, and
ListOffsets of 2.5. Each call releases the GIL, and none calls back.
"""

import ctypes
import sys
from collections.abc import Mapping, Sequence
from ctypes import c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from functools import cache
from typing import Any, Final

import numpy as np
from confluent_kafka import KafkaError, KafkaException, TopicPartition, cimpl, libversion

MESSAGE: Final = np.dtype(
    [
        *(("err", "i4"), ("rkt", "u8"), ("partition", "i4"), ("payload", "u8"), ("len", "u8"), ("key", "u8"), ("key_len", "u8")),
        *(("offset", "i8"), ("_private", "u8")),
    ],
    align=True,
)
"""`rd_kafka_message_t`: producing reads the payload and the key, and writes `err`."""
PART: Final = np.dtype([("type", "i4"), ("first", "u8"), ("second", "u8"), ("third", "u8"), ("_rest", "V40")], align=True)
"""`rd_kafka_vu_t`, one property of a record: a number; or the address and the size of a value or a key; or the addresses of a
header's name and value, and the value's size.
"""
OF_TOPIC, OF_PARTITION, OF_VALUE, OF_KEY, OF_FLAGS, OF_HEADER = 2, 3, 4, 5, 7, 9
"""Types of a `PART` (`rd_kafka_vtype_t`)."""
COPY: Final = 2
"""Flag: the client copies what it is given."""
WRITTEN, COMMITTED = 0, 1
"""Isolation levels (`rd_kafka_IsolationLevel_t`)."""
LOG, ERROR = 0x4, 0x8
"""Types of the events by which a client reports log lines and errors."""

_PRODUCER: Final = 0
_LIST_OFFSETS: Final = 21
_LATEST: Final = -1
_TEXT_BYTES: Final = 512
_OLDEST: Final = 0x020C02FF
"""The oldest usable version: older ones free headers twice where they refuse a record (confluentinc/librdkafka#4627)."""
_FUNCTIONS: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "conf_new": (c_void_p, ()),
    "conf_destroy": (None, (c_void_p,)),
    "conf_set": (c_int, (c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)),
    "conf_set_log_cb": (None, (c_void_p, c_void_p)),
    "conf_set_events": (None, (c_void_p, c_int)),
    "new": (c_void_p, (c_int, c_void_p, c_char_p, c_size_t)),
    "destroy": (None, (c_void_p,)),
    "flush": (c_int, (c_void_p, c_int)),
    "topic_new": (c_void_p, (c_void_p, c_char_p, c_void_p)),
    "topic_destroy": (None, (c_void_p,)),
    "produce_batch": (c_int, (c_void_p, c_int32, c_int, c_void_p, c_int)),
    "produceva": (c_void_p, (c_void_p, c_void_p, c_size_t)),
    "init_transactions": (c_void_p, (c_void_p, c_int)),
    "begin_transaction": (c_void_p, (c_void_p,)),
    "commit_transaction": (c_void_p, (c_void_p, c_int)),
    "abort_transaction": (c_void_p, (c_void_p, c_int)),
    "err2str": (c_char_p, (c_int,)),
    "error_code": (c_int, (c_void_p,)),
    "error_string": (c_char_p, (c_void_p,)),
    "error_is_fatal": (c_int, (c_void_p,)),
    "error_is_retriable": (c_int, (c_void_p,)),
    "error_txn_requires_abort": (c_int, (c_void_p,)),
    "error_destroy": (None, (c_void_p,)),
    "queue_new": (c_void_p, (c_void_p,)),
    "queue_get_main": (c_void_p, (c_void_p,)),
    "queue_poll": (c_void_p, (c_void_p, c_int)),
    "queue_destroy": (None, (c_void_p,)),
    "set_log_queue": (c_int, (c_void_p, c_void_p)),
    "event_type": (c_int, (c_void_p,)),
    "event_error": (c_int, (c_void_p,)),
    "event_error_string": (c_char_p, (c_void_p,)),
    "event_log": (c_int, (c_void_p, c_void_p, c_void_p, c_void_p)),
    "event_destroy": (None, (c_void_p,)),
    "topic_partition_list_new": (c_void_p, (c_int,)),
    "topic_partition_list_add": (c_void_p, (c_void_p, c_char_p, c_int32)),
    "topic_partition_list_destroy": (None, (c_void_p,)),
    "AdminOptions_new": (c_void_p, (c_void_p, c_int)),
    "AdminOptions_set_isolation_level": (c_void_p, (c_void_p, c_int)),
    "AdminOptions_destroy": (None, (c_void_p,)),
    "DescribeCluster": (None, (c_void_p, c_void_p, c_void_p)),
    "ListOffsets": (None, (c_void_p, c_void_p, c_void_p, c_void_p)),
    "event_ListOffsets_result": (c_void_p, (c_void_p,)),
    "ListOffsets_result_infos": (c_void_p, (c_void_p, c_void_p)),
    "ListOffsetsResultInfo_topic_partition": (c_void_p, (c_void_p,)),
}


class _Place(ctypes.Structure):
    """`rd_kafka_topic_partition_t`: a partition to ask for its latest offset, or the answer with that offset."""

    _fields_ = (
        *(("topic", c_char_p), ("partition", c_int32), ("offset", c_int64), ("_metadata", c_void_p), ("_size", c_size_t)),
        *(("_opaque", c_void_p), ("err", c_int), ("_private", c_void_p)),
    )


class Librdkafka:
    """librdkafka's functions by their names without `rd_kafka_`. Raises AttributeError, OSError where they are not exported."""

    def __init__(self) -> None:
        library = ctypes.CDLL(cimpl.__file__)  # finds symbols of the libraries that it is linked with, too
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, f"rd_kafka_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        """Satisfy type checkers: `__init__` sets every function."""
        raise AttributeError(name)

    def producer(self, settings: Mapping[str, str | int]) -> int:
        """Return a new producer, which reports logs and errors as events. Raises KafkaException as confluent-kafka does."""
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        conf = self.conf_new()
        self.conf_set_log_cb(conf, None)  # the default prints where a call serves events itself
        self.conf_set_events(conf, LOG | ERROR)
        refused = any(
            self.conf_set(conf, key.encode(), _text(value).encode(), text, _TEXT_BYTES)
            for key, value in {**settings, "log.queue": True}.items()
        )
        made = None if refused else self.new(_PRODUCER, conf, text, _TEXT_BYTES)
        if not made:
            self.conf_destroy(conf)
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, text.value.decode(errors="replace")))
        return int(made)

    def require(self, error: int | None) -> None:
        """Free `error`, an `rd_kafka_error_t`, and raise it as KafkaException; do nothing if there is none."""
        if not error:
            return
        raised = KafkaError(
            self.error_code(error),
            self.error_string(error).decode(errors="replace"),
            fatal=bool(self.error_is_fatal(error)),
            retriable=bool(self.error_is_retriable(error)),
            txn_requires_abort=bool(self.error_txn_requires_abort(error)),
        )
        self.error_destroy(error)
        raise KafkaException(raised)

    def logged(self, event: int) -> tuple[int, str]:
        """Return the syslog level and the message of a log event."""
        text, about, level = c_char_p(), c_char_p(), c_int()
        self.event_log(event, ctypes.byref(about), ctypes.byref(text), ctypes.byref(level))
        return level.value, (text.value or b"").decode(errors="replace")

    def topic(self, client: int, name: str) -> int:
        """Return a topic handle, for one call of `topic_destroy`. Raises KafkaException."""
        made = self.topic_new(client, name.encode(), None)
        if not made:
            raise self.refused(KafkaError._INVALID_ARG)
        return int(made)

    def await_broker(self, client: int, timeout_ms: int) -> None:
        """Return when a broker has answered the client, or after `timeout_ms`."""
        queue = self.queue_new(client)
        self.DescribeCluster(client, None, queue)  # asking for metadata takes 50 ms more where the client is new
        event = self.queue_poll(queue, timeout_ms)
        if event:
            self.event_destroy(event)
        self.queue_destroy(queue)

    def ends(
        self, client: int, places: Sequence[TopicPartition], levels: Sequence[int], *, timeout_ms: int
    ) -> Sequence[Mapping[tuple[bytes, int], int]] | None:
        """Return the end of each place at each isolation level, in any order of the levels; None where a leader does not say."""
        asked, queue = self.topic_partition_list_new(len(places)), self.queue_new(client)
        try:
            for at in places:
                added = self.topic_partition_list_add(asked, at.topic.encode(), at.partition)
                _Place.from_address(added).offset = _LATEST
            for level in levels:
                options = self.AdminOptions_new(client, _LIST_OFFSETS)
                self.require(self.AdminOptions_set_isolation_level(options, level))
                self.ListOffsets(client, asked, options, queue)
                self.AdminOptions_destroy(options)
            found = [self._ends(queue, timeout_ms) for _ in levels]
        finally:
            self.topic_partition_list_destroy(asked)
            self.queue_destroy(queue)
        return [ends for ends in found if ends is not None] if all(found) else None

    def _ends(self, queue: int, timeout_ms: int) -> Mapping[tuple[bytes, int], int] | None:
        event = self.queue_poll(queue, timeout_ms)
        if not event:
            return None
        try:
            size = c_size_t()
            infos = self.ListOffsets_result_infos(self.event_ListOffsets_result(event), ctypes.byref(size))
            each = (c_void_p * size.value).from_address(infos) if size.value else ()
            found = [_Place.from_address(self.ListOffsetsResultInfo_topic_partition(info)) for info in each]
            has_failed = self.event_error(event) or any(at.err or at.offset < 0 for at in found)
            return None if has_failed else {(at.topic, at.partition): at.offset for at in found}
        finally:
            self.event_destroy(event)

    def refused(self, code: int) -> KafkaException:
        return KafkaException(KafkaError(code, self.err2str(code).decode(errors="replace")))


def _text(value: str | int) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@cache
def librdkafka() -> Librdkafka | None:
    """Return librdkafka, None where it cannot be called: an older client, another build, or a machine of another kind."""
    if libversion()[1] < _OLDEST or sys.byteorder != "little" or ctypes.sizeof(c_void_p) != MESSAGE["payload"].itemsize:
        return None
    try:
        return Librdkafka()
    except (AttributeError, OSError):
        return None
