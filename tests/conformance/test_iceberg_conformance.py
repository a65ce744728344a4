"""The iceberg sink passes the suite of all sinks: as one flat table, and partitioned by hostile texts."""

from pathlib import Path

import pytest
from tests.conformance.beside_driver import looks_of
from tests.conformance.iceberg_layout_rig import (
    BranchRestRig,
    BranchRig,
    OverlappingBranchRig,
    TransformedMaintainedRig,
    TransformedOverwriteRig,
    TransformedRestRig,
    TransformedRig,
    TransformedUpsertRig,
)
from tests.conformance.iceberg_rig import (
    AzureRig,
    ChangingRig,
    CleanedChangingRig,
    CleanedReplaceRig,
    CleanedRig,
    CleanedStoreRig,
    DeleteRig,
    IcebergRig,
    IfAbsentRig,
    MaintainedOverlappingRig,
    MaintainedRig,
    NewestRig,
    OverlappingPartitionedRig,
    OverlappingRestRig,
    OverlappingRig,
    OverlappingStoreRig,
    OverwriteRig,
    PartitionedRig,
    PartitionedUpsertRig,
    ReplaceRig,
    RestRig,
    StoreRig,
)
from tests.conformance.lake_rig import FormatContract

from penstock.testing.conformance import (
    CrashContract,
    IdentityContract,
    SinkRig,
    StagingLossContract,
    VerifyBesideDriverContract,
)
from penstock.testing.conformance.publishing import PublishContract, RaceContract
from penstock.testing.conformance.verifying import VerifyContract

RIGS = {"plain": IcebergRig, "partitioned": PartitionedRig, "s3": StoreRig, "transformed": TransformedRig}


@pytest.fixture(params=sorted(RIGS))
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> IcebergRig:
    return RIGS[request.param](tmp_path)


class TestIceberg(FormatContract):
    pass


class Plain:
    @pytest.fixture
    def rig(self, tmp_path: Path) -> IcebergRig:
        return IcebergRig(tmp_path)


class TestIcebergOfTwoLedgers(Plain, IdentityContract):
    """Their markers are the same however the rows are laid out."""


class TestIcebergBesideDriver(Plain, VerifyBesideDriverContract):
    looks, batches = looks_of("iceberg", fewer=25), 10  # of several files each, which every look reads


class TestIcebergKilled(Plain, CrashContract):
    """What comes after the staging, which is the Parquet sink's, and the moves, which are tried with Delta: the commit."""

    fault_parts = ("iceberg",)


class TestIcebergStagingLost(Plain, StagingLossContract):
    pass


def named(rig: type[SinkRig]) -> str:
    return rig.__name__


class TestIcebergByKey(FormatContract, IdentityContract):
    damages = ("lost", "changed", "foreign", "swapped")

    @pytest.fixture
    def rig(self, tmp_path: Path) -> IcebergRig:
        return ChangingRig(tmp_path)


WAYS = [
    *(IfAbsentRig, PartitionedUpsertRig, ReplaceRig, OverwriteRig, OverlappingRig, NewestRig),
    *(TransformedUpsertRig, TransformedOverwriteRig),
]


class TestIcebergWays(FormatContract):
    """What stages, sweeps and keeps ledgers apart is the same for all ways to write."""

    @pytest.fixture(params=WAYS, ids=named)
    def rig(self, request: pytest.FixtureRequest, tmp_path: Path) -> IcebergRig:
        return request.param(tmp_path)


class TestIcebergByKeyBesideDriver(VerifyBesideDriverContract):
    looks, batches = looks_of("iceberg by key", fewer=15), 8

    @pytest.fixture
    def rig(self, tmp_path: Path) -> IcebergRig:
        return ChangingRig(tmp_path)


class TestIcebergByKeyKilled(CrashContract):
    fault_parts = ("iceberg", "lakekeys")

    @pytest.fixture(params=[OverlappingPartitionedRig, DeleteRig, NewestRig], ids=named)
    def rig(self, request: pytest.FixtureRequest, tmp_path: Path) -> IcebergRig:
        return request.param(tmp_path)


class TestIcebergInStoreKilled(CrashContract):
    """Beside the points of a directory: the commit alone."""

    fault_parts = ("iceberg",)

    @pytest.fixture(params=[StoreRig, AzureRig], ids=named)
    def rig(self, request: pytest.FixtureRequest, tmp_path: Path) -> IcebergRig:
        return request.param(tmp_path)


class TestIcebergByKeyInStore(PublishContract, RaceContract):
    @pytest.fixture
    def rig(self, tmp_path: Path) -> IcebergRig:
        return OverlappingStoreRig(tmp_path)


class TestIcebergInAzure(FormatContract):
    """What stages there is the Parquet sink's, with another store's client."""

    @pytest.fixture
    def rig(self, tmp_path: Path) -> IcebergRig:
        return AzureRig(tmp_path)


class TestIcebergBehindRest(FormatContract):
    @pytest.fixture(params=[RestRig, OverlappingRestRig, TransformedRestRig, BranchRestRig], ids=named)
    def rig(self, request: pytest.FixtureRequest, tmp_path: Path) -> IcebergRig:
        return request.param(tmp_path)


class TestIcebergBehindRestKilled(CrashContract):
    fault_parts = ("iceberg",)

    @pytest.fixture
    def rig(self, tmp_path: Path) -> IcebergRig:
        return RestRig(tmp_path)


class TestIcebergBranch(FormatContract):
    """Beside an empty `main`, which the first commit of two drivers finds without a branch."""

    @pytest.fixture(params=[BranchRig, OverlappingBranchRig], ids=named)
    def rig(self, request: pytest.FixtureRequest, tmp_path: Path) -> IcebergRig:
        return request.param(tmp_path)


class TestIcebergBranchKilled(CrashContract):
    fault_parts = ("iceberg",)

    @pytest.fixture
    def rig(self, tmp_path: Path) -> IcebergRig:
        return BranchRig(tmp_path)


class TestIcebergMaintained(PublishContract, VerifyContract):
    """A compaction follows each publication, and the expiry of all snapshots but one, with their files.

    Not by key: what tells a batch of another ledger at a position is the summary of a snapshot, which expires.
    """

    @pytest.fixture(params=[CleanedRig, CleanedReplaceRig, CleanedStoreRig], ids=named)
    def rig(self, request: pytest.FixtureRequest, tmp_path: Path) -> IcebergRig:
        return request.param(tmp_path)


class TestIcebergMaintainedBesideReaders(PublishContract, RaceContract):
    """As far as readers of older snapshots go on to find their files."""

    @pytest.fixture(params=[MaintainedRig, MaintainedOverlappingRig, TransformedMaintainedRig], ids=named)
    def rig(self, request: pytest.FixtureRequest, tmp_path: Path) -> IcebergRig:
        return request.param(tmp_path)


class TestIcebergMaintainedKilled(CrashContract):
    """Real processes at each step of a round: the rewriting, the commit by which snapshots leave, the removal of their files."""

    fault_parts = ("lakecompaction", "icebergexpiry")

    @pytest.fixture(params=[CleanedRig, CleanedChangingRig], ids=named)
    def rig(self, request: pytest.FixtureRequest, tmp_path: Path) -> IcebergRig:
        return request.param(tmp_path)
