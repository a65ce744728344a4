"""Partitions, partitions of partitions and inheriting tables: what is asked of the table is asked of each of them."""

from contextlib import closing

import pytest
from tests.servers.postgres import ROLE
from tests.unit.postgres_target import targets
from tests.unit.table_target import content

from penstock.errors import ContentConflict, GuaranteeTooWeak, PublishFailed, Refused
from penstock.sink.postgres.load import load
from penstock.sink.postgres.sink import PostgresSink
from penstock.testing.conformance import PIPELINE

target = pytest.fixture(targets)

TABLE = "CREATE TABLE t (id bigint, name text)"
PARTITIONED = f"{TABLE} PARTITION BY RANGE (id)"
LOW = "PARTITION OF t FOR VALUES FROM (0) TO (10)"
HIGH = "CREATE TABLE high PARTITION OF t FOR VALUES FROM (10) TO (20)"
UNLOGGED_LOW = f"{PARTITIONED}; {HIGH}; CREATE UNLOGGED TABLE low {LOW}"
ELSEWHERE = "CREATE FOREIGN DATA WRAPPER nothing; CREATE SERVER elsewhere FOREIGN DATA WRAPPER nothing"
SEES_SOME = "ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY; CREATE POLICY small ON {0} USING (id < 5)"
DROPS = "CREATE FUNCTION drops() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"
ROWS = [(1, "a"), (11, "b")]


@pytest.mark.parametrize(
    ("ddl", "error", "message"),
    [
        (UNLOGGED_LOW, GuaranteeTooWeak, r"Partition 'low' of table 't' is unlogged"),
        (
            (
                f"{PARTITIONED}; CREATE TABLE low {LOW} PARTITION BY LIST (name);"
                'CREATE UNLOGGED TABLE "Lower %s" PARTITION OF low DEFAULT'
            ),
            GuaranteeTooWeak,
            r"Partition 'Lower %s' of table 't' is unlogged",
        ),
        (
            f"{TABLE}; CREATE UNLOGGED TABLE child () INHERITS (t)",
            GuaranteeTooWeak,
            r"Table 'child', which inherits from table 't', is unlogged",
        ),
        (
            f"{ELSEWHERE}; {PARTITIONED}; CREATE FOREIGN TABLE low {LOW} SERVER elsewhere",
            Refused,
            r"Partition 'low' of table 't' is a foreign table",
        ),
        (
            f"{ELSEWHERE}; {TABLE}; CREATE FOREIGN TABLE child () INHERITS (t) SERVER elsewhere",
            Refused,
            r"Table 'child', which inherits from table 't', is a foreign table",
        ),
        (
            f"{PARTITIONED}; CREATE TABLE low {LOW}; ALTER TABLE low ALTER name SET NOT NULL",
            Refused,
            r"Partition 'low' of table 't' takes no NULL in column 'name'",
        ),
        (
            (
                f"{PARTITIONED}; CREATE TABLE low (id bigint, name text GENERATED ALWAYS AS ('x') STORED);"
                "ALTER TABLE t ATTACH PARTITION low DEFAULT"
            ),
            Refused,
            r"Column 'name' of partition 'low' of table 't' is generated",
        ),
        (f"{TABLE}; ALTER TABLE t {SEES_SOME.format('t')}", Refused, "Row security of table 't' applies to role 'penstock'"),
    ],
)
@pytest.mark.parametrize("write", ["append", "replace"])
def test_what_a_member_does_not_keep_is_refused_before_the_start(target, write, ddl, error, message):
    table = target(write=write)
    as_administrator(table, ddl)
    sink = table.rig.make()
    with pytest.raises(error, match=message):
        sink.require_schema_accepted(pipeline=PIPELINE, schema=table.rig.schema)
    with pytest.raises(error, match=message):
        sink.prepare(pipeline=PIPELINE, schema=table.rig.schema)
    assert table.sql("SELECT 1 FROM pg_class WHERE relname = 'penstock_marker'") == []


@pytest.mark.parametrize("write", ["upsert", "insert_if_absent"])
def test_no_key_is_unique_across_tables_that_inherit(target, write):
    table = target(write=write, key=["id"])
    table.sql("CREATE TABLE t (id bigint PRIMARY KEY, name text)", "CREATE TABLE child () INHERITS (t)")
    with pytest.raises(Refused, match="is inherited by others, whose keys its unique index does not cover"):
        table.sink()
    table.sql("ALTER TABLE child NO INHERIT t")
    sink = table.sink()
    table.put(sink, ROWS, batch_id=0)
    assert table.verify(sink).ok


