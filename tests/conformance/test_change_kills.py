"""Random changes into every sink that takes them, by drivers that are killed at random moments: equal to a replay in memory.

CI draws one sink with one way, of a few changes; `make soak` gives each 10,000. The seed is printed; PENSTOCK_SEED replays it.
"""

import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conformance import change_rig, delta_rig, iceberg_rig
from tests.conformance import test_cassandra_conformance as cassandra
from tests.conformance import test_duckdb_conformance as duckdb
from tests.conformance import test_mysql_conformance as mysql
from tests.conformance import test_postgres_conformance as postgres
from tests.conformance import test_redshift_conformance as redshift
from tests.conformance import test_sqlite_conformance as sqlite
from tests.conformance import test_sqlserver_conformance as sqlserver
from tests.conformance.killed_driver import Driver, decided_upto
from tests.conformance.table_rig import rig_below
from tests.seed import SEED
from tests.servers.fixtures import server, unique

from penstock.testing.conformance import SinkRig, require_equal
from penstock.testing.conformance.story import RAISED, live, rows_of, verify

IS_SOAK = os.environ.get("PENSTOCK_SOAK_FAULTS") == "all"
CHANGES, KILLS = (10_000, 10) if IS_SOAK else (400, 2)
AT_ONCE = 4
"""How many batches a driver has before it, at most."""
LONGEST_S = 2.0

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(3600)]

_TABLES = {"deleting": change_rig.Deleting, "sequenced": change_rig.Sequenced, "kept": change_rig.Kept}
_LAKES = {**_TABLES, "kept": change_rig.KeptInLake}
_WAREHOUSES = {way: _TABLES[way] for way in ("deleting", "sequenced")}
_PLAIN = {
    "sqlite": (sqlite.SqliteRig, rig_below, _TABLES),
    "duckdb": (duckdb.DuckdbRig, rig_below, _TABLES),
    "postgres": (postgres.PostgresRig, postgres.rig_on_server, _TABLES),
    "mysql": (mysql.MysqlRig, mysql.rig_on_server, _TABLES),
    "redshift": (redshift.RedshiftRig, redshift.rig_on_server, _WAREHOUSES),
    "sqlserver": (sqlserver.SqlserverRig, rig_below, _WAREHOUSES),
    "cassandra": (cassandra.CassandraRig, cassandra.rig_on_server, {"deleting": change_rig.Deleting}),
    "delta": (delta_rig.ChangingRig, rig_below, _LAKES),
    "iceberg": (iceberg_rig.ChangingRig, rig_below, _LAKES),
}
"""The plain rig of each sink, what sets it up, and the ways in which it takes changes."""


def _mixed(sink: str, way: str, plain: type[SinkRig], stream: type[SinkRig]) -> type[SinkRig]:
    """Return the rig of a sink that takes that stream; it stands in this module, where other processes look for it."""
    name = f"{sink.capitalize()}{way.capitalize()}"
    globals()[name] = type(name, (stream, plain), {"__module__": __name__})
    return globals()[name]  # type: ignore[no-any-return]


MIXED = {
    (sink, way): (_mixed(sink, way, plain, stream), set_up)
    for sink, (plain, set_up, ways) in _PLAIN.items()
    for way, stream in ways.items()
}
CASES = [*MIXED, ("kafka", "deleting")]


def _rig(sink: str, way: str, directory: Path) -> SinkRig:
    if sink == "kafka":
        return change_rig.compacted(server("kafka"), unique("changes"), directory)
    kind, set_up = MIXED[sink, way]
    made: Callable[..., SinkRig] = set_up
    return made(kind, directory)


@pytest.mark.parametrize(("sink", "way"), CASES)
def test_random_changes_under_random_kills_equal_a_replay_in_memory(tmp_path: Path, sink: str, way: str) -> None:
    generator, rig = random.Random(f"{SEED} {sink} {way}"), _rig(sink, way, tmp_path)
    live(rig, [0])
    ends, upto, done = Counter[int](), 0, 0
    while ends[-signal.SIGKILL] < KILLS or done < CHANGES:
        numbers = range(upto, upto + 1 + generator.randrange(1, AT_ONCE))  # the newest one comes again, as Spark's does
        code = Driver(rig, numbers).kill(generator, longest_s=LONGEST_S)
        assert code in {0, RAISED, -signal.SIGKILL}
        ends[code] += 1
        upto = decided_upto(rig)
        batches = [rows_of(number, rig) for number in range(upto + 1)]
        done = sum(map(len, batches))
    print(f"PENSTOCK_SEED={SEED}: {sink}, {way}: {done} changes in {upto + 1} batches, ended with {ends}")
    live(rig, [upto, upto + 1])
    require_equal(rig.read_back(), rig.settle([*batches, rows_of(upto + 1, rig)]))
    report = verify(rig)
    assert report.ok, report
    assert [path.read_text() for path in tmp_path.glob("**/*.violations")] == []  # of what stands in for SQL Server
