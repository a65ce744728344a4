"""Verifies accounts: compares every row of every file with the ledger, as of the position of the account's marker."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import BinaryIO, Protocol

import pyarrow as pa

from penstock.core.model import (
    AccountName,
    AccountReport,
    MissingFiles,
    Position,
    Problem,
    Publication,
    Removal,
    RowDigest,
    SinkReport,
    Staged,
    Totals,
)
from penstock.errors import PenstockError, Retryable
from penstock.protocols import SinkDecisions
from penstock.sink.parquet.account import StoredFile
from penstock.sink.parquet.layout import attempt_of, is_parquet
from penstock.sink.parquet.table import read_content

_STEM = re.compile(r"part-g\d+-b\d+-p\d+-t\d+-[0-9a-f]{16}-\d{5}")


class ListsFiles(Protocol):
    """The files of a table as its readers find them."""

    def files(self) -> Iterator[StoredFile]:
        """Yield every file, in any order."""
        ...

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading."""
        ...


class Verifiable(Protocol):
    """A table whose content can be compared with the ledger."""

    @property
    def name(self) -> AccountName: ...

    @property
    def area(self) -> ListsFiles: ...

    def marked_at(self) -> Position | None:
        """Return the position up to which the table shows everything, by its marker; None without one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedFile:
    """One decided file and the publication it belongs to."""

    piece: Staged
    publication: Publication


@dataclass(slots=True)
class LedgerFiles:
    """Decided files by name, by stem and by content, from the retained publications."""

    by_name: dict[tuple[AccountName, str], DecidedFile] = field(default_factory=dict)
    by_stem: dict[str, DecidedFile] = field(default_factory=dict)
    by_content: dict[tuple[int, int], DecidedFile] = field(default_factory=dict)
    removed: set[tuple[AccountName, str]] = field(default_factory=set)
    """Files that an operator accepted as removed on purpose."""
    newest: Publication | None = None
    oldest: Publication | None = None

    @staticmethod
    def of(known: Iterator[Publication], removals: Sequence[Removal] = ()) -> "LedgerFiles":
        """Return the index of all files of the publications `known`, which come newest first."""
        files = LedgerFiles()
        named = {(removal.account, name) for removal in removals for name in removal.files}
        ranges = [(removal.account, *ends) for removal in removals for ends in removal.decided]
        for publication in known:
            files.newest = files.newest or publication
            files.oldest = publication
            gone = {account for account, first, last in ranges if first <= publication.position <= last}
            for piece in publication.staged:
                if piece.account in gone or (piece.account, piece.name) in named:
                    files.removed.add((piece.account, piece.name))
                file = DecidedFile(piece=piece, publication=publication)
                files.by_name[piece.account, piece.name] = file
                files.by_content[piece.totals.rows, piece.totals.digest] = file
                found = _STEM.search(piece.name)
                if found is not None:
                    files.by_stem[found[0]] = file
        return files

    def newer_than(self, position: Position, account: AccountName) -> frozenset[str]:
        return frozenset(
            name
            for (place, name), decided in self.by_name.items()
            if place == account and decided.publication.position > position
        )

    def unchanged_until(self, position: Position, account: AccountName) -> Position:
        """Return `position`, or the newest publication's if none after `position` has files for the account."""
        newest = position if self.newest is None else self.newest.position
        return position if self.newer_than(position, account) else max(position, newest)

    def original_of(self, name: str, content: tuple[int, int]) -> DecidedFile | None:
        """Return the decided file that the file `name` is a copy of, by the attempt in its name or by equal rows; else None."""
        found = _STEM.search(name.rpartition("/")[2])
        return (self.by_stem.get(found[0]) if found else None) or self.by_content.get(content)

    def is_forgotten(self, name: str) -> bool:
        """Return whether the file belongs to a batch before the oldest one that the ledger retains."""
        attempt = attempt_of(name)
        if attempt is None or self.oldest is None:
            return False
        oldest = self.oldest
        return (attempt.generation, attempt.batch_id) < (oldest.generation, oldest.batch.batch_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileContent:
    """One file that readers find: the rows and the digest that it holds, or why it cannot be read."""

    file: StoredFile
    content: Totals | None
    problem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    """What an account holds. Everything up to `as_of` was published before the listing; newer files may be there in part."""

    area: ListsFiles
    as_of: Position
    files: Sequence[StoredFile]
    problem: Problem | None = None


def verify_accounts(
    tables: Mapping[AccountName, Verifiable],
    decisions: SinkDecisions,
    row_digest: RowDigest,
    *,
    keeps_files: bool = False,
    since: Publication | None = None,
) -> SinkReport:
    """Compare the content of all accounts with what was decided.

    A file with the name of a retained decision must hold what that decided for it. Maintenance may put rows into files of other
    names: an account whose rows and digest agree has no problem with names. Where they do not agree, every file that is missing,
    copied or foreign is reported. With `keeps_files`, files that Penstock did not write are counted and left out, but no copy of
    a file that it did write. With `since`, files of later batches alone are looked at, by their names or by the ledger. Accounts
    that were taken out of the pipeline file are not in `tables`, and are named in the report.
    """
    listed = {account: _listed(table, decisions.published_at) for account, table in tables.items()}
    removals = list(decisions.removals())
    ledger = LedgerFiles.of(decisions.publications(), removals)  # after the listing: whatever is there was decided before
    reports: dict[AccountName, AccountReport] = {}
    problems: list[Problem] = []
    missing: list[MissingFiles] = []
    for account, found in listed.items():
        later = found if since is None else replace(found, files=_later(found.files, since, ledger, account))
        all_seen = _look(later, ledger, account, row_digest)
        kept = [one for one in all_seen if keeps_files and _is_of_others(one, ledger)]
        seen = [one for one in all_seen if one not in kept]
        expected = decisions.totals(found.as_of).get(account, Totals())
        reports[account] = report = AccountReport(expected=expected, found=_totals(seen), kept=_kept(kept))
        problems += [found.problem] if found.problem else []
        examination = _Examination(account=account, seen=seen, ledger=ledger, report=report, as_of=found.as_of)
        problems += examination.problems()
        gone = examination.missing() if found.problem is None else None
        missing += [gone] if gone else []
    as_of = [ledger.unchanged_until(found.as_of, account) for account, found in listed.items()]
    decided = decisions.totals(decisions.published_at)
    return SinkReport(
        accounts=reports,
        problems=tuple(problems),
        as_of=min(as_of, default=decisions.published_at),
        missing=tuple(missing),
        unnamed={account: totals for account, totals in decided.items() if account not in tables and totals.rows},
    )


def _listed(table: Verifiable, published_at: Position) -> _Listed:
    marked_at, problem = None, None
    try:
        marked_at = table.marked_at()  # before the listing, which then has every file up to it
    except Retryable:
        raise
    except PenstockError as cause:
        problem = Problem(message=f"The marker of account {table.name!r} cannot be read: {cause.message}", account=table.name)
    files = list(table.area.files())
    return _Listed(area=table.area, as_of=max(published_at, marked_at or published_at), files=files, problem=problem)


def _later(files: Sequence[StoredFile], since: Publication, ledger: LedgerFiles, account: AccountName) -> Sequence[StoredFile]:
    """Return the files of batches after `since`: a decision is later if its generation or, within one, its batch is."""
    after = (since.generation, since.batch.batch_id)
    attempts = ((file, attempt_of(file.name)) for file in files)
    return [
        file
        for file, attempt in attempts
        if (account, file.name) in ledger.by_name or (attempt is not None and (attempt.generation, attempt.batch_id) > after)
    ]


def _look(listed: _Listed, ledger: LedgerFiles, account: AccountName, row_digest: RowDigest) -> list[FileContent]:
    area = listed.area

    def look(file: StoredFile) -> FileContent:
        decided = ledger.by_name.get((account, file.name))
        publication = ledger.newest if decided is None else decided.publication
        return _read(area, file, "" if publication is None else publication.schema, row_digest)

    newer = ledger.newer_than(listed.as_of, account)
    files = sorted((file for file in listed.files if file.name not in newer), key=lambda file: file.name)
    with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="penstock-verify") as pool:
        return list(pool.map(look, files))


