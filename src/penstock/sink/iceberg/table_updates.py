"""Updates of a table that the library does not make: a rewriting of rows, and snapshots that leave, on condition."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, AssertTableUUID, RemoveSnapshotsUpdate, TableUpdate


class OneCommit(Transaction):
    """A transaction that works its table's metadata out once for all looks between two updates.

    The library copies all metadata, with every snapshot, at each of the fourteen looks that a commit takes.
    """

    _seen: tuple[tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata after the updates so far. The library's own code only reads it."""
        if not self._updates:
            return self._table.metadata
        if self._seen is None or self._seen[0] is not self._updates:
            self._seen = (self._updates, super().table_metadata)
        return self._seen[1]


def as_rewrite(updates: Iterable[TableUpdate]) -> tuple[TableUpdate, ...]:
    """Return the updates with a snapshot that says `replace`: it has the rows of the one before, and who follows changes passes
    over it. The library makes `overwrite` of any snapshot that takes files out.
    """
    return tuple(_as_rewrite(update) if isinstance(update, AddSnapshotUpdate) else update for update in updates)


def _as_rewrite(update: AddSnapshotUpdate) -> AddSnapshotUpdate:
    snapshot = update.snapshot
    properties: Mapping[str, str] = {} if snapshot.summary is None else snapshot.summary.additional_properties
    summary = Summary(Operation.REPLACE, **properties)
    return update.model_copy(update={"snapshot": snapshot.model_copy(update={"summary": summary})})


def removal_of(snapshot_ids: Sequence[int]) -> RemoveSnapshotsUpdate:
    """Return the update that takes snapshots out of a table's metadata."""
    return RemoveSnapshotsUpdate.model_validate({"snapshot-ids": list(snapshot_ids)})


def same_refs(metadata: TableMetadata, *, is_local: bool) -> Sequence[Any]:
    """Return the conditions that the table is the same one, with its branches and tags where they are in `metadata`.

    Where this process itself compares them (`is_local`), also that no tag has come since: removing the snapshot that it names
    would remove the tag, too. Servers have no such condition.
    """
    refs = {name: ref.snapshot_id for name, ref in metadata.refs.items()}
    named = [AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": at}) for name, at in refs.items()]
    return [AssertTableUUID(uuid=metadata.table_uuid), *named, *([_NoOtherRefs(refs=refs)] if is_local else ())]


@dataclass(frozen=True, slots=True, kw_only=True)
class _NoOtherRefs:
    """A condition that the library's catalogs in databases check as they check their own."""

    refs: Mapping[str, int]

    def validate(self, base_metadata: TableMetadata | None) -> None:
        """Raise CommitFailedException unless the table has these branches and tags, and no others."""
        there = {} if base_metadata is None else {name: ref.snapshot_id for name, ref in base_metadata.refs.items()}
        if there != self.refs:
            raise CommitFailedException("Requirement failed: branches or tags came, moved or went")
