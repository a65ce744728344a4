"""`IcebergTable`, one table of an Iceberg catalog. Only this folder calls the library that reads and writes such tables.

The library's own commit is not used: it answers a conflict by building the same commit again on the newest snapshot, and so adds
files a second time that another driver has just added. Here a commit is one attempt, under the condition that the branch is where
it was when the marker was read. The marker is a property of the table, set by the commit that adds the files: it outlives
snapshots, which expire.
"""

import json
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyiceberg
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    OAuthError,
    TableAlreadyExistsError,
    UnauthorizedError,
)
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema, index_by_name
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot as Version
from pyiceberg.table.update import (
    AssertLastAssignedFieldId,
    AssertTableUUID,
    RemovePropertiesUpdate,
    SetPropertiesUpdate,
    TableRequirement,
)

from penstock.core.faults import FaultPoint
from penstock.core.high_water_mark import HighWaterMark
from penstock.core.model import Json, PipelineName, Position, Publication, SinkName
from penstock.errors import Conflict, Failed, Refused, Retryable
from penstock.sink.iceberg.branch import MAIN, absence, beginning, head_of, is_missing, is_tag, require_holds
from penstock.sink.iceberg.catalog import CatalogAddress
from penstock.sink.iceberg.data_file import data_file, partition_texts, primitive_of
from penstock.sink.iceberg.marker_notes import content_of, mark_of, notes_of
from penstock.sink.iceberg.partitions import (
    is_partitioned_anew,
    is_written,
    named_fields,
    partition_names,
    require_free_names,
    spec_of,
)
from penstock.sink.iceberg.place import TablePlace
from penstock.sink.iceberg.table_schema import iceberg_schema, require_fit, require_storable, spark_types
from penstock.sink.iceberg.table_updates import OneCommit, as_rewrite, removal_of, same_refs
from penstock.sink.lake.columns import require_partitions
from penstock.sink.lake.log import Change, KeyRange, TableFile, TableLog, TableSnapshot, committing, first_line, prepare_failed
from penstock.sink.lake.write_mode import APPEND, OVERWRITE_PARTITIONS, TableContent, WriteMode
from penstock.sink.parquet.layout import texts_of
from penstock.spark.schema import arrow_schema
from penstock.support.extras import install_command

PREPARE = FaultPoint("iceberg.prepare", "The table is looked at, and created if it is missing.")
LOOK = FaultPoint("iceberg.look", "The catalog is asked for the table's newest metadata, with the marker.")
COMMIT = FaultPoint("iceberg.commit", "The files of a decided batch and the marker, or of a compaction, are committed.")

_FORMAT_VERSION: Final = 2
_PROPERTIES: Final = {
    "format-version": str(_FORMAT_VERSION),
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
}
"""With these a commit stays cheap: few manifests, few old metadata files."""
_NOTE: Final = "penstock."
_REWRITTEN_BY: Final = f"{_NOTE}rewritten_by"
_ANOTHER: Final = "Name another table, or copy its rows into one without"


def iceberg_error(point: str) -> CommitStateUnknownException:
    """Return the error of an armed fault point, as the library would raise it."""
    return CommitStateUnknownException(f"{point} failed.")


