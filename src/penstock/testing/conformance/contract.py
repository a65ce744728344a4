"""All tests that every sink must pass in one process. Crash tests are in `crashes`."""

from penstock.testing.conformance.publishing import PublishContract
from penstock.testing.conformance.racing import RaceContract
from penstock.testing.conformance.staging import StageContract
from penstock.testing.conformance.sweeping import SweepContract
from penstock.testing.conformance.verifying import VerifyContract


class SinkContract(StageContract, PublishContract, RaceContract, SweepContract, VerifyContract):
    """Subclass it as `Test…` in a module with a fixture `rig` that returns a `SinkRig` on an empty directory."""
