"""A lane of the Kafka sink: commits its share of a batch with its marker, which shows after any failure what was committed."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.core.faults import FaultPoint
from penstock.core.model import PipelineName, Position, Publication, Published, SinkName, Totals
from penstock.errors import OutcomeUnknown, PublishFailed, Retryable, StagedDataLost
from penstock.sink.copied_ledger import require_no_copy
from penstock.sink.kafka.clients import Clients
from penstock.sink.kafka.errors import Overtaken, connection_lost, translate_errors
from penstock.sink.kafka.lane_ends import LaneEnds
from penstock.sink.kafka.lane_producer import KeyedProducer, Transactions, names_of
from penstock.sink.kafka.marker_store import LaneMarker, Part, mark_row, newest_mark, require_closed, transactional_id
from penstock.sink.kafka.target import KafkaSettings
from penstock.sink.table.marker import NOTHING_YET, TableMarker, require_same
from penstock.sink.table.publication import Loaded, apply, require_same_ledger
from penstock.sink.table.target import Target

if TYPE_CHECKING:
    import pyarrow as pa

READ = FaultPoint("kafka.read", "The newest marker of a lane is read, after its older producers were fenced.")
ROWS = FaultPoint("kafka.rows", "Rows of a decided batch are handed to the client, inside a transaction.")
MARK = FaultPoint("kafka.mark", "The marker is handed to the client, inside the same transaction.")

Rows = Callable[[Publication], "AbstractContextManager[Iterator[pa.RecordBatch]]"]
"""Opens the rows of a share, in their frozen order, for the duration of a context. Raises StagedDataLost."""

_CHUNK_ROWS, _CHUNK_BYTES = 5_000, 500_000
"""Records made at once: as many as fit the cores' caches, since the client copies each right after it was made."""


