"""The marker of a lane: the newest record in the lane's own partition of the compacted topic of markers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.core.codec.document import decode, encode_document
from penstock.core.codec.fields import integer, items, mapping, optional, record, require_fields, text
from penstock.core.model import Json, LedgerId, PipelineName, Position, Publication, SinkName
from penstock.errors import LedgerMismatch, PenstockError, PublishFailed, Refused, Retryable
from penstock.kafka.transactions import open_transactions
from penstock.sink.kafka.clients import Clients
from penstock.sink.kafka.errors import is_of_group
from penstock.sink.kafka.target import KEY, PARTITION, VALUE, Wanted
from penstock.sink.kafka.topics import ANSWER_S, await_settled, first, places_of, settled
from penstock.sink.table.document_marker import MARK_FIELDS, NAMED_MARK_FIELDS, Mark, mark_fields, mark_from
from penstock.sink.table.marker import TableMarker


def not_closed(clients: Clients, topic: str, lane: int) -> PenstockError:
    """Return the error for a transaction left open in partition `lane` of the markers' topic: Refused if brokers never end it.

    A transaction that no coordinator knows is not ended here. Its partition does not tell whether it was committed or aborted
    elsewhere, and ending it aborts it: rows that are committed in their own partitions would then be delivered twice.
    """
    try:
        found = [one for one in open_transactions(clients.given, [topic]) if one.partition == lane]
    except PenstockError:  # this connection or user cannot list them
        found = []
    hanging = next((one for one in found if one.hangs), None)
    if hanging is not None:
        return Refused(
            f"Transaction {hanging.name!r} is open in the topic of markers, and no coordinator that this user may ask knows it: "
            "brokers never end it by themselves, and the newest marker may be part of it.",
            remedy=f"Run `penstock doctor FILE --end {hanging.name}`, which aborts it, and start again: the newest batch is "
            "published then. If the last run reported that batch as delivered, compare the topic first, since its rows would "
            "come twice.",
        )
    name, ends = "A transaction", ""
    if found:
        name = f"Transaction {found[0].name!r}"
        ends = f" Brokers end it {(found[0].timeout_ms or 0) // 1000} seconds after its begin."
    return Retryable(
        f"{name} of somebody else is open in partition {lane} of topic {topic!r}, which only one sink may write to.{ends}",
        remedy="Look who writes there by `penstock doctor FILE`, and give every sink a `marker_topic` of its own.",
    )


FORMAT = "penstock.kafka-marker"
_UNNAMED, _NAMED = 1, 2
"""Format versions: without and with the identity of the ledger whose batches are there."""

_TAIL = 64
_WIDER = 8
_CLOSED_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """A topic when the sink first saw it: its id, and the end of each partition. Later records are the sink's."""

    identity: str
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The first `rows` rows of a lane's share of a batch, which were committed before the rest."""

    position: Position
    digest: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneMarker:
    """The content of a lane's marker. `topics`: every topic that the lane may have written to."""

    lane: int
    mark: Mark
    topics: Mapping[str, Beginning]
    part: Part | None = None

    @property
    def marker(self) -> TableMarker:
        return self.mark.marker

    def after(self, marker: TableMarker, publication: Publication) -> "LaneMarker":
        """Return this marker moved to `publication`, all of which is published."""
        return replace(self, mark=self.mark.after(marker, publication), part=None)

    def of_ledger(self, ledger_id: LedgerId | None) -> "LaneMarker":
        return replace(self, mark=replace(self.mark, marker=replace(self.marker, ledger_id=ledger_id)))

    def rows_there(self, publication: Publication) -> int:
        """Return how many rows of this lane's share of `publication` are committed already.

        Raises LedgerMismatch for a part of any other batch (I2): a ledger decides its next batch only when this one is whole.
        """
        part = self.part
        if part is None:
            return 0
        if (part.position, part.digest) != (publication.position, publication.totals.digest):
            raise LedgerMismatch(
                f"Lane {self.lane} of sink {self.marker.sink!r} holds a part of another batch than this ledger's at position "
                f"{publication.position}: of one that was decided at position {part.position}.",
                remedy="Another ledger, or a copy of this one, filled this topic: restore that one, or give the sink another "
                "name and an empty topic.",
            )
        return part.rows


def mark_key(pipeline: PipelineName, sink: SinkName) -> bytes:
    """Return the key of all markers of a sink; it is unambiguous, since no name of a pipeline or a sink has a `=`."""
    return f"{pipeline}={sink}".encode()


def transactional_id(pipeline: PipelineName, sink: SinkName, lane: int) -> str:
    """Return the transactional id by which a lane's producers fence each other. It never changes."""
    return f"penstock.{pipeline}={sink}={lane}"


def trial_id(pipeline: PipelineName, sink: SinkName) -> str:
    """Return the transactional id by which `penstock check` tests the user's right: a lane's would fence that lane."""
    return f"penstock.{pipeline}={sink}=check"


def encode_lane_marker(mark: LaneMarker) -> bytes:
    """Return the value of the marker's record."""
    topics: dict[str, Json] = {
        name: {"identity": begun.identity, "offsets": list(begun.offsets)} for name, begun in mark.topics.items()
    }
    part: Json = None
    if mark.part is not None:
        part = {"position": mark.part.position, "digest": f"{mark.part.digest:016x}", "rows": mark.part.rows}
    version = _UNNAMED if mark.marker.ledger_id is None else _NAMED
    return encode_document(FORMAT, version, {**mark_fields(mark.mark), "lane": mark.lane, "part": part, "topics": topics})


