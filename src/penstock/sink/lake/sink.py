"""`LakeSink`: rows in one table of an open format, exactly once, by one commit for each batch."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from threading import RLock
from typing import ClassVar

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
from penstock.errors import Failed, LedgerMismatch, PublishFailed, Refused, Retryable
from penstock.protocols import Signature, SinkDecisions, TaskCheck
from penstock.sink.lake.change import Decided, MakesChange
from penstock.sink.lake.growth import Growth
from penstock.sink.lake.keep_history import KeepHistory, require_history_always
from penstock.sink.lake.log import KeepsApplicationVersions, TableLog, TableSnapshot
from penstock.sink.lake.maintained_table import MaintainedTable
from penstock.sink.lake.maintenance import Maintenance, Upkeep
from penstock.sink.lake.merge import MergeByKey
from penstock.sink.lake.publication import LakePublication
from penstock.sink.lake.reader import FileReader
from penstock.sink.lake.row_validator import require_mode_columns
from penstock.sink.lake.staged_files import StagedFiles
from penstock.sink.lake.staging import FlatUploads
from penstock.sink.lake.statistics import FileNotes, fingerprint
from penstock.sink.lake.table_writer import TableWriter
from penstock.sink.lake.taking_back import TakesBackFiles
from penstock.sink.lake.verification import VerifiedTable, counted_marker
from penstock.sink.lake.write_mode import APPENDING, REPLACE, WriteMode, decided_mode, require_mode
from penstock.sink.parquet.account import Area
from penstock.sink.parquet.directory.account import DirectoryAccount
from penstock.sink.parquet.layout import owner_of
from penstock.sink.parquet.object.account import ObjectAccount
from penstock.sink.parquet.ownership import claim_account, require_apart
from penstock.sink.parquet.splitting import INLINE_LIMIT_BYTES, WriteSettings
from penstock.sink.parquet.stager import ParquetStager
from penstock.sink.parquet.verification import verify_accounts
from penstock.sink.spool import Spool
from penstock.sink.table.preparation import settings_of
from penstock.sink.table.verification import compare, without_marker
from penstock.spark.schema import arrow_schema

_RECENT = 20
"""Commits that a run makes durable with its first one: an earlier run may have died before it did."""


class LakeSink(TakesBackFiles):
    """Delivers into the table `log`, whose files are in `account`. Safe to use from several threads.

    Tasks stage files as for an account of the Parquet sink. Publishing moves them into the table's directory, where readers see
    only what is committed, and commits them with the marker: `append` beside what is there, `replace` instead of it, and
    `overwrite_partitions` instead of the partitions that the batch has rows of.

    Writes by key need a `KeyedLakeSink`. With its `spool`, this class publishes a batch that a `KeyedLakeSink` left decided.
    """

    kind: SinkKind = SinkKind.STAGING
    exactly_once: ClassVar = True
    route_sql: ClassVar = None
    accounts: ClassVar[Sequence[AccountName]] = [ONLY_ACCOUNT]

    def __init__(
        self,
        *,
        name: SinkName,
        pipeline: PipelineName,
        account: DirectoryAccount | ObjectAccount,
        log: TableLog,
        partition_by: Sequence[str] = (),
        create: bool = True,
        schema_changes: str = "fail",
        compression: str = "zstd",
        target_file_size_bytes: int = 128_000_000,
        inline_limit_bytes: int = INLINE_LIMIT_BYTES,
        mode: WriteMode = APPENDING,
        spool: Spool | None = None,
        maintenance: Maintenance | None = None,
    ) -> None:
        with settings_of(name):
            require_mode(mode, tuple(partition_by))
        self.name = name
        self._mode, self._spool = mode, spool
        self._pipeline, self._account, self._log = pipeline, account, log
        self._upkeep = None if maintenance is None else Upkeep(maintenance, title=log.title)
        self._create, self._adds_columns = create, schema_changes == "add"
        self._settings = WriteSettings(
            sink=name,
            owner=owner_of(pipeline, name),
            accounts=(ONLY_ACCOUNT,),
            partition_by=tuple(partition_by),
            compression=compression,
            target_file_size_bytes=target_file_size_bytes,
            footer_notes=FileNotes(mode=mode),
            inline_limit_bytes=inline_limit_bytes,
        )
        self._uploads: FlatUploads | None = None
        self._lock = RLock()
        self._published_at, self._synced = Position(0), -1
        self._undurable: PublishFailed | None = None
        self._has_staged, self._is_settled = False, False
        self._prepared_for: tuple[PipelineName, str] | None = None
        self._is_recovered = False
        self._claimed: set[LedgerId] = set()

    def use_row_digest(self, row_digest: RowDigest) -> None:
        self._settings = replace(self._settings, row_digest=row_digest)

    def describe(self) -> Mapping[str, str]:
        return {
            "stage": f"{self._settings.shown}; invisible: {self._account.staging}",
            "publish": f"{self._account.publishing}; then one commit to the {self._log.title}: files "
            f"({self._mode.write}) and marker",
            **self._rounds(),
        }

    def _rounds(self) -> Mapping[str, str]:
        return {} if self._upkeep is None else {"maintain": self._upkeep.describe()}

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
                return [*findings, Finding(subject=subject, ok=ok, message=f"The {self._log.title} {message}.")]
            with self._log.reading():
                snapshot.require_supported(self._mode)
        except (Retryable, Failed, Refused) as error:
            return [*findings, Finding(subject=subject, ok=False, message=str(error))]
        message = f"The {self._log.title} is at version {snapshot.version}; {self._log.library}."
        return [*findings, Finding(subject=subject, ok=True, message=message)]

    def require_schema_accepted(self, *, pipeline: PipelineName, schema: str) -> None:
        schema = self._table_schema(schema)
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
        with self._log.reading():
            return snapshot.described_marker(pipeline, self.name)

    @property
    def application_versions(self) -> KeepsApplicationVersions | None:
        """The table, if any writer can leave a version of its own in it."""
        return self._log if isinstance(self._log, KeepsApplicationVersions) else None

    # --- the life of a batch

    def prepare(self, *, pipeline: PipelineName, schema: str | None) -> None:
        """Create the table, or refuse one that the rows do not fit. Raises Usage, Refused, Failed, Retryable."""
        if schema is not None:
            schema = self._table_schema(schema)
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
            self._prepared_for = pipeline, schema

    def claim(self, ledger_id: LedgerId) -> None:
        """Record this sink and `ledger_id` as the table's owner. Raises Refused, LedgerMismatch, Retryable, Failed."""
        snapshot = self._log.newest()
        with self._log.reading():
            marker = None if snapshot is None else snapshot.marker(self._pipeline, self.name)
        if marker is not None and marker.ledger_id not in {None, ledger_id}:
            raise LedgerMismatch(
                f"The {self._log.title} shows what ledger {marker.ledger_id} decided, but this is ledger {ledger_id}.",
                remedy="Put that ledger back and start again. If it is lost, or both are to go on, give the sink another name "
                "and another table: two ledgers would deliver the same rows twice.",
            )
        self._claim(ledger_id)

    def stager(self) -> ParquetStager:
        if self._uploads is None:
            raise Failed(f"Sink {self.name!r} was not prepared.", remedy="Call prepare() first.")
        self._begin_staging()
        return ParquetStager(settings=self._settings, areas={ONLY_ACCOUNT: self._uploads})

    def _begin_staging(self) -> None:
        """Prepare the table once more if a batch of an earlier run was published since, whose columns the rows may lack."""
        if self._is_recovered and self._prepared_for is not None:
            pipeline, schema = self._prepared_for
            self._prepare_table(self._area(), schema, pipeline)
        self._has_staged, self._is_recovered = True, False

    def publish(self, publication: Publication) -> Published:
        """Commit the decided rows, unless the table shows them. Raises what `LakePublication.publish` raises."""
        with self._lock, self._log.reading():
            mode = decided_mode(publication) if publication.staged else self._mode_of_empty()
            if not publication.staged and mode.write != REPLACE:
                return Published(totals=publication.totals, already=True)
            if publication.ledger_id is not None:
                self._claim(publication.ledger_id)
            return self._publish(publication, mode)

    def maintain_target(self, publication: Publication) -> Sequence[str]:
        """Compact and clean the table, as its settings say. Return warnings, and raise nothing."""
        if self._upkeep is None:
            return ()
        with self._lock:
            return self._upkeep.after_batch(lambda: self._maintained(publication))

    def _maintained(self, publication: Publication) -> MaintainedTable:
        area = self._area(publication.pipeline)
        mode = decided_mode(publication) if publication.staged else self._mode
        publication = replace(publication, schema=mode.table_schema(publication.schema))
        reader = FileReader(area=area, schema=publication.schema, row_digest=self._settings.row_digest)
        return MaintainedTable(publication=publication, log=self._log, reader=reader, writer=self._writer(area), sync=self._sync)

    def sweep(self, cut: SweepCut, *, dry_run: bool) -> Sequence[str]:
        return self._area(cut.pipeline).sweep(cut, dry_run=dry_run)

    def verify(self, decisions: SinkDecisions) -> SinkReport:
        """Compare the rows of every file of the newest version with the ledger as of that version's marker."""
        snapshot = self._log.newest()
        if snapshot is None:
            return without_marker(decisions, f"There is no {self._log.title}.")
        with self._log.reading():
            if self._mode.keeps_rows and snapshot.marker(self._pipeline, self.name) is None:
                return without_marker(decisions, f"The {self._log.title} has no marker of sink {self.name!r}.")
            table = VerifiedTable(snapshot, self._area(), pipeline=self._pipeline, sink=self.name)
            report = self._report(snapshot, table, decisions)
            newest = None if report.ok else self._log.newest()
            if newest is not None and newest.version != snapshot.version and table.lost_files(newest):
                raise Retryable(f"Files were taken out of the {self._log.title} while they were read.", remedy="Verify again.")
        return report

    def close(self) -> None:
        self._log.close()

    # --- staging

    @contextmanager
    def task_checks(self) -> Iterator[Sequence[TaskCheck]]:
        with self._area().task_check() as check:
            yield [] if check is None else [check]

    def signatures(self, *, pipeline: PipelineName) -> Sequence[Signature]:  # noqa: ARG002 - there are none
        """Return no signatures: a claimed table refuses other ledgers by itself."""
        return ()

    def sign(self, entry: Entry) -> None:
        """Do nothing: `claim` records the owner of the table."""

    def waiting(self, account: AccountName, *, pipeline: PipelineName) -> Iterator[Waiting]:  # noqa: ARG002 - there is one
        return self._area(pipeline).waiting()

    def lifecycle(self) -> Sequence[Finding]:
        return self._area().lifecycle()

    # --- publishing

    def _mode_of_empty(self) -> WriteMode:
        """Return the write mode of a batch without rows, which no piece records.

        A batch of this run has the mode of the settings. One of an earlier run clears the table only if the settings say
        `replace`, and if the table was last written so. With which mode it was decided nothing tells: if a run with another one
        came in between and had no rows, the table is cleared all the same, until the next batch.
        """
        if self._has_staged or self._mode.write != REPLACE:
            return self._mode
        snapshot = self._log.newest()
        content = None if snapshot is None else snapshot.content(self._pipeline, self.name)
        return APPENDING if content is None else WriteMode(write=content.write)

    def _publish(self, publication: Publication, mode: WriteMode) -> Published:
        changes = self._changes(publication, mode)
        is_settled, self._is_settled = self._is_settled, False  # until it is published, and its leftovers are removed
        shown = LakePublication(log=self._log, changes=changes, publication=publication, since=self._published_at).publish()
        self._sync(shown.version)
        self._published_at = max(self._published_at, publication.position)
        self._is_recovered |= not self._has_staged
        changes.settle(committed=shown.committed, seen=shown.seen, is_settled=is_settled)
        if mode.is_by_key and self._spool is not None:
            self._spool.discard(publication.staged, pipeline=publication.pipeline)
        self._is_settled = True
        return shown.published

    def _sync(self, version: int) -> None:
        """Make the commits up to `version` durable that were not made so before. Raises PublishFailed.

        Once it has failed it always does: another flush may succeed although nothing was written.
        """
        if self._undurable is not None:
            raise self._undurable
        since = self._synced if self._synced >= 0 else max(-1, version - _RECENT)
        try:
            self._log.sync(since=since, upto=version)
        except PublishFailed as failure:
            self._undurable = failure
            raise
        self._synced = max(self._synced, version)

    def _changes(self, publication: Publication, mode: WriteMode) -> MakesChange:
        area, rows = self._area(publication.pipeline), publication.schema
        publication = replace(publication, schema=mode.table_schema(rows))
        reader = FileReader(area=area, schema=publication.schema, row_digest=self._settings.row_digest)
        decided = Decided(publication=publication, mode=mode, reader=reader)
        if not mode.is_by_key:
            return StagedFiles(log=self._log, area=area, decided=decided)
        if self._spool is None:
            raise Failed(
                f"Batch {publication.batch.batch_id} was decided with write: {mode.write}, and sink {self.name!r} has no spool.",
                remedy=f"Set `write: {mode.write}` and `key` back and start again.",
            )
        spool, writer = self._spool, self._writer(area)

        spooled = partial(spool.read, publication.staged, pipeline=publication.pipeline)
        if mode.keeps_history:
            return KeepHistory(decided=decided, rows=rows, spooled=spooled, writer=writer, log=self._log)
        return MergeByKey(decided=decided, spooled=spooled, writer=writer, log=self._log)

    def _writer(self, area: Area) -> TableWriter:
        """Return what the driver itself writes files of the table with."""
        uploads = self._uploads or FlatUploads(place=area.prepare())
        settings = replace(self._settings, footer_notes=FileNotes(), inline_limit_bytes=0)
        return TableWriter(stager=ParquetStager(settings=settings, areas={ONLY_ACCOUNT: uploads}), area=area)

    def _report(self, snapshot: TableSnapshot, table: VerifiedTable, decisions: SinkDecisions) -> SinkReport:
        """Compare files with the ledger; or, once rows replaced others, the rows of the table with what its marker counts."""
        content = snapshot.content(self._pipeline, self.name)
        marker = snapshot.marker(self._pipeline, self.name)
        if content is None or marker is None:
            return verify_accounts({ONLY_ACCOUNT: table}, decisions, self._settings.row_digest)
        counted = counted_marker(content, marker, pipeline=self._pipeline, sink=self.name, table=self._log.uri)
        schema = self._mode.table_schema(next((each.schema for each in decisions.publications()), ""))
        return compare(
            counted,
            sink=self.name,
            table=self._log.uri,
            decisions=decisions,
            content=lambda _: table.content(schema, self._settings.row_digest),
        )

    # --- the table and its directory

    def _area(self, pipeline: PipelineName | None = None) -> Area:
        return self._account.area(pipeline=pipeline or self._pipeline, sink=self.name, account=ONLY_ACCOUNT)

    def _prepare_table(self, area: Area, schema: str, pipeline: PipelineName) -> None:
        with self._log.reading():
            snapshot = self._growth(schema).grown(
                lambda: self._found_or_created(schema), lambda found: self._require_fit(found, area, schema, pipeline)
            )
        notes = FileNotes(mode=self._mode, columns=fingerprint(snapshot.field_ids, arrow_schema(schema).names))
        self._settings = replace(self._settings, field_ids=snapshot.field_ids, footer_notes=notes)

    def _table_schema(self, schema: str) -> str:
        with settings_of(self.name):
            return self._mode.table_schema(schema)

    def _found_or_created(self, schema: str) -> TableSnapshot:
        snapshot = self._log.prepare(schema, self._settings.partition_by)
        if snapshot is None:
            raise Retryable(f"The {self._log.title} was created, but is not there.", remedy="Try again.")
        return snapshot

    def _growth(self, schema: str) -> Growth:
        return Growth(log=self._log, schema=schema, mode=self._mode, adds=self._adds_columns)

    def _require_storable(self, schema: str) -> None:
        with settings_of(self.name):
            self._log.require_storable(schema, self._settings.partition_by)
            require_mode_columns(arrow_schema(schema), self._mode)

    def _require_creatable(self, area: Area) -> None:
        """Raise Refused if tables may not be created, or files are there: decided ones, say, of a table that was removed."""
        if not self._create:
            raise Refused(
                f"The {self._log.title} is missing, and sink {self.name!r} has create: false.",
                remedy="Create it, or set create: true.",
            )
        found = next((file.name for file in area.files()), None)
        if found is not None:
            raise Refused(
                f"{self._log.uri} holds {found}, but no {self._log.format} table: a vacuum of one created there would delete it.",
                remedy="Name an empty directory, or make a table of the files first.",
            )

    def _require_fit(self, snapshot: TableSnapshot, area: Area, schema: str, pipeline: PipelineName) -> None:
        """Raise Refused for a table that the rows do not fit. It may lack columns that a start adds."""
        growth = self._growth(schema)
        with self._log.reading():
            snapshot.require_supported(self._mode)
            snapshot.require_fit(growth.schema_there(snapshot), self._settings.partition_by)
            require_history_always(snapshot, self._mode, pipeline=pipeline, sink=self.name, title=self._log.title)
            growth.require_none_left_out(snapshot, FileReader(area=area, schema=schema, row_digest=self._settings.row_digest))
            if snapshot.marker(pipeline, self.name) is not None or self._mode.keeps_rows or area.claimed_by() is not None:
                return
            found = next(snapshot.files(), None)
        if found is not None:
            raise Refused(
                f"The {self._log.title} holds rows that sink {self.name!r} of pipeline {pipeline!r} did not deliver, "
                f"{found.path} for one: `penstock verify` could not tell what is missing.",
                remedy=f"Give the sink a table of its own, and let readers read both{self._log.remedy_for_existing_rows}.",
            )

    def _require_own(self, area: Area, pipeline: PipelineName) -> None:
        owner = area.claimed_by()
        if owner is not None and (owner.pipeline, owner.sink) != (pipeline, self.name):
            raise Refused(
                f"The {self._log.title} belongs to sink {owner.sink!r} of pipeline {owner.pipeline!r}, expected sink "
                f"{self.name!r} of pipeline {pipeline!r}.",
                remedy="Give every sink of every pipeline a table of its own, and let readers read them together.",
            )
        require_apart(self._account, owner)

    def _claim(self, ledger_id: LedgerId) -> None:
        if ledger_id not in self._claimed:
            owner = AccountOwner(pipeline=self._pipeline, sink=self.name, account=ONLY_ACCOUNT, ledger_id=ledger_id)
            claim_account(self._area(), owner, url=self._account.url)
            self._claimed.add(ledger_id)
