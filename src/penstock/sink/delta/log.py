"""`DeltaLog`, the log of one Delta table. Only this module calls the library that reads and writes such logs.

The library validates nothing of what is added, and takes a repeated position for a new one. What it does guarantee: a commit
fails if another commit moved the same application's version since the snapshot was read on which it is made. So the marker is
read from the very snapshot that the commit is made on.

A table's marker is a handful of application versions, which are numbers and outlive checkpoints and clean-ups of the log: the
position, and the identity of the ledger in parts. The commit's own notes tell people more; they go with the log's old files.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import deltalake
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from penstock.core.faults import FaultPoint
from penstock.core.high_water_mark import HighWaterMark
from penstock.core.model import BatchId, Generation, LedgerId, PipelineName, Position, Publication, QueryId, SinkName
from penstock.errors import Conflict, Failed, OutcomeUnknown, Retryable
from penstock.sink.delta.place import TablePlace
from penstock.sink.delta.table_schema import TableSchema
from penstock.support.secret import scrub

LOOK = FaultPoint("delta.look", "The table's newest snapshot is read, with its marker.")
COMMIT = FaultPoint("delta.commit", "The files of a decided batch and the marker are committed to the table's log.")

_CHECKPOINT_INTERVAL: Final = 10
"""Commits from one checkpoint to the next: with the library's 100, a commit costs four times as much by then."""
_ID_PARTS: Final = 4
_ID_DIGITS: Final = 8
_LOOKED_BACK: Final = 50
"""Commits whose notes are looked through for the batch of a position."""
_NOTE: Final = "penstock."
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def delta_error(point: str) -> DeltaError:
    """Return the error of an armed fault point, as the library would raise it."""
    return DeltaError(f"{point} failed.")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """One file of a table as its log has it. `values` are the partition values as texts."""

    path: str
    size_bytes: int
    values: Mapping[str, str | None]
    statistics: str = "{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaLog:
    """The log of the table at `place`, which may not exist yet."""

    place: TablePlace

    @property
    def uri(self) -> str:
        """The table, for people."""
        return self.place.uri

    def newest(self) -> "Snapshot | None":
        """Return the newest snapshot, None if there is no table. Raises Retryable."""
        try:
            with LOOK.around(error=delta_error, lost=delta_error):
                table = DeltaTable(self.place.uri, storage_options=_options(self.place))
                return Snapshot(place=self.place, table=table)
        except TableNotFoundError:
            return None
        except Exception as cause:
            raise Retryable(
                f"The log of the Delta table {self.uri} cannot be read: {_first_line(cause)}.",
                remedy="Try again. If it stays so, see who else writes to the table, and with which version of Delta.",
            ) from cause

    def create(self, schema: str, partition_by: Sequence[str]) -> None:
        """Create an empty table unless somebody was faster. Raises Failed."""
        try:
            DeltaTable.create(
                self.place.uri,
                Schema.from_json(schema),
                mode="error",
                partition_by=list(partition_by),
                storage_options=_options(self.place),
                configuration={"delta.checkpointInterval": str(_CHECKPOINT_INTERVAL)},
                commit_properties=CommitProperties(max_commit_retries=0),  # a second creation must not land as version 1
            )
        except Exception as cause:
            if self.newest() is not None:
                return
            raise Failed(
                f"The Delta table {self.uri} cannot be created: {_first_line(cause)}.",
                remedy="Mend that and start again; a directory must be on a file system that has hard links.",
            ) from cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One version of a table. Whatever is read of it stays as it was, and a commit on it knows what came since."""

    place: TablePlace
    table: DeltaTable

    @property
    def version(self) -> int:
        return self.table.version()

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

    def files(self) -> Iterator[TableFile]:
        """Yield the files that the table consists of."""
        found = pa.table(self.table.get_add_actions(flatten=True))
        columns = self.table.metadata().partition_columns
        for row in found.select(["path", "size_bytes", *(f"partition.{name}" for name in columns)]).to_pylist():
            values = {name: _as_text(row[f"partition.{name}"]) for name in columns}
            yield TableFile(path=row["path"], size_bytes=row["size_bytes"], values=values)

    def marker(self, pipeline: PipelineName, sink: SinkName) -> HighWaterMark | None:
        """Return the position and the ledger that the table shows for a sink, None if it shows nothing of it."""
        application = _application(pipeline, sink)
        position = self.table.transaction_version(application)
        if position is None:
            return None
        parts = [self.table.transaction_version(_id_part(application, part)) for part in range(_ID_PARTS)]
        digits = "".join(f"{part:0{_ID_DIGITS}x}" for part in parts if part is not None)
        ledger_id = None if None in parts else LedgerId(digits)
        return HighWaterMark(position=Position(position), ledger_id=ledger_id, generation=None, query_id=None, batch_id=None)

    def described_marker(self, pipeline: PipelineName, sink: SinkName) -> HighWaterMark | None:
        """Return the marker, with its batch if the notes of the newest commits tell it."""
        marker = self.marker(pipeline, sink)
        return None if marker is None else self.marker_of(marker.position, pipeline, sink) or marker

    def marker_of(self, position: Position, pipeline: PipelineName, sink: SinkName) -> HighWaterMark | None:
        """Return what the notes of the newest commits tell of the publication at `position`, None if they do not."""
        wanted = {"pipeline": pipeline, "sink": sink, "position": str(position)}
        for commit in self.table.history(_LOOKED_BACK):
            notes = {key[len(_NOTE) :]: str(value) for key, value in commit.items() if key.startswith(_NOTE)}
            if wanted.items() <= notes.items():
                return HighWaterMark(
                    position=position,
                    ledger_id=LedgerId(notes["ledger_id"]) if "ledger_id" in notes else None,
                    generation=Generation(int(notes["generation"])),
                    query_id=QueryId(notes["query_id"]),
                    batch_id=BatchId(int(notes["batch_id"])),
                )
        return None

    def commit(self, files: Sequence[TableFile], publication: Publication) -> int:
        """Add the files and move the marker to the publication, in one commit, unless the marker moved since this snapshot.

        Return a version that has it: commits of others may have come between. The snapshot is not to be used afterwards. Raises
        Conflict, and OutcomeUnknown for any other error: some are raised although the commit landed.
        """
        try:
            added: list[AddAction | RemoveAction] = [self._added(file) for file in files]
            with COMMIT.around(error=delta_error, lost=delta_error):
                self.table.create_write_transaction(
                    added,
                    "append",
                    self.table.schema(),
                    partition_by=self.table.metadata().partition_columns,
                    commit_properties=CommitProperties(
                        custom_metadata=dict(_notes(publication)), app_transactions=list(_versions(publication))
                    ),
                )
            self.table.update_incremental()
            landed = self.version
        except CommitFailedError as cause:
            raise Conflict(_first_line(cause)) from cause
        except Exception as cause:
            raise OutcomeUnknown(
                f"The commit to the Delta table {self.place.uri} failed: {_first_line(cause)}.",
                remedy="The batch is decided; mend that, and the next start publishes it.",
            ) from cause
        return landed

    def _added(self, file: TableFile) -> AddAction:
        return AddAction(
            path=file.path,
            size=file.size_bytes,
            partition_values=dict(file.values),
            modification_time=self.place.modified_ms(file.path),
            data_change=True,
            stats=file.statistics,
        )


@contextmanager
def reading(place: TablePlace) -> Iterator[None]:
    """Raise what the library raises for a snapshot that cannot be read: Retryable if its place did not answer, else Failed."""
    try:
        yield
    except OSError as cause:
        raise Retryable(f"The Delta table {place.uri} cannot be read: {_first_line(cause)}.", remedy="Try again.") from cause
    except (DeltaError, pa.ArrowException, ValueError) as cause:
        raise Failed(
            f"The Delta table {place.uri} cannot be read by deltalake {deltalake.__version__}: {_first_line(cause)}.",
            remedy="Repair the table, or restore it from a backup.",
        ) from cause


def _options(place: TablePlace) -> dict[str, str] | None:
    options = place.storage_options()
    return None if options is None else dict(options)


def _versions(publication: Publication) -> Iterator[Transaction]:
    """Yield the marker's application versions. All of them conflict with a commit of any ledger for the same sink (I2)."""
    application = _application(publication.pipeline, publication.sink)
    yield Transaction(application, publication.position)
    if publication.ledger_id is not None:
        digits = publication.ledger_id
        for part in range(_ID_PARTS):
            yield Transaction(_id_part(application, part), int(digits[part * _ID_DIGITS : (part + 1) * _ID_DIGITS], 16))


def _notes(publication: Publication) -> Iterator[tuple[str, str]]:
    """Yield what the commit tells people, and a start that compares the marker with the ledger."""
    yield f"{_NOTE}pipeline", publication.pipeline
    yield f"{_NOTE}sink", publication.sink
    yield f"{_NOTE}position", str(publication.position)
    yield f"{_NOTE}generation", str(publication.generation)
    yield f"{_NOTE}query_id", publication.batch.query_id
    yield f"{_NOTE}batch_id", str(publication.batch.batch_id)
    yield f"{_NOTE}rows", str(publication.totals.rows)
    if publication.ledger_id is not None:
        yield f"{_NOTE}ledger_id", publication.ledger_id


def _application(pipeline: PipelineName, sink: SinkName) -> str:
    """Return the application's id. It names no generation: a driver of an older one must conflict with one of a newer one."""
    return f"penstock:{pipeline}:{sink}"


def _id_part(application: str, part: int) -> str:
    return f"{application}:ledger:{part}"


def _as_text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)


def _first_line(cause: BaseException) -> str:
    lines = scrub(_COLOURS.sub("", str(cause))).strip().splitlines() or [type(cause).__name__]
    return lines[0].rstrip(".:")
