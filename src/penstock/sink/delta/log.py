"""`DeltaLog`, the log of one Delta table. Only this module calls the library that reads and writes such logs.

The library validates nothing of what is added, and takes a repeated position for a new one. What it does guarantee: a commit
fails if another commit moved the same application's version since the snapshot was read on which it is made. So the marker is
read from the very snapshot that the commit is made on.

A table's marker is a handful of application versions, which are numbers and outlive checkpoints and clean-ups of the log: the
position, and the identity of the ledger in parts; where rows replace others, also what the table shows. The commit's own notes
tell people more; they are removed with the log's old files.
"""

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Final
from urllib.parse import quote, unquote

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from penstock.core.faults import FaultPoint
from penstock.core.high_water_mark import HighWaterMark
from penstock.core.model import Json, PipelineName, Position, Publication, SinkName
from penstock.errors import Conflict, Failed, PublishFailed, Retryable
from penstock.sink.delta.log_cleanup import hooks_of, kept_by
from penstock.sink.delta.marker import application_id, mark_of, marker_from, noted_in, notes_of, versions_of
from penstock.sink.delta.place import TablePlace, place_of
from penstock.sink.delta.rewriting import REWRITTEN_BY, Rewriting
from penstock.sink.delta.table_schema import (
    TableSchema,
    delta_schema,
    require_changeable,
    require_fit,
    require_storable,
    require_supported,
)
from penstock.sink.lake.log import Change, KeyRange, TableFile, TableLog, TableSnapshot, committing, first_line, prepare_failed
from penstock.sink.lake.write_mode import CONTENT_NUMBERS, TableContent, WriteMode, content_from, content_numbers
from penstock.sink.parquet.directory.account import DirectoryAccount
from penstock.sink.parquet.object.account import ObjectAccount

PREPARE = FaultPoint("delta.prepare", "The table is looked at, and created if it is missing.")
LOOK = FaultPoint("delta.look", "The table's newest snapshot is read, with its marker.")
COMMIT = FaultPoint("delta.commit", "The files of a decided batch and the marker, or of a compaction, are committed to the log.")

_INTERVAL: Final = "delta.checkpointInterval"
_CHECKPOINT_INTERVAL: Final = 10
"""Commits from one checkpoint to the next: with the library's 100, a commit costs four times as much by then."""
_LOOKED_BACK: Final = 50
"""Commits whose notes are looked through for the batch of a position."""
_PARTITION: Final = "partition"
_WRITTEN_BY: Final = "written_by"
_UNQUOTED: Final = "/!'()*-._~$&+,;=:@"
"""Characters of a path that the library writes into the log unquoted. Writers do not agree how some others are quoted."""


_DAMAGE = re.compile(r"Json error: .*")
_GAP = "Expected contiguous commit files, but found gap"
"""What the library says of a commit that is no JSON, and of one that is missing between others, without its names of the files.

A gap can be what a look finds while another writer removes entries that are too old.
"""


def delta_error(point: str) -> DeltaError:
    """Return the error of an armed fault point, as the library would raise it."""
    return DeltaError(f"{point} failed.")


