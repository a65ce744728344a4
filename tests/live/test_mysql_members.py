"""Partitions, their partitions, and tables that stand for others: rows lie where a transaction covers them, or are refused."""

import pytest
from tests.servers.settings import set_globally
from tests.unit.mysql_target import targets
from tests.unit.table_target import content

from penstock.errors import PublishFailed, Refused
from penstock.testing.conformance import PIPELINE

target = pytest.fixture(targets)

TABLE = "CREATE TABLE t (id bigint, name varchar(9))"
BY_RANGE = "PARTITION BY RANGE (id) (PARTITION low VALUES LESS THAN (10), PARTITION high VALUES LESS THAN (20))"
SUBPARTITIONED = "PARTITION BY RANGE (id) SUBPARTITION BY HASH (id) SUBPARTITIONS 2 (PARTITION all_ VALUES LESS THAN MAXVALUE)"
ROWS = [(1, "a"), (11, "b")]


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ((f"{TABLE} ENGINE = MyISAM {BY_RANGE}",), "is of the engine MyISAM, expected InnoDB"),
        ((f"{TABLE} ENGINE = Aria TRANSACTIONAL = 1 {SUBPARTITIONED}",), "is of the engine Aria, expected InnoDB"),
        ((f"{TABLE} ENGINE = MEMORY {BY_RANGE}",), "is of the engine MEMORY, expected InnoDB"),
        (
            (
                f"{TABLE.replace(' t ', ' child ')} ENGINE = MyISAM",
                f"{TABLE} ENGINE = MERGE UNION = (child) INSERT_METHOD = LAST",
            ),
            "is of the engine MRG_MyISAM, expected InnoDB",
        ),
        ((f"{TABLE} WITH SYSTEM VERSIONING",), "is a system versioned, expected a table"),
        (("CREATE SEQUENCE t",), "is a sequence, expected a table"),
    ],
)
def test_what_no_transaction_covers_is_refused_before_the_start(target, ddl, message):
    table = target()
    table.sql("ALTER DATABASE CHARACTER SET utf8mb4", *ddl)
    sink = table.rig.make()
    with pytest.raises(Refused, match=message):
        sink.require_schema_accepted(pipeline=PIPELINE, schema=table.rig.schema)
    with pytest.raises(Refused, match=message):
        sink.prepare(pipeline=PIPELINE, schema=table.rig.schema)


@pytest.mark.parametrize("write", ["append", "replace"])
@pytest.mark.parametrize("partitions", [BY_RANGE, SUBPARTITIONED])
def test_partitions_of_a_table_that_a_transaction_covers_are_covered(target, partitions, write):
    table = target(write=write)
    table.sql("ALTER DATABASE CHARACTER SET utf8mb4", f"{TABLE} {partitions}")
    sink = table.sink()
    table.put(sink, ROWS, batch_id=0)
    assert content(table) == dict.fromkeys(ROWS, 1)
    assert table.verify(sink).ok


@pytest.mark.parametrize("loads", [1, 0])
@pytest.mark.parametrize(
    ("change", "undo", "expected"),
    [
        (
            "ALTER TABLE t DROP PARTITION high",
            "ALTER TABLE t ADD PARTITION (PARTITION high VALUES LESS THAN (20))",
            (PublishFailed, "partition"),
        ),
        (
            "CREATE TABLE other LIKE t; ALTER TABLE t REMOVE PARTITIONING; ALTER TABLE t ENGINE = MyISAM",
            "ALTER TABLE t ENGINE = InnoDB",
            (Refused, "is of the engine MyISAM, expected InnoDB"),
        ),
        (
            f"ALTER TABLE t ENGINE = MyISAM {BY_RANGE}",
            f"ALTER TABLE t ENGINE = InnoDB {BY_RANGE}",
            (Refused, "is of the engine MyISAM"),
        ),
        (
            "ALTER TABLE t ADD CHECK (id < 5)",
            "ALTER TABLE t DROP CONSTRAINT CONSTRAINT_1",
            (PublishFailed, "CONSTRAINT"),
        ),
    ],
)
def test_a_table_that_is_changed_after_the_decision_stops_it_and_the_remedy_goes_on(target, loads, change, undo, expected):
    table = target()
    table.sql("ALTER DATABASE CHARACTER SET utf8mb4", f"{TABLE} {BY_RANGE}")
    with set_globally(table.rig, "local_infile", loads):
        sink = table.sink()
        publication = table.decided_but_not_published(sink, ROWS, batch_id=0)
        table.sql(*change.split("; "))
        with pytest.raises(expected[0], match=expected[1]):
            sink.publish(publication)
        assert content(table) == {}
        table.sql(undo)
        assert not sink.publish(publication).already
    assert content(table) == dict.fromkeys(ROWS, 1)
