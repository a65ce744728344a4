"""The memory sink beyond the conformance suite: the registry, replace, and the truth about its life."""

import pytest
from tests.unit.table_target import spark_schema

from penstock.core.model import ONLY_ACCOUNT, QueryId, SinkName, Totals
from penstock.errors import LedgerMismatch, Usage
from penstock.sink import memory
from penstock.testing.conformance import Bench, SinkRig, require_equal
from penstock.testing.conformance.bench import DecidedBatches

NAME = SinkName("notes")


class MemoryRig(SinkRig):
    schema = spark_schema(id="long")

    def __init__(self, directory, **options):
        super().__init__(directory)
        self.options = options

    def make(self):
        return memory.MemorySink(name=NAME, spool=str(self.directory / "spool"), **self.options)

    def read_back(self):
        return memory.memory_table(NAME).to_pylist()


@pytest.fixture
def rig(tmp_path):
    yield MemoryRig(tmp_path)
    memory.clear_memory_table(NAME)


def ids(*numbers):
    return [{"id": number} for number in numbers]


def test_the_rows_are_a_table_by_the_sinks_name(rig):
    bench = Bench(rig)
    sink = bench.sink()
    assert memory.memory_table(NAME).schema.names == ["id"]
    bench.deliver(sink, ids(1, 2), ids(2), batch_id=0)
    require_equal(rig.read_back(), ids(1, 2, 2))


def test_a_name_that_nobody_filled_is_told(rig):
    with pytest.raises(Usage, match="No memory sink 'nots' was filled"):
        memory.memory_table("nots")
    Bench(rig).sink()
    with pytest.raises(Usage, match=r"there is: .*notes"):
        memory.memory_table("nots")


def test_replace_shows_the_newest_batch(rig):
    rig.options = {"write": "replace"}
    bench = Bench(rig)
    sink = bench.sink()
    bench.deliver(sink, ids(1, 2), batch_id=0)
    bench.deliver(sink, ids(3), batch_id=1)
    require_equal(rig.read_back(), ids(3))
    assert bench.verify(sink).ok
    bench.deliver(sink, batch_id=2)
    require_equal(rig.read_back(), [])
    assert bench.verify(sink).ok


def test_the_name_means_the_pipeline_that_started_last(rig, tmp_path):
    bench, other = Bench(rig), Bench(MemoryRig(tmp_path / "other"))
    bench.deliver(bench.sink(), ids(1), batch_id=0)
    other.deliver(other.sink(), ids(2), batch_id=0)
    require_equal(rig.read_back(), ids(2))
    sink = bench.sink()
    require_equal(rig.read_back(), ids(1))
    assert bench.verify(sink).ok


def test_another_ledger_is_told_how_to_start_anew(rig):
    bench = Bench(rig)
    sink = bench.sink()
    bench.deliver(sink, ids(1), batch_id=0)
    rows = ids(9)
    new = bench.undecided((rows, bench.stage(sink, rows, batch_id=0)), batch_id=0, position=2, query_id=QueryId("new"))
    with pytest.raises(LedgerMismatch, match=r"penstock\.clear_memory_table\('notes'\)"):
        sink.publish(new.publication)
    memory.clear_memory_table(NAME)
    assert not bench.sink().publish(new.publication).already
    require_equal(rig.read_back(), ids(9))


def test_rows_in_the_memory_of_another_process_are_not_compared(rig):
    report = rig.make().verify(DecidedBatches([], totals={ONLY_ACCOUNT: Totals(rows=1, digest=1)}))
    assert (report.accounts, report.problems, report.as_of) == ({}, (), None)


def test_rows_that_another_object_of_this_process_published_are_compared(rig):
    bench = Bench(rig)
    shown = bench.deliver(bench.sink(), ids(1, 2), batch_id=0)
    report = rig.make().verify(DecidedBatches([shown.publication]))
    assert report.ok
    assert report.as_of == shown.publication.position
    assert report.accounts[ONLY_ACCOUNT].found.rows == 2


def test_it_says_for_how_long(rig):
    assert rig.make().exactly_once
    assert "lost at exit" in rig.make().describe()["publish"]
    assert "lost at exit" in rig.make().check()[0].message