@dataclass(frozen=True, kw_only=True)
class DeltaLog(TableLog):
    """The log of the table at `place`, which may not exist yet.

    `vacuum_after_ms`: how long versions of the table can be read. A table that is created keeps its log accordingly.
    """

    format: ClassVar = "Delta"
    library: ClassVar = f"deltalake {deltalake.__version__}"
    damaged: ClassVar = (DeltaError, pa.ArrowException, ValueError)

    place: TablePlace
    vacuum_after_ms: int | None = None

    @property
    def uri(self) -> str:
        return self.place.uri

    def require_storable(self, schema: str, partition_by: Sequence[str]) -> None:
        require_storable(schema, partition_by)

    def remove(self, path: str) -> None:
        self.place.remove(path)

    def sync(self, *, since: int, upto: int) -> None:
        self.place.sync(since=since, upto=upto)

    def prepare(self, schema: str, partition_by: Sequence[str]) -> TableSnapshot | None:
        with PREPARE.around(error=prepare_failed, lost=prepare_failed):
            return self.found_or_created(schema, partition_by)

    def newest(self) -> "Snapshot | None":
        try:
            with LOOK.around(error=delta_error, lost=delta_error):
                table = DeltaTable(self.place.library_uri, storage_options=_options(self.place))
                return Snapshot(place=self.place, table=table)
        except TableNotFoundError:
            return None
        except Exception as cause:
            reason = first_line(cause)
            damage = _DAMAGE.search(reason)
            if damage is not None:
                raise Failed(
                    f"The log of the Delta table {self.uri} is damaged: {damage[0]}.",
                    remedy="Restore the files of `_delta_log` from a copy, and start again: what was decided is published then.",
                ) from cause
            if _GAP in reason:
                raise Retryable(
                    f"The log of the Delta table {self.uri} lacks a commit between others.",
                    remedy="Try again: another writer may be removing old ones. If it fails again, restore the files of "
                    "`_delta_log` from a copy.",
                ) from cause
            raise Retryable(
                f"The log of the Delta table {self.uri} cannot be read: {reason}.",
                remedy="Try again. If it fails again, find out who else writes to the table, and with which version of Delta.",
            ) from cause

    def application_version(self, application: str) -> int | None:
        snapshot = self.newest()
        with self.reading():
            return None if snapshot is None else snapshot.table.transaction_version(application)

    def at(self, version: int) -> "Snapshot":
        """Return the snapshot of an older version. Raises what the library raises: its log may be cleaned up."""
        table = DeltaTable(self.place.library_uri, version=version, storage_options=_options(self.place))
        return Snapshot(place=self.place, table=table)

    def create(self, schema: str, partition_by: Sequence[str]) -> None:
        self.place.prove()
        try:
            DeltaTable.create(
                self.place.library_uri,
                Schema.from_json(delta_schema(schema)),
                mode="error",
                partition_by=list(partition_by),
                storage_options=_options(self.place),
                configuration={_INTERVAL: str(_CHECKPOINT_INTERVAL), **kept_by(self.vacuum_after_ms)},
                commit_properties=CommitProperties(max_commit_retries=0),  # a second creation must not land as version 1
            )
        except Exception as cause:
            if self.newest() is not None:
                return
            raise Failed(
                f"The Delta table {self.uri} cannot be created: {first_line(cause)}.",
                remedy="Mend the cause and start again; a directory must be on a file system that has hard links.",
            ) from cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(TableSnapshot):
    """One version of a table, as the library has it in memory."""

    place: TablePlace
    table: DeltaTable

    @property
    def version(self) -> int:
        return self.table.version()

    @property
    def next_version(self) -> int:
        return self.version + 1

    @property
    def partition_by(self) -> tuple[str, ...]:
        return tuple(self.table.metadata().partition_columns)

    @property
    def columns(self) -> Mapping[str, Json]:
        return {field["name"]: field["type"] for field in json.loads(self.table.schema().to_json())["fields"]}

    def require_supported(self, mode: WriteMode) -> None:
        table = self.table_schema()
        require_supported(table, where=self.place.uri)
        require_changeable(table, mode, where=self.place.uri)

    def require_fit(self, schema: str, partition_by: Sequence[str]) -> None:
        require_fit(self.table_schema(), schema, partition_by, where=self.place.uri)

    def table_schema(self) -> TableSchema:
        """Return the columns, and what else a writer of the table must know."""
        metadata, protocol = self.table.metadata(), self.table.protocol()
        features = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
        return TableSchema(
            schema=self.table.schema().to_json(),
            partition_by=tuple(metadata.partition_columns),
            properties={key: str(value) for key, value in metadata.configuration.items()},
            features=frozenset(features),
        )

    def add_columns(self, schema: str, names: Sequence[str]) -> None:
        fields = Schema.from_json(delta_schema(schema)).fields
        with self._committing("Mend the cause and start again."):
            self.table.alter.add_columns(
                [field for field in fields if field.name in names],
                commit_properties=CommitProperties(max_commit_retries=0),  # only on the columns that were compared
            )

    def files(self, within: KeyRange | None = None) -> Iterator[TableFile]:
        found = pa.table(self.table.get_add_actions())  # not flattened: that could give a column and an inner field one name
        if within is not None:
            found = found.filter(_may_hold(found, within))
        columns = self.partition_by
        for row in found.select(["path", "size_bytes", *([_PARTITION] if columns else [])]).to_pylist():
            values = {name: _as_text(row[_PARTITION][name]) for name in columns}
            yield TableFile(path=row["path"], size_bytes=row["size_bytes"], values=values)

    def marker(self, pipeline: PipelineName, sink: SinkName) -> HighWaterMark | None:
        return marker_from(self.table.transaction_version, application_id(pipeline, sink))

    def content(self, pipeline: PipelineName, sink: SinkName) -> TableContent | None:
        application = application_id(pipeline, sink)
        known: dict[str, int] = {}
        for name in CONTENT_NUMBERS:
            number = self.table.transaction_version(f"{application}:{name}")
            if number is None:  # as for all of a table to which rows are only appended: each is looked for in the whole log
                return None
            known[name] = number
        return content_from(known)

    def described_marker(self, pipeline: PipelineName, sink: SinkName) -> HighWaterMark | None:
        marker = self.marker(pipeline, sink)
        return None if marker is None else self.marker_of(marker.position, pipeline, sink) or marker

    def marker_of(self, position: Position, pipeline: PipelineName, sink: SinkName) -> HighWaterMark | None:
        notes = self._notes_of(position, pipeline, sink)
        return None if notes is None else mark_of(notes)

    def marker_at(self, version: int, pipeline: PipelineName, sink: SinkName) -> HighWaterMark | None:
        """Return the marker that the newest publication up to `version` set, None if none of its last commits tells of one."""
        for at in range(version, max(version - _LOOKED_BACK, -1), -1):
            notes = noted_in(self.commit_info(at) or {})
            if (notes.get("pipeline"), notes.get("sink")) == (pipeline, sink):
                return mark_of(notes)
        return None

    def written_by(self, position: Position, pipeline: PipelineName, sink: SinkName) -> str | None:
        notes = self._notes_of(position, pipeline, sink)
        return None if notes is None else notes.get(_WRITTEN_BY)

    def _notes_of(self, position: Position, pipeline: PipelineName, sink: SinkName) -> Mapping[str, str] | None:
        wanted = {"pipeline": pipeline, "sink": sink, "position": str(position)}
        found = map(noted_in, self.table.history(_LOOKED_BACK))
        return next((notes for notes in found if wanted.items() <= notes.items()), None)

    def commit(self, change: Change, publication: Publication) -> int:
        decided = "The batch is decided: mend the cause, and the next start publishes it."
        return self._commit(change, _properties(change, publication), remedy=decided)

    def rewrite(self, change: Change) -> int:
        rewriting = Rewriting(
            change=change,
            read_version=self.version,
            metadata=self._metadata(),
            modified_ms={file.path: self._modified_ms(file) for file in change.added},
            now_ms=int(time.time() * 1000),
        )
        with self._committing("No row changed: mend the cause, and a later round does it."):
            with _at_commit():
                is_made = self.place.add_to_log(f"{self.next_version:020d}.json", rewriting.entry())
            if is_made:
                self._add_checkpoint()
        if not is_made:
            raise Conflict("another commit came first")
        return self.next_version

    def _metadata(self) -> Mapping[str, Json]:
        """Return the table's metadata as its log has it."""
        metadata = self.table.metadata()
        return {
            "id": str(metadata.id),
            "name": metadata.name,
            "description": metadata.description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": self.table.schema().to_json(),
            "partitionColumns": list(metadata.partition_columns),
            "configuration": dict(metadata.configuration),
            "createdTime": metadata.created_time,
        }

    def _add_checkpoint(self) -> None:
        """Add the log's next checkpoint if it is due: the library only does that after commits of its own."""
        newest = json.loads(self.place.read_log("_last_checkpoint") or "{}").get("version", 0)
        properties = self.table.metadata().configuration
        if self.next_version - newest > int(properties.get(_INTERVAL, _CHECKPOINT_INTERVAL)):
            table = DeltaTable(self.place.library_uri, storage_options=_options(self.place))
            table.create_checkpoint()
            if properties.get("delta.enableExpiredLogCleanup") != "false":
                table.cleanup_metadata()

    def has_rewritten(self, version: int, nonce: str) -> bool | None:
        found = self.commit_info(version)
        return None if found is None else found.get(REWRITTEN_BY) == nonce

    def commit_info(self, version: int) -> Mapping[str, Any] | None:
        """Return what the log notes of the commit that is `version`; None if it does not have that commit yet, or any more."""
        data = self.place.read_log(f"{version:020d}.json")
        if data is None:
            return None
        actions = (json.loads(line) for line in data.decode().splitlines() if line.strip())
        return next((action["commitInfo"] for action in actions if "commitInfo" in action), {})

    def _commit(self, change: Change, properties: CommitProperties, *, remedy: str) -> int:
        removed = [self._removed(file) for file in change.removed]
        actions: list[AddAction | RemoveAction] = [*(self._added(file) for file in change.added), *removed]
        with self._committing(remedy):
            with _at_commit():
                self.table.create_write_transaction(
                    actions,
                    "append",
                    self.table.schema(),
                    partition_by=list(self.partition_by),
                    commit_properties=properties,
                    post_commithook_properties=hooks_of(self.next_version),
                )
            if self._has_committed(properties):
                return self.next_version
            self.table.update_incremental()  # the library came behind another commit; this reads the names of the whole log
            return self.version

    def _has_committed(self, properties: CommitProperties) -> bool:
        """Return whether the next version has these notes, none of which two commits share."""
        noted = self.commit_info(self.next_version) or {}
        wanted = properties.custom_metadata or {}
        return bool(wanted) and wanted.items() <= noted.items()

    def _committing(self, remedy: str) -> AbstractContextManager[None]:
        return committing(f"Delta table {self.place.uri}", CommitFailedError, remedy=remedy)

    def _removed(self, file: TableFile) -> RemoveAction:
        """Return the action that removes a file. The library quotes its path; the log's own path must come out of that."""
        path = unquote(file.path)
        if quote(path, safe=_UNQUOTED) != file.path:
            raise PublishFailed(
                f"The log of the Delta table {self.place.uri} quotes the path of file {file.path!r} in another way than "
                "Penstock, which cannot remove it: its rows would stay beside those that replace them.",
                remedy="Have the program that added the file rewrite it under another name and start again.",
            )
        return RemoveAction(
            path,
            data_change=True,
            deletion_timestamp=int(time.time() * 1000),
            size=file.size_bytes,
            partition_values=dict(file.values),
        )

    def _added(self, file: TableFile) -> AddAction:
        return AddAction(
            path=file.path,
            size=file.size_bytes,
            partition_values=dict(file.values),
            modification_time=self._modified_ms(file),
            data_change=True,
            stats=file.statistics,
        )

    def _modified_ms(self, file: TableFile) -> int:
        try:
            return self.place.modified_ms(file.path)
        except FileNotFoundError as gone:
            raise Conflict("a file was removed before the commit that adds it") from gone


