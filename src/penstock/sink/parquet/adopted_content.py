"""Compares the files that an account began with, when it was taken over from another query, with what is there now."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.adopted_files import AdoptedFiles
from penstock.core.model import AccountName, MissingFiles, Position, Problem, RowDigest, SinkReport, Totals
from penstock.protocols import SinkDecisions
from penstock.sink.parquet.account import StoredFile
from penstock.sink.parquet.table import Table
from penstock.sink.parquet.verification import ListsFiles, Verifiable, verify_accounts


class WithoutAdopted:
    """The files of an account without those that it began with, which `seen` has once `files` was used up."""

    def __init__(self, area: ListsFiles, adopted: AdoptedFiles) -> None:
        self._area, self._adopted = area, adopted
        self.seen: list[StoredFile] = []

    def files(self) -> Iterator[StoredFile]:
        """Yield every other file."""
        self.seen = []
        for file in self._area.files():
            if file.name in self._adopted.sizes:
                self.seen.append(file)
            else:
                yield file

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading."""
        return self._area.open(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnFiles:
    """A table as `verify_accounts` reads it: without the files that its account began with."""

    table: Verifiable
    area: WithoutAdopted

    @property
    def name(self) -> AccountName:
        return self.table.name

    def marked_at(self) -> Position | None:
        return self.table.marked_at()


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedContent:
    """What is there of the files that an account began with: `found` without digest, and the names of those that are `gone`."""

    found: Totals
    problems: tuple[Problem, ...]
    gone: frozenset[str]


def verify_with_adopted(
    tables: Mapping[AccountName, Table], decisions: SinkDecisions, row_digest: RowDigest, *, keeps_files: bool
) -> SinkReport:
    """Return what `verify_accounts` does, and compare the files that accounts began with by name and size."""
    adopted = {name: files for name, table in tables.items() if (files := table.area.adopted()) is not None}
    areas = {name: WithoutAdopted(tables[name].area, files) for name, files in adopted.items()}
    own = {name: OwnFiles(table=table, area=areas[name]) if name in areas else table for name, table in tables.items()}
    report = verify_accounts(own, decisions, row_digest, keeps_files=keeps_files)
    if not adopted:
        return report
    removed = {(removal.account, name) for removal in decisions.removals() for name in removal.files}
    for account, files in adopted.items():
        gone = {name for place, name in removed if place == account}
        report = _added(report, account, _compared(files, areas[account], account=account, removed=gone))
    return report


def _added(report: SinkReport, account: AccountName, content: AdoptedContent) -> SinkReport:
    accounts = {**report.accounts, account: replace(report.accounts[account], adopted=content.found)}
    missing = {each.account: each for each in report.missing}
    is_explained = account in missing or not any(problem.account == account for problem in report.problems)
    if content.gone and is_explained and len(content.problems) == len(content.gone):
        before = missing.get(account, MissingFiles(account=account, names=frozenset()))
        missing[account] = replace(before, adopted=content.gone)
    elif content.problems:
        missing.pop(account, None)
    return replace(
        report,
        accounts=accounts,
        problems=(*report.problems, *content.problems),
        missing=tuple(missing.values()),
    )


def _compared(adopted: AdoptedFiles, area: WithoutAdopted, *, account: AccountName, removed: Collection[str]) -> AdoptedContent:
    """Compare by name and size; rows are counted by the footers of the files. `removed`: accepted as removed on purpose."""
    there = {file.name: file for file in area.seen}
    problems, found = list[Problem](), Totals()
    for name, file in sorted(there.items()):
        rows, problem = _rows_of(area, name)
        found += Totals(rows=rows, files=1, size_bytes=file.size_bytes)
        problems += _wrong(name, file, adopted.sizes, problem=problem, removed=removed, account=account)
    gone = frozenset(adopted.sizes.keys() - there.keys() - set(removed))
    missing = (_problem(name, "is missing: the account was taken over with it.", account) for name in sorted(gone))
    return AdoptedContent(found=found, problems=(*problems, *missing), gone=gone)


def _wrong(
    name: str,
    file: StoredFile,
    sizes: Mapping[str, int],
    *,
    problem: str | None,
    removed: Collection[str],
    account: AccountName,
) -> Iterator[Problem]:
    if name in removed:
        yield _problem(name, "was accepted as removed on purpose, and is there again.", account)
    elif file.size_bytes != sizes[name]:
        what = f"was changed: it has {file.size_bytes} bytes, and the account was taken over with {sizes[name]} bytes of it."
        yield _problem(name, what, account)
    elif problem is not None:
        yield _problem(name, f"was changed: it {problem}.", account)


def _rows_of(area: ListsFiles, name: str) -> tuple[int, str | None]:
    try:
        with area.open(name) as data:
            return pq.ParquetFile(data).metadata.num_rows, None
    except (pa.ArrowException, OSError, ValueError) as cause:
        reason = str(cause).split("\n", maxsplit=1)[0]
        return 0, f"cannot be read as Parquet: {reason}"


def _problem(name: str, what: str, account: AccountName) -> Problem:
    return Problem(message=f"{name} {what}", account=account, file=name)
