"""Which files Spark loads the state of one version from: a snapshot, and the deltas or changelogs behind it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.checkpoint.entries import CommitEntry, Unreadable
from penstock.checkpoint.files import Files
from penstock.checkpoint.state import SSTS, StateFile, operator_ids, state_files
from penstock.checkpoint.state_content import lineage_in, tables_in
from penstock.core.model import Json


class StateMissing(Exception):
    """A file of a chain is missing or cannot be read. `place` is the file, the message says what is wrong with it."""

    def __init__(self, place: str, what: str) -> None:
        super().__init__(what)
        self.place = place


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStore:
    """All versions of one store in one partition of an operator; `number` is the store's position among those of the operator."""

    operator_id: int
    partition: int
    number: int
    versions: tuple[StateFile, ...]

    @property
    def folder(self) -> str:
        return self.versions[0].folder


def partition_stores(files: Files) -> Iterator[PartitionStore]:
    """Yield every store of every partition that has a version on disk. Costs what `state_files` costs."""
    for operator_id in operator_ids(files):
        found: defaultdict[tuple[int, str], list[StateFile]] = defaultdict(list)
        for file in state_files(files, operator_id):
            found[file.partition, file.store].append(file)
        names = sorted({store for _, store in found})
        for (partition, store), versions in sorted(found.items()):
            yield PartitionStore(
                operator_id=operator_id, partition=partition, number=names.index(store), versions=tuple(versions)
            )


def state_id(store: PartitionStore, commit: CommitEntry | None) -> str | None:
    """Return the unique id of the store's version that `commit` made; None without state checkpoints of version 2."""
    if not any(file.unique_id for file in store.versions):
        return None
    of_operator = None if commit is None else commit.state_ids.get(str(store.operator_id))
    ids = _at(_at(of_operator, store.partition), store.number)
    if not isinstance(ids, str):
        raise StateMissing(store.folder, "has versions with unique ids, and the commit log names none of them")
    return ids


def _at(value: Json, position: int) -> Json:
    return value[position] if isinstance(value, list) and position < len(value) else None


def chain(files: Files, store: PartitionStore, *, version: int, unique_id: str | None) -> Iterator[str]:
    """Yield the places of all files from which Spark loads `version`, RocksDB's tables included. Raises StateMissing.

    Costs a read of the snapshot of RocksDB, and of the newest changelog if its name has a unique id.
    """
    if any(file.kind in {"delta", "snapshot"} for file in store.versions):
        yield from _hdfs_chain(store, version)
    else:
        yield from _rocksdb_chain(files, store, version, unique_id)


def _hdfs_chain(store: PartitionStore, version: int) -> Iterator[str]:
    names = {file.name for file in store.versions}
    for number in range(version, 0, -1):
        if f"{number}.snapshot" in names:
            yield f"{store.folder}/{number}.snapshot"
            return
        yield _required(names, store, f"{number}.delta")


def _rocksdb_chain(files: Files, store: PartitionStore, version: int, unique_id: str | None) -> Iterator[str]:
    names = {file.name for file in store.versions}
    stems = _stems(files, store, version, unique_id)
    base = max((number for number, stem in stems.items() if f"{stem}.zip" in names), default=0)
    if base:
        snapshot = f"{store.folder}/{stems[base]}.zip"
        yield snapshot
        yield from _tables(files, store, snapshot)
    for number in range(base + 1, version + 1):
        yield _required(names, store, f"{stems.get(number, number)}.changelog")


def _stems(files: Files, store: PartitionStore, version: int, unique_id: str | None) -> Mapping[int, str]:
    """Return the names without ending of the versions that lead to `version`."""
    if unique_id is None:
        return {number: str(number) for number in range(1, version + 1)}
    newest = f"{version}_{unique_id}"
    names = {file.name for file in store.versions}
    if f"{newest}.zip" in names:
        return {version: newest}
    place = f"{store.folder}/{_required(names, store, f'{newest}.changelog').rpartition('/')[2]}"
    try:
        lineage = lineage_in(files.read(place) or b"")
    except Unreadable as error:
        raise StateMissing(place, str(error)) from None
    return {**{number: f"{number}_{of}" for number, of in lineage.items()}, version: newest}


def _tables(files: Files, store: PartitionStore, snapshot: str) -> Iterator[str]:
    try:
        tables = tables_in(files.read(snapshot) or b"")
    except Unreadable as error:
        raise StateMissing(snapshot, str(error)) from None
    folder = f"{store.folder}/{SSTS}"
    sizes = files.sizes(folder) if tables else {}
    for name, size_bytes in tables.items():
        if sizes.get(name) != size_bytes:
            found = f"has {sizes[name]} bytes" if name in sizes else "is missing"
            raise StateMissing(f"{folder}/{name}", f"{found}, and {snapshot} refers to it with {size_bytes} bytes")
        yield f"{folder}/{name}"


def _required(names: set[str], store: PartitionStore, name: str) -> str:
    if name not in names:
        raise StateMissing(f"{store.folder}/{name}", "is missing")
    return f"{store.folder}/{name}"


def chains(
    files: Files, stores: Sequence[PartitionStore], *, version: int, commit: CommitEntry | None
) -> Iterator[tuple[PartitionStore, tuple[str, ...], StateMissing | None]]:
    """Yield for each store the places that `version` is loaded from, as far as they are there, and what is missing first.

    `commit` is the entry of batch `version - 1`.
    """
    for store in stores:
        places: list[str] = []
        missing = None
        try:
            places.extend(chain(files, store, version=version, unique_id=state_id(store, commit)))
        except StateMissing as error:
            missing = error
        yield store, tuple(places), missing
