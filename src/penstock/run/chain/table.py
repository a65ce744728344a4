"""`ChainedTable`, the table that another pipeline fills, opened by that pipeline's file. Nothing is written there."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.commit.as_of import newest_for_sink, newest_whole
from penstock.commit.publication import decision_in
from penstock.commit.table_batches import TableBatches
from penstock.core.bad_record import SCHEMA
from penstock.core.model import AccountName, Entry, LedgerId, PipelineName, Position, SinkName
from penstock.errors import LedgerMismatch, Retryable, Usage
from penstock.protocols import Ledger
from penstock.run.assembly import DeliveryPlan, ledger_of, table_of
from penstock.sink.parquet.table import Table
from penstock.sink.quarantine import QuarantineSink
from penstock.source.chain.settings import ChainSettings
from penstock.spec.load import load


@dataclass(slots=True, kw_only=True)
class ChainedTable:
    """A sink's table in the accounts that are read. `fixed_schema`: of its rows, where that never changes."""

    pipeline: PipelineName
    sink: SinkName
    ledger: Ledger
    batches: TableBatches
    tables: Mapping[AccountName, Table]
    fixed_schema: str | None
    _ledger_id: LedgerId | None = None
    """The identity of the ledger, once it is known: it never changes."""

    def tail(self) -> Entry | None:
        """Return the ledger's newest entry, None while it is empty."""
        found = self.ledger.tail()
        if found is not None:
            self._ledger_id = found.summary.ledger_id
        return found

    def marked_at(self, account: AccountName) -> Position | None:
        """Return up to which position the account shows everything. Raises LedgerMismatch for one of another ledger."""
        marker = self.tables[account].marker()
        if marker is None:
            return None
        if self._ledger_id is None:
            self.tail()
        known = self._ledger_id
        if None not in {marker.ledger_id, known} and marker.ledger_id != known:
            raise LedgerMismatch(
                f"Account {account!r} of pipeline {self.pipeline!r} is filled by ledger {marker.ledger_id}, and "
                f"{self.ledger.location} is ledger {known}.",
                remedy="Name the ledger that fills the account in the pipeline file that the source reads.",
            )
        return marker.position

    def columns(self) -> str:
        """Return Spark's JSON of the columns as of the newest batch that every account shows. Raises Retryable without one."""
        found = newest_for_sink(self.ledger, self.sink, newest_whole(self.ledger, self._is_shown))
        if found is None:
            raise Retryable(
                f"Nothing is published in sink {self.sink!r} of pipeline {self.pipeline!r} yet, so its table has no columns.",
                remedy="Run that pipeline first; or name the columns by `schema`.",
            )
        return nullable(self.fixed_schema or decision_in(found).schema_of(self.sink))

    def close(self) -> None:
        """Close the ledger."""
        self.ledger.close()

    def _is_shown(self, entry: Entry) -> bool:
        held = {piece.account for piece in decision_in(entry).of_sink(self.sink)} & self.tables.keys()
        return all((self.marked_at(account) or 0) >= entry.position for account in held)


def open_chained(settings: ChainSettings) -> ChainedTable:
    """Open the table by its pipeline's file. No account is looked at yet. Raises Usage, DependencyMissing."""
    return chained_table(DeliveryPlan(settings=load(settings.path), modules=settings.path.resolve().parent), settings)


def chained_table(plan: DeliveryPlan, settings: ChainSettings) -> ChainedTable:
    """Open the table that the pipeline `plan` fills, as `open_chained`."""
    sink = table_of(plan, settings.sink)
    there = sink.tables()
    unknown = next((name for name in settings.accounts or () if name not in there), None)
    if unknown is not None:
        raise Usage(
            f"Sink {sink.name!r} of {settings.path} has no account {unknown!r}.", remedy=f"It has {', '.join(there) or 'none'}."
        )
    tables = {name: table for name, table in there.items() if settings.accounts is None or name in settings.accounts}
    ledger = ledger_of(plan)
    return ChainedTable(
        pipeline=plan.pipeline,
        sink=sink.name,
        ledger=ledger,
        batches=TableBatches(ledger, sink=sink.name, accounts=tables, chosen=settings.accounts is not None),
        tables=tables,
        fixed_schema=SCHEMA if isinstance(sink, QuarantineSink) else None,
    )


def nullable(schema: str) -> str:
    """Return Spark's JSON of the columns of `schema` as they are read back from files: all nullable, as nested ones are."""
    return json.dumps(_nullable(json.loads(schema)))


def _nullable(kind: Any) -> Any:
    if not isinstance(kind, dict):
        return kind
    optional = {key: True for key in ("nullable", "containsNull", "valueContainsNull") if key in kind}
    below = {key: _nullable(kind[key]) for key in ("type", "elementType", "keyType", "valueType") if key in kind}
    fields = {"fields": [_nullable(field) for field in kind["fields"]]} if "fields" in kind else {}
    return {**kind, **below, **fields, **optional}
