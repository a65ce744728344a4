"""`Expiry`: takes old snapshots out of an Iceberg table by one commit, then removes the files that only they had.

The commit notes in a property of the table where the files of these snapshots are listed. The lists are removed last, and then
the property: whoever finds it goes on where a driver died.

Only what these lists name is removed, so never a file that waits for its commit. What the other snapshots have is read after the
commit, from the table as it is then.
"""

import json
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Final, TypeAlias

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile, read_manifest_list
from pyiceberg.table import Table
from pyiceberg.table import snapshots as iceberg_snapshots

from penstock.core.faults import FaultPoint
from penstock.core.model import new_nonce
from penstock.errors import PenstockError, Refused, Retryable
from penstock.sink.iceberg.log import IcebergTable, Snapshot
from penstock.sink.lake.maintained_table import HOUR_MS, CleansTable, MaintainedTable
from penstock.sink.lake.table_writer import step_error

EXPIRE = FaultPoint("icebergexpiry.commit", "Old snapshots leave an Iceberg table by one commit, which notes their files.")
REMOVE = FaultPoint("icebergexpiry.remove", "A file of an Iceberg table is removed that only snapshots had which have left.")
FORGET = FaultPoint("icebergexpiry.forget", "The note on snapshots that have left is taken out of the table's properties.")

MOST_SNAPSHOTS: Final = 1_000
"""Of one round: the note on them is a part of the table's metadata until their files are removed."""
_LEFT: Final = "penstock-expired."
"""What such a property's name begins with; a nonce follows."""

Version: TypeAlias = iceberg_snapshots.Snapshot
"""One snapshot as the table's metadata lists it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """The branch `main` before snapshots `left`, the newest first."""

    main: Sequence[int]
    left: Sequence[int]


_UNKNOWN: Final = Lineage(main=(), left=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry(CleansTable):
    """Snapshots leave that are older than `after_ms` before `now_ms`, except the newest `retain_last`, and what is named.

    The newest are those of the branch `main`, and the one that was the newest of them `after_ms` ago stays, too: it was read
    since. Named are the heads of branches, and what a tag names.
    """

    log: IcebergTable
    after_ms: int
    retain_last: int
    now_ms: Callable[[], int]

    def describe(self) -> str:
        least = "the newest one" if self.retain_last == 1 else f"the newest {self.retain_last}"
        return f"snapshots older than {self.after_ms / HOUR_MS:g} h leave with their files, but for {least}"

    def clean(self, table: MaintainedTable) -> None:
        newest = self.log.newest()
        if newest is None:
            return
        with self.log.reading():
            old = self._old(newest.table) if table.owns(newest) else None
        if old is None:
            return
        for key in [name for name in newest.table.properties if name.startswith(_LEFT)]:
            self._remove_files_of(key, _UNKNOWN)
        if old:
            main = [version.snapshot_id for version in _ancestors(newest.table)]
            self._remove_files_of(self._expire(newest, old), Lineage(main=main, left=[version.snapshot_id for version in old]))

    def _old(self, table: Table) -> Sequence[Version]:
        """Return the snapshots that leave."""
        if str(table.properties.get("gc.enabled", "true")).lower() == "false":
            raise Refused(
                f"The {self.log.title} has gc.enabled=false, which forbids to remove its files.",
                remedy="Take `expire_snapshots_after` out of the sink's maintenance, or unset that property of the table.",
            )
        since_ms = self.now_ms() - self.after_ms
        staying = {ref.snapshot_id for ref in table.metadata.refs.values()}
        staying |= {version.snapshot_id for version in islice(_ancestors(table), self.retain_last)}
        staying |= {version.snapshot_id for version in islice(_older(_ancestors(table), since_ms), 1)}
        return [each for each in _older(table.snapshots(), since_ms) if each.snapshot_id not in staying][:MOST_SNAPSHOTS]

    def _expire(self, newest: Snapshot, old: Sequence[Version]) -> str:
        """Commit that they leave. Return the property that notes it. Raises Conflict if others changed the table, Retryable."""
        key = f"{_LEFT}{new_nonce()}"
        noted = {key: json.dumps([version.manifest_list for version in old])}
        try:
            with EXPIRE.around(error=step_error, lost=step_error):
                newest.expire([version.snapshot_id for version in old], noted=noted)
        except Retryable:  # its outcome may be unknown
            if not self._is_noted(key):
                raise
        return key

    def _is_noted(self, key: str) -> bool:
        newest = self.log.newest()
        return newest is not None and key in newest.table.properties

    def _remove_files_of(self, key: str, lineage: Lineage) -> None:
        """Remove the files that only snapshots had which the property `key` notes, then the property."""
        newest = self.log.newest()
        noted = None if newest is None else newest.table.properties.get(key)
        if newest is None or noted is None:
            return
        with self.log.reading():
            in_order = list(_only_in(json.loads(noted), _beside(lineage, newest.table), newest.table))
        for locations in in_order:
            failures = [failure for location in locations if (failure := self._remove(location, newest.table.io)) is not None]
            if failures:  # what names the files that are left stays, too
                raise failures[0]
        try:
            with FORGET.around(error=step_error, lost=step_error):
                newest.forget(key)
        except Retryable:
            if self._is_noted(key):
                raise

    def _remove(self, location: str, io: FileIO) -> Exception | None:
        """Remove a file of the table's own directory, unless it is gone. Return why it could not be removed."""
        if not location.startswith(f"{self.log.place.location}/"):
            return None
        try:
            with suppress(FileNotFoundError), REMOVE.around(error=step_error, lost=step_error):
                io.delete(location)
        except (PenstockError, OSError) as error:
            return error
        return None


