"""The kafka sink passes the suite on a real broker: inline and from spool files, in lanes and in parts."""

import os
import random
import signal
import time
from pathlib import Path

import pytest
from tests.conformance.beside_driver import looks_of
from tests.conformance.table_rig import named
from tests.conformance.topic_rig import (
    DeleteLanesRig,
    DeleteRig,
    ForgottenSpoolRig,
    InTasksRig,
    KafkaRig,
    LanesRig,
    PartsRig,
    SpooledRig,
    TruncatedSpoolRig,
    rig_on_server,
)
from tests.seed import SEED

from penstock.testing.conformance import (
    CrashContract,
    IdentityContract,
    SinkContract,
    StagingLossContract,
    VerifyBesideDriverContract,
    require_equal,
)
from penstock.testing.conformance.publishing import PublishContract, RaceContract
from penstock.testing.conformance.story import end, live, rows_of, start, verify

KILLS = int(os.environ.get("PENSTOCK_SOAK_KILLS", "4"))


class TestKafka(SinkContract, IdentityContract):
    """A record cannot be changed."""

    damages = ("lost", "doubled", "foreign")

    @pytest.fixture(params=[SpooledRig, DeleteRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_on_server(request.param, tmp_path)


class TestKafkaInline(PublishContract):
    @pytest.fixture
    def rig(self, tmp_path):
        return rig_on_server(KafkaRig, tmp_path)


class TestKafkaLanes(SinkContract, IdentityContract):
    damages = ("lost", "doubled", "foreign")

    @pytest.fixture
    def rig(self, tmp_path):
        return rig_on_server(LanesRig, tmp_path)


class TestKafkaParts(PublishContract, RaceContract, IdentityContract):
    @pytest.fixture
    def rig(self, tmp_path):
        return rig_on_server(PartsRig, tmp_path)


class TestKafkaBesideDriver(VerifyBesideDriverContract):
    looks, batches = looks_of("kafka", fewer=25), 10  # of some milliseconds each

    @pytest.fixture(params=[DeleteLanesRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_on_server(request.param, tmp_path)


class TestKafkaStagingLost(StagingLossContract):
    @pytest.fixture(params=[SpooledRig, TruncatedSpoolRig, ForgottenSpoolRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_on_server(request.param, tmp_path)


class TestKafkaCrashes(CrashContract):
    fault_parts = ("kafka",)

    @pytest.fixture
    def rig(self, tmp_path):
        return rig_on_server(SpooledRig, tmp_path)


class TestKafkaLanesCrashes(CrashContract):
    """Between the lanes, too, with rows that delete."""

    fault_parts = ("kafka",)

    @pytest.fixture
    def rig(self, tmp_path):
        return rig_on_server(DeleteLanesRig, tmp_path)


class TestKafkaInTasksCrashes(CrashContract):
    """In the tasks that publish lanes, and before the driver confirms them."""

    fault_parts = ("publish",)

    @pytest.fixture
    def rig(self, tmp_path):
        return rig_on_server(InTasksRig, tmp_path)


@pytest.mark.parametrize("rig_type", [SpooledRig, LanesRig, PartsRig], ids=named)
def test_a_driver_that_is_killed_at_any_moment(tmp_path: Path, rig_type: type[KafkaRig]) -> None:
    """Again and again; the next one goes on, and every row is there once."""
    print("seed", SEED)
    chance, rig = random.Random(f"{SEED} {rig_type.__name__}"), rig_on_server(rig_type, tmp_path)
    for number in (0, 1):
        began = time.monotonic()
        assert end(start(live, rig, [number])) == 0
    about_as_long_s, killed = time.monotonic() - began, 0
    for number in range(2, KILLS + 2):
        process = start(live, rig, [number])
        process.join(chance.uniform(0.1, 1) * about_as_long_s)
        process.kill()
        killed += end(process) == -signal.SIGKILL
        live(rig, [number])
        require_equal(rig.read_back(), [row for at in range(number + 1) for row in rows_of(at, rig)])
    print("killed", killed, "times")
    report = verify(rig)
    assert report.ok, report
    assert list(rig.leftovers()) == []