@pytest.mark.parametrize(
    "ddl",
    [
        f"CREATE TABLE low {LOW} PARTITION BY LIST (name); CREATE TABLE lower PARTITION OF low DEFAULT",
        f"CREATE TABLE low {LOW}; ALTER TABLE low ALTER name SET DEFAULT 'x', {SEES_SOME.format('low')}",
        f"CREATE TABLE low {LOW}; CREATE RULE away AS ON INSERT TO low DO INSTEAD NOTHING",
        f"CREATE TABLE low {LOW}; ALTER TABLE t DETACH PARTITION low; ALTER TABLE low SET UNLOGGED;CREATE TABLE logged {LOW}",
        (
            "CREATE TABLE low (name text, more int, id bigint); ALTER TABLE low DROP more;"
            "ALTER TABLE t ATTACH PARTITION low FOR VALUES FROM (0) TO (10)"
        ),
    ],
)
def test_members_that_keep_rows_take_them(target, ddl):
    table = target()
    table.sql(PARTITIONED, HIGH, ddl)
    sink = table.sink()
    table.put(sink, ROWS, batch_id=0)
    assert content(table) == dict.fromkeys(ROWS, 1)
    assert table.verify(sink).ok


DEEP = 'CREATE FOREIGN TABLE "Deep" {} SERVER elsewhere'


@pytest.mark.parametrize(
    "ddl",
    [
        f'{PARTITIONED}; CREATE SCHEMA more; CREATE UNLOGGED TABLE more."Low" {LOW}',
        f'{TABLE}; CREATE SCHEMA more; CREATE UNLOGGED TABLE more."Low" () INHERITS (t)',
        (
            f"{ELSEWHERE}; {PARTITIONED}; CREATE TABLE low {LOW} PARTITION BY LIST (name);"
            + DEEP.format("PARTITION OF low DEFAULT")
        ),
        f"{ELSEWHERE}; {TABLE}; CREATE TABLE low () INHERITS (t); " + DEEP.format("() INHERITS (low)"),
    ],
)
def test_what_is_told_of_a_member_can_be_run_as_it_is(target, ddl):
    """Whatever schema it is in, whatever its name, and however deep."""
    table = target()
    as_administrator(table, ddl)
    with pytest.raises((GuaranteeTooWeak, Refused)) as refused:
        table.sink()
    as_administrator(table, refused.value.remedy.rstrip(".").partition(", and")[0])
    table.sink()


def test_what_a_partitioned_table_is_itself_says_nothing_of_its_rows(target):
    """They lie in its partitions; SET LOGGED leaves the table as it is."""
    table = target()
    table.sql(PARTITIONED.replace("CREATE TABLE", "CREATE UNLOGGED TABLE"), f"CREATE TABLE low {LOW}", HIGH)
    sink = table.sink()
    table.put(sink, ROWS, batch_id=0)
    assert content(table) == dict.fromkeys(ROWS, 1)
    assert table.verify(sink).ok
    table.sql("ALTER TABLE low SET UNLOGGED")
    with pytest.raises(GuaranteeTooWeak, match="Partition 'low' of table 't' is unlogged"):
        table.sink()


@pytest.mark.parametrize("kind", ["bigint", "numeric"])
@pytest.mark.parametrize(
    ("change", "undo", "expected"),
    [
        ("ALTER TABLE low SET UNLOGGED", "ALTER TABLE low SET LOGGED", (GuaranteeTooWeak, "'low' of table 't' is unlogged")),
        (
            f"{DROPS}; CREATE TRIGGER drops BEFORE INSERT ON low FOR EACH ROW EXECUTE FUNCTION drops()",
            "DROP TRIGGER drops ON low",
            (ContentConflict, "has 2 rows, but table 't' took 1"),
        ),
        ("ALTER TABLE low ADD CHECK (id > 5)", "ALTER TABLE low DROP CONSTRAINT low_id_check", (PublishFailed, "low_id_check")),
        (
            "ALTER TABLE t DETACH PARTITION low",
            "ALTER TABLE t ATTACH PARTITION low FOR VALUES FROM (0) TO (10)",
            (PublishFailed, "no partition of relation"),
        ),
        (
            f"ALTER TABLE t {SEES_SOME.format('t')}",
            "ALTER TABLE t DISABLE ROW LEVEL SECURITY",
            (PublishFailed, "row-level security"),
        ),
    ],
)
def test_a_member_that_is_changed_after_the_decision_stops_it_and_the_remedy_goes_on(target, kind, change, undo, expected):
    table = target()
    table.sql(PARTITIONED.replace("bigint", kind), HIGH, f"CREATE TABLE low {LOW}")
    sink = table.sink()
    publication = table.decided_but_not_published(sink, ROWS, batch_id=0)
    table.sql(change)
    with pytest.raises(expected[0], match=expected[1]):
        sink.publish(publication)
    assert content(table) == {}
    table.sql(undo)
    assert not sink.publish(publication).already
    assert content(table) == dict.fromkeys(ROWS, 1)


