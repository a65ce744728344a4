"""Markers whose table an older Penstock made, without the column `ledger_id`: read as they are, and altered once."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.unit import dbapi_target, sqlite_target
from tests.unit.served_target import every_target
from tests.unit.table_target import targets_of

from penstock.core.model import LedgerId
from penstock.errors import LedgerMismatch, Refused
from penstock.testing.conformance import PIPELINE
from penstock.testing.conformance.rig import LEDGER_ID

OLDER = Path(__file__).parents[1] / "upgrade" / "older_markers"
WITH_VIEW = frozenset({"duckdb", "mysql", "postgres"})
COLUMNS = (
    "pipeline, sink, table_name, write, format_version, position, generation, query_id, batch_id, offsets, schema, rows_decided, "
    "digest_decided, rows_before, digest_before, rows_after, digest_after, published_at"
)
DBAPI_COLUMNS = (
    COLUMNS.replace("write", "way")
    .replace("position", "at_position")
    .replace(" schema", " row_schema")
    .replace("published_at", "turns, trial")
)
ANOTHER = LedgerId("a7" * 16)


@pytest.fixture(params=["dbapi", "duckdb", "mysql", "postgres", "redshift", "sqlite", "sqlserver"])
def kind(request):
    return request.param


@pytest.fixture
def target(tmp_path, kind):
    if kind == "sqlite":
        yield from sqlite_target.targets(tmp_path)
    elif kind == "dbapi":
        yield from targets_of(dbapi_target.TableRig)(tmp_path)
    else:
        yield from every_target(tmp_path, Asked(kind))


class Asked:
    """As pytest's `request`."""

    def __init__(self, param):
        self.param = param


def filled(table, kind):
    """One batch of a ledger without an identity, and then its marker as an older Penstock kept it."""
    sink = table.sink()
    rows = table.named([(1, "a"), (2, None)])
    staged = table.stage(sink, rows, batch_id=0)
    shown = table.undecided((rows, staged), batch_id=0, position=2, ledger_id=None)
    table.decided.append(shown)
    assert not sink.publish(shown.publication).already
    sink.close()
    as_older(table, kind)
    return shown


def as_older(table, kind):
    if kind == "sqlserver":
        table.rig.make_markers_older()
        return
    marker = "penstock_dbapi_marker" if kind == "dbapi" else "penstock_marker"
    columns = DBAPI_COLUMNS if kind == "dbapi" else COLUMNS
    if kind == "mysql":
        columns = columns.replace(" write", " `write`").replace(" schema", " `schema`")
    old = (OLDER / f"{kind}-1.sql").read_text()
    table.sql(f"CREATE TABLE kept AS SELECT {columns} FROM {marker}")
    table.sql(f"DROP TABLE {marker}" + (" CASCADE" if kind == "postgres" else ""))
    table.sql(old)
    table.sql(f"INSERT INTO {marker} ({columns}) SELECT {columns} FROM kept")
    table.sql("DROP TABLE kept")
    if kind == "postgres":
        from penstock.sink.postgres.statements import OwnStatements

        with table.rig.session() as connection:
            [_, offsets] = OwnStatements("public").creates["penstock_marker"]
            connection.execute(offsets)


def deliver(table, sink, *, batch_id, position, ledger_id):
    rows = table.named([(batch_id * 10 + 1, "b")])
    staged = table.stage(sink, rows, batch_id=batch_id)
    shown = table.undecided((rows, staged), batch_id=batch_id, position=position, ledger_id=ledger_id)
    answer = sink.publish(shown.publication)
    table.decided.append(shown)
    return answer


def mark(sink):
    return sink.high_water_mark("", pipeline=PIPELINE)


def has_column(table, kind):
    try:
        table.sql(f"SELECT ledger_id FROM penstock_{'dbapi_' * (kind == 'dbapi')}marker")
    except Exception:  # noqa: BLE001 - of seven drivers
        return False
    return True


