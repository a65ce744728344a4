"""`Spool`, through which a sink stages, reads, discards and sweeps its pieces, and the base class of sinks that do."""

import logging
import os
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from penstock.core.faults import FaultPoint
from penstock.core.model import (
    ONLY_ACCOUNT,
    AccountName,
    Attempt,
    Entry,
    Finding,
    LedgerId,
    PipelineName,
    Publication,
    SinkName,
    Staged,
    SweepCut,
    Waiting,
)
from penstock.errors import Failed, PublishFailed, Retryable
from penstock.protocols import Signature, TaskCheck
from penstock.sink.concurrent import map_concurrently
from penstock.sink.spool.place import (
    Claimed,
    Place,
    Spooled,
    claim,
    is_of_another,
    require_own_place,
    sign,
    signatures_among,
    signatures_in,
)
from penstock.sink.spool.reader import PARALLEL, copied, read_cached, read_piece
from penstock.sink.spool.root import SpoolRoot, root_at
from penstock.sink.spool.writer import INLINE_LIMIT_BYTES, RowCache, RowCheck, SpoolStager
from penstock.support.filesystem_errors import translate_os_errors

if TYPE_CHECKING:
    import pyarrow as pa

DISCARD = FaultPoint("spool.discard", "A sink removes a spool file whose rows its target holds durably.")
SWEEP = FaultPoint("spool.sweep", "The sweep removes a spool file of a dead attempt.")


REFRESH_S = 86_400.0
"""Identity and signatures in a store are written again when they are this old: rules that delete objects count days."""
_LEFT = (
    "sink %s: published pieces could not be removed from the spool: %s No rows are affected. `penstock sweep` or the next start "
    "removes them."
)

_log = logging.getLogger(__name__)


