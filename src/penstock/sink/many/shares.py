"""The share of one table in what was decided for a sink into many tables."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from penstock.core.model import (
    ONLY_ACCOUNT,
    AccountName,
    Position,
    Publication,
    Removal,
    SinkName,
    SinkReport,
    Totals,
)
from penstock.core.taken_back import TakenBack
from penstock.protocols import SinkDecisions


def child_name(sink: SinkName, table: AccountName) -> SinkName:
    """Return the name under which a table keeps its marker. No sink of a pipeline file can have it."""
    return SinkName(f"{sink}/{table}")


def tables_of(publication: Publication) -> list[AccountName]:
    """Return the tables that a publication has rows for, in the order in which they are published."""
    return sorted({piece.account for piece in publication.staged})


def share_of(publication: Publication, table: AccountName) -> Publication:
    """Return what a publication has for one table, as the sink of that table alone."""
    own = tuple(replace(piece, account=ONLY_ACCOUNT) for piece in publication.staged if piece.account == table)
    return replace(publication, sink=child_name(publication.sink, table), staged=own)


def tables_in(taken: TakenBack) -> list[AccountName]:
    """Return the tables that a rewind takes rows from."""
    return sorted({table for publication in taken.publications for table in tables_of(publication)})


def taken_of(taken: TakenBack, table: AccountName) -> TakenBack:
    """Return what a rewind takes back from one table."""
    publications = tuple(share_of(publication, table) for publication in taken.publications)
    return replace(taken, sink=child_name(taken.sink, table), publications=publications)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDecisions:
    """The `SinkDecisions` of one table."""

    whole: SinkDecisions
    table: AccountName

    @property
    def published_at(self) -> Position:
        return self.whole.published_at

    def totals(self, position: Position) -> Mapping[AccountName, Totals]:
        return {ONLY_ACCOUNT: self.whole.totals(position).get(self.table, Totals())}

    def publications(self, position: Position | None = None) -> Iterator[Publication]:
        shares = (share_of(publication, self.table) for publication in self.whole.publications(position))
        return (share for share in shares if share.staged)

    def removals(self) -> Iterator[Removal]:
        """Yield nothing: only accounts of a parquet sink have files that may be removed."""
        return iter(())


class Verifiable(Protocol):
    """The sink of one table."""

    def verify(self, decisions: SinkDecisions) -> SinkReport: ...


def verified(opened: Mapping[AccountName, Verifiable], decisions: SinkDecisions) -> SinkReport:
    """Return the report of a sink, of whose open tables each is compared by itself."""
    return joined({table: one.verify(TableDecisions(whole=decisions, table=table)) for table, one in sorted(opened.items())})


def joined(reports: Mapping[AccountName, SinkReport]) -> SinkReport:
    """Return the report of a sink from those of its tables."""
    accounts = {table: each for table, report in reports.items() for each in report.accounts.values()}
    problems = [replace(problem, account=table) for table, report in reports.items() for problem in report.problems]
    positions = [report.as_of for report in reports.values() if report.as_of is not None]
    unread = bool(reports) and all(report.unread for report in reports.values())
    as_of = min(positions, default=None) if reports else Position(0)  # a sink without tables shows that it has no row
    return SinkReport(accounts=accounts, problems=tuple(problems), unread=unread, as_of=as_of)
