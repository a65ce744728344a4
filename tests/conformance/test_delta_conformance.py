"""The delta sink passes the suite of all sinks: as one flat table, and partitioned by hostile texts."""

from pathlib import Path

import pytest
from tests.conformance.beside_driver import looks_of
from tests.conformance.delta_rig import (
    AzureRig,
    ChangingRig,
    CleanedChangingRig,
    CleanedOverlappingRig,
    CleanedReplaceRig,
    CleanedRig,
    CleanedStoreRig,
    DeleteRig,
    DeltaRig,
    GcsRig,
    HistoryRig,
    IfAbsentRig,
    InlineStoreRig,
    MaintainedOverlappingRig,
    MaintainedRig,
    NewestRig,
    OverlappingIfAbsentRig,
    OverlappingPartitionedRig,
    OverlappingRig,
    OverlappingStoreRig,
    OverwriteRig,
    PartitionedRig,
    PartitionedUpsertRig,
    ReplaceRig,
    StoreRig,
)
from tests.conformance.lake_rig import FormatContract

from penstock.testing.conformance import (
    CrashContract,
    IdentityContract,
    SinkContract,
    SinkRig,
    StagingLossContract,
    VerifyBesideDriverContract,
)
from penstock.testing.conformance.publishing import PublishContract, RaceContract
from penstock.testing.conformance.verifying import VerifyContract

RIGS = {
    "plain": DeltaRig,
    "partitioned": PartitionedRig,
    "s3": StoreRig,
    "s3-inline": InlineStoreRig,
    "az": AzureRig,
    "gs": GcsRig,
}


@pytest.fixture(params=sorted(RIGS))
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> DeltaRig:
    return RIGS[request.param](tmp_path)


class TestDelta(SinkContract):
    pass


class Plain:
    @pytest.fixture
    def rig(self, tmp_path: Path) -> DeltaRig:
        return DeltaRig(tmp_path)


class TestDeltaOfTwoLedgers(Plain, IdentityContract):
    """Their markers are the same however the rows are laid out."""


class TestDeltaBesideDriver(Plain, VerifyBesideDriverContract):
    looks, batches = looks_of("delta", fewer=25), 10  # of several files each, which every look reads


class TestDeltaKilled(Plain, CrashContract):
    """What comes after the staging, which is the Parquet sink's: move, commit, making it durable."""

    fault_parts = ("delta", "deltalog", "rename")


class TestDeltaStagingLost(Plain, StagingLossContract):
    pass


def named(rig: type[SinkRig]) -> str:
    return rig.__name__


class TestDeltaInStoreKilled(CrashContract):
    """Beside the points of a directory, where only making the commit durable is left out."""

    fault_parts = ("delta",)

    @pytest.fixture(params=[StoreRig, AzureRig, GcsRig], ids=named)
    def rig(self, request: pytest.FixtureRequest, tmp_path: Path) -> StoreRig:
        return request.param(tmp_path)


class TestDeltaByKey(SinkContract, IdentityContract):
    damages = ("lost", "changed", "foreign", "swapped")

    @pytest.fixture(params=[ChangingRig], ids=named)
    def rig(self, request: pytest.FixtureRequest, tmp_path: Path) -> DeltaRig:
        return request.param(tmp_path)


class TestDeltaWays(FormatContract):
    """What stages, sweeps and keeps ledgers apart is the same for all ways to write."""

    @pytest.fixture(
        params=[IfAbsentRig, PartitionedUpsertRig, ReplaceRig, OverwriteRig, OverlappingRig, NewestRig, HistoryRig], ids=named
    )
    def rig(self, request: pytest.FixtureRequest, tmp_path: Path) -> DeltaRig:
        return request.param(tmp_path)


class TestDeltaByKeyStagingLost(StagingLossContract):
    @pytest.fixture(params=[ChangingRig, ReplaceRig], ids=named)
    def rig(self, request: pytest.FixtureRequest, tmp_path: Path) -> DeltaRig:
        return request.param(tmp_path)


class TestDeltaByKeyBesideDriver(VerifyBesideDriverContract):
    looks, batches = looks_of("delta by key", fewer=15), 8

    @pytest.fixture
    def rig(self, tmp_path: Path) -> DeltaRig:
        return ChangingRig(tmp_path)


class TestDeltaByKeyKilled(CrashContract):
    fault_parts = ("delta", "lakekeys")

    @pytest.fixture(params=[OverlappingPartitionedRig, DeleteRig, NewestRig], ids=named)
    def rig(self, request: pytest.FixtureRequest, tmp_path: Path) -> DeltaRig:
        return request.param(tmp_path)


class TestDeltaHistoryKilled(CrashContract):
    fault_parts = ("lakekeys", "lakehistory")

    @pytest.fixture
    def rig(self, tmp_path: Path) -> DeltaRig:
        return HistoryRig(tmp_path)


class TestDeltaByKeyInStore(PublishContract, RaceContract):
    @pytest.fixture
    def rig(self, tmp_path: Path) -> DeltaRig:
        return OverlappingStoreRig(tmp_path)


class TestDeltaByKeyInStoreKilled(CrashContract):
    fault_parts = ("lakekeys",)

    @pytest.fixture
    def rig(self, tmp_path: Path) -> DeltaRig:
        return OverlappingStoreRig(tmp_path)


class TestDeltaReplacedKilled(CrashContract):
    fault_parts = ("delta",)

    @pytest.fixture(params=[ReplaceRig, OverwriteRig, OverlappingIfAbsentRig], ids=named)
    def rig(self, request: pytest.FixtureRequest, tmp_path: Path) -> DeltaRig:
        return request.param(tmp_path)


class TestDeltaMaintained(PublishContract, VerifyContract):
    """A compaction follows each publication, and the removal of what only older versions have."""

    @pytest.fixture(params=[CleanedRig, CleanedOverlappingRig, CleanedReplaceRig, CleanedStoreRig], ids=named)
    def rig(self, request: pytest.FixtureRequest, tmp_path: Path) -> DeltaRig:
        return request.param(tmp_path)


class TestDeltaMaintainedBesideReaders(RaceContract):
    """As far as readers of older versions go on to find their files."""

    @pytest.fixture(params=[MaintainedRig, MaintainedOverlappingRig], ids=named)
    def rig(self, request: pytest.FixtureRequest, tmp_path: Path) -> DeltaRig:
        return request.param(tmp_path)


class TestDeltaMaintainedKilled(CrashContract):
    """Real processes at each step of a round: what the rewriting is, and the removal of what only older versions have."""

    fault_parts = ("lakecompaction", "deltavacuum")

    @pytest.fixture(params=[CleanedRig, CleanedChangingRig], ids=named)
    def rig(self, request: pytest.FixtureRequest, tmp_path: Path) -> DeltaRig:
        return request.param(tmp_path)