def test_it_is_read_as_it_is(target, kind):
    """By whoever only looks: nothing is altered before a start prepares."""
    table = target()
    filled(table, kind)
    looking = table.rig.make()
    assert table.verify(looking).ok
    found = mark(looking)
    assert (found.position, found.ledger_id, found.batch_id, found.generation) == (2, None, 0, 1)
    looking.require_schema_accepted(pipeline=PIPELINE, schema=table.rig.schema)
    assert all(finding.ok for finding in looking.check())
    looking.close()
    assert not has_column(table, kind)


def test_it_is_altered_once_and_then_of_one_ledger(target, kind):
    table = target()
    filled(table, kind)
    sink = table.sink()
    assert has_column(table, kind)
    assert mark(table.sink()).ledger_id is None
    assert not deliver(table, sink, batch_id=1, position=4, ledger_id=LEDGER_ID).already
    assert mark(sink).ledger_id == LEDGER_ID
    assert table.verify(sink).ok
    with pytest.raises(
        LedgerMismatch, match=f"Ledger {ANOTHER} publishes position 9, but table 't' shows what ledger {LEDGER_ID}"
    ):
        deliver(table, sink, batch_id=2, position=9, ledger_id=ANOTHER)
    assert sorted(row[0] for row in table.sql("SELECT id FROM t")) == [1, 2, 11]
    if kind in WITH_VIEW:
        [row] = table.sql("SELECT batch_id, position FROM penstock_offsets")
        assert tuple(row) == (1, 4)


def test_a_recovery_that_prepares_no_table_alters_it(target, kind):
    """`penstock recover` knows no schema of the rows."""
    table = target()
    rows = table.named([(11, "b")])
    outstanding = table.undecided((rows, table.stage(table.sink(), rows, batch_id=1)), batch_id=1, position=4)
    shown = filled(table, kind)
    sink = table.rig.make()
    sink.prepare(pipeline=PIPELINE, schema=None)
    assert sink.publish(shown.publication).already
    assert not sink.publish(outstanding.publication).already
    assert mark(sink).ledger_id == LEDGER_ID
    sink.close()


def test_two_drivers_alter_it_at_once(target, kind):
    table = target()
    filled(table, kind)
    patient = {"busy_timeout_s": 60} if kind == "sqlite" else {}  # the rig's own 50 ms are over before a slow disk has committed
    sinks, start = [table.rig.make(**patient) for _ in range(2)], threading.Barrier(2)

    def prepare(at):
        start.wait()
        sinks[at].prepare(pipeline=PIPELINE, schema=table.rig.schema)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(prepare, range(2)))
    assert mark(sinks[0]).ledger_id is None
    for sink in sinks:
        sink.close()
    assert has_column(table, kind)


@pytest.mark.parametrize("kind", ["mysql", "postgres"])
def test_who_may_not_alter_it_is_told_the_statement(target, kind):
    """The marker's table belongs to somebody else, as an administrator may have made it."""
    table = target()
    filled(table, kind)
    guest = as_guest(table, kind)
    sink = table.rig.make(url=guest)
    with pytest.raises(Refused, match="lacks the column ledger_id") as refused:
        sink.prepare(pipeline=PIPELINE, schema=table.rig.schema)
    assert mark(sink).position == 2
    table.sql(refused.value.remedy.split("`")[1])
    sink.prepare(pipeline=PIPELINE, schema=table.rig.schema)
    assert not deliver(table, sink, batch_id=1, position=4, ledger_id=LEDGER_ID).already
    sink.close()


def as_guest(table, kind):
    """The URL of a role with the rights that publishing needs, and no more."""
    role, name = f"guest_{table.rig.name}", table.rig.name
    running = table.rig.running
    if kind == "postgres":
        with running.admin(name) as connection:
            for statement in (
                f"CREATE ROLE {role} LOGIN PASSWORD 'theirs'",
                f"GRANT TEMP ON DATABASE {name} TO {role}",
                f"GRANT USAGE ON SCHEMA public TO {role}",
                f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}",
            ):
                connection.execute(statement)
        return running.url(name).replace(running.url(name).split("//")[1].split("@")[0], f"{role}:theirs")
    table.sql(
        f"CREATE USER {role} IDENTIFIED BY 'theirs'",
        f"GRANT SELECT, INSERT, UPDATE, DELETE, CREATE TEMPORARY TABLES ON {name}.* TO {role}",
    )
    return running.url(name, user=role, password="theirs")
