"""The branch of a table that a sink writes: it begins where `main` is, and only commits of the sink move it on."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.table.update import AssertRefSnapshotId, SetSnapshotRefUpdate

from penstock.errors import Refused

MAIN: Final = "main"


def head_of(table: Table, branch: str) -> Snapshot | None:
    """Return the newest snapshot of the branch; of `main`, if there is no such branch yet. None if that is empty, too."""
    return table.snapshot_by_name(branch) or table.current_snapshot()


def is_missing(table: Table, branch: str) -> bool:
    """Return whether the branch has to be made before it is written. `main` is there always."""
    return branch != MAIN and branch not in table.metadata.refs


def is_tag(table: Table, branch: str) -> bool:
    """Return whether a tag has the branch's name."""
    found = table.metadata.refs.get(branch)
    return found is not None and found.snapshot_ref_type == SnapshotRefType.TAG


def beginning(branch: str, main: Snapshot) -> SetSnapshotRefUpdate:
    """Return the update that makes the branch, where `main` is."""
    values = {"ref-name": branch, "type": "branch", "snapshot-id": main.snapshot_id}
    return SetSnapshotRefUpdate.model_validate(values)


def absence(branch: str) -> AssertRefSnapshotId:
    """Return the condition that nobody has made the branch, or a tag of its name."""
    return AssertRefSnapshotId.model_validate({"ref": branch, "snapshot-id": None})


def require_holds(table: Table, branch: str, noted: Mapping[str, Any], *, key: str, title: str) -> None:
    """Raise Refused unless the branch holds what the marker `noted` says, where that is not certain.

    It is if the batch went to the branch, which is there: then only a rollback takes rows away, of which `verify` tells. `key`:
    the name under which commits note the marker in their snapshots.
    """
    written = noted.get("branch", MAIN)
    if written == branch and not is_missing(table, branch):
        return
    if noted["position"] not in _positions(table, branch, key):
        gone = " is missing, and main" if is_missing(table, branch) else ""
        raise Refused(
            f"The {title} shows position {noted['position']} of the ledger in its branch {written!r}, but its branch "
            f"{branch!r}{gone} lacks that batch.",
            remedy=f"Bring the branch forward to where {written!r} was then. Or set `branch: {written}` back, and make it again "
            "if it is gone.",
        )


def _positions(table: Table, branch: str, key: str) -> Iterator[int]:
    """Yield the positions that commits of the branch noted, the newest first."""
    for snapshot in ancestors_of(head_of(table, branch), table.metadata):
        text = None if snapshot.summary is None else snapshot.summary.get(key)
        if text is not None:
            yield json.loads(text)["position"]
