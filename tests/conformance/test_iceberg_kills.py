"""Drivers of one Iceberg table that are killed at random moments, while others commit to it and expire its snapshots.

CI kills a few; `make soak` kills PENSTOCK_SOAK_KILLS. The seed is printed; PENSTOCK_SEED replays it.
"""

import os
from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitFailedException, ValidationException
from sqlalchemy.exc import OperationalError
from tests.conformance.iceberg_rig import (
    AzureRig,
    CleanedOverlappingRig,
    CleanedRig,
    IcebergRig,
    OverlappingRig,
    RestRig,
    StoreRig,
    expired,
)
from tests.conformance.lake_kills import require_exact

KILLS = int(os.environ.get("PENSTOCK_SOAK_KILLS", "2"))
RIGS = (IcebergRig, OverlappingRig, StoreRig, AzureRig, RestRig, CleanedRig, CleanedOverlappingRig)
"""The drivers of the last two compact and expire, too."""

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("rig_type", RIGS, ids=lambda rig_type: rig_type.__name__)
def test_kills_beside_maintenance_lose_nothing_and_double_nothing(tmp_path: Path, rig_type: type[IcebergRig]) -> None:
    rig = rig_type(tmp_path)

    def commit() -> None:
        transaction = rig.table().transaction()
        with transaction.update_snapshot().fast_append():
            pass
        transaction.commit_transaction()

    def alter() -> None:
        rig.table().transaction().set_properties({"owner": "somebody else"}).commit_transaction()

    def expire() -> None:
        expired(rig)

    # two of them of a snapshot that was taken out meanwhile
    fails = (CommitFailedException, ValidationException, OperationalError, OSError, ValueError)
    require_exact(rig, (commit, alter, expire, rig.compact), kills=KILLS, longest_s=3.0, every_s=0.2, fails=fails)
    staged = [name for name in rig.leftovers() if not name.endswith(".parquet")]  # those are of versions that are expired
    assert staged == []