@dataclass(frozen=True, kw_only=True)
class IcebergTable(TableLog):
    """The table `name` of a catalog, whose files are at `place`, and its `branch`. It may not exist yet."""

    format: ClassVar = "Iceberg"
    library: ClassVar = f"pyiceberg {pyiceberg.__version__}"
    damaged: ClassVar = (ValueError, pa.ArrowException)

    catalog: CatalogAddress
    name: str
    place: TablePlace
    branch: str = MAIN

    @property
    def uri(self) -> str:
        return f"{self.name} at {self.place.location}" + ("" if self.branch == MAIN else f", branch {self.branch}")

    def require_storable(self, schema: str, partition_by: Sequence[str]) -> None:
        require_storable(schema, partition_by)

    def prepare(self, schema: str, partition_by: Sequence[str]) -> TableSnapshot | None:
        with PREPARE.around(error=prepare_failed, lost=prepare_failed):
            return self.found_or_created(schema, partition_by)

    def newest(self) -> "Snapshot | None":
        if self.catalog.is_missing:
            return None
        try:
            with LOOK.around(error=iceberg_error, lost=iceberg_error):
                return Snapshot(table=self._client.load_table(self.name), log=self)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except (UnauthorizedError, ForbiddenError, OAuthError) as cause:
            raise Failed(
                f"The catalog of the Iceberg table {self.uri} refuses this user: {first_line(cause)}.",
                remedy="Set catalog_options: a token; or a credential and oauth2-server-uri, of a user who may load, create and "
                "commit to the table.",
            ) from cause
        except Exception as cause:
            raise Retryable(
                f"The Iceberg table {self.uri} cannot be read: {first_line(cause)}.",
                remedy="Try again. If it fails again, check whether the catalog and the table's place can be reached.",
            ) from cause

    def create(self, schema: str, partition_by: Sequence[str]) -> None:
        try:
            self._create(Schema.model_validate_json(iceberg_schema(schema)), partition_by)
        except TableAlreadyExistsError:
            return
        except Exception as cause:
            if self.newest() is not None:
                return
            raise Failed(
                f"The Iceberg table {self.uri} cannot be created: {first_line(cause)}.", remedy="Mend the cause and start again."
            ) from cause

    def _create(self, columns: Schema, partition_by: Sequence[str]) -> None:
        namespace = self.name.rpartition(".")[0]
        self.catalog.make_directory()
        with suppress(NamespaceAlreadyExistsError):
            self._client.create_namespace(namespace)
        spec = spec_of(partition_by, columns)
        self._client.create_table(
            self.name, columns, location=self.place.location, partition_spec=spec, properties=dict(_PROPERTIES)
        )

    def remove(self, path: str) -> None:
        self.place.remove(path)

    def sync(self, *, since: int, upto: int) -> None:
        """Do nothing: what is written is flushed before the catalog names it."""

    def close(self) -> None:
        if "_client" in self.__dict__:
            self._client.close()

    @cached_property
    def _client(self) -> Catalog:
        require_known_library()
        return self.catalog.open(self.place.io())