def mark_row(mark: LaneMarker) -> "pa.RecordBatch":
    """Return the marker's record as a row, in the partition of its lane."""
    key = mark_key(mark.marker.pipeline, mark.marker.sink)
    return pa.RecordBatch.from_pydict(
        {VALUE: [encode_lane_marker(mark)], KEY: [key], PARTITION: pa.array([mark.lane], pa.int32())}
    )


def decode_lane_marker(data: bytes, *, pipeline: PipelineName, sink: SinkName) -> LaneMarker:
    """Return the marker in a record's value. Raises LedgerMismatch for damage, FormatTooNew."""

    def read(fields: dict[str, Any], *, of_mark: frozenset[str]) -> LaneMarker:
        require_fields(fields, of_mark | {"lane", "part", "topics"})
        return LaneMarker(
            lane=integer(fields["lane"]),
            mark=mark_from(fields, pipeline=pipeline, sink=sink),
            topics={name: _beginning(value) for name, value in mapping(fields["topics"]).items()},
            part=optional(_part, fields["part"]),
        )

    readers = {_UNNAMED: partial(read, of_mark=MARK_FIELDS), _NAMED: partial(read, of_mark=NAMED_MARK_FIELDS)}
    return decode(data, kind=FORMAT, where=f"The marker of sink {sink!r}", readers=readers)


def _beginning(value: object) -> Beginning:
    fields = record(value, frozenset({"identity", "offsets"}))
    return Beginning(identity=text(fields["identity"]), offsets=tuple(integer(offset) for offset in items(fields["offsets"])))


def _part(value: object) -> Part:
    fields = record(value, frozenset({"position", "digest", "rows"}))
    return Part(
        position=Position(integer(fields["position"])), digest=int(text(fields["digest"]), 16), rows=integer(fields["rows"])
    )


def newest_mark(
    clients: Clients, wanted: Wanted, lane: int, *, below: int | None = None, visible: bool = True
) -> LaneMarker | None:
    """Return a lane's newest committed marker, with `below` the newest before that offset; None if there is none.

    `visible`: False where the caller knows that the newest marker `below` is committed, and readers do not see it yet. Raises
    KafkaException, LedgerMismatch, and Refused for a topic in which another sink has markers: its open transactions would hide
    ours.
    """
    consumer = clients.consumer(**{"isolation.level": "read_committed" if visible else "read_uncommitted"})
    try:
        key = mark_key(wanted.pipeline, wanted.sink)
        value = _newest(clients.admin, consumer, wanted.target.markers, lane, key=key, below=below)
    finally:
        consumer.close()
    return None if value is None else decode_lane_marker(value, pipeline=wanted.pipeline, sink=wanted.sink)


def require_closed(clients: Clients, topic: str, lane: int) -> None:
    """Wait until no transaction is open in the lane's partition of `topic`, so that no newer marker is hidden.

    Called when the lane's own transactions have ended. Within a minute raises Retryable, or Refused for a transaction that
    brokers never end.
    """
    if not await_settled(clients.admin, places_of(topic, [lane]), wait_s=_CLOSED_S):
        raise not_closed(clients, topic, lane)


def _newest(admin: AdminClient, consumer: Consumer, topic: str, lane: int, *, key: bytes, below: int | None) -> bytes | None:
    """Search backwards from the end: markers before the newest one may not have been compacted yet."""
    [low] = first(admin, topic, [lane])
    [end] = settled(admin, topic, [lane]) if below is None else [below]
    width = _TAIL
    while low < end:
        start = max(low, end - width)
        found = _last(consumer, TopicPartition(topic, lane, start), end, key=key)
        if found is not None:
            return found
        if start == low:
            break
        width *= _WIDER
    return None


def _last(consumer: Consumer, start: TopicPartition, end: int, *, key: bytes) -> bytes | None:
    consumer.assign([start])
    found: bytes | None = None
    try:
        while True:
            message = consumer.poll(ANSWER_S)
            if message is None:
                raise Retryable(f"Topic {start.topic!r} cannot be read to its end.", remedy="Look at its brokers, and try again.")
            error = message.error()
            if is_of_group(error):
                continue
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            offset = message.offset()
            if error is None and offset is not None and offset < end:
                _require_own(message.key(), message.value(), key, start.topic)
                found = message.value()
            if offset is not None and offset >= (end if error is not None else end - 1):
                return found  # a lagging broker reports an earlier end, and continues when it has the rest
    finally:
        consumer.unassign()


def _require_own(found: Any, value: Any, key: bytes, topic: str) -> None:
    if found != key:
        raise Refused(
            f"Topic {topic!r} holds markers of {_named(found)}, and not only those of {_named(key)}.",
            remedy="Give every sink a `marker_topic` of its own.",
        )
    if value is None:
        raise PublishFailed(f"A marker in topic {topic!r} was deleted.", remedy="Give the sink another name, and an empty topic.")


def _named(key: object) -> str:
    return repr(key.decode("utf-8", "replace")) if isinstance(key, bytes) else "nobody"
