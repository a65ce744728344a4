"""`DeltaSink`: rows in one Delta table, exactly once, by one commit for each batch."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import RLock
from typing import ClassVar

import deltalake

from penstock.core.faults import FaultPoint
from penstock.core.high_water_mark import AccountOwner, HighWaterMark
from penstock.core.model import (
    ONLY_ACCOUNT,
    AccountName,
    Entry,
    Finding,
    LedgerId,
    PipelineName,
    Position,
    Publication,
    Published,
    RowDigest,
    SinkKind,
    SinkName,
    SinkReport,
    SweepCut,
    Waiting,
)
from penstock.errors import Failed, LedgerMismatch, Refused, Retryable, Usage
from penstock.protocols import Signature, SinkDecisions, TaskCheck
from penstock.sink.delta.log import DeltaLog, Snapshot, delta_error, reading
from penstock.sink.delta.place import place_of
from penstock.sink.delta.publication import DeltaPublication
from penstock.sink.delta.staging import FlatUploads
from penstock.sink.delta.statistics import footer_notes
from penstock.sink.delta.table_schema import delta_schema, require_fit, require_storable, require_supported
from penstock.sink.delta.verification import VerifiedTable
from penstock.sink.parquet.account import Area
from penstock.sink.parquet.directory.account import DirectoryAccount
from penstock.sink.parquet.layout import owner_of
from penstock.sink.parquet.object.account import ObjectAccount
from penstock.sink.parquet.ownership import claim_account, require_apart
from penstock.sink.parquet.splitting import INLINE_LIMIT_BYTES, WriteSettings
from penstock.sink.parquet.stager import ParquetStager
from penstock.sink.parquet.verification import verify_accounts
from penstock.sink.table.verification import without_marker

PREPARE = FaultPoint("delta.prepare", "The table is looked at, and created if it is missing.")

_RECENT = 20
"""Commits that a run makes durable with its first one: an earlier run may have died before it did."""


class DeltaSink:
    """Appends to one Delta table, in a directory or in a bucket of S3. Safe to use from several threads.

    Tasks stage files as for an account of the Parquet sink. Publishing shows them in the table's place, where no reader of Delta
    looks for them, and commits them with the marker.
    """

    kind: ClassVar = SinkKind.STAGING
    exactly_once: ClassVar = True
    route_sql: ClassVar = None
    accounts: ClassVar[Sequence[AccountName]] = [ONLY_ACCOUNT]

    def __init__(
        self,
        *,
        name: SinkName,
        pipeline: PipelineName,
        account: DirectoryAccount | ObjectAccount,
        partition_by: Sequence[str] = (),
        create: bool = True,
        compression: str = "zstd",
        target_file_size_bytes: int = 128_000_000,
        inline_limit_bytes: int = INLINE_LIMIT_BYTES,
    ) -> None:
        self.name = name
        self._pipeline = pipeline
        self._account = account
        self._log = DeltaLog(place=place_of(account))
        self._create = create
        self._settings = WriteSettings(
            sink=name,
            owner=owner_of(pipeline, name),
            accounts=(ONLY_ACCOUNT,),
            partition_by=tuple(partition_by),
            compression=compression,
            target_file_size_bytes=target_file_size_bytes,
            footer_notes=footer_notes,
            inline_limit_bytes=inline_limit_bytes,
        )
        self._uploads: FlatUploads | None = None
        self._lock = RLock()
        self._published_at, self._synced = Position(0), -1
        self._claimed: set[LedgerId] = set()

    def use_row_digest(self, row_digest: RowDigest) -> None:
        self._settings = replace(self._settings, row_digest=row_digest)

    def describe(self) -> Mapping[str, str]:
        settings = self._settings
        parts = f", partitioned by {', '.join(settings.partition_by)}" if settings.partition_by else ""
        size_mb = settings.target_file_size_bytes / 1e6
        files = f"Parquet ({settings.compression}) files of about {size_mb:.0f} MB{parts}"
        return {
            "stage": f"{files}, invisible: {self._account.staging}",
            "publish": f"{self._account.publishing}; then one commit to the Delta table {self._account.url}: files and marker",
        }

    # --- checks

    def check(self) -> Sequence[Finding]:
        """Check the directory, and that the table can be written, if there is one."""
        findings = self._area().check()
        if not all(finding.ok for finding in findings):
            return findings
        subject = f"sink {self.name}"
        try:
            snapshot = self._log.newest()
            if snapshot is None:
                ok, message = self._create, "will be created" if self._create else "is missing: create it, or set create: true"
                return [*findings, Finding(subject=subject, ok=ok, message=f"The Delta table {self._log.uri} {message}.")]
            with reading(self._log.place):
                require_supported(snapshot.table_schema(), where=self._log.uri)
        except (Retryable, Failed, Refused) as error:
            return [*findings, Finding(subject=subject, ok=False, message=str(error))]
        message = f"The Delta table {self._log.uri} is at version {snapshot.version}; deltalake {deltalake.__version__}."
        return [*findings, Finding(subject=subject, ok=True, message=message)]

    def require_schema_accepted(self, *, pipeline: PipelineName, schema: str) -> None:
        self._require_storable(schema)
        self._require_own(self._area(pipeline), pipeline)
        snapshot = self._log.newest()
        if snapshot is None:
            self._require_creatable(self._area(pipeline))
        else:
            self._require_fit(snapshot, self._area(pipeline), schema, pipeline)

    def high_water_mark(self, account: AccountName, *, pipeline: PipelineName) -> HighWaterMark | None:
        snapshot = self._log.newest() if account == ONLY_ACCOUNT else None
        if snapshot is None:
            return None
        with reading(self._log.place):
            return snapshot.described_marker(pipeline, self.name)

    # --- the life of a batch

    def prepare(self, *, pipeline: PipelineName, schema: str | None) -> None:
        """Create the table, or refuse one that the rows do not fit. Raises Usage, Refused, Failed, Retryable."""
        if schema is not None:
            self._require_storable(schema)
        self._pipeline = pipeline
        self._settings = replace(self._settings, owner=owner_of(pipeline, self.name))
        area = self._area()
        self._require_own(area, pipeline)
        if schema is not None and self._log.newest() is None:
            self._require_creatable(area)
        self._uploads = FlatUploads(place=area.prepare())
        if schema is not None:
            self._prepare_table(area, schema, pipeline)

    def claim(self, ledger_id: LedgerId) -> None:
        """Note that table and staging are this sink's and that ledger's. Raises Refused, LedgerMismatch, Retryable, Failed."""
        snapshot = self._log.newest()
        with reading(self._log.place):
            marker = None if snapshot is None else snapshot.marker(self._pipeline, self.name)
        if marker is not None and marker.ledger_id not in {None, ledger_id}:
            raise LedgerMismatch(
                f"The Delta table {self._log.uri} shows what ledger {marker.ledger_id} decided, but this is ledger {ledger_id}.",
                remedy="Put that ledger back and start again. If it is lost, or both are to go on, give the sink another name "
                "and another table: two ledgers would deliver the same rows twice.",
            )
        self._claim(ledger_id)

    def stager(self) -> ParquetStager:
        if self._uploads is None:
            raise Failed(f"Sink {self.name!r} was not prepared.", remedy="Call prepare() first.")
        return ParquetStager(settings=self._settings, areas={ONLY_ACCOUNT: self._uploads})

    def publish(self, publication: Publication) -> Published:
        """Commit the decided files, unless the table shows them. Raises what `DeltaPublication.publish` raises."""
        if not publication.staged:
            return Published(totals=publication.totals, already=True)
        with self._lock, reading(self._log.place):
            if publication.ledger_id is not None:
                self._claim(publication.ledger_id)
            area = self._area(publication.pipeline)
            shown = DeltaPublication(log=self._log, area=area, publication=publication, since=self._published_at).publish()
            self._log.place.sync(
                since=self._synced if self._synced >= 0 else max(-1, shown.version - _RECENT), upto=shown.version
            )
            self._synced = max(self._synced, shown.version)
            self._published_at = max(self._published_at, publication.position)
        return shown.published

    def sweep(self, cut: SweepCut, *, dry_run: bool) -> Sequence[str]:
        return self._area(cut.pipeline).sweep(cut, dry_run=dry_run)

    def verify(self, decisions: SinkDecisions) -> SinkReport:
        """Compare the rows of every file of the newest version with the ledger as of that version's marker."""
        snapshot = self._log.newest()
        if snapshot is None:
            return without_marker(decisions, f"There is no Delta table {self._log.uri}.")
        with reading(self._log.place):
            table = VerifiedTable(snapshot, self._area(), pipeline=self._pipeline, sink=self.name)
            report = verify_accounts({ONLY_ACCOUNT: table}, decisions, self._settings.row_digest)
            newest = None if report.ok else self._log.newest()
            if newest is not None and newest.version != snapshot.version and table.lost_files(newest):
                raise Retryable(
                    f"Files were taken out of the Delta table {self._log.uri} while they were read.", remedy="Verify again."
                )
        return report

    def close(self) -> None:
        """Do nothing: nothing stays open."""

    # --- staging

    @contextmanager
    def task_checks(self) -> Iterator[Sequence[TaskCheck]]:
        with self._area().task_check() as check:
            yield [] if check is None else [check]

    def signatures(self, *, pipeline: PipelineName) -> Sequence[Signature]:  # noqa: ARG002 - there are none
        """Return none: a table that is claimed refuses other ledgers by itself."""
        return ()

    def sign(self, entry: Entry) -> None:
        """Do nothing: `claim` says whose the table is."""

    def waiting(self, account: AccountName, *, pipeline: PipelineName) -> Iterator[Waiting]:  # noqa: ARG002 - there is one
        return self._area(pipeline).waiting()

    def lifecycle(self) -> Sequence[Finding]:
        return self._area().lifecycle()

    # --- what is the table's own

    def _area(self, pipeline: PipelineName | None = None) -> Area:
        return self._account.area(pipeline=pipeline or self._pipeline, sink=self.name, account=ONLY_ACCOUNT)

    def _prepare_table(self, area: Area, schema: str, pipeline: PipelineName) -> None:
        with PREPARE.around(error=delta_error_as_failed, lost=delta_error_as_failed):
            snapshot = self._log.newest()
            if snapshot is None:
                self._log.place.prove()
                self._log.create(delta_schema(schema), self._settings.partition_by)
                snapshot = self._log.newest()
        if snapshot is None:
            raise Retryable(f"The Delta table {self._log.uri} was created, but is not there.", remedy="Try again.")
        self._require_fit(snapshot, area, schema, pipeline)

    def _require_storable(self, schema: str) -> None:
        try:
            require_storable(schema, self._settings.partition_by)
        except Usage as wrong:
            raise Usage(f"Sink {self.name!r}: {wrong.message}", remedy=wrong.remedy) from wrong

    def _require_creatable(self, area: Area) -> None:
        """Raise Refused where a table must not be created. A decided file of a batch may be there, if the table was removed."""
        if not self._create:
            raise Refused(
                f"The Delta table {self._log.uri} is missing, and sink {self.name!r} has create: false.",
                remedy="Create it, or set create: true.",
            )
        found = next((file.name for file in area.files()), None)
        if found is not None:
            raise Refused(
                f"{self._log.uri} holds {found}, but no Delta table: its first vacuum would remove what is there.",
                remedy="Name an empty directory, or make a Delta table of the files first (`CONVERT TO DELTA`).",
            )

    def _require_fit(self, snapshot: Snapshot, area: Area, schema: str, pipeline: PipelineName) -> None:
        with reading(self._log.place):
            require_fit(snapshot.table_schema(), schema, self._settings.partition_by, where=self._log.uri)
            if area.claimed_by() is not None or snapshot.marker(pipeline, self.name) is not None:
                return
            found = next(snapshot.files(), None)
        if found is not None:
            raise Refused(
                f"The Delta table {self._log.uri} holds rows that sink {self.name!r} of pipeline {pipeline!r} did not deliver, "
                f"{found.path} for one: `penstock verify` could not tell what is missing.",
                remedy="Give the sink a table of its own, and let readers read both.",
            )

    def _require_own(self, area: Area, pipeline: PipelineName) -> None:
        owner = area.claimed_by()
        if owner is not None and (owner.pipeline, owner.sink) != (pipeline, self.name):
            raise Refused(
                f"The Delta table {self._log.uri} belongs to sink {owner.sink!r} of pipeline {owner.pipeline!r}, expected sink "
                f"{self.name!r} of pipeline {pipeline!r}.",
                remedy="Give every sink of every pipeline a table of its own, and let readers read them together.",
            )
        require_apart(self._account, owner)

    def _claim(self, ledger_id: LedgerId) -> None:
        if ledger_id not in self._claimed:
            owner = AccountOwner(pipeline=self._pipeline, sink=self.name, account=ONLY_ACCOUNT, ledger_id=ledger_id)
            claim_account(self._area(), owner, url=self._account.url)
            self._claimed.add(ledger_id)


def delta_error_as_failed(point: str) -> Failed:
    """Return the error of an armed fault point in `prepare`."""
    return Failed(f"{point} failed: {delta_error(point)}", remedy="Start again.")