def _read(area: ListsFiles, file: StoredFile, schema: str, row_digest: RowDigest) -> FileContent:
    if not is_parquet(file.name):
        return FileContent(file=file, content=None, problem="is no Parquet file")
    try:
        with area.open(file.name) as data:
            content = read_content(data, name=file.name, schema=schema, row_digest=row_digest, field_ids=file.field_ids)
            return FileContent(file=file, content=content, problem=None)
    except FileNotFoundError:
        return FileContent(file=file, content=None, problem="is not there any more")
    except (pa.ArrowException, PenstockError, OSError, ValueError) as cause:
        reason = (
            str(cause).split("\n", maxsplit=1)[0] if schema else "no batch was published yet that says which columns they have"
        )
        return FileContent(file=file, content=None, problem=f"cannot be read as rows of this sink: {reason}")


def _is_of_others(one: FileContent, ledger: LedgerFiles) -> bool:
    """Return whether Penstock did not write the file: neither under its name nor with the rows of a decided file."""
    if attempt_of(one.file.name) is not None:
        return False
    return one.content is None or ledger.original_of(one.file.name, (one.content.rows, one.content.digest)) is None


def _kept(seen: Sequence[FileContent]) -> Totals:
    """Return files and bytes of all, and the rows of those that can be read as rows of the sink."""
    sizes = Totals(files=len(seen), size_bytes=sum(one.file.size_bytes for one in seen))
    return replace(sizes, rows=sum(one.content.rows for one in seen if one.content is not None))


