"""Lists the operators, stores, partitions and versions of a query's state below `state/`. Rows are not decoded."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from penstock.checkpoint.entries import RESTORE, Anomaly, Severity, Unreadable
from penstock.checkpoint.files import Files
from penstock.core.model import Json

DEFAULT_STORE = "default"
_NUMBER = re.compile(r"0|[1-9]\d*")
_VERSION = re.compile(r"([1-9]\d*)(?:_([0-9a-f-]{36}))?\.(delta|snapshot|zip|changelog)")
SSTS = "SSTs"
_LISTED_AT_ONCE = 16
_PROVIDERS = {"delta": "HDFS", "snapshot": "HDFS", "zip": "RocksDB", "changelog": "RocksDB"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StateStore:
    """One store of an operator. Version V is the state after batch V - 1.

    `complete_version` is the newest that every partition has, `newest_version` the newest of any; None if nothing is written yet.
    `partitions` counts those on disk; `size_bytes` covers all retained versions.
    """

    name: str
    partitions: int
    complete_version: int | None
    newest_version: int | None
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StateOperator:
    """One stateful operator.

    `name` is Spark's (`stateStoreSave`, `dedupe`, `symmetricHashJoin`, …), None if its metadata is gone. `partitions` is the
    number that the operator started with and is bound to, None if unknown.
    """

    operator_id: int
    name: str | None
    partitions: int | None
    provider: str | None
    stores: tuple[StateStore, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFile:
    """One file of a store of an operator. `kind` is its ending: delta, snapshot, zip or changelog.

    `unique_id` is in the name if Spark keeps state checkpoints of version 2, else None. `size_bytes` of one file in each
    partition includes the RocksDB tables that its versions share.
    """

    folder: str
    name: str
    store: str
    partition: int
    version: int
    unique_id: str | None
    kind: str
    size_bytes: int

    @property
    def place(self) -> str:
        return f"{self.folder}/{self.name}"


def state_operators(files: Files) -> tuple[StateOperator, ...]:
    """Return the operators below `state/` by number. Costs a listing per partition and store, in parallel. Raises Unreadable."""
    return tuple(operator_of(files, operator_id, list(state_files(files, operator_id))) for operator_id in operator_ids(files))


def operator_ids(files: Files) -> list[int]:
    """Return the numbers of the operators below `state/`."""
    return sorted(int(name) for name in files.names("state") if _NUMBER.fullmatch(name))


def operator_names(files: Files) -> tuple[str, ...] | None:
    """Return Spark's names of the operators by number, None where some operator has no metadata. Raises Unreadable."""
    named = [_name_in(_metadata(files, operator_id)) for operator_id in operator_ids(files)]
    return None if None in named else tuple(name for name in named if name is not None)


def _name_in(metadata: Mapping[str, Json]) -> str | None:
    info = metadata.get("operatorInfo")
    name = info.get("operatorName") if isinstance(info, dict) else None
    return name if isinstance(name, str) else None


def operator_of(files: Files, operator_id: int, found: Sequence[StateFile]) -> StateOperator:
    """Return one operator, `found` being the versions of its stores. Costs the reads of its metadata. Raises Unreadable."""
    metadata = _metadata(files, operator_id)
    declared = _declared_stores(metadata)
    names = [*declared, *sorted({file.store for file in found} - set(declared))]
    return StateOperator(
        operator_id=operator_id,
        name=_name_in(metadata),
        partitions=max(declared.values(), default=None),
        provider=next((_PROVIDERS[file.kind] for file in found), None),
        stores=tuple(_store(name, [file for file in found if file.store == name]) for name in names),
    )


def _store(name: str, found: list[StateFile]) -> StateStore:
    newest: dict[int, int] = {}
    for file in found:
        newest[file.partition] = max(file.version, newest.get(file.partition, 0))
    return StateStore(
        name=name,
        partitions=len(newest),
        complete_version=min(newest.values(), default=None),
        newest_version=max(newest.values(), default=None),
        size_bytes=sum(file.size_bytes for file in found),
    )


def state_files(files: Files, operator_id: int) -> Iterator[StateFile]:
    """Yield the versions of all stores of an operator. Costs a listing per partition and store, in parallel."""
    folder = f"state/{operator_id}"
    partitions = [int(name) for name in files.names(folder) if _NUMBER.fullmatch(name)]
    with ThreadPoolExecutor(_LISTED_AT_ONCE) as pool:
        for found in pool.map(lambda partition: list(_partition_files(files, folder, partition)), partitions):
            yield from found


def _partition_files(files: Files, folder: str, partition: int) -> Iterator[StateFile]:
    place = f"{folder}/{partition}"
    sizes = files.sizes(place)
    yield from _versions(files, place, sizes, DEFAULT_STORE, partition)
    for name, size_bytes in sizes.items():
        if size_bytes is None and not name.startswith((".", "_")) and name != SSTS:
            store = f"{place}/{name}"
            yield from _versions(files, store, files.sizes(store), name, partition)


def _versions(files: Files, place: str, sizes: Mapping[str, int | None], store: str, partition: int) -> Iterator[StateFile]:
    shared = sum(size or 0 for size in files.sizes(f"{place}/{SSTS}").values()) if SSTS in sizes else 0
    for name, size_bytes in sizes.items():
        found = _VERSION.fullmatch(name)
        if found is not None:
            yield StateFile(
                folder=place,
                name=name,
                store=store,
                partition=partition,
                version=int(found[1]),
                unique_id=found[2],
                kind=found[3],
                size_bytes=(size_bytes or 0) + shared,
            )
            shared = 0


def _metadata(files: Files, operator_id: int) -> Mapping[str, Json]:
    folder = f"state/{operator_id}/_metadata"
    newest = max((int(name) for name in files.names(f"{folder}/v2") if _NUMBER.fullmatch(name)), default=None)
    data = files.read(f"{folder}/metadata" if newest is None else f"{folder}/v2/{newest}")
    if data is None:
        return {}
    try:
        value = json.loads(data.partition(b"\n")[2])
    except ValueError:
        raise Unreadable(f"{folder} is cut off") from None
    return value if isinstance(value, dict) else {}


def _declared_stores(metadata: Mapping[str, Json]) -> dict[str, int]:
    stores = metadata.get("stateStoreInfo")
    declared: dict[str, int] = {}
    for store in stores if isinstance(stores, list) else []:
        if isinstance(store, dict):
            name, partitions = store.get("storeName"), store.get("numPartitions")
            if isinstance(name, str) and isinstance(partitions, int):
                declared[name] = partitions
    return declared


def missing_state_versions(
    operators: Sequence[StateOperator], *, needed_version: int, shuffle_partitions: int | None = None
) -> Iterator[Anomaly]:
    """Yield one anomaly for each store that lacks `needed_version` in a partition; version 0 is the empty state.

    `shuffle_partitions` is the query's own number, for operators without metadata: Spark 3.5 writes none.
    """
    if needed_version == 0:
        return
    for operator in operators:
        for store in operator.stores:
            partitions = operator.partitions or shuffle_partitions or store.partitions
            gap = None
            if store.partitions < partitions:
                gap = f"{partitions - store.partitions} of {partitions} partitions are missing"
            elif store.complete_version is None or store.complete_version < needed_version:
                gap = f"some partition ends at version {store.complete_version}"
            if gap is not None:
                who = f"Operator {operator.operator_id} ({operator.name or 'unknown'})"
                message = f"{who} needs version {needed_version} of its state store {store.name}, but {gap}."
                place = f"state/{operator.operator_id}"
                yield Anomaly(place=place, severity=Severity.STOPS, message=message, remedy=RESTORE)
