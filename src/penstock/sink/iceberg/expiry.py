"""`Expiry`: takes old snapshots out of an Iceberg table by one commit, then removes the files that only they had.

Only what manifests of these snapshots name is removed, so never a file that waits for its commit. What the other snapshots have
is read after the commit, from the table as it is then. A driver that dies in between leaves files that no snapshot has.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TypeAlias, TypeVar

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table import snapshots as iceberg_snapshots

from penstock.core.faults import FaultPoint
from penstock.errors import PenstockError, Refused, Retryable
from penstock.sink.iceberg.log import IcebergTable, Snapshot
from penstock.sink.lake.maintained_table import CleansTable, MaintainedTable
from penstock.sink.lake.table_writer import step_error

EXPIRE = FaultPoint("lakeupkeep.expire", "A step of an expiry: old snapshots leave a table, then each file that only they had.")

Version: TypeAlias = iceberg_snapshots.Snapshot
"""One snapshot as the table's metadata lists it."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry(CleansTable):
    """Snapshots leave that are older than `after_ms` before `now_ms`, except the newest `retain_last`, and what is named.

    The newest are those of the branch `main`; named are the heads of branches, and what a tag names.
    """

    log: IcebergTable
    after_ms: int
    retain_last: int
    now_ms: Callable[[], int]

    def clean(self, table: MaintainedTable) -> None:
        newest = self.log.newest()
        if newest is None:
            return
        with self.log.reading():
            old = self._old(newest.table) if table.owns(newest) else []
        if old:
            lineage = [version.snapshot_id for version in _ancestors(newest.table)]
            self._expire(newest, old)
            self._remove_files_of(old, lineage)

    def _old(self, table: Table) -> Sequence[Version]:
        """Return the snapshots that leave."""
        if str(table.properties.get("gc.enabled", "true")).lower() == "false":
            raise Refused(
                f"The {self.log.title} has gc.enabled=false, which forbids to remove its files.",
                remedy="Take `expire_snapshots_after` out of the sink's maintenance, or unset that property of the table.",
            )
        staying = {ref.snapshot_id for ref in table.metadata.refs.values()}
        staying |= {version.snapshot_id for version in islice(_ancestors(table), self.retain_last)}
        since_ms = self.now_ms() - self.after_ms
        return [each for each in table.snapshots() if each.snapshot_id not in staying and each.timestamp_ms < since_ms]

    def _expire(self, newest: Snapshot, old: Sequence[Version]) -> None:
        """Commit that they leave. Raises Conflict if others changed the table, Retryable if an error came and none has left."""
        try:
            _step(lambda: newest.expire([version.snapshot_id for version in old]))
        except Retryable:  # its outcome may be unknown
            now = self.log.newest()
            if now is None or not _without(old, now.table):
                raise

    def _remove_files_of(self, old: Sequence[Version], lineage: Sequence[int]) -> None:
        """Remove the files that only those of the snapshots had that have left. `lineage`: of `main` before, the newest first."""
        now = self.log.newest()
        if now is None:
            return
        with self.log.reading():
            locations = list(_only_in(_without(old, now.table), lineage, now.table))
        failures = [failure for location in locations if (failure := self._remove(location, now.table.io)) is not None]
        if failures:
            raise failures[0]

    def _remove(self, location: str, io: FileIO) -> Exception | None:
        """Remove a file of the table's own directory, unless it is gone. Return why it could not be removed."""
        if not location.startswith(f"{self.log.place.location}/"):
            return None
        try:
            with suppress(FileNotFoundError):
                _step(lambda: io.delete(location))
        except (PenstockError, OSError) as error:
            return error
        return None


def _only_in(gone: Sequence[Version], lineage: Sequence[int], table: Table) -> Iterator[str]:
    """Yield the locations of the files that only snapshots had which are `gone`: data first, then what names them."""
    io, beside = table.io, _beside(lineage, table)
    others = {manifest.manifest_path: manifest for version in beside for manifest in version.manifests(io)}
    manifests = {manifest.manifest_path: manifest for version in gone for manifest in _manifests_of(version, io)}
    alone = {path: manifest for path, manifest in manifests.items() if path not in others}
    data = dict.fromkeys(location for manifest in alone.values() for location in _data_files_of(manifest, io))
    if data:
        live = {entry.data_file.file_path for each in others.values() for entry in each.fetch_manifest_entry(io)}
        yield from (location for location in data if location not in live)
    yield from alone
    listed = {version.manifest_list for version in table.snapshots()}
    yield from (version.manifest_list for version in gone if version.manifest_list not in listed)


def _beside(lineage: Sequence[int], table: Table) -> Sequence[Version]:
    """Return the snapshots that have every file, and every manifest, that any snapshot of the table shares with a gone one.

    Of a branch's lineage a file is in some that follow one another. So of `main` those are enough that stood next to one that is
    gone, and the newest; of all others each counts.
    """
    there = {version.snapshot_id for version in table.snapshots()}
    next_to = {one for pair in pairwise(lineage) for one, other in (pair, pair[::-1]) if one in there and other not in there}
    of_main = {*lineage[1:]} - next_to
    return [version for version in table.snapshots() if version.snapshot_id not in of_main]


def _manifests_of(version: Version, io: FileIO) -> Sequence[ManifestFile]:
    """Return the manifests of a snapshot that has left, none if somebody has removed their list."""
    with suppress(FileNotFoundError):
        return version.manifests(io)
    return ()


def _data_files_of(manifest: ManifestFile, io: FileIO) -> Sequence[str]:
    """Return all files that a manifest of such a snapshot names, also as removed; none if somebody has removed it."""
    with suppress(FileNotFoundError):
        return [entry.data_file.file_path for entry in manifest.fetch_manifest_entry(io, discard_deleted=False)]
    return ()


def _ancestors(table: Table) -> Iterable[Version]:
    return iceberg_snapshots.ancestors_of(table.current_snapshot(), table.metadata)


def _without(old: Sequence[Version], table: Table) -> Sequence[Version]:
    """Return those of the snapshots that the table does not have any more."""
    there: Mapping[int, Version] = {version.snapshot_id: version for version in table.snapshots()}
    return [version for version in old if version.snapshot_id not in there]


def _step(act: Callable[[], T]) -> T:
    with EXPIRE.around(error=step_error, lost=step_error):
        return act()
