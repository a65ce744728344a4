"""Batches are taken out of real Delta and Iceberg tables by one commit, and the marker stays where it is."""

from collections import Counter

import pytest
from tests.conformance import delta_rig, iceberg_rig
from tests.unit.table_target import taken_from

from penstock.core import faults
from penstock.errors import PenstockError, Refused
from penstock.testing.conformance import Bench
from penstock.testing.conformance.rig import PIPELINE

RIGS = {"delta": delta_rig, "iceberg": iceberg_rig}


@pytest.fixture
def bench(tmp_path):
    made = []

    def bench(kind, rig="Rig"):
        made.append(Bench(getattr(RIGS[kind], {"Rig": f"{kind.title()}Rig"}.get(rig, rig))(tmp_path)))
        return made[-1]

    yield bench
    faults.arm("")
    for one in made:
        one.close()


def ids(bench):
    return Counter(row["id"] for row in bench.rig.read_back())


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_files_of_later_batches_leave_the_table(bench, kind):
    table = bench(kind)
    sink = table.sink()
    shown = [table.deliver(sink, table.rows([number, number + 10]), batch_id=number) for number in range(4)]
    positions = [each.publication.position for each in shown]
    taken = taken_from(shown, after=positions[1], before=positions[3] + 1)
    sink.require_taken_back_exactly(taken)
    faults.arm(f"{kind}.commit=error")
    sink.take_back(taken)
    faults.arm("")
    for _ in range(2):
        sink.take_back(taken)
        assert ids(table) == Counter([0, 10, 1, 11])
    assert sink.high_water_mark("", pipeline=PIPELINE).position == positions[3]
    assert sink.publish(shown[3].publication).already
    assert ids(table) == Counter([0, 10, 1, 11])
    del table.decided[2:]
    assert table.verify(table.sink()).ok
    with pytest.raises(Refused, match=r"(\d) of \1 files to take back are not in the"):
        sink.require_taken_back_exactly(taken)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_in_which_rows_replaced_others_is_refused(bench, kind):
    table = bench(kind, "OverlappingRig")
    sink = table.sink()
    shown = [table.deliver(sink, table.rows([1, number]), batch_id=number) for number in (2, 3)]
    with pytest.raises(Refused, match="have replaced others"):
        sink.require_taken_back_exactly(taken_from(shown, after=shown[0].publication.position, before=99))


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_another_ledgers_table_is_refused(bench, kind):
    table = bench(kind)
    sink = table.sink()
    shown = [table.deliver(sink, table.rows([number]), batch_id=number) for number in range(2)]
    taken = taken_from(shown, after=shown[0].publication.position, before=99)
    object.__setattr__(taken, "ledger_id", "f" * 32)
    for act in (sink.require_taken_back_exactly, sink.take_back):
        with pytest.raises(PenstockError, match="is not this ledger's: its marker is of ledger"):
            act(taken)