@dataclass(frozen=True, kw_only=True)
class Snapshot(TableSnapshot):
    """The table's branch as the catalog showed it. What is read of it stays as it was; a commit on it knows what came since."""

    table: Table
    log: IcebergTable

    @property
    def version(self) -> int:
        return 0 if self._head is None else self._head.sequence_number or 0

    @cached_property
    def _head(self) -> Version | None:
        return head_of(self.table, self.log.branch)

    @property
    def next_version(self) -> int:
        # not after the newest snapshot of the branch: after a rollback the numbers of those behind it stay taken
        return self.table.metadata.next_sequence_number()

    @property
    def partition_by(self) -> tuple[str, ...]:
        return partition_names(self.table.spec(), self.table.schema())

    @property
    def columns(self) -> Mapping[str, Json]:
        return spark_types(self.table.schema().model_dump_json())

    @property
    def field_ids(self) -> Mapping[str, int]:
        return index_by_name(self.table.schema())

    @property
    def way_back(self) -> str:
        # a type cannot be narrowed, and a column that is added again has another number
        return "Put the table back as it was before that, by registering its metadata of then in the catalog,"

    def require_supported(self, mode: WriteMode) -> None:
        unsupported = next(_unsupported(self.table, self.log, mode), None)
        if unsupported is not None:
            what, remedy = unsupported
            raise Refused(f"The table {self.log.uri} {what}.", remedy=remedy)

    def require_fit(self, schema: str, partition_by: Sequence[str]) -> None:
        require_partitions(self.partition_by, partition_by, where=self.log.uri)
        require_free_names(self.table.spec(), arrow_schema(schema).names, where=self.log.uri)
        require_fit(self.table.schema().model_dump_json(), schema, where=self.log.uri)

    def add_columns(self, schema: str, names: Sequence[str]) -> None:
        wanted = Schema.model_validate_json(iceberg_schema(schema))
        with self._committing("Mend the cause and start again."):
            transaction = self.table.transaction()
            with transaction.update_schema() as update:
                for name in names:
                    update.add_column((name,), wanted.find_field(name).field_type)
            last = AssertLastAssignedFieldId.model_validate({"last-assigned-field-id": self.table.metadata.last_column_id})
            self._commit_once(transaction, last)

    def files(self, within: KeyRange | None = None) -> Iterator[TableFile]:
        schema, field_ids = self.table.schema(), self.field_ids
        fields = {spec_id: named_fields(spec, schema) for spec_id, spec in self.table.specs().items()}
        partitions = {} if within is None else {name: texts_of(values) for name, values in within.partitions.items()}
        for file in self._data_files:
            values = partition_texts(file.partition, fields[file.spec_id])
            if within is None or (_is_inside(values, partitions) and _may_hold(file, schema, within)):
                path = file.file_path.removeprefix(self._data)
                yield TableFile(path=path, size_bytes=file.file_size_in_bytes, values=values, field_ids=field_ids)

    @cached_property
    def _data_files(self) -> Sequence[DataFile]:
        """All data files of the snapshot; reads every manifest. Raises ValueError if there are delete files."""
        tasks = [] if self._head is None else list(self.table.scan(snapshot_id=self._head.snapshot_id).plan_files())
        if any(task.delete_files for task in tasks):
            raise ValueError("rows of it are deleted by delete files, which Penstock does not read")
        return [task.file for task in tasks]

    @property
    def _data(self) -> str:
        return f"{self.table.location()}/data/"

    def marker(self, pipeline: PipelineName, sink: SinkName) -> HighWaterMark | None:
        noted = self._noted(pipeline, sink)
        return None if noted is None else mark_of(noted)

    def content(self, pipeline: PipelineName, sink: SinkName) -> TableContent | None:
        noted = self._noted(pipeline, sink)
        return None if noted is None or "write" not in noted else content_of(noted)

    def described_marker(self, pipeline: PipelineName, sink: SinkName) -> HighWaterMark | None:
        return self.marker(pipeline, sink)

    def marker_of(self, position: Position, pipeline: PipelineName, sink: SinkName) -> HighWaterMark | None:
        noted = self._noted_at(position, pipeline, sink)
        return None if noted is None else mark_of(noted)

    def written_by(self, position: Position, pipeline: PipelineName, sink: SinkName) -> str | None:
        noted = self._noted_at(position, pipeline, sink)
        return None if noted is None else noted.get("written_by")

    def _noted(self, pipeline: PipelineName, sink: SinkName) -> Mapping[str, Any] | None:
        """Return what the table's property says of the newest publication."""
        key = _key(pipeline, sink)
        text = self.table.properties.get(key)
        noted = None if text is None else json.loads(text)
        if noted is not None:
            require_holds(self.table, self.log.branch, noted, key=key, title=self.log.title)
        return noted

    def _noted_at(self, position: Position, pipeline: PipelineName, sink: SinkName) -> Mapping[str, Any] | None:
        """Return what the property, or the snapshots that are left, say of the publication at `position`."""
        summaries = (snapshot.summary for snapshot in reversed(self.table.snapshots()))
        texts = (None if summary is None else summary.get(_key(pipeline, sink)) for summary in summaries)
        noted = (self._noted(pipeline, sink), *(json.loads(text) for text in texts if text is not None))
        return next((each for each in noted if each is not None and each["position"] == position), None)

    def commit(self, change: Change, publication: Publication) -> int:
        branch = {} if self.log.branch == MAIN else {"branch": self.log.branch}
        notes = json.dumps({**notes_of(change, publication), **branch}, separators=(",", ":"))
        noted = {_key(publication.pipeline, publication.sink): notes}
        return self._commit(change, noted, remedy="The batch is decided: mend the cause, and the next start publishes it.")

    def rewrite(self, change: Change) -> int:
        noted = {_REWRITTEN_BY: str(change.written_by)}
        return self._commit(change, noted, remedy="No row changed: mend the cause, and a later round does it.")

    def has_rewritten(self, version: int, nonce: str) -> bool | None:
        summaries = [snapshot.summary for snapshot in self.table.snapshots() if snapshot.sequence_number == version]
        return any(each is not None and each.get(_REWRITTEN_BY) == nonce for each in summaries) if summaries else None

    def expire(self, snapshot_ids: Sequence[int], *, noted: Mapping[str, str]) -> None:
        """Take snapshots out of the table and set properties, by one commit.

        Raises Conflict if a branch or a tag moved since, OutcomeUnknown.
        """
        required = same_refs(self.table.metadata, is_local=not isinstance(self.table.catalog, RestCatalog))
        with self._committing("No row is lost: mend the cause, and a later round does it."):
            updates = (removal_of(snapshot_ids), SetPropertiesUpdate(updates=dict(noted)))
            self.table._do_commit(updates=updates, requirements=tuple(required))

    def forget(self, key: str) -> None:
        """Take a property out of the table. Raises Conflict, OutcomeUnknown; also if it is not there any more."""
        same_table = AssertTableUUID(uuid=self.table.metadata.table_uuid)
        with self._committing("No row is lost: mend the cause, and a later round does it."):
            self.table._do_commit(updates=(RemovePropertiesUpdate(removals=[key]),), requirements=(same_table,))

    def _committing(self, remedy: str) -> AbstractContextManager[None]:
        return committing(self.log.title, CommitFailedException, remedy=remedy)

    def _commit(self, change: Change, noted: dict[str, str], *, remedy: str) -> int:
        if is_missing(self.table, self.log.branch):
            with self._committing(remedy):
                self._begin_branch()
            raise Conflict(f"branch {self.log.branch!r} was missing, and begins where main is")
        with self._committing(remedy):
            with COMMIT.around(error=iceberg_error, lost=iceberg_error):
                self._make(change, noted)
            return self.version

    def _begin_branch(self) -> None:
        """Make the branch where `main` is, which gets an empty snapshot if it has none: no branch begins without one."""
        main, transaction = self.table.current_snapshot(), self.table.transaction()
        if main is None:
            with transaction.update_snapshot().merge_append():
                pass
            self._commit_once(transaction)
        else:
            required = (*same_refs(self.table.metadata, is_local=False), absence(self.log.branch))
            self.table._do_commit(updates=(beginning(self.log.branch, main),), requirements=required)

    def _make(self, change: Change, noted: dict[str, str]) -> None:
        """Make the change by a new snapshot, even if no file changes: a stale commit fails only where a newer snapshot is.

        `noted` goes into the snapshot's summary and, if rows change, into the table's properties.
        """
        table, schema, spec = self.table, self.table.schema(), self.table.spec()
        there = {file.file_path: file for file in self._data_files} if change.removed else {}
        transaction = OneCommit(table)
        update = transaction.update_snapshot(snapshot_properties=noted, branch=self.log.branch)
        with update.overwrite() if change.removed else update.merge_append() as producer:
            for file in change.removed:
                producer.delete_data_file(there[self._location(file)])
            for file in change.added:
                producer.append_data_file(data_file(file, schema, location=self._location(file), spec=spec))
        if change.is_rewrite:
            transaction._updates = as_rewrite(transaction._updates)
        else:
            transaction.set_properties(noted)
        self._commit_once(transaction, *self._others_unmoved)

    @property
    def _others_unmoved(self) -> Sequence[TableRequirement]:
        """The condition that no other branch moved: its commit has taken the number that a commit on this snapshot would get."""
        return () if self.log.branch == MAIN else same_refs(self.table.metadata, is_local=False)

    def _commit_once(self, transaction: Transaction, *requirements: TableRequirement) -> None:
        """Make one attempt. `commit_transaction()` would answer a conflict by adding the files to the newest snapshot (I2)."""
        same_table = AssertTableUUID(uuid=self.table.metadata.table_uuid)
        required = (*transaction._requirements, same_table, *requirements)
        self.table._do_commit(updates=transaction._updates, requirements=required)

    def _location(self, file: TableFile) -> str:
        return file.path if "://" in file.path else f"{self._data}{file.path}"


