"""Credentials that expire in mid-run: the run ends with one sentence that names the account, and goes on once they are renewed.

A driver is stopped before one step; while it stands still the access policy that its token refers to ends, as of an hour ago.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from azure.storage.blob import AccessPolicy, generate_container_sas

from tests.crash.commandline import Ended, penstock
from tests.crash.stopping import stopped
from tests.crash.world import World, make_world
from tests.servers import az
from tests.servers.fixtures import server, unique
from tests.servers.server import Outside, Place

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.usefixtures("spark")]

SEED = 3
HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Container:
    """A container that is reached by a token of an access policy, which ends when the policy does."""

    name: str
    policy: str = "lake"

    def lasts(self, until: timedelta) -> None:
        now = datetime.now(timezone.utc)
        policy = AccessPolicy(permission="racwdl", start=now - 3 * HOUR, expiry=now + until)
        server("az").client().get_container_client(self.name).set_container_access_policy({self.policy: policy})

    def place(self, folder: str) -> Place:
        token = generate_container_sas(az.ACCOUNT, self.name, az.KEY, policy_id=self.policy)
        options = {"endpoint": server("az").options["endpoint"], "sas_token": token}
        return Place(f"az://{self.name}@{az.ACCOUNT}/{folder}", options)


@pytest.fixture(name="container")
def _container() -> Container:
    made = Container(unique("expiring"))
    server("az").client().create_container(made.name)
    made.lasts(HOUR)
    return made


def outside(place: Place) -> Outside:
    seen: Outside = server("az").outside(place)
    return seen


def assert_told(ended: Ended, place: Place, *, kind: str = "Failed") -> None:
    """One sentence and its remedy, and neither a stack trace nor the token."""
    assert (ended.code, ended.last["error"]["kind"]) == (1, kind), str(ended)
    lines = ended.err.splitlines()
    assert len(lines) == 2, ended.err
    assert place.url in lines[0]
    assert "credentials" in lines[1]
    assert place.options["sas_token"] not in str(ended)
    assert "sig=" not in str(ended).replace("sig=***", "")


@pytest.mark.parametrize(
    ("fault", "rows"),
    [
        ("object.stage.part@2", 8_000),
        ("object.publish.complete@2", 8_000),
        ("object.mark.write@2", 8_000),
        ("object.publish.complete@2", 100),
    ],
)
def test_an_account_that_expires(tmp_path: Path, container: Container, fault: str, rows: int) -> None:
    """The only account on a store, so that the step that it expires before is its own."""
    place = container.place("table")
    stores = {"EWR": (place, outside(place))}
    world = make_world(tmp_path, files=4, rows_per_file=rows, seed=SEED, per_trigger=2, wide=True, stores=stores)
    assert_told(expired(world, container, fault), place, kind="StageFailed" if fault.startswith("object.stage") else "Failed")
    renew_and_finish(world, container)


@pytest.mark.parametrize("fault", ["ledger.append@3", "ledger.read_floors@3"])
def test_a_ledger_that_expires(tmp_path: Path, container: Container, fault: str) -> None:
    place = container.place("ledger")
    extra = f"ledger: {place.written}"
    world = make_world(tmp_path, files=4, rows_per_file=100, seed=SEED, per_trigger=1, extra=extra)
    assert_told(expired(world, container, fault), place)
    renew_and_finish(world, container)


def expired(world: World, container: Container, fault: str) -> Ended:
    """How a run ends whose credentials end before it does the operation of `fault`."""
    with stopped(world, fault) as driver:
        container.lasts(-HOUR)
        return driver.go_on()


def renew_and_finish(world: World, container: Container) -> None:
    """It stays refused until it is renewed, by a policy, and so a token, of another name."""
    again = penstock("recover", str(world.file), "--json")
    assert again.code == 1, str(again)
    renewed = Container(container.name, policy="renewed")
    renewed.lasts(HOUR)
    world.rewrite((container.place("").options["sas_token"], renewed.place("").options["sas_token"]))
    done = penstock("run", str(world.file), "--json")
    assert done.code == 0, str(done)
    world.assert_exact()
    world.assert_verified()
