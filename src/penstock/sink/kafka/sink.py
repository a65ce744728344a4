"""The Kafka sink: commits each lane of a batch in one transaction with its marker, or in several where the lane is large."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from threading import RLock

from confluent_kafka import KafkaException

from penstock.core.faults import FaultPoint
from penstock.core.high_water_mark import HighWaterMark
from penstock.core.model import (
    NEWEST_ROW_DIGEST,
    ONLY_ACCOUNT,
    AccountName,
    AccountReport,
    Finding,
    Json,
    PipelineName,
    Position,
    Publication,
    Published,
    RowDigest,
    SinkKind,
    SinkName,
    SinkReport,
    Totals,
)
from penstock.core.publish_task import RunTasks
from penstock.core.topics import OpenTransaction
from penstock.errors import Failed, OutcomeUnknown, PenstockError, Refused, Retryable
from penstock.kafka.reachable import require_reachable
from penstock.kafka.transactions import end_transaction, open_transactions
from penstock.protocols import OwnRows, SinkDecisions
from penstock.sink.concurrent import map_concurrently
from penstock.sink.kafka import verification
from penstock.sink.kafka.clients import Clients
from penstock.sink.kafka.errors import connection_lost, translate_errors
from penstock.sink.kafka.lane import Lane, require_own, require_shown
from penstock.sink.kafka.lane_ends import LaneEnds
from penstock.sink.kafka.lane_producer import HEADER
from penstock.sink.kafka.lane_task import LaneTask
from penstock.sink.kafka.marker_store import LaneMarker, newest_mark, transactional_id
from penstock.sink.kafka.preparation import (
    Place,
    findings_of,
    max_record_bytes,
    prepare_lanes,
    prepare_place,
    require_fit,
    require_schema_accepted,
    require_topics_exist,
    row_validator_of,
)
from penstock.sink.kafka.records import HeadersHashed, RecordColumns, TopicRowValidator
from penstock.sink.kafka.target import LANES, MARKERS, SCHEMA, KafkaSettings, TopicTarget, require_columns
from penstock.sink.kafka.tombstones import Tombstones
from penstock.sink.kafka.topics import SETTLED_S, await_settled, described, places_of
from penstock.sink.spool import INLINE_LIMIT_BYTES, Spool, SpooledSink, SpoolRoot, SpoolStager
from penstock.sink.table.marker import NOTHING_YET
from penstock.sink.table.preparation import settings_of
from penstock.sink.table.publication import require_no_older_copy
from penstock.spark.schema import arrow_schema

CONFIRM = FaultPoint("publish.confirm", "The driver reads the markers of the lanes that tasks have published.")

TRANSACTION_BYTES = 1_000_000_000
TRANSACTION_TIMEOUT_MS = 60_000


class KafkaSink(SpooledSink):
    """Delivers into topics of Kafka. Thread-safe.

    The pieces of a batch are dealt to `lanes` in turn, in the order of the decision. The number of lanes is frozen in the pieces,
    so that a batch keeps its own whatever the settings say later. A lane's share that is larger than `transaction_bytes`, or that
    takes more than half of `timeout_ms`, goes into several transactions, each with a marker that counts the rows committed so
    far.

    `keyed`: no transactions, at least once; a header names each record, the same at every repetition. `record_columns`: which of
    the pipeline's columns make a record; None: the columns already have the names of a record's parts. `deletes`: rows come with
    the column of `core.deletes`; one that deletes becomes a tombstone, a record of its key without a value.
    """

    def __init__(
        self,
        *,
        name: SinkName,
        pipeline: PipelineName,
        bootstrap: str,
        target: TopicTarget,
        spool: "SpoolRoot | str",
        options: Mapping[str, str] | None = None,
        lanes: int = 1,
        transaction_bytes: int = TRANSACTION_BYTES,
        timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        keyed: bool = False,
        record_columns: RecordColumns | None = None,
        deletes: bool = False,
        inline_limit_bytes: int = INLINE_LIMIT_BYTES,
    ) -> None:
        super().__init__(name=name, spool=Spool(root=spool, sink=name, inline_limit_bytes=inline_limit_bytes))
        self._wanted = KafkaSettings(
            pipeline=pipeline,
            sink=name,
            target=target,
            lanes=lanes,
            transaction_bytes=transaction_bytes,
            timeout_ms=timeout_ms,
            keyed=keyed,
            deletes=deletes,
        )
        self._clients = Clients(bootstrap, options or {})
        self._record_columns = record_columns
        self._lanes: dict[int, Lane] = {}
        self._place: Place | None = None
        self._schema: str | None = None
        self._row_validator: TopicRowValidator | None = None
        self._run_tasks: RunTasks | None = None
        self._shown: dict[int, Position] = {}
        self._lock = RLock()
        self._row_digest: RowDigest = NEWEST_ROW_DIGEST

    def use_row_digest(self, row_digest: RowDigest) -> None:
        self._row_digest = row_digest

    @property
    def kind(self) -> SinkKind:
        """Transactional: rows and marker commit together. If keyed, idempotent: readers recognise repetitions by the header."""
        return SinkKind.IDEMPOTENT if self._wanted.keyed else SinkKind.TRANSACTIONAL

    @property
    def exactly_once(self) -> bool:
        """True for readers of committed records; False if keyed, since a record may come again."""
        return not self._wanted.keyed

    def describe(self) -> Mapping[str, str]:
        limit = self._spool.inline_limit_bytes
        lanes = self._wanted.lanes
        how = "one transaction" if lanes == 1 else f"{lanes} transactions at once, one for each lane"
        where = f"into topic {self._wanted.target.topic} of {self._clients.place}"
        publish = f"{how}: rows and marker {where}; who reads with isolation.level=read_committed sees neither or both"
        if self._wanted.keyed:
            publish = f"records with the header {HEADER}, then the marker, {where}; after a crash a record may come again"
        return {
            "stage": f"in the ledger's entry up to {limit} bytes a task, else Arrow files in {self._spool.root.url}",
            "publish": publish,
        }

    def own_rows(self, schema: str) -> OwnRows | None:
        return None if self._record_columns is None else self._record_columns.own_rows(schema, sink=self._name)

    def check(self) -> Sequence[Finding]:
        return findings_of(self._clients, self._wanted)

    def require_login(self) -> None:
        """Raise Retryable if no broker accepts a connection. Whether they let the user in is found out by `prepare`."""
        require_reachable(self._clients.given["bootstrap.servers"], where=self._clients.place)

    def high_water_mark(self, account: AccountName, *, pipeline: PipelineName) -> HighWaterMark | None:  # noqa: ARG002 - one account
        """Return what the newest marker of all lanes says, also one whose commit readers do not see yet.

        Raises Failed, Retryable, Refused, FormatTooNew.
        """
        if account != ONLY_ACCOUNT:
            return None
        with translate_errors(self._clients, Failed):
            return verification.high_water_mark(self._markers_committed())

    def prepare(self, *, pipeline: PipelineName, schema: str | None) -> None:
        """Check the topics, create the topic of markers, and fence older producers. Raises Usage, Refused, Failed, Retryable."""
        self._spool.prepare(pipeline)
        if schema is None:
            return
        self._schema = schema = self._taken(schema)
        rows = arrow_schema(schema)
        with settings_of(self._name):
            require_columns(rows, deletes=self._wanted.deletes)
        with self._lock, translate_errors(self._clients, Failed):
            self._place = place = prepare_place(self._clients, self._wanted)
            require_fit(place.topics.values(), rows)
            former = range(0 if self._wanted.keyed else self._wanted.lanes, place.markers.partitions)
            map_concurrently(lambda at: LaneEnds(self._clients, self._wanted, at).end_former(), former)
            prepare_lanes(self._clients, self._wanted, [self._lane(at) for at in range(self._wanted.lanes)], place, schema)
            self._row_validator = row_validator_of(self._wanted, place)

    def require_schema_accepted(self, *, pipeline: PipelineName, schema: str) -> None:  # noqa: ARG002 - one account
        with translate_errors(self._clients, Failed):
            require_schema_accepted(self._clients, self._wanted, self._taken(schema))

    def stager(self) -> SpoolStager:
        """Return the spool's stager with the check that the topics accept the rows, and with what each piece freezes."""
        if self._row_validator is None or self._place is None:
            raise Failed(f"Sink {self._name!r} was not prepared with a schema.", remedy="Call prepare() first.")
        note: dict[str, Json] = {LANES: self._wanted.lanes, MARKERS: self._place.markers.identity}
        if self._record_columns is not None:
            note[SCHEMA] = self._schema
        stager = replace(self._spool.stager(self._row_validator), note=note, hashed=HeadersHashed(self._row_digest))
        return replace(stager, deletes=Tombstones(row_digest=self._row_digest)) if self._wanted.deletes else stager

    @property
    def tasks_per_batch(self) -> int:
        """One for each lane. None without transactions: nothing would fence a task that goes on after it was given up."""
        return 0 if self._wanted.keyed else self._wanted.lanes

    def publish_by(self, run_tasks: RunTasks | None) -> None:
        self._run_tasks = run_tasks if self.tasks_per_batch else None

    def publish(self, publication: Publication) -> Published:
        """Run one transaction for each lane, unless the lane's marker shows the batch already.

        Raises Retryable, OutcomeUnknown, PublishFailed, StagedDataLost, LedgerMismatch, Refused.
        """
        if not publication.staged:
            return Published(totals=publication.totals, already=True)
        with self._lock, translate_errors(self._clients):
            try:
                published = self._publish(publication)
            except (OutcomeUnknown, Retryable):
                require_topics_exist(self._clients, self._wanted)
                raise
        self._spool.discard(publication.staged, pipeline=publication.pipeline)
        return published

    def verify(self, decisions: SinkDecisions) -> SinkReport:
        """Compare the topics with the markers and the markers with the ledger.

        Records are read only where no retention and no compaction can have removed one, and where nobody else writes.
        """
        topic = self._wanted.target.topic
        with translate_errors(self._clients, Failed):
            marks, found = self._read(decisions)
        position, wanted = verification.ledger_side(marks, decisions)
        problems = [*verification.marker_problems(marks, wanted, decisions.publications(position), topic=topic)]
        if found is not None:
            problems += verification.content_problems(found, marks, topic=topic)
        account = AccountReport(expected=wanted, found=verification.decided(marks) if found is None else found)
        return SinkReport(accounts={ONLY_ACCOUNT: account}, problems=tuple(problems), unread=found is None, as_of=position)

    def close(self) -> None:
        """Drop all producers; the next call creates new ones."""
        with self._lock:
            for lane in self._lanes.values():
                lane.drop()
            self._clients.close()

    def open_transactions(self) -> Sequence[OpenTransaction]:
        """Return the open transactions on the topics of the rows and on that of the markers, whoever began them.

        Topics of earlier settings are among them, as far as the user may still look there.
        """
        wanted = {*self._wanted.target.every, self._wanted.target.markers}
        found = [*open_transactions(self._clients.given, wanted)]
        former = self._topics_written() - wanted
        if former:
            with suppress(PenstockError):
                found += open_transactions(self._clients.given, former)
        return sorted(found, key=lambda one: -one.open_ms)

    def end_transaction(self, one: OpenTransaction) -> None:
        """Abort `one`. A transaction of this sink's own is ended by its next start, too."""
        end_transaction(self._clients.given, one, own_ids=self._transactional_ids())

    # --- steps

    def _transactional_ids(self) -> Sequence[str]:
        """Return the ids of all lanes that have a partition for their marker, of those in the settings at least."""
        with translate_errors(self._clients, Failed):
            lanes = max(self._wanted.lanes, len(self._every_lane()))
        return [transactional_id(self._wanted.pipeline, self._wanted.sink, lane) for lane in range(lanes)]

    def _topics_written(self) -> set[str]:
        """Return the topics that the markers of all lanes name. A marker that cannot be read adds none."""
        topics = set[str]()
        with suppress(PenstockError, KafkaException):
            for lane in self._every_lane():
                mark = newest_mark(self._clients, self._wanted, lane)
                topics.update(mark.topics if mark is not None else ())
        return topics

    def _every_lane(self) -> Sequence[int]:
        """Return the lanes that may have a marker, those of earlier settings, too. Raises KafkaException."""
        topic = self._wanted.target.markers
        markers = described(self._clients.admin, [topic])[topic]
        return range(0 if markers is None else markers.partitions)

    def _taken(self, schema: str) -> str:
        own = self.own_rows(schema)
        return schema if own is None else own.schema

    def _publish(self, publication: Publication) -> Published:
        lanes = self._required_lanes(publication)
        own = publication.staged[0].ref.get(SCHEMA)
        publication = publication if own is None else replace(publication, schema=str(own))
        shares = [replace(publication, staged=publication.staged[at::lanes]) for at in range(lanes)]
        if self._run_tasks is not None and not publication.is_inline:
            already = self._publish_in_tasks(dict(enumerate(shares)), self._run_tasks)
            return Published(totals=publication.totals, already=already)
        if lanes > 1 and not self._wanted.keyed:
            map_concurrently(lambda at: self._lane(at).require_own(shares[at]), range(lanes))  # I2
        if lanes > 1 or self._wanted.keyed:  # else rows and identity are committed together
            self._lane(0).claim(publication)
        done = map_concurrently(
            lambda at: self._lane(at).publish(shares[at], self._spool.rows_of), [at for at in range(lanes) if shares[at].staged]
        )
        return Published(totals=publication.totals, already=all(share.already for share in done))

    def _publish_in_tasks(self, shares: Mapping[int, Publication], run_tasks: RunTasks) -> bool:
        """Have tasks publish the lanes, and return whether all were published already. The markers decide, not the answers.

        The lanes of this process are dropped first: the tasks fence them.
        """
        marks = self._marks_of(shares)
        for at, mark in marks.items():
            require_no_older_copy(mark.marker, self._shown.get(at, NOTHING_YET))
            require_own(mark, shares[at])  # I2
        if 0 not in marks or marks[0].marker.ledger_id is None:
            self._lane(0).claim(shares[0])
        for lane in self._lanes.values():
            lane.drop()
        filled = {at: share for at, share in shares.items() if share.staged}
        answers = run_tasks([self._task(at, share) for at, share in filled.items()])
        with CONFIRM.around(error=connection_lost, lost=connection_lost):
            marks = self._marks_of(filled)
        for at, share in filled.items():
            require_shown(marks.get(at), share)  # I1
            self._shown[at] = marks[at].marker.position
        return all(already for (already,) in answers)

    def _task(self, number: int, share: Publication) -> LaneTask:
        return LaneTask(
            number=number,
            share=share,
            wanted=self._wanted,
            bootstrap=self._clients.given["bootstrap.servers"],
            options={key: value for key, value in self._clients.given.items() if key != "bootstrap.servers"},
            spool=self._spool.root,
            claimed=self._spool.claimed,
            max_record_bytes=self._max_record_bytes(),
        )

    def _marks_of(self, lanes: Collection[int]) -> Mapping[int, LaneMarker]:
        """Return the newest committed marker of each of `lanes` that has one, also where brokers keep readers from it."""
        return {mark.lane: mark for mark in self._markers_committed() if mark.lane in lanes}

    def _required_lanes(self, publication: Publication) -> int:
        """Return the number of lanes that the batch was staged for. Raises Refused if the topic of markers was replaced."""
        note = publication.staged[0].ref
        topic = self._wanted.target.markers
        found = self._place.markers if self._place else described(self._clients.admin, [topic])[topic]
        if found is None or found.identity != note[MARKERS]:
            raise Refused(
                f"Topic {topic!r} was {'deleted' if found is None else 'recreated'} after batch {publication.batch.batch_id} was "
                "staged. Its markers are lost, so nobody can tell whether the batch was published.",
                remedy="Name the right topic in `marker_topic`, or give the sink another name and a new topic.",
            )
        return int(str(note[LANES]))

    def _lane(self, number: int) -> Lane:
        if number not in self._lanes:
            lane = Lane(self._clients, number, wanted=self._wanted, max_record_bytes=self._max_record_bytes())
            self._lanes[number] = lane
        return self._lanes[number]

    def _max_record_bytes(self) -> int:
        found = self._place.topics if self._place is not None else described(self._clients.admin, self._wanted.target.every)
        return max_record_bytes(found.values())

    def _markers_committed(self) -> Sequence[LaneMarker]:
        """Return the newest marker of each lane, also where brokers keep readers from it."""
        lanes, is_settled = self._settled_lanes()
        if is_settled:
            return self._markers_below(dict.fromkeys(lanes))
        return _known(LaneEnds(self._clients, self._wanted, lane).newest_committed() for lane in lanes)

    def _settled_lanes(self) -> tuple[Sequence[int], bool]:
        """Return the lanes that may have a marker, and whether no transaction is open there. Waits up to `SETTLED_S` for that."""
        lanes = self._every_lane()
        places = places_of(self._wanted.target.markers, lanes)
        return lanes, await_settled(self._clients.admin, places, wait_s=SETTLED_S)

    def _markers_below(self, ends: Mapping[int, int | None]) -> Sequence[LaneMarker]:
        return _known(
            map_concurrently(lambda at: newest_mark(self._clients, self._wanted, at[0], below=at[1]), list(ends.items()))
        )

    def _read(self, decisions: SinkDecisions) -> tuple[Sequence[LaneMarker], Totals | None]:
        """Return the markers, and totals as of them, None if these prove nothing. Raises KafkaException, Retryable, Refused."""
        marks = self._markers_committed()
        begun = verification.beginnings(marks)
        markers = described(self._clients.admin, [self._wanted.target.markers])[self._wanted.target.markers]
        if markers is None or all(mark.marker.schema is None for mark in marks):
            return marks, Totals()
        if self._wanted.keyed or self._wanted.target.shared or verification.has_removed(self._clients, begun):
            return marks, None
        cut = verification.cut(self._clients, markers, list(begun))
        marks = self._markers_below(dict(enumerate(cut.markers)))
        newest = max(marks, key=lambda mark: mark.marker.position)
        found = verification.content(self._clients, begun, cut.ends, str(newest.marker.schema), self._row_digest)
        verification.require_comparable(found, marks, cut, decisions, topic=self._wanted.target.topic)
        return marks, found


def _known(marks: Iterable[LaneMarker | None]) -> Sequence[LaneMarker]:
    return [mark for mark in marks if mark is not None]