class Spool:
    """The pieces of one sink under `root`, the `spool:` of the pipeline file. Driver side. Safe to use from several threads."""

    def __init__(
        self, *, root: "SpoolRoot | str | os.PathLike[str]", sink: SinkName, inline_limit_bytes: int = INLINE_LIMIT_BYTES
    ) -> None:
        self.root = root_at(root)
        self._sink = sink
        self.inline_limit_bytes = inline_limit_bytes
        self._claimed: Claimed | None = None
        self._named_s = 0.0
        self._signed: Set[str] = frozenset()
        self._is_stuck = False
        self._fetched = threading.local()
        self._cache = RowCache()

    def prepare(self, pipeline: PipelineName) -> None:
        """Create the sink's place if it is missing. Called once per generation, before all else. Raises Failed, Retryable."""
        self._claimed = claim(self._place(pipeline))
        self._named_s = time.monotonic()

    def signatures(self, pipeline: PipelineName) -> Sequence[Signature]:
        """Return the signatures in the sink's place, which may be another ledger's. Raises Retryable, Failed."""
        found = signatures_in(self._place(pipeline))
        self._signed = {signature.name for signature in found}
        return found

    def sign(self, entry: Entry) -> None:
        """Sign the place with `entry`, in place of what `signatures` returned. Raises Retryable, Failed."""
        claimed = self._prepared()
        self._signed = sign(claimed.place, entry, instead_of=self._signed)
        self._name_again(claimed)

    def claim(self, ledger_id: LedgerId) -> None:
        """Raise LedgerMismatch if another ledger has signed the place since `signatures` looked.

        Raises Retryable if this ledger has not signed it, and Failed.
        """
        claimed = self._prepared()
        self._name_daily(claimed)
        require_own_place(claimed.place, own=self._signed, sink=self._sink, ledger_id=ledger_id)

    def stager(self, check: RowCheck | None = None) -> SpoolStager:
        """Return the recipe for the tasks. `check` raises StageFailed for rows that the sink could not publish.

        If the recipe is used in this process, without being pickled, it caches the rows of the newest pieces for `read`, unless
        the spool is in a store.
        """
        claimed = self._prepared()
        limit = self.inline_limit_bytes
        self._name_daily(claimed)
        cache = None if claimed.place.is_remote else self._cache  # `read_cached` would look for the file with a request
        stager = SpoolStager(sink=self._sink, claimed=claimed, inline_limit_bytes=limit, cache=cache)
        return stager if check is None else replace(stager, check=check)

    def read(self, pieces: Iterable[Staged], *, pipeline: PipelineName) -> Generator["pa.RecordBatch", None, None]:
        """Yield the rows of `pieces` in their frozen order. Raises StagedDataLost, Retryable, Failed, FormatTooNew.

        Close the generator to stop early: the file of a piece is open while its rows are read.
        """
        place = self._place(pipeline)
        copies = getattr(self._fetched, "copies", None)
        for piece in pieces:
            if (rows := self._cache.rows_of(piece)) is not None:
                yield from read_cached(piece, rows, place)
            elif piece.inline is not None or not place.is_remote:
                yield from read_piece(piece, place)
            else:
                with copied([piece], place) if copies is None else nullcontext(copies) as here:
                    yield from read_piece(piece, place, copy=here.open(piece))

    def lies_remote(self, pieces: Iterable[Staged], *, pipeline: PipelineName) -> bool:
        return self._place(pipeline).is_remote and any(piece.inline is None for piece in pieces)

    @contextmanager
    def fetched(self, pieces: Iterable[Staged], *, pipeline: PipelineName) -> Iterator[None]:
        """Fetch `pieces` to this machine until the context ends; `read` in this thread then reads these, and only these.

        For callers that make others wait while they read. Costs nothing if no piece lies in a store. Raises as `read`.
        """
        spilled = [piece for piece in pieces if piece.inline is None]
        place = self._place(pipeline)
        if not spilled or not place.is_remote:
            yield
            return
        with copied(spilled, place) as copies:
            self._fetched.copies = copies
            try:
                yield
            finally:
                del self._fetched.copies

    @contextmanager
    def rows_of(self, publication: Publication) -> "Iterator[Iterator[pa.RecordBatch]]":
        """Fetch and open the rows of a publication, for the duration of the context. Raises as `read`."""
        pieces, pipeline = publication.staged, publication.pipeline
        with self.fetched(pieces, pipeline=pipeline), closing(self.read(pieces, pipeline=pipeline)) as rows:
            yield rows

    @property
    def claimed(self) -> Claimed:
        """The place as this driver claimed it, by which tasks know it. Raises Failed before `prepare`."""
        return self._prepared()

    def discard(self, pieces: Iterable[Staged], *, pipeline: PipelineName) -> None:
        """Remove published pieces, after their rows are durable in the target. Pieces that are gone already are skipped.

        A piece that cannot be removed is garbage and stops nothing: it is logged once, and the sweep removes it and the rest.
        """
        place = self._place(pipeline)
        is_stuck = threading.Event()
        spilled = [piece for piece in pieces if piece.inline is None]
        self._cache.evict(spilled)
        try:
            map_concurrently(lambda piece: _discard(piece, place, is_stuck), spilled, parallel=PARALLEL)
        except (Retryable, Failed) as error:
            if not self._is_stuck:
                _log.warning(_LEFT, self._sink, error)
        self._is_stuck = is_stuck.is_set() or (self._is_stuck and not spilled)

    def sweep(self, cut: SweepCut, *, dry_run: bool) -> Sequence[str]:
        """Remove what dead attempts left, and return the names. Raises Retryable, Failed.

        Removes nothing if another ledger has signed the place: each ledger knows only for itself what is dead (I10).
        """
        place = self._place(cut.pipeline)
        there = _listed(place)
        if any(is_of_another(one, cut.ledger_id) for one in signatures_among((spooled.name for spooled in there), place)):
            return []
        dead = [spooled for spooled, attempt in _of_attempts(there) if cut.is_dead(attempt)]
        for spooled in () if dry_run else dead:
            with SWEEP.around(error=_stuck, lost=_stuck):
                _remove(spooled, place)
        return [f"{place.where}/{spooled.name}" for spooled in dead]

    def waiting(self, pipeline: PipelineName) -> Iterator[Waiting]:
        place = self._place(pipeline)
        for spooled, attempt in _of_attempts(_listed(place)):
            yield Waiting(name=f"{place.where}/{spooled.name}", attempt=attempt, size_bytes=spooled.size_bytes)

    def _place(self, pipeline: PipelineName) -> Place:
        return self.root.place_of(pipeline, self._sink)

    def _name_daily(self, claimed: Claimed) -> None:
        if time.monotonic() - self._named_s > REFRESH_S:
            self._name_again(claimed)

    def _name_again(self, claimed: Claimed) -> None:
        """Write identity and signatures again: a store may have deleted them, or be about to."""
        self._named_s = time.monotonic()
        for name in (claimed.identity, *self._signed) if claimed.place.is_remote else ():
            claimed.place.identify(name)

    def _prepared(self) -> Claimed:
        if self._claimed is None:
            raise Failed(f"Sink {self._sink!r} was not prepared.", remedy="Call prepare() first.")
        return self._claimed