class Lane:
    """One lane of a sink. Its producer is created on first use. Used by one thread at a time."""

    def __init__(self, clients: Clients, number: int, *, wanted: KafkaSettings, max_record_bytes: int) -> None:
        self._clients = clients
        self.number = number
        self._wanted = wanted
        self._max_record_bytes = max_record_bytes
        self._table = Target(table=wanted.target.topic, write="append", key=(), case_counts=True)
        self._ends = LaneEnds(clients, wanted, number)
        self._transactions: Transactions | KeyedProducer | None = None
        self._is_ended = False
        self._mark: LaneMarker | None = None
        self._committed = NOTHING_YET
        self._sent_bytes = 0

    def open(self) -> LaneMarker | None:
        """Fence older producers of this lane, end their transactions, and return its newest marker. Raises Retryable, Refused.

        An open lane is not opened again: as long as nobody fenced it, nobody else moved the marker. But if brokers forgot to end
        its last transaction, a new producer is created, which begins by ending it. Without transactions nothing is fenced, so
        the marker is read at every call.
        """
        with self._dropping_on_error():
            if self._transactions is not None and not self._nothing_is_open():
                self.drop()
            if self._transactions is None:
                self._transactions = self._producer()
                self._require_nothing_open()  # I6, I8: else the next end would end it, too, perhaps with another outcome
                with translate_errors(self._clients), READ.around(error=connection_lost, lost=connection_lost):
                    self._mark = self._closed()
            elif self._wanted.keyed:
                self._mark = self._closed()
        return self._mark

    def keep(self, mark: LaneMarker, *, replaces: LaneMarker | None) -> None:
        """Commit a marker without rows, which the caller made from the marker `replaces`. Raises Retryable, PublishFailed."""
        with self._dropping_on_error():
            self.open()
            if self._wanted.keyed:  # nobody was fenced, so that `open` may have read what another driver wrote since
                self._mark = replaces
            self._keep(mark)
            self._commit()

    def claim(self, publication: Publication) -> None:
        """Write the publication's ledger id into the marker before this or another lane sends a row of it.

        Raises LedgerMismatch where the marker names another ledger, and what `keep` raises. A lane without a marker is left to
        `publish`.
        """
        with self._dropping_on_error():
            mark = self.open()
            if mark is None:
                return
            require_same_ledger(mark.marker, publication)  # I2
            if mark.marker.ledger_id is None:
                self._claim(mark, publication)

    def _claim(self, mark: LaneMarker, publication: Publication) -> None:
        try:
            self.keep(mark.of_ledger(publication.ledger_id), replaces=mark)
        except Overtaken:  # by a newer driver, which claimed the lane before its first row
            newer = self._read_back()
            if newer is None or newer.marker.ledger_id is None:
                raise
            require_same_ledger(newer.marker, publication)

    def require_own(self, share: Publication) -> None:
        """Raise LedgerMismatch if another ledger, or a copy of this one, filled the lane.

        Called for all lanes before one of them sends a row of a batch, which would lie there beside the rows of the other ledger.
        Fences older producers. `share` has no rows if the batch has none for this lane.
        """
        with self._dropping_on_error():
            mark = self.open()
            if mark is not None:
                require_own(mark, share)

    def publish(self, publication: Publication, rows: Rows) -> Published:
        """Publish this share of a batch unless the marker shows it already. Raises what `apply` raises, and Retryable."""
        with self._dropping_on_error():
            self.open()
            return self._publish(publication, rows)

    def close(self) -> None:
        """Release connections; the next use opens others."""
        self.drop()

    def drop(self) -> None:
        """Drop the producer and the admin client; the next use creates new ones and reads the marker back.

        The admin client goes, too: its metadata may be older than a change of leaders, and it does not ask for newer ones.
        """
        self._clients.close()
        self._ends.close()
        transactions, self._transactions, self._mark = self._transactions, None, None
        self._sent_bytes, self._is_ended = 0, False
        if transactions is not None:
            transactions.drop()

    # --- as `MarkerTransaction`

    def read(self, pipeline: PipelineName, sink: SinkName) -> TableMarker | None:  # noqa: ARG002 - the lane has one
        """Return the marker that `open` found or that this lane wrote since."""
        return None if self._mark is None else self._mark.marker

    def batch_at(self, publication: Publication) -> tuple[Any, ...] | None:
        return self._opened().mark.batch_at(publication)

    def advance(self, marker: TableMarker, publication: Publication) -> None:
        self._keep(self._opened().after(marker, publication))

    # --- steps

    def _producer(self) -> Transactions | KeyedProducer:
        timeout_ms, largest = self._wanted.timeout_ms, self._max_record_bytes
        if self._wanted.keyed:
            return KeyedProducer(self._clients, timeout_ms=timeout_ms, max_record_bytes=largest)
        with translate_errors(self._clients):
            self._ends.end_older()
        name = transactional_id(self._wanted.pipeline, self._wanted.sink, self.number)
        return Transactions(self._clients, name=name, timeout_ms=timeout_ms, max_record_bytes=largest)

    def _nothing_is_open(self) -> bool:
        """Return whether brokers have ended this lane's transactions everywhere. Looks once after a commit or a new producer."""
        transactions = self._open_transactions()
        if not self._is_ended and isinstance(transactions, Transactions):
            with translate_errors(self._clients):
                self._is_ended = self._ends.are_written(transactions.are_settled)
        return self._is_ended or self._wanted.keyed

    def _require_nothing_open(self) -> None:
        if not self._nothing_is_open():
            raise Retryable(
                f"Brokers forgot to end a transaction of lane {self.number} of sink {self._wanted.sink!r} in some partitions.",
                remedy="Try again, which ends it there.",
            )

    def _closed(self) -> LaneMarker | None:
        """Return the newest marker, once no open transaction can hide a newer one."""
        require_closed(self._clients, self._wanted.target.markers, self.number)
        return self._look()

    def _read_back(self) -> LaneMarker | None:
        """Drop the producer and return the newest marker, after another driver moved it."""
        self.drop()
        with translate_errors(self._clients):
            self._mark = self._closed()
        return self._mark

    def _look(self) -> LaneMarker | None:
        with translate_errors(self._clients):
            return newest_mark(self._clients, self._wanted, self.number)

    def _publish(self, publication: Publication, rows: Rows) -> Published:
        if self._mark is None:
            raise PublishFailed(
                f"Topic {self._wanted.target.markers!r} has no marker of lane {self.number} of sink {self._wanted.sink!r}.",
                remedy="Restore it: without it nobody can tell what was published. Or give the sink another name and topic.",
            )
        try:
            published = self._apply(publication, load=lambda: self._load(publication, rows))
            if not published.already:
                self._commit()
        except (StagedDataLost, Overtaken):  # unless another driver has published the batch, and removed its pieces
            mark = self._read_back()
            if mark is None or mark.marker.position < publication.position:
                raise
            return self._apply(publication, load=_never)
        self._committed = max(self._committed, Position(self._opened().marker.position))
        return published

    def _apply(self, publication: Publication, *, load: Callable[[], Loaded]) -> Published:
        return apply(self, publication, self._table, since=self._committed, load=load)

    def _load(self, publication: Publication, rows: Rows) -> Loaded:
        transactions = self._open_transactions()
        there = self._opened().rows_there(publication)
        with translate_errors(self._clients, timed_out=transactions.timed_out), rows(publication) as batches:
            number = there
            for chunk in _chunks(_after(batches, there), self._wanted.transaction_bytes):
                is_full = self._sent_bytes + chunk.nbytes > self._wanted.transaction_bytes
                if transactions.is_open and (is_full or transactions.is_due):
                    self._end_part(publication, number)
                    self._require_nothing_open()
                transactions.begin()
                self._send(chunk, publication, number)
                number += chunk.num_rows
            transactions.begin()
        return Loaded(rows=number, displaced=Totals())

    def _send(self, chunk: "pa.RecordBatch", publication: Publication, number: int) -> None:
        self._sent_bytes += chunk.nbytes
        names = names_of(publication, lane=self.number, first=number)
        with ROWS.around(error=connection_lost, lost=connection_lost):
            self._open_transactions().send(chunk, topic=self._wanted.target.topic, names=names)

    def _end_part(self, publication: Publication, number: int) -> None:
        part = Part(position=publication.position, digest=publication.totals.digest, rows=number)
        self._keep(replace(self._opened().of_ledger(publication.ledger_id), part=part))
        self._commit()

    def _keep(self, mark: LaneMarker) -> None:
        transactions = self._open_transactions()
        transactions.settle()
        if self._wanted.keyed:
            self._require_unmoved()
        with (
            translate_errors(self._clients, timed_out=transactions.timed_out),
            MARK.around(error=connection_lost, lost=connection_lost),
        ):
            transactions.begin()
            transactions.send(mark_row(mark), topic=self._wanted.target.markers)
        self._mark = mark

    def _require_unmoved(self) -> None:
        """Raise Overtaken if the marker moved: without transactions, an older driver must not overwrite the marker of a newer."""
        if self._closed() != self._mark:
            raise Overtaken(
                f"Another run moved the marker of sink {self._wanted.sink!r} in topic {self._wanted.target.markers!r} meanwhile.",
                remedy="Let one of them work, and stop the other one.",
            )

    def _commit(self) -> None:
        self._open_transactions().commit()
        self._sent_bytes, self._is_ended = 0, False

    def _opened(self) -> LaneMarker:
        assert self._mark is not None, "a lane is opened before it is used"
        return self._mark

    def _open_transactions(self) -> Transactions | KeyedProducer:
        assert self._transactions is not None, "a lane is opened before it is used"
        return self._transactions

    @contextmanager
    def _dropping_on_error(self) -> Iterator[None]:
        """Drop the lane on any exception: a producer that raised is never used again."""
        try:
            yield
        except BaseException:
            self.drop()
            raise


