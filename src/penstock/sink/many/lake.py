"""A sink into many tables of an open format: a batch is published table by table, and each table has a token of its own."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
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
from penstock.sink.many.shares import share_of, tables_in, tables_of, taken_of, verified
from penstock.sink.many.stager import FAIL, ManyStager, sharing
from penstock.sink.many.table_sinks import TableSinks
from penstock.sink.parquet.directory.account import DirectoryAccount
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
        self._children = TableSinks(names, self._made)
        self._creates, self._unrouted = create, unrouted
        self._row_digest: RowDigest | None = None
        self._prepared_for: tuple[PipelineName, str] | None = None
        self._ledger_id: LedgerId | None = None

    # --- as `OpensTables`

    def use_tables(self, tables: Collection[AccountName]) -> None:
        self._children.use(tables)

    def open_tables(self, tables: Sequence[AccountName]) -> None:
        if self._prepared_for is None:
            raise Failed(f"Sink {self.name!r} was not prepared with a schema.", remedy="Call prepare() first.")
        pipeline, schema = self._prepared_for

        def prepare(child: LakeSink) -> None:
            child.prepare(pipeline=pipeline, schema=schema)
            if self._ledger_id is not None:
                child.claim(self._ledger_id)

        self._children.open(tables, prepare)

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
        return sorted(self._children.opened) or [ONLY_ACCOUNT]

    def use_row_digest(self, row_digest: RowDigest) -> None:
        self._row_digest = row_digest
        for child in self._children.every():
            child.use_row_digest(row_digest)

    def describe(self) -> Mapping[str, str]:
        return {
            **self._example().describe(),
            "tables": self._children.described("each shows it by a commit of its own", unrouted=self._unrouted),
        }

    def check(self) -> Sequence[Finding]:
        """Check the tables that are known, and the directory of one that would be created."""
        findings = [finding for child in self._children.known().values() for finding in child.check()]
        failed = [finding for finding in findings if not finding.ok]
        message = self._children.counted(len(self._children.opened), creates=self._creates)
        return [*failed, Finding(subject=f"sink {self.name}", ok=True, message=f"{message}.")]

    def require_schema_accepted(self, *, pipeline: PipelineName, schema: str) -> None:
        self._require_same_template()
        for child in self._children.known().values() or [self._example()]:
            child.require_schema_accepted(pipeline=pipeline, schema=schema)

    def high_water_mark(self, account: AccountName, *, pipeline: PipelineName) -> HighWaterMark | None:
        return None if account == ONLY_ACCOUNT else self._children.of(account).high_water_mark(ONLY_ACCOUNT, pipeline=pipeline)

    def prepare(self, *, pipeline: PipelineName, schema: str | None) -> None:
        """Prepare the tables that the ledger knows. Raises Usage, Refused, Failed, Retryable."""
        if schema is not None:
            self._require_same_template()
        if self._spool is not None:
            self._spool.prepare(pipeline)
        for child in self._children.opened.values():
            child.prepare(pipeline=pipeline, schema=schema)
        if schema is not None:
            self._prepared_for = pipeline, schema

    def claim(self, ledger_id: LedgerId) -> None:
        self._ledger_id = ledger_id
        if self._spool is not None:
            self._spool.claim(ledger_id)
        for child in self._children.opened.values():
            child.claim(ledger_id)

    def stager(self) -> ManyStager:
        opened = {
            table: sharing(child.stager(), table, tables=len(self._children.opened))
            for table, child in self._children.opened.items()
        }
        return ManyStager(sink=self.name, names=self._names, opened=opened, unrouted=self._unrouted)

    def publish(self, publication: Publication) -> Published:
        """Publish in every table that has rows of the batch. What one of them shows already is left alone (I2).

        Raises what the tables' sinks raise. Tables before the one that failed show the batch, those after it do not.
        """
        tables = tables_of(publication)
        shown = [self._published(publication, table, is_first=table == tables[0]) for table in tables]
        return Published(totals=publication.totals, already=all(each.already for each in shown))

    def _published(self, publication: Publication, table: AccountName, *, is_first: bool) -> Published:
        with nullcontext() if is_first else NEXT.around(error=step_error, lost=step_error):
            return self._children.of(table).publish(share_of(publication, table))

    def maintain_target(self, publication: Publication) -> Sequence[str]:
        """Look after the tables that the batch has rows for. Return warnings, and raise nothing."""
        tables = tables_of(publication)
        return [line for table in tables for line in self._children.of(table).maintain_target(share_of(publication, table))]

    def sweep(self, cut: SweepCut, *, dry_run: bool) -> Sequence[str]:
        """Collect in every table, also in those that a run opened for a batch that was never decided (I10)."""
        swept = [] if self._spool is None else [*self._spool.sweep(cut, dry_run=dry_run)]
        left = [self._children.of(table) for table in self._staged_tables()]
        children = dict.fromkeys([*self._children.opened.values(), *left])
        return list(dict.fromkeys([*swept, *(name for child in children for name in child.sweep(cut, dry_run=dry_run))]))

    def verify(self, decisions: SinkDecisions) -> SinkReport:
        """Compare each table with the ledger as of its own marker."""
        return verified(self._children.opened, decisions)

    def close(self) -> None:
        for child in self._children.every():
            child.close()

    # --- staging

    def _staged_tables(self) -> Iterator[AccountName]:
        """Yield the tables in directories for which somebody stages, or did; none in stores, which end uploads by their rules."""
        account, name = self._example()._account, self._names.example
        parts = Path(account.staging).parts if isinstance(account, DirectoryAccount) else ()
        if name not in parts:
            return
        at = len(parts) - 1 - parts[::-1].index(name)
        whole, below = Path(*parts[:at]), parts[at + 1 :]
        for found in sorted(whole.iterdir()) if whole.is_dir() else ():
            if self._names.refusal(found.name) is None and found.joinpath(*below).is_dir():
                yield AccountName(found.name)

    def task_checks(self) -> AbstractContextManager[Sequence[TaskCheck]]:
        """Return the checks of one table: all of them lie below one directory, or in one store."""
        known = self._children.known()
        return next(iter(known.values())).task_checks() if known else nullcontext(())

    def signatures(self, *, pipeline: PipelineName) -> Sequence[Signature]:
        return [] if self._spool is None else self._spool.signatures(pipeline)

    def sign(self, entry: Entry) -> None:
        if self._spool is not None:
            self._spool.sign(entry)

    def waiting(self, account: AccountName, *, pipeline: PipelineName) -> Iterator[Waiting]:
        if account != ONLY_ACCOUNT:
            yield from self._children.of(account).waiting(ONLY_ACCOUNT, pipeline=pipeline)
        elif self._spool is not None:
            yield from self._spool.waiting(pipeline)

    def lifecycle(self) -> Sequence[Finding]:
        """Report the rules of the store for one table: those of a bucket are the same for all."""
        known = self._children.known()
        return next(iter(known.values())).lifecycle() if known else []

    def requests_sent(self) -> Mapping[str, int]:
        counting = [child for child in self._children.every() if isinstance(child, CountsRequests)]
        return {place: sent for child in counting for place, sent in child.requests_sent().items()}

    # --- rewinding

    def require_taken_back_exactly(self, taken: TakenBack) -> None:
        for table in tables_in(taken):
            self._children.of(table).require_taken_back_exactly(taken_of(taken, table))

    def take_back(self, taken: TakenBack) -> None:
        """Take the files out of one table after the other; those that have lost them are left alone."""
        for table in tables_in(taken):
            self._children.of(table).take_back(taken_of(taken, table))

    # --- steps

    def _made(self, table: AccountName) -> LakeSink:
        child = self._make(table)
        if self._row_digest is not None:
            child.use_row_digest(self._row_digest)
        return child

    def _require_same_template(self) -> None:
        """Raise Refused if the sink has filled tables by another template, or one table only."""
        if self._children.misfit is not None:
            named = f"table {self._children.misfit!r}" if self._children.misfit else "one table"
            raise Refused(
                f"Sink {self.name!r} filled {named} so far, which {self._names.template} cannot be.",
                remedy="Name the tables as before, or give the sink another name: the batches so far stay in the old tables.",
            )

    def _example(self) -> LakeSink:
        """Return the sink of a table that nobody names, for what is the same for all. It is never prepared."""
        return self._made(AccountName(self._names.example))
