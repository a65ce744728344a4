"""Finds state that the next start needs and the checkpoint lacks."""

from collections.abc import Iterator, Sequence

from penstock.checkpoint.anomaly import RESTORE, Anomaly, Severity
from penstock.checkpoint.state import StateOperator, StateStore


def missing_state_versions(operators: Sequence[StateOperator], *, needed_version: int) -> Iterator[Anomaly]:
    """Yield one anomaly for each store that lacks `needed_version` in a partition; version 0 is the empty state."""
    if needed_version == 0:
        return
    for operator in operators:
        for store in operator.stores:
            gap = _gap(operator, store, needed_version)
            if gap is not None:
                who = f"Operator {operator.operator_id} ({operator.name or 'unknown'})"
                message = f"{who} needs version {needed_version} of its state store {store.name}, but {gap}."
                place = f"state/{operator.operator_id}"
                yield Anomaly(place=place, severity=Severity.STOPS, message=message, remedy=RESTORE)


def _gap(operator: StateOperator, store: StateStore, needed_version: int) -> str | None:
    partitions = operator.partitions if operator.partitions is not None else store.partitions
    if store.partitions < partitions:
        return f"{partitions - store.partitions} of {partitions} partitions are missing"
    if store.complete_version is None or store.complete_version < needed_version:
        return f"some partition ends at version {store.complete_version}"
    return None