def require_known_library() -> None:
    """Raise Failed unless the library has the private names that `_commit_once` uses: a later version may rename them."""
    missing = [name for name in ("_do_commit",) if not hasattr(Table, name)]
    slots = Transaction.__init__.__code__.co_names
    missing += [name for name in ("_updates", "_requirements") if name not in (*slots, *Transaction.__annotations__)]
    if missing:
        raise Failed(
            f"pyiceberg {pyiceberg.__version__} has no {', '.join(missing)}, by which a batch is committed exactly once.",
            remedy=f"Install pyiceberg 0.12: {install_command('iceberg')}",
        )


def _unsupported(table: Table, log: IcebergTable, mode: WriteMode) -> Iterator[tuple[str, str]]:
    """Yield why the table is not written, and what helps."""
    location, newest = log.place.location, head_of(table, log.branch)
    if is_tag(table, log.branch):
        yield f"has a tag named {log.branch!r}", "Set `branch` to another name: only commits move a branch, and none a tag."
    if table.location() != location:
        yield (
            f"lies at {table.location()}, not at {location}",
            "Set `warehouse` and `table` to where it lies, or name another table.",
        )
    if table.format_version != _FORMAT_VERSION:
        what = f"is of format version {table.format_version}, which this version does not write"
        yield what, f"Name another table, or copy its rows into one of format version {_FORMAT_VERSION}."
    for field in table.spec().fields:
        if not is_written(field, table.schema()):
            yield f"is partitioned by {field.transform}({field.name}), which this version does not write", f"{_ANOTHER}."
    if newest is not None and newest.summary is not None and newest.summary.get("total-delete-files", "0") != "0":
        yield (
            "has rows that are deleted by delete files, which this version does not write",
            f"Have its files rewritten without them, by a compaction. {_ANOTHER}.",
        )
    if mode.write == OVERWRITE_PARTITIONS and is_partitioned_anew(table, newest):
        yield (
            f"has files from before its partitioning was changed, beside write: {mode.write}",
            f"Have these files rewritten, or set write: append. {_ANOTHER}.",
        )
    if mode.write != APPEND and len({*index_by_name(table.schema()).values()}) < table.metadata.last_column_id:
        # the marker counts its values, which readers find no more
        yield f"has lost a column, beside write: {mode.write}", f"Set write: append. {_ANOTHER}."


def _is_inside(values: Mapping[str, str | None], partitions: Mapping[str, Container[str | None]]) -> bool:
    """Return whether rows of the range can have these partition values. An older file may lack some: it may hold any rows."""
    return all(values[name] in wanted for name, wanted in partitions.items() if name in values)


def _may_hold(file: DataFile, schema: Schema, within: KeyRange) -> bool:
    """Return whether the file may hold rows within the range. One without bounds may hold any."""
    for name, (least, greatest) in within.bounds.items():
        field = schema.find_field(name)
        kind = primitive_of(field)
        low, high = ((bounds or {}).get(field.field_id) for bounds in (file.lower_bounds, file.upper_bounds))
        if low is not None and from_bytes(kind, low) > _stored(greatest):
            return False
        if high is not None and from_bytes(kind, high) < _stored(least):
            return False
    return True


def _stored(value: "pa.Scalar") -> Any:
    """Return a value as bounds hold it: a date in days, since Python's calendar ends before Spark's."""
    return value.value if pa.types.is_date32(value.type) else value.as_py()


def _key(pipeline: PipelineName, sink: SinkName) -> str:
    """Return the property's name. It names no generation: a driver of an older one must find what a newer one did."""
    return f"{_NOTE}{pipeline}:{sink}"
