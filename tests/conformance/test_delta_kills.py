"""Drivers of one Delta table that are killed at random moments, while others compact it, vacuum it and commit to it.

CI kills a few; `make soak` kills PENSTOCK_SOAK_KILLS. The seed is printed; PENSTOCK_SEED replays it.
"""

import os
from pathlib import Path

import pytest
from deltalake import CommitProperties, Transaction
from deltalake.exceptions import DeltaError
from tests.conformance.delta_rig import (
    AzureRig,
    CleanedOverlappingRig,
    CleanedRig,
    DeltaRig,
    GcsRig,
    OverlappingRig,
    OverlappingStoreRig,
    OverwriteRig,
    StoreRig,
)
from tests.conformance.lake_kills import require_exact

KILLS = int(os.environ.get("PENSTOCK_SOAK_KILLS", "4"))
LONGEST_S = {
    DeltaRig: 1.2,
    StoreRig: 4.0,
    AzureRig: 4.0,
    GcsRig: 4.0,
    OverlappingRig: 1.6,
    OverwriteRig: 1.6,
    OverlappingStoreRig: 5.0,
    CleanedRig: 2.5,
    CleanedOverlappingRig: 2.5,  # whose drivers compact and vacuum, too
}

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("rig_type", LONGEST_S, ids=lambda rig_type: rig_type.__name__)
def test_kills_beside_maintenance_lose_nothing_and_double_nothing(tmp_path: Path, rig_type: type[DeltaRig]) -> None:
    rig = rig_type(tmp_path)

    def compact() -> None:
        rig.table().optimize.compact()

    def vacuum() -> None:
        rig.table().vacuum(dry_run=False, full=True)

    def commit() -> None:
        table = rig.table()
        properties = CommitProperties(app_transactions=[Transaction("somebody else", table.version())])
        table.create_write_transaction([], "append", table.schema(), commit_properties=properties)

    def alter() -> None:
        rig.table().alter.set_table_properties({"delta.checkpointInterval": "5"})

    acts = (compact, commit, vacuum, alter)
    require_exact(rig, acts, kills=KILLS, longest_s=LONGEST_S[rig_type], every_s=0.05, fails=(DeltaError, OSError))
    staged = [name for name in rig.leftovers() if not name.endswith(".parquet")]  # those are what was compacted
    assert staged == []