def require_own(mark: LaneMarker, share: Publication) -> None:
    """Raise LedgerMismatch if `mark`, the newest of a lane, is another ledger's, or a copy's."""
    marker = mark.marker
    require_same_ledger(marker, share)
    if marker.position < share.position:
        require_no_copy(share, marker.position, place=f"Lane {mark.lane} of topic {marker.table_name!r}")
        mark.rows_there(share)
    elif share.staged or marker.position == share.position:
        require_same(mark.mark.batch_at(share), share, marker)


def require_shown(mark: LaneMarker | None, share: Publication) -> None:
    """Raise OutcomeUnknown unless `mark` shows that all of `share` is published, and what `require_own` raises."""
    if mark is not None:
        require_own(mark, share)
    if mark is None or mark.marker.position < share.position:
        raise OutcomeUnknown(
            f"A task reported batch {share.batch.batch_id} of sink {share.sink!r} as published, and the marker of its lane does "
            f"not show it: it {'is missing' if mark is None else f'stands at position {mark.marker.position}'}.",
            remedy="Try again: the marker decides which lanes are published once more.",
        )


def _never() -> Loaded:
    raise AssertionError("the marker shows the batch")


def _after(batches: "Iterator[pa.RecordBatch]", number: int) -> "Iterator[pa.RecordBatch]":
    """Yield the rows without the first `number`."""
    for batch in batches:
        passed = min(number, batch.num_rows)
        number -= passed
        if passed < batch.num_rows:
            yield batch.slice(passed)


def _chunks(batches: "Iterator[pa.RecordBatch]", limit_bytes: int) -> "Iterator[pa.RecordBatch]":
    """Yield slices no larger than a transaction, unless a single row is, and small enough for the client."""
    for batch in batches:
        fitting = max(1, min(limit_bytes, _CHUNK_BYTES) * batch.num_rows // max(1, batch.nbytes))
        step = min(_CHUNK_ROWS, fitting)
        for start in range(0, batch.num_rows, step):
            yield batch.slice(start, step)