def test_a_partition_that_is_attached_while_rows_are_written_is_looked_at_too(target, monkeypatch):
    """ATTACH waits for no writer of rows, so what was looked at before they were written is not all that took them."""
    table = target()
    table.sql(PARTITIONED, HIGH)
    sink = table.sink()
    publication = table.decided_but_not_published(sink, ROWS, batch_id=0)

    def attaches_first(*args, **kwargs):
        table.sql("CREATE UNLOGGED TABLE low (id bigint, name text)")
        table.sql("ALTER TABLE t ATTACH PARTITION low FOR VALUES FROM (0) TO (10)")
        return load(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(PostgresSink, "_write", staticmethod(attaches_first))
        with pytest.raises(GuaranteeTooWeak, match="Partition 'low' of table 't' is unlogged"):
            sink.publish(publication)
    assert content(table) == {}
    table.sql("ALTER TABLE low SET LOGGED")
    sink.publish(publication)
    assert content(table) == dict.fromkeys(ROWS, 1)


def test_what_was_accepted_is_there_after_the_server_was_killed(target):
    """The refusal is right, and enough: an unlogged partition is empty after a crash, all others keep their rows."""
    table = target()
    table.sql(PARTITIONED, HIGH, f"CREATE TABLE low {LOW}", "CREATE UNLOGGED TABLE beside (id bigint)")
    sink = table.sink()
    table.put(sink, ROWS, batch_id=0)
    table.sql("INSERT INTO beside VALUES (1)")
    table.rig.running.kill()
    table.rig.running.start()
    assert table.sql("SELECT * FROM beside") == []
    assert content(table) == dict.fromkeys(ROWS, 1)
    assert table.verify(table.sink()).ok


@pytest.mark.parametrize("own", ["penstock_marker", "penstock_batch"])
def test_tables_of_our_own_are_logged_too(target, own):
    """Without its marker, the newest batch would be published once more."""
    table = target()
    table.put(table.sink(), ROWS, batch_id=0)
    table.sql(f"ALTER TABLE {own} SET UNLOGGED")
    with pytest.raises(GuaranteeTooWeak, match=f"Table '{own}' is unlogged"):
        table.sink()
    with pytest.raises(GuaranteeTooWeak, match=f"Table '{own}' is unlogged"):
        table.rig.make().require_schema_accepted(pipeline=PIPELINE, schema=table.rig.schema)
    table.sql(f"ALTER TABLE {own} SET LOGGED")
    table.put(table.sink(), [(2, "c")], batch_id=1)


@pytest.mark.parametrize("own", ["penstock_marker", "penstock_batch"])
def test_a_table_of_our_own_in_another_schema_is_logged_by_what_is_told(target, own):
    table = target(table="Other.t")
    table.sql('CREATE SCHEMA "Other"')
    table.put(table.sink(), ROWS, batch_id=0)
    table.sql(f'ALTER TABLE "Other".{own} SET UNLOGGED')
    with pytest.raises(GuaranteeTooWeak, match="is unlogged") as refused:
        table.sink()
    table.sql(refused.value.remedy.rstrip("."))
    table.put(table.sink(), [(2, "c")], batch_id=1)


def as_administrator(table, ddl):
    """Who alone makes foreign tables; all others belong to the role, as if it had made them."""
    with table.rig.running.admin(table.rig.name) as admin:
        admin.execute(ddl.encode())
        [(commands,)] = admin.execute(
            "SELECT string_agg(format('ALTER TABLE %%I OWNER TO %%I', relname, %s::text), ';') FROM pg_class "
            "WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'f')",
            (ROLE,),
        ).fetchall()
        admin.execute(commands.encode())


@pytest.mark.parametrize("order", [1, -1], ids=["table-first", "partition-first"])
@pytest.mark.parametrize(
    ("ddl", "part"),
    [
        (f"{PARTITIONED}; CREATE TABLE low {LOW}; {HIGH}", "low"),
        (
            (
                f'{PARTITIONED}; {HIGH}; CREATE SCHEMA more; CREATE TABLE more."Low" {LOW} PARTITION BY LIST (name);'
                'CREATE TABLE more.deep PARTITION OF more."Low" DEFAULT'
            ),
            "more.deep",
        ),
        (f"{TABLE}; CREATE TABLE child () INHERITS (t)", '"child"'),
    ],
    ids=["partition", "deep", "inherits"],
)
def test_a_table_and_a_part_of_it_belong_to_one_sink(target, ddl, part, order):
    """Rows of either sink would be seen in the other one's table."""
    table = target()
    table.sql(ddl)
    first, second = ("t", part)[::order]
    _prepare(table, first, "warehouse")
    with pytest.raises(Refused, match=f"Table '{first}' is filled by sink 'warehouse' .*rows in common with table '{second}'"):
        _prepare(table, second, "other")
    _prepare(table, "apart", "other")
    _prepare(table, first, "warehouse")


def test_two_partitions_of_a_table_may_belong_to_two_sinks(target):
    table = target()
    table.sql(f"{PARTITIONED}; CREATE TABLE low {LOW}; {HIGH}")
    for name in ("low", "high"):
        _prepare(table, name, name)


def _prepare(table, name, sink):
    with closing(table.rig.make(table=name, name=sink)) as made:
        made.prepare(pipeline=PIPELINE, schema=table.rig.schema)
