"""Many tables of one stream in PostgreSQL and MariaDB: opened on first sight, failed at each step, killed, side by side."""

import random
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.seed import SEED
from tests.servers.fixtures import server, unique
from tests.unit.many_target import World, expected
from tests.unit.test_many_tables import BATCHES, batch_of

from penstock.core import faults
from penstock.errors import PenstockError, Refused
from penstock.run.operations import verify
from penstock.testing.conformance.story import end, start

KINDS = ("postgres", "mysql")


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    faults.arm("")


class ServedWorld(World):
    """The ledger is in the sink's database, or in a file."""

    def __init__(self, directory: Path, kind: str, url: str, *, rides: bool = False, **given: Any) -> None:
        self.url = url
        super().__init__(
            directory, kind, ledger=url if rides else "sqlite:///ledger.db", url=url, table="{region}_orders", **given
        )

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        from tests.conformance.test_mysql_conformance import connected

        if self.kind == "postgres":
            import psycopg

            with psycopg.connect(self.url, autocommit=True) as connection:
                cursor = connection.execute(statement)  # type: ignore[arg-type]
                return cursor.fetchall() if cursor.description else []
        with connected(self.url) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def found(self) -> dict[str, list[Any]]:
        here = "current_schema()" if self.kind == "postgres" else "database()"
        names = [name for (name,) in self.query(f"SELECT table_name FROM information_schema.tables WHERE table_schema = {here}")]
        own = sorted(name for name in names if name.endswith("_orders"))
        return {name: self.query(f"SELECT id, region, name FROM {name}") for name in own}


def new_world(tmp_path: Path, kind: str, **given: Any) -> ServedWorld:
    return ServedWorld(tmp_path, kind, server(kind).database(unique("many")), **given)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ledger", ["apart", "there"])
def test_steps_that_fail_and_answers_that_are_lost(tmp_path: Path, kind: str, ledger: str) -> None:
    world = new_world(tmp_path, kind, rides=ledger == "there")
    steps = ("tables.open=lost@2", f"{kind}.mark=error@2", f"{kind}.fence=error@3", f"{kind}.commit=lost@3")
    for number, step in enumerate(steps):
        faults.arm(step)
        with suppress(PenstockError):
            world.run({0: BATCHES[0]} if number < 2 else {0: BATCHES[0], 1: BATCHES[1]})
        faults.arm("")
    world.run({1: BATCHES[1], 2: BATCHES[2]})
    assert world.content() == expected(BATCHES)
    assert verify(world.pipeline.plan).ok
    marks = dict(world.query("SELECT sink, rows_decided FROM penstock_marker"))
    assert marks == {"orders": 7, "orders/ap_orders": 1, "orders/eu_orders": 3, "orders/us_orders": 3}


def deliver(directory: str, kind: str, url: str, seed: str, upto: int) -> None:
    """What a process does that may be killed, after so many batches are decided."""
    made = {number: batch_of(random.Random(f"{seed} {number}"), number) for number in range(max(upto - 1, 0), upto + 3)}
    ServedWorld(Path(directory), kind, url).run(made)


@pytest.mark.parametrize("kind", KINDS)
def test_random_batches_under_kills_are_exact(tmp_path: Path, kind: str) -> None:
    world, seed, chance = new_world(tmp_path, kind), f"{SEED} {kind}", random.Random(f"{SEED} {kind} kills")
    print(f"PENSTOCK_SEED={SEED}")
    points = ("tables.open", f"{kind}.prepare", f"{kind}.fence", f"{kind}.mark", f"{kind}.commit", "ledger.sqlite_commit")
    upto, ends = 0, []
    for _ in range(4):
        armed = f"{chance.choice(points)}=kill@{chance.randrange(1, 6)}"
        process = start(deliver, str(tmp_path), kind, world.url, seed, upto, faults=armed)
        ends.append(end(process))
        upto = world.decided()
    assert -signal.SIGKILL in ends
    whole = {number: batch_of(random.Random(f"{seed} {number}"), number) for number in range(upto + 1)}
    world.run({number: whole[number] for number in range(max(upto - 1, 0), upto + 1)})
    assert {table: rows for table, rows in world.content().items() if rows} == expected(whole)
    assert verify(world.pipeline.plan).ok


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_of_other_columns_is_refused_before_its_batch_is_decided(tmp_path: Path, kind: str) -> None:
    world = new_world(tmp_path, kind)
    world.query("CREATE TABLE us_orders (id int NOT NULL, region varchar(10), name varchar(3))")
    with pytest.raises(Refused, match="us_orders"):
        world.run({0: BATCHES[0]})
    assert world.decided() == 0
    world.query("DROP TABLE us_orders")
    world.run({0: BATCHES[0]})
    assert world.content() == expected({0: BATCHES[0]})


@pytest.mark.parametrize("kind", KINDS)
def test_a_driver_that_slept_changes_nothing(tmp_path: Path, kind: str) -> None:
    """Its batch has a table that it opened, and that a newer driver has filled meanwhile."""
    world = new_world(tmp_path, kind)
    world.run({0: BATCHES[0]})

    def newer() -> None:
        world.run({1: BATCHES[1]})

    with pytest.raises(PenstockError):
        world.run({1: [[(99, "zz", "older"), (98, "eu", "older")]]}, before_deciding=newer)
    world.run({1: BATCHES[1], 2: BATCHES[2]})
    assert {table: rows for table, rows in world.content().items() if rows} == expected(BATCHES)
    assert verify(world.pipeline.plan).ok
