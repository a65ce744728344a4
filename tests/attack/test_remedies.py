"""What an error says to do is done, and then every row is there once: errors for which no other test does so."""

from collections import Counter
from itertools import count

import pytest
from tests.attack.changing_table import ChangingTable
from tests.unit.sqlite_target import TableRig
from tests.unit.table_target import targets_of

from penstock.errors import BatchGap

targets = pytest.fixture(targets_of(TableRig))
ROWS = [(1, "a"), (2, "b"), (3, "c")]


def rows_of(table):
    assert table.verify().ok
    return Counter(table.content("id", "name"))


def test_a_gap_in_the_batches(targets):
    """Batch 1 is missing, as where an older ledger, or a newer checkpoint, was put in place."""
    table = ChangingTable(targets())
    table.deliver(ROWS[0])
    next(table.numbers)
    with pytest.raises(BatchGap) as told:
        table.deliver(ROWS[2])
    assert "checkpoint" in told.value.remedy
    assert rows_of(table) == Counter(ROWS[:1])
    table.numbers = count(1)  # of the checkpoint that matches
    table.deliver(ROWS[1])
    table.deliver(ROWS[2])
    assert rows_of(table) == Counter(ROWS)
