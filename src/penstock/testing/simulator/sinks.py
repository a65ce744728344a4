"""Fakes of the three kinds of sink, as small as their protocol allows, in single steps."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Generic, TypeVar

from penstock.core.model import (
    ONLY_ACCOUNT,
    AccountName,
    Attempt,
    Finding,
    PipelineName,
    Publication,
    Published,
    SinkKind,
    SinkName,
    SinkReport,
    Staged,
    SweepCut,
)
from penstock.errors import StagedDataLost
from penstock.protocols import SinkDecisions, Stager
from penstock.testing.simulator.schedule import Stepper
from penstock.testing.simulator.targets import (
    FilesTarget,
    History,
    KeyedTarget,
    Rows,
    TableTarget,
    Target,
    from_bytes,
    to_bytes,
    totals_of,
)

Place = TypeVar("Place", bound=Target)


class SteppedSink(Generic[Place]):
    """The common part of the three sinks. Every access to the target is a step."""

    kind: SinkKind
    exactly_once = True
    route_sql: str | None = None
    accounts: Sequence[AccountName] = (ONLY_ACCOUNT,)

    def __init__(self, target: Place, history: History, stepper: Stepper) -> None:
        self._target = target
        self._history = history
        self._stepper = stepper

    @property
    def name(self) -> SinkName:
        return self._target.sink

    def stage(self, attempt: Attempt, rows: Rows, *, inline: bool) -> Staged:
        """Stage one attempt as this sink's stage writer would: one piece, in the target or in the message."""
        name = f"{self.name}/{attempt.token}"
        inlined = inline and self.kind is not SinkKind.STAGING
        self._stepper.do("stage", name, partial(self._target.stage, name, rows, kept=not inlined))
        return Staged(
            sink=self.name,
            account=ONLY_ACCOUNT,
            name=name,
            attempt=attempt.token,
            totals=totals_of(rows),
            inline=to_bytes(rows) if inlined else None,
        )

    def publish(self, publication: Publication) -> Published:
        """Look at the marker, make the pieces visible, raise the marker."""
        if self._marker() >= publication.position:
            return Published(totals=publication.totals, already=True)
        changed = self._show(publication)
        return Published(totals=publication.totals, already=not changed)

    def sweep(self, cut: SweepCut, *, dry_run: bool) -> Sequence[str]:
        swept = []
        for name in self._stepper.do("list", self.name, lambda: list(self._target.staged)):
            attempt = Attempt.find(name)
            if attempt is not None and cut.is_dead(attempt):
                swept.append(name)
                if not dry_run:
                    self._stepper.do("collect", name, partial(self._collect, name))
        return swept

    def _show(self, publication: Publication) -> bool:
        raise NotImplementedError

    def _marker(self) -> int:
        return self._stepper.do("marker", self.name, lambda: self._target.marked)

    def _raise_marker(self, publication: Publication) -> None:
        self._stepper.do("raise marker", self.name, partial(self._target.raise_marker, publication.position))

    def _collect(self, name: str) -> None:
        newest = self._history.newest
        self._target.collect(name, generation=self._history.generation, newest_batch=newest.batch_id if newest else -1)

    def _read(self, piece: Staged) -> Rows | None:
        """Return the rows of a spooled or inline piece, None if the spool no longer has it."""
        if piece.inline is not None:
            return from_bytes(piece.inline)
        return self._stepper.do("read", piece.name, partial(self._target.staged.get, piece.name))

    def _lost(self, piece: Staged, publication: Publication) -> bool:
        """Return False if somebody published the missing piece meanwhile. Raises StagedDataLost otherwise."""
        if self._marker() >= publication.position:
            return False
        raise StagedDataLost(f"{piece.name} is neither staged nor visible.", remedy="This is a bug.")

    # --- what the coordinator never calls

    def describe(self) -> Mapping[str, str]:
        return {}

    def check(self) -> Sequence[Finding]:
        return ()

    def prepare(self, *, pipeline: PipelineName, schema: str | None) -> None:
        """Do nothing."""

    def stager(self) -> Stager:
        """Never called: rows are staged by `stage`, without Arrow."""
        raise NotImplementedError

    def verify(self, decisions: SinkDecisions) -> SinkReport:
        """Never called: the simulator compares rows itself."""
        raise NotImplementedError

    def close(self) -> None:
        """Do nothing: nothing is open."""


class FilesSink(SteppedSink[FilesTarget]):
    """Staging kind, as accounts and table formats: publishing consumes what was staged."""

    kind = SinkKind.STAGING

    def _show(self, publication: Publication) -> bool:
        changed = False
        for piece in publication.staged:
            found = self._stepper.do("promote", piece.name, partial(self._target.promote, piece.name))
            changed = changed or (self._lost(piece, publication) if found is None else found)
        self._raise_marker(publication)
        return changed


class TableSink(SteppedSink[TableTarget]):
    """Transactional kind, as SQL and Kafka: rows and marker become visible in one transaction."""

    kind = SinkKind.TRANSACTIONAL

    def _show(self, publication: Publication) -> bool:
        pieces: dict[str, Rows] = {}
        for piece in publication.staged:
            rows = self._read(piece)
            if rows is None:
                return self._lost(piece, publication)
            pieces[piece.name] = rows
        return self._stepper.do("transact", self.name, partial(self._target.transact, pieces, publication.position))


class KeyedSink(SteppedSink[KeyedTarget]):
    """Idempotent kind, as Cassandra: writes with a fixed key and a fixed timestamp may be repeated."""

    kind = SinkKind.IDEMPOTENT

    def _show(self, publication: Publication) -> bool:
        for piece in publication.staged:
            rows = self._read(piece)
            if rows is None:
                return self._lost(piece, publication)
            for row in rows:
                self._stepper.do("write", piece.name, partial(self._target.write, piece.name, row, publication.position))
        self._raise_marker(publication)
        return True