def _totals(seen: Sequence[FileContent]) -> Totals:
    readable = ((one.file, one.content) for one in seen if one.content is not None)
    return sum((content + Totals(files=1, size_bytes=file.size_bytes) for file, content in readable), Totals())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Examination:
    """Compares one account's files with the ledger's."""

    account: AccountName
    seen: Sequence[FileContent]
    ledger: LedgerFiles
    report: AccountReport
    as_of: Position

    def problems(self) -> list[Problem]:
        """Return files that are wrong always; if sums differ, also others that explain it, or the sums if none does."""
        found = self._wrong()
        if self.report.ok:
            return found
        found += [
            self._problem(decided.piece.name, f"is missing, with {decided.piece.totals.rows} rows.") for decided in self._gone()
        ]
        return found or [self._sums()]

    def missing(self) -> MissingFiles | None:
        """Return the files that are gone if they explain the whole difference; None if none are, or anything else differs."""
        if self.report.ok or self._wrong():
            return None
        gone = self._gone()
        there = [(one, self.ledger.by_name.get((self.account, one.file.name))) for one in self.seen]
        forgotten = _totals([one for one, decided in there if decided is None])
        known = sum((each.piece.totals for each in (*(decided for _, decided in there), *gone) if each is not None), Totals())
        older = self.report.expected - known - forgotten
        if (older.rows, older.digest) == (0, 0):
            older, forgotten = Totals(), Totals()
        elif older.rows < 1:
            return None
        names = frozenset(decided.piece.name for decided in gone)
        return MissingFiles(account=self.account, names=names, older=older, unchecked=forgotten)

    def _wrong(self) -> list[Problem]:
        """Return unreadable, changed and returned files always; if sums differ, also copied and foreign ones."""
        looks = (self._returned(one) or self._unreadable(one) or self._changed(one) for one in self.seen)
        found = [problem for problem in looks if problem is not None]
        if self.report.ok:
            return found
        return found + [problem for one in self.seen if (problem := self._strange(one)) is not None]

    def _returned(self, one: FileContent) -> Problem | None:
        if (self.account, one.file.name) not in self.ledger.removed:
            return None
        return self._problem(one.file.name, "was accepted as removed on purpose, and is there again.")

    def _unreadable(self, one: FileContent) -> Problem | None:
        if one.problem is None:
            return None
        decided = self.ledger.by_name.get((self.account, one.file.name))
        if decided is None:
            return self._problem(one.file.name, f"is foreign and {one.problem}.")
        size_bytes = decided.piece.totals.size_bytes
        if one.file.size_bytes < size_bytes:
            return self._problem(one.file.name, f"was truncated from {size_bytes} to {one.file.size_bytes} bytes.")
        return self._problem(one.file.name, f"was changed: it {one.problem}.")

    def _strange(self, one: FileContent) -> Problem | None:
        if one.content is None or (self.account, one.file.name) in self.ledger.by_name:
            return None
        original = self.ledger.original_of(one.file.name, (one.content.rows, one.content.digest))
        if original is not None:
            copied = f"is a copy of {original.piece.name} of account {original.piece.account!r}, {one.content.rows} rows twice."
            return self._problem(one.file.name, copied)
        if self.ledger.is_forgotten(one.file.name):
            return None
        return self._problem(one.file.name, f"is foreign: no batch decided its {one.content.rows} rows.")

    def _changed(self, one: FileContent) -> Problem | None:
        decided, content = self.ledger.by_name.get((self.account, one.file.name)), one.content
        if decided is None or content is None:
            return None
        totals = decided.piece.totals
        if (content.rows, content.digest) == (totals.rows, totals.digest):
            return None
        what = f"was changed: the content of its {content.rows} rows is another one."
        if content.rows != totals.rows:
            what = f"was changed: it holds {content.rows} rows, {totals.rows} were decided."
        moved = " The account holds every decided row, so rows moved from one file to another." if self.report.ok else ""
        return self._problem(one.file.name, what + moved)

    def _gone(self) -> list[DecidedFile]:
        """Return the decided files that are not there, without those that were accepted as removed."""
        there = {one.file.name for one in self.seen}
        return [
            decided
            for (account, name), decided in self.ledger.by_name.items()
            if account == self.account and name not in there and decided.publication.position <= self.as_of
            if (account, name) not in self.ledger.removed
        ]

    def _sums(self) -> Problem:
        found, expected = self.report.found, self.report.expected
        rows = (
            f"holds {found.rows} rows where {expected.rows} were decided" if found.rows != expected.rows else "holds other rows"
        )
        return Problem(
            message=f"The account {rows}; all retained batches are intact, so the difference is older than the ledger's memory.",
            account=self.account,
        )

    def _problem(self, name: str, what: str) -> Problem:
        decided = self.ledger.by_name.get((self.account, name))
        of = decided.publication.batch if decided else attempt_of(name)
        return Problem(message=f"{name} {what}", account=self.account, file=name, batch_id=of.batch_id if of else None)
