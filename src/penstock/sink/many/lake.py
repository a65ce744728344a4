"""A sink into many tables of an open format: a batch is published table by table, and each table has a token of its own."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar

from penstock.core.faults import FaultPoint
from penstock.core.high_water_mark import HighWaterMark
from penstock.core.model import (
    ONLY_ACCOUNT,
    AccountName,
    Entry,
    Finding,
    LedgerId,
    PipelineName,
    Publication,
    Published,
    RowDigest,
    SinkKind,
    SinkName,
    SinkReport,
    SweepCut,
    Waiting,
)
from penstock.core.table_names import TableNames
from penstock.core.taken_back import TakenBack
from penstock.errors import Failed, Refused
from penstock.protocols import CountsRequests, Signature, SinkDecisions, TaskCheck
from penstock.sink.lake.sink import LakeSink
from penstock.sink.lake.table_writer import step_error
from penstock.sink.many.database import OPEN
from penstock.sink.many.shares import TableDecisions, joined, share_of, tables_in, tables_of, taken_of
from penstock.sink.many.stager import FAIL, ManyStager, sharing
from penstock.sink.spool import Spool

NEXT = FaultPoint("laketables.next", "One of the Delta or Iceberg tables of a batch shows it, and the next one is to follow.")


class ManyLakeTables:
    """Delivers into a table for each name that rows have. `make` makes the sink of one table; nothing is connected by that.

    `spool`: the one that all tables share; None where tasks write the tables' files themselves.
    """

    exactly_once: ClassVar = True

    def __init__(
        self,
        *,
        name: SinkName,
        names: TableNames,
        make: Callable[[AccountName], LakeSink],
        spool: Spool | None,
        create: bool = True,
        unrouted: str = FAIL,
    ) -> None:
        self.name = name
        self._names, self._make, self._spool = names, make, spool
        self._creates, self._unrouted = create, unrouted
        self._opened: dict[AccountName, LakeSink] = {}
        self._others: dict[AccountName, LakeSink] = {}
        self._row_digest: RowDigest | None = None
        self._prepared_for: tuple[PipelineName, str] | None = None
        self._ledger_id: LedgerId | None = None
        self._strange: AccountName | None = None
        """A table that the ledger knows, and that the template cannot name."""

    # --- as `OpensTables`

    def use_tables(self, tables: Collection[AccountName]) -> None:
        for table in sorted(tables):
            if not self._names.fits(table):
                self._strange = table
            elif table not in self._opened and self._names.refusal(table) is None:
                self._opened[table] = self._made(table)

    def open_tables(self, tables: Sequence[AccountName]) -> None:
        if self._prepared_for is None:
            raise Failed(f"Sink {self.name!r} was not prepared with a schema.", remedy="Call prepare() first.")
        pipeline, schema = self._prepared_for
        for table in self._names.to_open(tables, self._opened):
            child = self._made(table)
            with OPEN.around(error=step_error, lost=step_error):
                child.prepare(pipeline=pipeline, schema=schema)
                if self._ledger_id is not None:
                    child.claim(self._ledger_id)
            self._opened[table] = child

    # --- as `Sink`

    @property
    def kind(self) -> SinkKind:
        return SinkKind.STAGING if self._spool is None else SinkKind.TRANSACTIONAL

    @property
    def route_sql(self) -> str:
        return self._names.route_sql

    @property
    def accounts(self) -> Sequence[AccountName]:
        """Every table that is open; the only account before there is one."""
        return sorted(self._opened) or [ONLY_ACCOUNT]

    def use_row_digest(self, row_digest: RowDigest) -> None:
        self._row_digest = row_digest
        for child in self._every():
            child.use_row_digest(row_digest)

    def describe(self) -> Mapping[str, str]:
        return {
            **self._example().describe(),
            "tables": f"one for each {self._names.template} that rows have, {self._names.most} at most; created before the first "
            f"batch with rows for it is decided, and each shows a batch by a commit of its own; other rows: {self._unrouted}",
        }

    def check(self) -> Sequence[Finding]:
        """Check the tables that are known, and the directory of one that would be created."""
        known = self._known()
        findings = [finding for child in known.values() for finding in child.check() if not (finding.ok and self._opened)]
        creates = "others are created when rows name them" if self._creates else "`create` is false: rows for others fail"
        message = f"{len(self._opened)} of at most {self._names.most} tables {self._names.template} hold rows, and {creates}"
        return [*findings, Finding(subject=f"sink {self.name}", ok=True, message=message)]

    def require_schema_accepted(self, *, pipeline: PipelineName, schema: str) -> None:
        self._require_same_template()
        for child in self._known().values() or [self._example()]:
            child.require_schema_accepted(pipeline=pipeline, schema=schema)

    def high_water_mark(self, account: AccountName, *, pipeline: PipelineName) -> HighWaterMark | None:
        return None if account == ONLY_ACCOUNT else self._child(account).high_water_mark(ONLY_ACCOUNT, pipeline=pipeline)

    def prepare(self, *, pipeline: PipelineName, schema: str | None) -> None:
        """Prepare the tables that the ledger knows. Raises Usage, Refused, Failed, Retryable."""
        if schema is not None:
            self._require_same_template()
        if self._spool is not None:
            self._spool.prepare(pipeline)
        for child in self._opened.values():
            child.prepare(pipeline=pipeline, schema=schema)
        if schema is not None:
            self._prepared_for = pipeline, schema

    def claim(self, ledger_id: LedgerId) -> None:
        self._ledger_id = ledger_id
        if self._spool is not None:
            self._spool.claim(ledger_id)
        for child in self._opened.values():
            child.claim(ledger_id)

    def stager(self) -> ManyStager:
        opened = {table: sharing(child.stager(), len(self._opened)) for table, child in self._opened.items()}
        return ManyStager(sink=self.name, names=self._names, opened=opened, unrouted=self._unrouted)

    def publish(self, publication: Publication) -> Published:
        """Publish in every table that has rows of the batch. What one of them shows already is left alone (I2).

        Raises what the tables' sinks raise. Tables before the one that failed show the batch, those after it do not.
        """
        shown: list[Published] = []
        for table in tables_of(publication):
            if shown:
                with NEXT.around(error=step_error, lost=step_error):
                    pass
            shown.append(self._child(table).publish(share_of(publication, table)))
        return Published(totals=publication.totals, already=all(each.already for each in shown))

    def maintain_target(self, publication: Publication) -> Sequence[str]:
        """Look after the tables that the batch has rows for. Return warnings, and raise nothing."""
        tables = tables_of(publication)
        return [line for table in tables for line in self._child(table).maintain_target(share_of(publication, table))]

    def sweep(self, cut: SweepCut, *, dry_run: bool) -> Sequence[str]:
        """Collect in every table, also in those that a run opened for a batch that was never decided (I10)."""
        swept = [] if self._spool is None else [*self._spool.sweep(cut, dry_run=dry_run)]
        found = self._example().staged_beside()
        left = [self._child(AccountName(name)) for name in found if self._names.refusal(name) is None]
        children = dict.fromkeys([*self._opened.values(), *left])
        return list(dict.fromkeys([*swept, *(name for child in children for name in child.sweep(cut, dry_run=dry_run))]))

    def verify(self, decisions: SinkDecisions) -> SinkReport:
        """Compare each table with the ledger as of its own marker."""
        return joined(
            {table: child.verify(TableDecisions(whole=decisions, table=table)) for table, child in sorted(self._opened.items())}
        )

    def close(self) -> None:
        for child in self._every():
            child.close()

    # --- staging

    def task_checks(self) -> AbstractContextManager[Sequence[TaskCheck]]:
        """Return the checks of one table: all of them lie below one directory, or in one store."""
        known = self._known()
        return next(iter(known.values())).task_checks() if known else nullcontext(())

    def signatures(self, *, pipeline: PipelineName) -> Sequence[Signature]:
        return [] if self._spool is None else self._spool.signatures(pipeline)

    def sign(self, entry: Entry) -> None:
        if self._spool is not None:
            self._spool.sign(entry)

    def waiting(self, account: AccountName, *, pipeline: PipelineName) -> Iterator[Waiting]:
        if account != ONLY_ACCOUNT:
            yield from self._child(account).waiting(ONLY_ACCOUNT, pipeline=pipeline)
        elif self._spool is not None:
            yield from self._spool.waiting(pipeline)

    def lifecycle(self) -> Sequence[Finding]:
        """Report the rules of the store for one table: those of a bucket are the same for all."""
        known = self._known()
        return next(iter(known.values())).lifecycle() if known else []

    def requests_sent(self) -> Mapping[str, int]:
        counting = [child for child in self._every() if isinstance(child, CountsRequests)]
        return {place: sent for child in counting for place, sent in child.requests_sent().items()}

    # --- rewinding

    def require_taken_back_exactly(self, taken: TakenBack) -> None:
        for table in tables_in(taken):
            self._child(table).require_taken_back_exactly(taken_of(taken, table))

    def take_back(self, taken: TakenBack) -> None:
        """Take the files out of one table after the other; those that have lost them are left alone."""
        for table in tables_in(taken):
            self._child(table).take_back(taken_of(taken, table))

    # --- steps

    def _made(self, table: AccountName) -> LakeSink:
        child = self._make(table)
        if self._row_digest is not None:
            child.use_row_digest(self._row_digest)
        return child

    def _require_same_template(self) -> None:
        """Raise Refused if the sink has filled tables by another template, or one table only."""
        if self._strange is not None:
            named = f"table {self._strange!r}" if self._strange else "one table"
            raise Refused(
                f"Sink {self.name!r} filled {named} so far, which {self._names.template} cannot be.",
                remedy="Name the tables as before, or give the sink another name: the batches so far stay in the old tables.",
            )

    def _example(self) -> LakeSink:
        """Return the sink of a table that nobody names, for what is the same for all. It is never prepared."""
        return self._made(AccountName(self._names.example))

    def _child(self, table: AccountName) -> LakeSink:
        """Return the sink of a table. One that the settings do not allow any more can still have a decided share."""
        if table in self._opened:
            return self._opened[table]
        if table not in self._others:
            self._others[table] = self._made(table)
        return self._others[table]

    def _every(self) -> Sequence[LakeSink]:
        return [*self._opened.values(), *self._others.values()]

    def _known(self) -> Mapping[AccountName, LakeSink]:
        """Return the sinks of all tables that can be named before rows name them."""
        listed = map(AccountName, self._names.listed)
        return {**{table: self._made(table) for table in listed if table not in self._opened}, **self._opened}
