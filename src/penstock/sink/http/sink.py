"""`HttpSink`, which posts the rows of a batch and notes in its spool when all of it was answered."""

import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, field, replace
from threading import BoundedSemaphore, Event, RLock
from typing import ClassVar

from penstock.core.faults import FaultPoint
from penstock.core.model import (
    Finding,
    PipelineName,
    Position,
    Publication,
    Published,
    SinkKind,
    SinkName,
    SinkReport,
)
from penstock.core.publish_task import RunTasks
from penstock.errors import ContentConflict, LedgerMismatch, PenstockError, Retryable, StagedDataLost, Usage
from penstock.protocols import SinkDecisions
from penstock.sink.concurrent import results_of
from penstock.sink.copied_ledger import require_no_copy
from penstock.sink.http.batch_requests import LaneTask, identity_of, post
from penstock.sink.http.client import Client, Endpoint
from penstock.sink.http.layout import Layout, Request, layout_of
from penstock.sink.own.json_lines import require_json
from penstock.sink.spool import INLINE_LIMIT_BYTES, Spool, SpooledSink, SpoolRoot, SpoolStager
from penstock.sink.spool.place import ID_SUFFIX, Place, Spooled
from penstock.spark.schema import arrow_schema
from penstock.support.filesystem_errors import translate_os_errors

MARK = FaultPoint("http.mark", "The spool notes that a batch was answered.")

_MARK = re.compile(r"posted-(\d{12})-([0-9a-f]{16})" + re.escape(ID_SUFFIX))
_REMEMBERED = 50
"""How many positions are remembered one by one, as by other sinks' marks."""
_QUEUED = 2
"""Requests of a lane that wait while one is sent."""


class HttpSink(SpooledSink):
    """Posts rows as JSON to an endpoint. Safe to use from several threads.

    `remembers_keys`: the endpoint recognises the key of a request that is repeated. Then delivery is exactly once, else at least
    once.
    """

    kind: ClassVar = SinkKind.IDEMPOTENT

    def __init__(
        self,
        *,
        name: SinkName,
        spool: "SpoolRoot | str",
        endpoint: Endpoint,
        layout: Layout,
        remembers_keys: bool,
        inline_limit_bytes: int = INLINE_LIMIT_BYTES,
    ) -> None:
        super().__init__(name=name, spool=Spool(root=spool, sink=name, inline_limit_bytes=inline_limit_bytes))
        self._endpoint, self._layout, self._remembers_keys = endpoint, layout, remembers_keys
        self._client = Client(endpoint)
        self._lock = RLock()
        self._answered = _Answered(position=Position(0))
        self._run_tasks: RunTasks | None = None

    @property
    def exactly_once(self) -> bool:
        return self._remembers_keys

    def describe(self) -> Mapping[str, str]:
        layout = self._layout
        rows = "one row" if layout.rows == 1 else f"up to {layout.rows} rows or {layout.size_bytes} bytes"
        beside = "" if layout.lanes == 1 else f", {layout.lanes} at a time"
        return {
            "stage": f"in the ledger's entry up to {self._spool.inline_limit_bytes} bytes a task, "
            f"else Arrow files in {self._spool.root.url}",
            "publish": f"POST of {rows} a request as {layout.body}{beside}, with an Idempotency-Key, to {self._endpoint.name}",
        }

    def check(self) -> Sequence[Finding]:
        """Report whether the endpoint answers an OPTIONS request, which changes nothing there."""
        subject = f"sink {self._name}"
        try:
            self._client.probe()
        except PenstockError as error:
            return [Finding(subject=subject, ok=False, message=str(error))]
        rests = (
            "remembers the keys of requests, as the pipeline file says" if self._remembers_keys else "is given rows at least once"
        )
        return [Finding(subject=subject, ok=True, message=f"{self._endpoint.name} answers; it {rests}")]

    def prepare(self, *, pipeline: PipelineName, schema: str | None) -> None:
        """Create the spool. Raises Usage if the rows lack a column of `key`, Failed, Retryable."""
        if schema is not None:
            there = arrow_schema(schema).names
            missing = [column for column in self._layout.key if column not in there]
            if missing:
                raise Usage(
                    f"Sink {self._name!r} has the key {', '.join(missing)}, but the rows have {', '.join(there)}.",
                    remedy="Name columns of the rows in `key`, or leave it out.",
                )
        self._spool.prepare(pipeline)

    def stager(self) -> SpoolStager:
        return replace(self._spool.stager(require_json), note=self._layout.noted())

    @property
    def tasks_per_batch(self) -> int:
        """One for each lane. None if keys are not remembered: a task that goes on after it was given up would post rows again."""
        return self._layout.lanes if self._remembers_keys else 0

    def publish_by(self, run_tasks: RunTasks | None) -> None:
        self._run_tasks = run_tasks if self.tasks_per_batch else None

    def publish(self, publication: Publication) -> Published:
        """Post what was not answered yet, then note that all of it was. Raises what `Client.post` raises, and StagedDataLost."""
        if not publication.staged:
            return Published(totals=publication.totals, already=True)
        with self._lock:
            marks = self._marks(publication)
            already = marks.shows(publication)  # I2
            if not already:
                try:
                    self._post_all(publication)
                    marks.add(publication)
                except StagedDataLost:  # unless another driver has published the batch, and removed its pieces
                    if not self._marks(publication).shows(publication):
                        raise
                    already = True
        self._spool.discard(publication.staged, pipeline=publication.pipeline)
        return Published(totals=publication.totals, already=already)

    def verify(self, decisions: SinkDecisions) -> SinkReport:  # noqa: ARG002
        """Return a report without accounts: an endpoint cannot be read."""
        return SinkReport(accounts={}, problems=())

    # --- steps

    def _marks(self, publication: Publication) -> "_Marks":
        return _Marks(self._spool.root.place_of(publication.pipeline, self._name))

    def _post_all(self, publication: Publication) -> None:
        """Post every request of the batch. Raises ContentConflict if these are not all rows that were decided."""
        layout = layout_of(publication.staged[0].ref)  # I8
        if self._run_tasks is not None and not publication.is_inline:
            sent = sum(rows for (rows,) in self._run_tasks(self._tasks(publication, layout)))
        else:
            sent = self._sent(publication, layout)
        if sent != publication.totals.rows:  # I1
            raise ContentConflict(
                f"Batch {publication.batch.batch_id} has {publication.totals.rows} rows, the spool {sent}.",
                remedy="Restore the spool and start again.",
            )

    def _sent(self, publication: Publication, layout: Layout) -> int:
        if self._answered.position != publication.position:
            self._answered = _Answered(position=publication.position)
        answered = self._answered
        begun = Counter[int]()

        def posted(request: Request) -> None:
            begun[request.lane] += 1
            if begun[request.lane] > answered.requests[request.lane]:
                post(self._client, request, publication, layout)
                answered.requests[request.lane] += 1

        with closing(self._spool.read(publication.staged, pipeline=publication.pipeline)) as rows:
            return _send(layout.divided(rows, publication.row_digest), posted, lanes=layout.lanes)

    def _tasks(self, publication: Publication, layout: Layout) -> Sequence[LaneTask]:
        root, claimed = self._spool.root, self._spool.claimed
        return [
            LaneTask(number=at, share=publication, layout=layout, endpoint=self._endpoint, spool=root, claimed=claimed)
            for at in range(layout.lanes)
        ]


