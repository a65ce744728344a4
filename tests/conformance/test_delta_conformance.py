"""The delta sink passes the suite of all sinks: as one flat table, and partitioned by hostile texts."""

from pathlib import Path

import pytest
from tests.conformance.delta_rig import DeltaRig, InlineStoreRig, PartitionedRig, StoreRig

from penstock.testing.conformance import (
    CrashContract,
    IdentityContract,
    SinkContract,
    StagingLossContract,
    VerifyBesideDriverContract,
)

RIGS = {"plain": DeltaRig, "partitioned": PartitionedRig, "s3": StoreRig, "s3-inline": InlineStoreRig}


@pytest.fixture(params=sorted(RIGS))
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> DeltaRig:
    return RIGS[request.param](tmp_path)


class TestDelta(SinkContract, IdentityContract):
    pass


class Plain:
    @pytest.fixture
    def rig(self, tmp_path: Path) -> DeltaRig:
        return DeltaRig(tmp_path)


class TestDeltaBesideDriver(Plain, VerifyBesideDriverContract):
    looks, batches = 25, 10  # of several files each, which every look reads


class TestDeltaKilled(Plain, CrashContract):
    """What comes after the staging, which is the Parquet sink's: move, commit, making it durable."""

    fault_parts = ("delta", "deltalog", "rename")


class TestDeltaStagingLost(Plain, StagingLossContract):
    pass


class TestDeltaInStoreKilled(CrashContract):
    """Beside the points of a directory, where only making the commit durable is left out."""

    fault_parts = ("delta",)

    @pytest.fixture
    def rig(self, tmp_path: Path) -> StoreRig:
        return StoreRig(tmp_path)
