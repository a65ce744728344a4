"""Markers in a real keyspace and whose they are."""

from collections import Counter
from dataclasses import replace

import pytest
from tests.unit.cassandra_target import targets
from tests.unit.table_target import content

from penstock.core import faults
from penstock.core.model import LedgerId, Position
from penstock.errors import LedgerMismatch, PenstockError
from penstock.testing.conformance import PIPELINE
from penstock.testing.conformance.rig import LEDGER_ID

target = pytest.fixture(targets)

OTHER = LedgerId("b" * 32)
ALL = "SELECT id, name FROM {}"


def test_the_marker_takes_the_ledger_before_the_first_row_is_written(target):
    """Rows and marker are no transaction: another ledger would write its rows beside those of a batch that was cut off."""
    table = target(wait_s=0)
    sink = table.sink()
    publication = table.decided_but_not_published(sink, [(1, "a"), (2, "b")], batch_id=0)
    faults.arm("cassandra.mark=error")
    with pytest.raises(PenstockError):
        sink.publish(publication)
    faults.arm("")
    mark = table.rig.make().high_water_mark("", pipeline=PIPELINE)
    assert (mark.ledger_id, mark.position) == (LEDGER_ID, 0)
    assert table.rig.marker("format_version, ledger_id") == (2, LEDGER_ID)
    with pytest.raises(LedgerMismatch):
        table.sink().publish(replace(publication, ledger_id=OTHER, position=Position(9)))
    assert not table.sink().publish(publication).already
    assert content(table, ALL) == Counter([(1, "a"), (2, "b")])


def test_a_markers_table_of_an_older_penstock_gets_its_column_and_the_marker_its_ledger(target):
    table = target()
    sink = table.sink()
    shown = table.put(sink, [(1, "a")], batch_id=0)
    sink.close()
    table.sql(
        f"UPDATE penstock_marker SET format_version = 1 WHERE pipeline = 'conformance' AND sink = '{sink.name}' IF EXISTS",
        "ALTER TABLE penstock_marker DROP ledger_id",
    )
    mark = table.rig.make().high_water_mark("", pipeline=PIPELINE)
    assert (mark.ledger_id, mark.position, mark.batch_id) == (None, 2, 0)
    going_on = table.sink()
    assert going_on.publish(shown.publication).already
    table.put(going_on, [(2, "b")], batch_id=1)
    assert table.rig.marker("format_version, ledger_id") == (2, LEDGER_ID)
    assert content(table, ALL) == Counter([(1, "a"), (2, "b")])