@dataclass(frozen=True, slots=True)
class _Answered:
    """How many requests of each lane of a batch were answered: a repetition in this process leaves them out."""

    position: Position
    requests: Counter[int] = field(default_factory=Counter)


def _send(requests: Iterator[Request], post: Callable[[Request], None], *, lanes: int) -> int:
    """Call `post` for all requests, each lane's one at a time in their order, lanes side by side. Return how many rows they had.

    After an error no further request is begun. Raises all errors as one.
    """
    failed, waiting = Event(), BoundedSemaphore(lanes * (1 + _QUEUED))
    futures = deque[Future[int]]()

    def posted(request: Request) -> int:
        try:
            if not failed.is_set():
                post(request)
        except BaseException:
            failed.set()
            raise
        finally:
            waiting.release()
        return request.rows

    sent = 0
    with ExitStack() as until_sent:
        threads = [until_sent.enter_context(ThreadPoolExecutor(1, "penstock-http")) for _ in range(lanes)]
        for request in requests:
            waiting.acquire()
            if failed.is_set():
                break
            futures.append(threads[request.lane].submit(posted, request))
            while futures and futures[0].done() and futures[0].exception() is None:
                sent += futures.popleft().result()
    return sent + sum(results_of(futures))


class _Marks:
    """Empty files in the spool, `posted-<position>-<identity>.id`, one for each of the last batches that were answered."""

    def __init__(self, place: Place) -> None:
        self._place = place
        with self._translate_errors():
            found = [mark for spooled in place.spooled() if (mark := _MARK.fullmatch(spooled.name)) is not None]
        self._batches = {Position(int(mark[1])): mark[2] for mark in found}

    def shows(self, publication: Publication) -> bool:
        """Return whether the batch was answered. Raises LedgerMismatch if another ledger's was at its position, or a copy's."""
        newest = max(self._batches, default=Position(0))
        if publication.position > newest:
            require_no_copy(publication, newest, place=f"The endpoint of sink {publication.sink!r}")
            return False
        found = self._batches.get(publication.position)
        if found != identity_of(publication):
            raise LedgerMismatch(
                f"The ledger publishes batch {publication.batch.batch_id} at position {publication.position}, but sink "
                f"{publication.sink!r} stands at position {newest} and posted "
                f"{'another batch' if found else 'no batch that it still knows'} there.",
                remedy="Restore the ledger that the sink was filled by, or give the sink another name.",
            )
        return True

    def add(self, publication: Publication) -> None:
        """Note the batch durably, then remove marks that are too old."""
        name = f"posted-{publication.position:012d}-{identity_of(publication)}{ID_SUFFIX}"
        with self._translate_errors():
            with MARK.around(error=OSError, lost=OSError):
                self._place.identify(name)
            for position, found in self._batches.items():
                if position <= publication.position - _REMEMBERED:
                    self._place.remove(Spooled(name=f"posted-{position:012d}-{found}{ID_SUFFIX}"))

    def _translate_errors(self) -> AbstractContextManager[None]:
        what = f"The spool {self._place.where} cannot note what was answered"
        return translate_os_errors(Retryable, what, then=", then try again.")