def _older(versions: Iterable[Version], since_ms: int) -> Iterator[Version]:
    return (each for each in versions if each.timestamp_ms < since_ms)


def _only_in(lists: Sequence[str], others: Sequence[Version], table: Table) -> Iterator[Sequence[str]]:
    """Yield the files that only snapshots had whose `lists` these are: the data files, then the manifests, then the lists.

    Removed in this order, a manifest or a list that is gone names nothing that is there. `others`: the snapshots that have what
    any other one shares with these.
    """
    io = table.io
    kept = {manifest.manifest_path: manifest for version in others for manifest in version.manifests(io)}
    left = {manifest.manifest_path: manifest for location in lists for manifest in _manifests_in(location, io)}
    alone = {path: manifest for path, manifest in left.items() if path not in kept}
    data = dict.fromkeys(location for manifest in alone.values() for location in _data_files_of(manifest, io))
    live = {entry.data_file.file_path for each in kept.values() if data for entry in each.fetch_manifest_entry(io)}
    yield [location for location in data if location not in live]
    yield list(alone)
    listed = {version.manifest_list for version in table.snapshots()}
    yield [location for location in lists if location not in listed]


def _beside(lineage: Lineage, table: Table) -> Sequence[Version]:
    """Return the snapshots that have every file, and every manifest, that any snapshot of the table shares with one that left.

    Of a branch a file is in snapshots that follow one another. So if all that left were of `main`, those of `main` are enough
    that stood next to one that has left, and the newest; of all others each counts.
    """
    main: Container[int] = lineage.main
    if any(snapshot_id not in main for snapshot_id in lineage.left):  # it may have sprung from any snapshot of `main`
        return table.snapshots()
    there = {version.snapshot_id for version in table.snapshots()}
    next_to = {one for pair in pairwise(lineage.main) for one, other in (pair, pair[::-1]) if one in there and other not in there}
    passed_over = {*lineage.main[1:]} - next_to
    return [version for version in table.snapshots() if version.snapshot_id not in passed_over]


def _manifests_in(location: str, io: FileIO) -> Sequence[ManifestFile]:
    """Return the manifests of a snapshot that has left, none if somebody has removed their list."""
    with suppress(FileNotFoundError):
        return list(read_manifest_list(io.new_input(location)))
    return ()


def _data_files_of(manifest: ManifestFile, io: FileIO) -> Sequence[str]:
    """Return all files that a manifest of such a snapshot names, also as removed; none if somebody has removed it."""
    with suppress(FileNotFoundError):
        return [entry.data_file.file_path for entry in manifest.fetch_manifest_entry(io, discard_deleted=False)]
    return ()


def _ancestors(table: Table) -> Iterable[Version]:
    return iceberg_snapshots.ancestors_of(table.current_snapshot(), table.metadata)
