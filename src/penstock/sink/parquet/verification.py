"""Every file below every account, every row of it, against the ledger."""

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.model import AccountName, AccountReport, Problem, Publication, SinkReport, Totals
from penstock.sink.parquet.account import Area, StoredFile
from penstock.sink.parquet.layout import attempt_of, is_parquet
from penstock.sink.parquet.ledger_files import DecidedFile, LedgerFiles
from penstock.sink.parquet.reading import Content, read_content


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One file that readers find: what it holds, or why it cannot be read."""

    file: StoredFile
    content: Content | None
    trouble: str | None


def verify_accounts(
    areas: Mapping[AccountName, Area], *, expected: Mapping[AccountName, Totals], known: Iterator[Publication]
) -> SinkReport:
    """Compare the content of all accounts with what was decided.

    Maintenance may rewrite files: an account whose rows and digest agree has no problem with names. Where they do not agree,
    every file is told that is missing, changed, copied or foreign.
    """
    ledger = LedgerFiles.of(known)
    reports: dict[AccountName, AccountReport] = {}
    problems: list[Problem] = []
    for account, area in areas.items():
        seen = _look(area, ledger, account)
        report = AccountReport(expected=expected.get(account, Totals()), found=_totals(seen))
        reports[account] = report
        problems += _Examination(account, seen, ledger, report).problems()
    for account, totals in expected.items():
        if account not in areas and totals.rows:
            reports[account] = AccountReport(expected=totals, found=Totals())
            problems.append(
                Problem(message=f"{totals.rows} rows were decided for it, but the sink has no such account.", account=account)
            )
    return SinkReport(accounts=reports, problems=tuple(problems))


def _look(area: Area, ledger: LedgerFiles, account: AccountName) -> list[Seen]:
    def look(file: StoredFile) -> Seen:
        decided = ledger.by_name.get((account, file.name))
        publication = ledger.newest if decided is None else decided.publication
        return _read(area, file, "" if publication is None else publication.schema)

    files = sorted(area.files(), key=lambda file: file.name)
    with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="penstock-verify") as pool:
        return list(pool.map(look, files))


def _read(area: Area, file: StoredFile, schema: str) -> Seen:
    if not is_parquet(file.name):
        return Seen(file=file, content=None, trouble="is no Parquet file")
    try:
        with area.open(file.name) as data:
            return Seen(file=file, content=read_content(data, name=file.name, schema=schema), trouble=None)
    except (pa.ArrowException, PenstockError, OSError, ValueError) as cause:
        reason = str(cause).split("\n", maxsplit=1)[0]
        return Seen(file=file, content=None, trouble=f"cannot be read as rows of this sink: {reason}")


def _totals(seen: Sequence[Seen]) -> Totals:
    found = (
        Totals(rows=one.content.rows, files=1, size_bytes=one.file.size_bytes) + Totals(digest=one.content.digest)
        for one in seen
        if one.content is not None
    )
    return sum(found, Totals())


class _Examination:
    """One account's files against the ledger's."""

    def __init__(self, account: AccountName, seen: Sequence[Seen], ledger: LedgerFiles, report: AccountReport) -> None:
        self._account, self._seen, self._ledger, self._report = account, seen, ledger, report

    def problems(self) -> list[Problem]:
        """Unreadable files always; if sums differ, every file that explains it, or the sums if none does."""
        found = [problem for one in self._seen if (problem := self._unreadable(one)) is not None]
        if self._report.ok:
            return found
        found += [problem for one in self._seen if (problem := self._strange(one)) is not None]
        found += self._missing()
        return found or [self._sums()]

    def _unreadable(self, one: Seen) -> Problem | None:
        if one.trouble is None:
            return None
        decided = self._ledger.by_name.get((self._account, one.file.name))
        if decided is None:
            return self._problem(one.file.name, f"is foreign and {one.trouble}.")
        size_bytes = decided.piece.totals.size_bytes
        if one.file.size_bytes < size_bytes:
            return self._problem(one.file.name, f"was truncated from {size_bytes} to {one.file.size_bytes} bytes.")
        return self._problem(one.file.name, f"was changed: it {one.trouble}.")

    def _strange(self, one: Seen) -> Problem | None:
        if one.content is None:
            return None
        decided = self._ledger.by_name.get((self._account, one.file.name))
        if decided is not None:
            return self._changed(decided, one.content)
        original = self._ledger.original_of(one.file.name, (one.content.rows, one.content.digest))
        if original is not None:
            told = f"is a copy of {original.piece.name} of account {original.piece.account!r}, {one.content.rows} rows twice."
            return self._problem(one.file.name, told)
        if self._ledger.is_forgotten(one.file.name):
            return None
        return self._problem(one.file.name, f"is foreign: no batch decided its {one.content.rows} rows.")

    def _changed(self, decided: DecidedFile, content: Content) -> Problem | None:
        totals = decided.piece.totals
        if (content.rows, content.digest) == (totals.rows, totals.digest):
            return None
        if content.rows != totals.rows:
            return self._problem(decided.piece.name, f"was changed: it holds {content.rows} rows, {totals.rows} were decided.")
        return self._problem(decided.piece.name, f"was changed: the content of its {content.rows} rows is another one.")

    def _missing(self) -> list[Problem]:
        there = {one.file.name for one in self._seen}
        return [
            self._problem(name, f"is missing, with {decided.piece.totals.rows} rows.")
            for (account, name), decided in self._ledger.by_name.items()
            if account == self._account and name not in there
        ]

    def _sums(self) -> Problem:
        found, expected = self._report.found, self._report.expected
        rows = (
            f"holds {found.rows} rows where {expected.rows} were decided" if found.rows != expected.rows else "holds other rows"
        )
        return Problem(
            message=f"The account {rows}; all retained batches are intact, so the difference is older than the ledger's memory.",
            account=self._account,
        )

    def _problem(self, name: str, told: str) -> Problem:
        decided = self._ledger.by_name.get((self._account, name))
        attempt = attempt_of(name)
        batch_id = decided.publication.batch.batch_id if decided else attempt.batch_id if attempt else None
        return Problem(message=f"{name} {told}", account=self._account, file=name, batch_id=batch_id)
