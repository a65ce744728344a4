"""`ParquetSink`: Parquet files in several accounts at once, each row in exactly one of them, exactly once."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import combinations_with_replacement
from typing import ClassVar

import pyarrow as pa

from penstock.core.high_water_mark import AccountOwner, HighWaterMark
from penstock.core.model import (
    AccountName,
    Entry,
    Finding,
    LedgerId,
    PipelineName,
    Position,
    Publication,
    Published,
    RequestEstimate,
    RowDigest,
    SinkKind,
    SinkName,
    SinkReport,
    Staged,
    SweepCut,
    Waiting,
)
from penstock.core.taken_back import TakenBack
from penstock.errors import Failed, LedgerMismatch, Usage
from penstock.protocols import Signature, SinkDecisions, TaskCheck
from penstock.sink.concurrent import map_concurrently
from penstock.sink.parquet.account import Account, Area, UploadArea
from penstock.sink.parquet.adopted_content import verify_with_adopted
from penstock.sink.parquet.adoption import AccountAdoption
from penstock.sink.parquet.encoding import AUTO, DICTIONARY_PAGESIZE_LIMIT, Encodings, require_encodable
from penstock.sink.parquet.layout import owner_of, partition_columns, require_distinct
from penstock.sink.parquet.ownership import (
    claim_account,
    require_apart,
    require_continued,
    require_no_others,
    require_own_account,
    require_unfilled,
)
from penstock.sink.parquet.part_file import stored_schema
from penstock.sink.parquet.publishing import AccountPublication
from penstock.sink.parquet.splitting import INLINE_LIMIT_BYTES, WriteSettings
from penstock.sink.parquet.stager import ParquetStager
from penstock.sink.parquet.table import Table
from penstock.sink.parquet.taking_back import remove_pieces, require_removable
from penstock.sink.parquet.verification import verify_accounts
from penstock.spark.schema import arrow_schema

COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "brotli", "none")


class ParquetSink:
    """Delivers into one table per account. Safe to use from several threads.

    `route_sql` yields each row's account; it is None if there is only one. `unrouted` takes rows whose route names no account;
    with None they fail the batch. `partition_by` names columns that become directories. A text that readers would take for null
    there (see `is_lost_as_directory`) fails the batch; with `null_for_lost_texts` it is stored as null, as Spark does silently.
    With `keeps_files`, files that Penstock did not write may be in the accounts, and `verify` leaves them out.
    """

    kind: ClassVar = SinkKind.STAGING  # files wait invisibly beside the table and are moved into it
    exactly_once: ClassVar = True

    def __init__(
        self,
        *,
        name: SinkName,
        pipeline: PipelineName,
        accounts: Mapping[AccountName, Account],
        route_sql: str | None = None,
        unrouted: AccountName | None = None,
        partition_by: Sequence[str] = (),
        compression: str = "zstd",
        column_encoding: str | Mapping[str, str] = AUTO,
        dictionary_pagesize_limit_bytes: int = DICTIONARY_PAGESIZE_LIMIT,
        target_file_size_bytes: int = 128_000_000,
        null_for_lost_texts: bool = False,
        inline_limit_bytes: int = INLINE_LIMIT_BYTES,
        keeps_files: bool = False,
    ) -> None:
        self.name = name
        self._pipeline = pipeline
        self.route_sql = route_sql
        self._accounts = dict(accounts)
        self._keeps_files = keeps_files
        self._settings = WriteSettings(
            sink=name,
            owner=owner_of(pipeline, name),
            accounts=tuple(accounts),
            unrouted=unrouted,
            partition_by=tuple(partition_by),
            null_for_lost_texts=null_for_lost_texts,
            compression=compression,
            encoding=Encodings(
                default=column_encoding if isinstance(column_encoding, str) else AUTO,
                columns={} if isinstance(column_encoding, str) else dict(column_encoding),
                dictionary_pagesize_limit_bytes=dictionary_pagesize_limit_bytes,
            ),
            target_file_size_bytes=target_file_size_bytes,
            inline_limit_bytes=inline_limit_bytes,
        )
        self._require_sensible()
        self._uploads: dict[AccountName, UploadArea] | None = None
        self._published_at: Position | None = None
        self._claimed: set[tuple[AccountName, LedgerId]] = set()

    def use_row_digest(self, row_digest: RowDigest) -> None:
        self._settings = replace(self._settings, row_digest=row_digest)

    @property
    def accounts(self) -> Sequence[AccountName]:
        return list(self._accounts)

    def describe(self) -> Mapping[str, str]:
        places = ", ".join(f"{name} in {account.staging}" for name, account in self._accounts.items())
        published = [f"{account.publishing} in {account.url}" for account in self._accounts.values()]
        return {
            "stage": f"{self._settings.shown}; invisible: {places}",
            "publish": f"{'; '.join(published)}; then the marker of each account",
        }

    def check(self) -> Sequence[Finding]:
        areas = self._areas(self._pipeline)
        return [replace(finding, account=name) for name, area in areas.items() for finding in area.check()]

    def high_water_mark(self, account: AccountName, *, pipeline: PipelineName) -> HighWaterMark | None:
        marker = self._table(account, self._areas(pipeline)[account]).marker()
        return None if marker is None else marker.high_water_mark

    def missing_directory(self, account: AccountName) -> str | None:
        return self._areas(self._pipeline)[account].missing_directory()

    def prepare(self, *, pipeline: PipelineName, schema: str | None) -> None:
        """Create accounts and staging, and reject rows that the accounts cannot hold. Raises Usage, Refused, Failed."""
        if schema is not None:
            self._require_storable(schema)
        self._pipeline = pipeline
        self._settings = replace(self._settings, owner=owner_of(pipeline, self.name))
        self._uploads = {}
        for name, area in self._areas(pipeline).items():
            self._require_own(area, name, pipeline)
            self._uploads[name] = area.prepare()
            if schema is not None:
                self._require_no_others(area, name)
        if schema is not None:
            self._require_continued(schema, pipeline)

    def signatures(self, *, pipeline: PipelineName) -> Sequence[Signature]:  # noqa: ARG002 - there are none
        """Return no signatures: a claimed account refuses other ledgers by itself."""
        return ()

    def sign(self, entry: Entry) -> None:
        """Do nothing: `claim` records the owner of the accounts."""

    def claim(self, ledger_id: LedgerId) -> None:
        """Record in every account its owner: this sink and `ledger_id`. Raises Refused, LedgerMismatch, Retryable, Failed."""
        for name, area in self._areas(self._pipeline).items():
            require_unfilled(area, url=self._accounts[name].url, keeps_files=self._keeps_files)
            self._claim(name, area, ledger_id)

    def require_schema_accepted(self, *, pipeline: PipelineName, schema: str) -> None:
        for name, area in self._areas(pipeline).items():
            self._require_own(area, name, pipeline)
            self._require_no_others(area, name)
        self._require_storable(schema)
        self._require_continued(schema, pipeline)

    def stager(self) -> ParquetStager:
        if self._uploads is None:
            raise Failed(f"Sink {self.name!r} was not prepared.", remedy="Call prepare() first.")
        return ParquetStager(settings=self._settings, areas=self._uploads)

    def publish(self, publication: Publication) -> Published:
        """Move every decided file to its published name. Raises Retryable, PublishFailed, StagedDataLost, ContentConflict."""
        shares = self._shares(publication)
        self._published_at = None
        for share in shares:
            if publication.ledger_id is not None:
                self._claim(share.account, share.area, publication.ledger_id)
        shown = map_concurrently(AccountPublication.is_shown, shares)
        pending = [share for share, is_shown in zip(shares, shown, strict=True) if not is_shown]
        map_concurrently(AccountPublication.roll_forward, pending)
        already = bool(shares) and not pending
        self._published_at = None if already else publication.position
        return Published(totals=publication.totals, already=already)

    def sweep(self, cut: SweepCut, *, dry_run: bool) -> Sequence[str]:
        return [name for area in self._areas(cut.pipeline).values() for name in area.sweep(cut, dry_run=dry_run)]

    @contextmanager
    def task_checks(self) -> Iterator[Sequence[TaskCheck]]:
        with ExitStack() as stack:
            found = [stack.enter_context(area.task_check()) for area in self._areas(self._pipeline).values()]
            yield [check for check in found if check is not None]

    def waiting(self, account: AccountName, *, pipeline: PipelineName) -> Iterator[Waiting]:
        return self._areas(pipeline)[account].waiting()

    def lifecycle(self) -> Sequence[Finding]:
        return [finding for area in self._areas(self._pipeline).values() for finding in area.lifecycle()]

    def verify(self, decisions: SinkDecisions) -> SinkReport:
        return verify_with_adopted(self.tables(), decisions, self._settings.row_digest, keeps_files=self._keeps_files)

    def verify_since(self, decisions: SinkDecisions, since: Publication) -> SinkReport:
        """Read the files of newer batches only. Files under names that are not Penstock's are not looked at."""
        return verify_accounts(self.tables(), decisions, self._settings.row_digest, since=since)

    def adoptions(self) -> Mapping[AccountName, AccountAdoption]:
        """Return for each account how it can go on where another query stopped."""
        areas = self._areas(self._pipeline)
        return {
            name: AccountAdoption(
                url=self._accounts[name].url,
                area=area,
                partition_by=self._settings.partition_by,
                keeps_files=self._keeps_files,
            )
            for name, area in areas.items()
        }

    def require_taken_back_exactly(self, taken: TakenBack) -> None:
        require_removable(self._areas(taken.pipeline), taken)

    def take_back(self, taken: TakenBack) -> None:
        self._published_at = None
        remove_pieces(self._areas(taken.pipeline), taken)

    def tables(self) -> Mapping[AccountName, Table]:
        return {name: self._table(name, area) for name, area in self._areas(self._pipeline).items()}

    def requests_sent(self) -> Mapping[str, int]:
        return {place: sent for account in self._accounts.values() for place, sent in account.requests_sent().items()}

    def estimated_requests(self) -> Mapping[str, RequestEstimate]:
        return {place: each for account in self._accounts.values() for place, each in account.estimated_requests().items()}

    def close(self) -> None:
        """Do nothing: nothing stays open."""

    def _claim(self, name: AccountName, area: Area, ledger_id: LedgerId) -> None:
        if (name, ledger_id) not in self._claimed:
            owner = AccountOwner(pipeline=self._pipeline, sink=self.name, account=name, ledger_id=ledger_id)
            claim_account(area, owner, url=self._accounts[name].url)
            self._claimed.add((name, ledger_id))

    def _require_own(self, area: Area, name: AccountName, pipeline: PipelineName) -> None:
        owner = area.claimed_by()
        account = self._accounts[name]
        require_own_account(owner, pipeline=pipeline, sink=self.name, account=name, url=account.url)
        require_apart(account, owner)

    def _require_no_others(self, area: Area, name: AccountName) -> None:
        require_no_others(area, url=self._accounts[name].url, keeps_files=self._keeps_files)

    def _table(self, name: AccountName, area: Area) -> Table:
        return Table(sink=self.name, name=name, account=self._accounts[name], area=area, owner=self._settings.owner)

    def _areas(self, pipeline: PipelineName) -> Mapping[AccountName, Area]:
        return {name: account.area(pipeline=pipeline, sink=self.name, account=name) for name, account in self._accounts.items()}

    def _shares(self, publication: Publication) -> list[AccountPublication]:
        areas = self._areas(publication.pipeline)
        pieces = dict[AccountName, list[Staged]]()
        fresh = self._published_at is not None and publication.position > self._published_at
        for piece in publication.staged:
            pieces.setdefault(piece.account, []).append(piece)
        unknown = next((account for account in pieces if account not in areas), None)
        if unknown is not None:
            raise LedgerMismatch(
                f"Batch {publication.batch.batch_id} holds rows for account {unknown!r}, which sink {self.name!r} lacks.",
                remedy="Run `penstock recover` with the pipeline file that still has this account; then take it out.",
            )
        return [
            AccountPublication(account=account, area=areas[account], pieces=tuple(own), publication=publication, fresh=fresh)
            for account, own in pieces.items()
        ]

    def _require_storable(self, schema: str) -> None:
        rows = arrow_schema(schema)
        try:
            parts = {column.name for column in partition_columns(rows, self._settings.partition_by)}
            stored = stored_schema(rows)
            require_encodable(self._settings.encoding, pa.schema([each for each in stored if each.name not in parts]))
        except Usage as wrong:
            raise Usage(f"Sink {self.name!r}: {wrong.message}", remedy=wrong.remedy) from wrong
        require_distinct(rows, "the files")

    def _require_continued(self, schema: str, pipeline: PipelineName) -> None:
        for name, area in self._areas(pipeline).items():
            require_continued(
                area, arrow_schema(schema), self._settings.partition_by, account=name, owner=owner_of(pipeline, self.name)
            )

    def _require_sensible(self) -> None:
        settings = self._settings
        if not settings.accounts or (self.route_sql is None and len(settings.accounts) > 1):
            raise Usage(
                f"Sink {self.name!r} has {len(settings.accounts)} accounts and no route.",
                remedy="Give it one account, or a route that yields each row's account.",
            )
        if settings.unrouted is not None and settings.unrouted not in settings.accounts:
            raise Usage(
                f"Sink {self.name!r} sends unrouted rows to {settings.unrouted!r}, which is no account of it.",
                remedy=f"Use one of {', '.join(settings.accounts)}.",
            )
        if settings.compression not in COMPRESSIONS:
            raise Usage(
                f"Sink {self.name!r} has the compression {settings.compression!r}.", remedy=f"Use {', '.join(COMPRESSIONS)}."
            )
        for (one, first), (other, second) in combinations_with_replacement(self._accounts.items(), 2):
            why = first.overlaps(second) or second.overlaps(first)
            if why is not None:
                raise Usage(
                    f"The accounts {one!r} and {other!r} of sink {self.name!r} overlap: {why}.",
                    remedy="Give every account a directory of its own, and `staging` one outside of all of them.",
                )
