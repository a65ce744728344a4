"""Checks of a query's state what the next start reads: the chain of every partition, its schema and its metadata."""

import json
from collections.abc import Iterator, Mapping, Set
from concurrent.futures import ThreadPoolExecutor

from penstock.checkpoint.entries import RESTORE, Anomaly, Severity, Unreadable
from penstock.checkpoint.files import Files
from penstock.checkpoint.hadoop_checksum import checksum_name, matches
from penstock.checkpoint.log_reading import Logs
from penstock.checkpoint.state import operator_ids
from penstock.checkpoint.state_chain import PartitionStore, chains, partition_stores
from penstock.checkpoint.state_content import require_spark_checksum, require_whole
from penstock.checkpoint.state_schema import READ_VERSIONS, schema_texts, version_of
from penstock.core.model import BatchId

_READ_AT_ONCE = 8


def state_anomalies(files: Files, logs: Logs, version: int, *, but: Set[str] = frozenset()) -> Iterator[Anomaly]:
    """Yield an anomaly for each file that version `version` is loaded from and that is missing or damaged.

    Reads those files whole, `but` not these. Other versions are not read: no start needs them, unless it is rewound.
    """
    stores = list(partition_stores(files))
    yield from _versions_ahead(stores, max(logs.planned, default=-1) + 1)
    places: list[str] = []
    if version > 0:
        commit = logs.commits.get(BatchId(version - 1))
        for store, found, missing in chains(files, stores, version=version, commit=commit):
            places.extend(found)
            if missing is not None:
                who = f"partition {store.partition} of operator {store.operator_id}"
                message = f"{missing.place} {missing}. Version {version} of {who} is loaded from it."
                yield Anomaly(place=missing.place, severity=Severity.STOPS, message=message, remedy=RESTORE)
    places += [place for operator_id in operator_ids(files) for place in descriptions(files, operator_id)]
    yield from _damaged(files, [place for place in places if place not in but])
    yield from _without_schema(files, stores)


def _versions_ahead(stores: list[PartitionStore], newest: int) -> Iterator[Anomaly]:
    for store in stores:
        for file in store.versions:
            if file.version > newest:
                yield Anomaly(
                    place=file.place,
                    severity=Severity.LOSES,
                    message=f"{file.place} is the state after batch {file.version - 1}, which was never planned here.",
                    remedy="Restore the logs and the state from one copy; the logs are older than the state.",
                )


def _damaged(files: Files, places: list[str]) -> Iterator[Anomaly]:
    folders = {place.rpartition("/")[0] for place in places}
    beside = {folder: frozenset(files.names(folder)) for folder in sorted(folders)}
    with ThreadPoolExecutor(_READ_AT_ONCE) as pool:
        for found in pool.map(lambda place: _damage(files, place, beside[place.rpartition("/")[0]]), places):
            if found is not None:
                yield found


def _damage(files: Files, place: str, beside: frozenset[str]) -> Anomaly | None:
    name = place.rpartition("/")[2]
    data = files.read(place) or b""
    try:
        _require_whole(name, data)
        if f"{name}.crc" in beside:
            require_spark_checksum(data, files.read(f"{place}.crc") or b"")
    except Unreadable as error:
        return Anomaly(place=place, severity=Severity.STOPS, message=f"{place} {error}.", remedy=RESTORE)
    what = _mismatch(files, place, data, beside)
    return None if what is None else Anomaly(place=place, severity=Severity.LOSES, message=f"{place} {what}.", remedy=RESTORE)


def _require_whole(name: str, data: bytes) -> None:
    if name.endswith((".delta", ".snapshot", ".zip", ".changelog", ".sst")):
        require_whole(name, data)
    elif data.startswith(b"\x00\x02v"):
        _require_schema(data)
    elif data.startswith(b"v"):
        _require_json(data.partition(b"\n")[2])
    else:
        raise Unreadable("starts with no version")


def _mismatch(files: Files, place: str, data: bytes, beside: frozenset[str]) -> str | None:
    checksum = checksum_name(place)
    name = checksum.rpartition("/")[2]
    if name in beside:
        changed = f"does not match its checksum {checksum}: it was changed after Spark wrote it"
        return None if matches(data, files.read(checksum) or b"") else changed
    ending = place.rpartition(".")[2]
    if any(other.startswith(".") and other.endswith(f".{ending}.crc") for other in beside):
        return f"has no checksum {checksum}, and files of its kind beside it have: Spark did not write it there"
    return None


def descriptions(files: Files, operator_id: int) -> Iterator[str]:
    """Yield the places of metadata and schemas: those of the operator, and those of partition 0, which Spark compares."""
    folder = f"state/{operator_id}"
    for below in (f"{folder}/_metadata", f"{folder}/_metadata/v2", f"{folder}/0/_metadata"):
        yield from _files_below(files, below)
    for store, size_bytes in files.sizes(f"{folder}/_stateSchema").items():
        if size_bytes is None:
            yield from _files_below(files, f"{folder}/_stateSchema/{store}")
    for store, size_bytes in files.sizes(f"{folder}/0").items():
        if size_bytes is None and not store.startswith("_"):
            yield from _files_below(files, f"{folder}/0/{store}/_metadata")


def _files_below(files: Files, folder: str) -> Iterator[str]:
    for name, size_bytes in files.sizes(folder).items():
        if size_bytes is not None and not name.startswith("."):
            yield f"{folder}/{name}"


def _without_schema(files: Files, stores: list[PartitionStore]) -> Iterator[Anomaly]:
    described: Mapping[int, bool] = {
        operator_id: bool(files.names(f"state/{operator_id}/_stateSchema")) for operator_id in operator_ids(files)
    }
    for store in stores:
        place = f"{store.folder}/_metadata/schema"
        if store.partition == 0 and not described[store.operator_id] and files.size_bytes(place) is None:
            yield Anomaly(
                place=place,
                severity=Severity.LOSES,
                message=f"{place} is missing: Spark takes the schema of the query that starts next, also if its rows are others.",
                remedy=f"{RESTORE} Or start the unchanged query: it writes the file again.",
            )


def _require_schema(data: bytes) -> None:
    """Raise Unreadable if the schema file of a store is cut off. Versions 1 and 2 are read, of others only the version."""
    if version_of(data) in READ_VERSIONS:
        schema_texts(data)


def _require_json(data: bytes) -> None:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        raise Unreadable("is cut off") from None
