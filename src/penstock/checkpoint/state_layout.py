"""What the state of a query consists of on disk: every operator, store and partition, with versions, bytes and schemas."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.checkpoint.entries import Unreadable
from penstock.checkpoint.files import Files
from penstock.checkpoint.state import StateFile, operator_ids, operator_of, state_files
from penstock.checkpoint.state_schema import StateSchema, StateVariable, schema_of, variables_of
from penstock.errors import CheckpointDamaged


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLayout:
    """One store in one partition: the versions that are there, and the bytes of all of them. Version V is after batch V - 1."""

    partition: int
    oldest_version: int
    newest_version: int
    versions: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLayout:
    """One store of an operator. Partitions without any version are left out.

    `schema` is None where a store has several, those of its `variables`, and where it is of a version that is not read.
    """

    name: str
    schema: StateSchema | None
    variables: tuple[StateVariable, ...]
    partitions: tuple[PartitionLayout, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorLayout:
    """One stateful operator; `name`, `provider` and `partitions` are as in `StateOperator`.

    `bounded`: the watermark removes rows from its state; None where that depends on a condition, or on the user's code.
    """

    operator_id: int
    name: str | None
    provider: str | None
    partitions: int | None
    bounded: bool | None
    stores: tuple[StoreLayout, ...]

    @property
    def size_bytes(self) -> int:
        return sum(self.partition_bytes.values())

    @property
    def partition_bytes(self) -> dict[int, int]:
        """The bytes of all stores in each partition."""
        found = dict[int, int]()
        for store in self.stores:
            for each in store.partitions:
                found[each.partition] = found.get(each.partition, 0) + each.size_bytes
        return found

    @property
    def skew(self) -> float | None:
        """How many times the mean of all partitions the largest has; None without state."""
        sizes = self.partition_bytes
        mean = self.size_bytes / max(self.partitions or 0, len(sizes), 1)
        return max(sizes.values()) / mean if mean else None

    @property
    def largest_partition(self) -> int | None:
        """The number of the partition with the most bytes, None without state."""
        sizes = self.partition_bytes
        return max(sizes, key=lambda partition: sizes[partition]) if sizes else None

    @property
    def oldest_version(self) -> int | None:
        """The oldest version that each partition with state has."""
        return max((each.oldest_version for store in self.stores for each in store.partitions), default=None)

    @property
    def newest_version(self) -> int | None:
        """The newest version that each partition with state has."""
        return min((each.newest_version for store in self.stores for each in store.partitions), default=None)


def state_layout(files: Files) -> tuple[OperatorLayout, ...]:
    """Return the operators by number. Costs a listing per partition and store, and a read per store. Raises CheckpointDamaged."""
    try:
        return tuple(_layout(files, operator_id) for operator_id in operator_ids(files))
    except Unreadable as error:
        raise CheckpointDamaged(
            f"The state in {files.location} cannot be read: {error}.",
            remedy="`penstock checkpoint verify FILE` says what is damaged.",
        ) from None


def _layout(files: Files, operator_id: int) -> OperatorLayout:
    found = list(state_files(files, operator_id))
    operator = operator_of(files, operator_id, found)
    stores = tuple(
        StoreLayout(
            name=store.name,
            schema=schema_of(files, operator_id, store.name),
            variables=variables_of(files, operator_id, store.name),
            partitions=_partitions([file for file in found if file.store == store.name]),
        )
        for store in operator.stores
    )
    return OperatorLayout(
        operator_id=operator_id,
        name=operator.name,
        provider=operator.provider,
        partitions=operator.partitions,
        bounded=_bounded(operator.name, {store.name: store.schema for store in stores if store.schema is not None}),
        stores=stores,
    )


def _partitions(found: Sequence[StateFile]) -> tuple[PartitionLayout, ...]:
    by_partition = dict[int, list[StateFile]]()
    for file in found:
        by_partition.setdefault(file.partition, []).append(file)
    return tuple(
        PartitionLayout(
            partition=partition,
            oldest_version=min(file.version for file in of_one),
            newest_version=max(file.version for file in of_one),
            versions=len({file.version for file in of_one}),
            size_bytes=sum(file.size_bytes for file in of_one),
        )
        for partition, of_one in sorted(by_partition.items())
    )


_ALWAYS = frozenset({"dedupeWithinWatermark", "globalLimit"})
_BY_KEY = frozenset({"dedupe", "stateStoreSave"})
_SESSIONS, _JOIN = "sessionWindowStateStoreSaveExec", "symmetricHashJoin"
_JOINED_ROWS = "keyWithIndexToValue"
"""End of the names of the two stores of a join that hold its rows."""


def _bounded(name: str | None, schemas: Mapping[str, StateSchema]) -> bool | None:
    """Return whether a watermark removes what an operator keeps, by its name and the columns of its stores."""
    if name in _ALWAYS:
        return True
    if not schemas:
        return None
    if name == _JOIN:
        sides = [schema.watermark_in_value for store, schema in schemas.items() if store.endswith(_JOINED_ROWS)]
        return None if all(sides) else False
    in_key = any(schema.watermark_in_key for schema in schemas.values())
    in_value = any(schema.watermark_in_value for schema in schemas.values())
    if in_key or (name == _SESSIONS and in_value):
        return True
    return False if name in _BY_KEY or name == _SESSIONS else None