def delta_log(account: DirectoryAccount | ObjectAccount, *, vacuum_after_ms: int | None = None) -> DeltaLog:
    """Return the log of the table whose files are in `account`."""
    return DeltaLog(place=place_of(account), vacuum_after_ms=vacuum_after_ms)


def _at_commit() -> AbstractContextManager[None]:
    return COMMIT.around(error=delta_error, lost=delta_error)


def _options(place: TablePlace) -> dict[str, str] | None:
    options = place.storage_options()
    return None if options is None else dict(options)


def _may_hold(files: "pa.Table", within: KeyRange) -> "pa.ChunkedArray | pa.Array":
    """Return for each file whether it may hold rows within the range. A file without bounds may hold any."""
    found = pa.repeat(pa.scalar(value=True), files.num_rows)
    for name, values in within.partitions.items():
        own = pc.struct_field(files.column(_PARTITION), [name])
        found = pc.and_(found, pc.is_in(own.cast(values.type), value_set=values))
    for name, (least, greatest) in within.bounds.items():
        if _has_bounds(files, name):
            low, high = (pc.struct_field(files.column(end), [name]).cast(least.type) for end in ("min", "max"))
            meets = pc.and_(pc.less_equal(low, greatest), pc.greater_equal(high, least))
            found = pc.and_(found, pc.fill_null(meets, fill_value=True))
    return found


def _has_bounds(files: "pa.Table", name: str) -> bool:
    ends = (files.schema.field(end).type for end in ("min", "max") if end in files.column_names)
    return [kind.get_field_index(name) >= 0 for kind in ends] == [True, True]


def _properties(change: Change, publication: Publication) -> CommitProperties:
    versions, notes = list(versions_of(publication)), dict[str, str]()
    if change.content is not None:
        application = application_id(publication.pipeline, publication.sink)
        versions += [Transaction(f"{application}:{name}", number) for name, number in content_numbers(change.content)]
        notes["write"] = change.content.write
    if change.written_by is not None:
        notes[_WRITTEN_BY] = change.written_by
    retries = {"max_commit_retries": 0} if change.is_exclusive else {}
    noted = notes_of(publication, **notes)
    return CommitProperties(custom_metadata=noted, app_transactions=versions, **retries)  # I2: refused if one of them moved


def _as_text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)