def spool_in_task(publication: Publication, *, root: SpoolRoot, claimed: Claimed) -> Spool:
    """Return the spool of a publication, for a task. `claimed`: the place as the driver knows it.

    Raises PublishFailed if rows lie there and this process does not see that place.
    """
    if not publication.is_inline:
        claimed.require_shared(PublishFailed)
    return Spool(root=root, sink=publication.sink)


class SpooledSink:
    """The common part of a `Sink` over one spool. Implements `HasStaging` and `CountsRequests` for the spool."""

    route_sql: ClassVar = None
    accounts: ClassVar[Sequence[AccountName]] = [ONLY_ACCOUNT]

    def __init__(self, *, name: SinkName, spool: Spool) -> None:
        self._name, self._spool = name, spool

    @property
    def name(self) -> SinkName:
        return self._name

    def waiting(self, account: AccountName, *, pipeline: PipelineName) -> Iterator[Waiting]:  # noqa: ARG002 - there is one
        return self._spool.waiting(pipeline)

    def sweep(self, cut: SweepCut, *, dry_run: bool) -> Sequence[str]:
        return self._spool.sweep(cut, dry_run=dry_run)

    def signatures(self, *, pipeline: PipelineName) -> Sequence[Signature]:
        return self._spool.signatures(pipeline)

    def sign(self, entry: Entry) -> None:
        self._spool.sign(entry)

    def claim(self, ledger_id: LedgerId) -> None:
        """Check the signatures: this start has signed the spool, but another ledger may have signed it at the same moment."""
        self._spool.claim(ledger_id)

    def task_checks(self) -> AbstractContextManager[Sequence[TaskCheck]]:
        """Yield no checks: the spool is checked once for all sinks."""
        return nullcontext(())

    def lifecycle(self) -> Sequence[Finding]:
        """Return nothing: targets delete nothing, and the spool is checked once for all sinks."""
        return []

    def requests_sent(self) -> Mapping[str, int]:
        return self._spool.root.requests_sent()

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def _listed(place: Place) -> Sequence[Spooled]:
    with translate_os_errors(Retryable, f"The spool {place.where} cannot be listed", then=", then try again."):
        return list(place.spooled())


def _of_attempts(there: Iterable[Spooled]) -> Iterator[tuple[Spooled, Attempt]]:
    for spooled in there:
        attempt = Attempt.find(spooled.name)
        if attempt is not None:
            yield spooled, attempt


def _discard(piece: Staged, place: Place, is_stuck: threading.Event) -> None:
    """Remove `piece`, unless removing another one has failed: each further failure would cost time."""
    if is_stuck.is_set():
        return
    try:
        with DISCARD.around(error=_stuck, lost=_stuck):
            _remove(Spooled(name=piece.name), place)
    except (Retryable, Failed):
        is_stuck.set()
        raise


def _remove(spooled: Spooled, place: Place) -> None:
    with translate_os_errors(Retryable, f"The spool file {place.where}/{spooled.name} cannot be removed", then="."):
        place.remove(spooled)


def _stuck(point: str) -> Retryable:
    return Retryable(f"{point} failed.", remedy="Give the driver write access to the spool.")
