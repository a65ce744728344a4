"""What only PostgreSQL refuses in the transaction of a ledger in the same database."""

from collections import Counter

import pytest
from tests.live.test_served_ride import Riding
from tests.unit.postgres_target import targets
from tests.unit.table_target import content

from penstock.errors import ContentConflict, Failed

target = pytest.fixture(targets)


def test_a_batch_that_the_table_refuses_is_not_decided(target):
    one = Riding(target())
    one.table.sql("CREATE FUNCTION drops() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    one.table.sql("CREATE TRIGGER drops BEFORE INSERT ON t FOR EACH ROW WHEN (NEW.id = 2) EXECUTE FUNCTION drops()")
    _, append = one.decide([(1, "a"), (2, "b")], batch_id=0)
    with pytest.raises(ContentConflict, match="has 2 rows, but table 't' took 1"):
        append()
    assert one.ledger.tail() == one.tail
    assert content(one.table) == Counter()
    one.ledger.close()


def test_a_deferred_constraint_that_fails_at_commit_is_told_as_what_it_is(target):
    table = target()
    table.sql("CREATE TABLE t (id bigint UNIQUE DEFERRABLE INITIALLY DEFERRED, name text)")
    one = Riding(table)
    _, append = one.decide([(1, "a"), (1, "b")], batch_id=0)
    with pytest.raises(Failed, match="violates unique constraint"):
        append()
    assert one.ledger.tail() == one.tail
    one.ledger.close()
