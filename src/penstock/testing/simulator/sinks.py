"""Fakes of the three kinds of sink, as small as their protocol allows, in single steps."""

from collections.abc import Mapping, Sequence

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
from penstock.testing.simulator.history import History
from penstock.testing.simulator.rows import from_bytes, to_bytes, totals_of
from penstock.testing.simulator.stepping import Stepper
from penstock.testing.simulator.targets import FilesTarget, KeyedTarget, Rows, TableTarget, Target


class SteppedSink:
    """The common part of the three sinks. Every access to the target is a step."""

    kind: SinkKind
    exactly_once = True
    route_sql: str | None = None
    accounts: Sequence[AccountName] = (ONLY_ACCOUNT,)

    def __init__(self, target: Target, history: History, stepper: Stepper) -> None:
        self._target = target
        self._history = history
        self._stepper = stepper

    @property
    def name(self) -> SinkName:
        return self._target.sink

    def stage(self, attempt: Attempt, rows: Rows, *, inline: bool) -> Staged:
        """Stage one attempt as this sink's stage writer would: one piece, in the target or in the message."""
        name = f"{self.name}/{attempt.token}"
        fault = self._stepper.before("stage", name)
        self._target.stage(name, rows)
        data = None
        if inline and self.kind is not SinkKind.STAGING:
            del self._target.staged[name]
            data = to_bytes(rows)
        if fault is not None:
            self._stepper.after(fault, "stage")
        return Staged(
            sink=self.name,
            account=ONLY_ACCOUNT,
            name=name,
            attempt=attempt.token,
            totals=totals_of(rows),
            inline=data,
        )

    def publish(self, publication: Publication) -> Published:
        """Look at the marker, make the pieces visible, raise the marker."""
        if self._marker() >= publication.position:
            return Published(totals=publication.totals, already=True)
        changed = self._show(publication)
        return Published(totals=publication.totals, already=not changed)

    def sweep(self, cut: SweepCut, *, dry_run: bool) -> Sequence[str]:
        swept = []
        for name in self._list():
            attempt = Attempt.find(name)
            if attempt is not None and cut.is_dead(attempt):
                swept.append(name)
                if not dry_run:
                    self._collect(name)
        return swept

    def _show(self, publication: Publication) -> bool:
        raise NotImplementedError

    def _marker(self) -> int:
        fault = self._stepper.before("marker", self.name)
        position = self._target.marked
        if fault is not None:
            self._stepper.after(fault, "marker")
        return position

    def _raise_marker(self, publication: Publication) -> None:
        fault = self._stepper.before("raise marker", self.name)
        self._target.raise_marker(publication.position)
        if fault is not None:
            self._stepper.after(fault, "raise marker")

    def _list(self) -> list[str]:
        fault = self._stepper.before("list", self.name)
        names = list(self._target.staged)
        if fault is not None:
            self._stepper.after(fault, "list")
        return names

    def _collect(self, name: str) -> None:
        fault = self._stepper.before("collect", name)
        newest = self._history.newest
        self._target.collect(name, generation=self._history.generation, newest_batch=newest.batch_id if newest else -1)
        if fault is not None:
            self._stepper.after(fault, "collect")

    def _read(self, piece: Staged) -> Rows | None:
        """Return the rows of a spooled or inline piece, None if the spool no longer has it."""
        if piece.inline is not None:
            return from_bytes(piece.inline)
        fault = self._stepper.before("read", piece.name)
        rows = self._target.staged.get(piece.name)
        if fault is not None:
            self._stepper.after(fault, "read")
        return rows

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


class FilesSink(SteppedSink):
    """Staging kind, as accounts and table formats: publishing consumes what was staged."""

    kind = SinkKind.STAGING

    def __init__(self, target: FilesTarget, history: History, stepper: Stepper) -> None:
        super().__init__(target, history, stepper)
        self._files = target

    def _show(self, publication: Publication) -> bool:
        changed = False
        for piece in publication.staged:
            found = self._promote(piece.name)
            changed = changed or (self._lost(piece, publication) if found is None else found)
        self._raise_marker(publication)
        return changed

    def _promote(self, name: str) -> bool | None:
        fault = self._stepper.before("promote", name)
        found = self._files.promote(name)
        if fault is not None:
            self._stepper.after(fault, "promote")
        return found


class TableSink(SteppedSink):
    """Transactional kind, as SQL and Kafka: rows and marker become visible in one transaction."""

    kind = SinkKind.TRANSACTIONAL

    def __init__(self, target: TableTarget, history: History, stepper: Stepper) -> None:
        super().__init__(target, history, stepper)
        self._table = target

    def _show(self, publication: Publication) -> bool:
        pieces: dict[str, Rows] = {}
        for piece in publication.staged:
            rows = self._read(piece)
            if rows is None:
                return self._lost(piece, publication)
            pieces[piece.name] = rows
        fault = self._stepper.before("transact", self.name)
        changed = self._table.transact(pieces, publication.position)
        if fault is not None:
            self._stepper.after(fault, "transact")
        return changed


class KeyedSink(SteppedSink):
    """Idempotent kind, as Cassandra: writes with a fixed key and a fixed timestamp may be repeated."""

    kind = SinkKind.IDEMPOTENT

    def __init__(self, target: KeyedTarget, history: History, stepper: Stepper) -> None:
        super().__init__(target, history, stepper)
        self._keyed = target

    def _show(self, publication: Publication) -> bool:
        for piece in publication.staged:
            rows = self._read(piece)
            if rows is None:
                return self._lost(piece, publication)
            for row in rows:
                fault = self._stepper.before("write", piece.name)
                self._keyed.write(piece.name, row, publication.position)
                if fault is not None:
                    self._stepper.after(fault, "write")
        self._raise_marker(publication)
        return True
