"""The suite can fail: each kind of wrong sink breaks the test that is there for it."""

import dataclasses
import threading
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.conformance.test_memory_conformance import NAME, MemoryRig, SpooledMemoryRig

from penstock.core.model import Published, SinkReport
from penstock.errors import LedgerMismatch, StagedDataLost
from penstock.sink import memory
from penstock.testing.conformance import Bench, SinkContract, StagingLossContract


def kept():
    return memory._kept[memory._newest[NAME]]


def keep(batches):
    memory._kept[memory._newest[NAME]] = replace(kept(), batches=tuple(batches))


class Repeating(memory.MemorySink):
    """At least once: a repetition is shown again."""

    def publish(self, publication):
        memory._kept[self._key] = replace(kept(), position=0)
        return super().publish(publication)


class RepeatingInSilence(Repeating):
    """… and claims that it did not."""

    def publish(self, publication):
        already = kept().position >= publication.position
        return replace(super().publish(publication), already=already)


class CheckingFirst(memory.MemorySink):
    """Looks at its position, and acts later on what it saw."""

    acting = threading.Lock()

    def publish(self, publication):
        if kept().position >= publication.position:
            return super().publish(publication)
        threading.Event().wait(0.05)
        with self.acting:
            memory._kept[self._key] = replace(kept(), position=0)
            return super().publish(publication)


class SkippingByNumber(memory.MemorySink):
    """Takes any batch at or below its position for published, whatever ledger it is of."""

    def publish(self, publication):
        try:
            return super().publish(publication)
        except LedgerMismatch:
            return Published(totals=publication.totals, already=True)


class Newest(memory.MemorySink):
    """Knows only the newest batch again, so that an older one comes twice."""

    def publish(self, publication):
        if kept().position != publication.position:
            memory._kept[self._key] = replace(kept(), position=0)
        return super().publish(publication)


class Hurried(memory.MemorySink):
    """Shows the pieces of a batch one after the other."""

    def publish(self, publication):
        if kept().position >= publication.position:
            return super().publish(publication)
        before = kept().batches
        for batch in self._read(publication):
            keep([*kept().batches, batch])
            threading.Event().wait(0.002)
        keep(before)
        return super().publish(publication)


class Showing(memory.MemorySink):
    """Shows what is staged: publishes while it hands out the recipe."""

    def stager(self):
        keep([*kept().batches, *kept().batches[:1]])
        return super().stager()


class Greedy(memory.MemorySink):
    """Sweeps everything, also what is named."""

    def sweep(self, cut, *, dry_run):
        return super().sweep(dataclasses.replace(cut, kept=frozenset(), generation=cut.generation + 99), dry_run=dry_run)


class Dry(memory.MemorySink):
    """Sweeps in a dry run."""

    def sweep(self, cut, *, dry_run):
        return super().sweep(cut, dry_run=False)


class Idle(memory.MemorySink):
    """Never sweeps."""

    def sweep(self, cut, *, dry_run):
        return []


class Blind(memory.MemorySink):
    """Finds everything in order."""

    def verify(self, decisions):
        return SinkReport(accounts={}, problems=())


class Careless(memory.MemorySink):
    """Passes over a lost piece."""

    def _read(self, publication):
        try:
            yield from super()._read(publication)
        except StagedDataLost:
            return


class Rounding(memory.MemorySink):
    """Loses the fraction of a decimal."""

    def _read(self, publication):
        for batch in super()._read(publication):
            column = batch.column("price").cast(pa.decimal128(12, 0), safe=False).cast(batch.schema.field("price").type)
            yield batch.set_column(batch.schema.names.index("price"), "price", column)


WRONG = [
    (Repeating, "test_publishing_again_changes_nothing"),
    (RepeatingInSilence, "test_publishing_again_changes_nothing"),
    (CheckingFirst, "test_publishers_in_threads"),
    (SkippingByNumber, "test_a_position_of_another_ledger_is_not_taken_for_published"),
    (Newest, "test_a_zombie_that_publishes_an_older_batch_changes_nothing"),
    (Hurried, "test_readers_see_whole_things_only"),
    (Showing, "test_staging_is_invisible"),
    (Greedy, "test_a_decided_batch_survives_the_sweep_of_a_newer_generation"),
    (Greedy, "test_a_newer_generation_is_kept"),
    (Greedy, "test_a_batch_in_the_making_is_kept"),
    (Dry, "test_a_dry_run_names_what_a_sweep_takes_and_takes_nothing"),
    (Idle, "test_only_the_decided_one_of_several_attempts_is_ever_seen"),
    (Blind, "test_a_decided_batch_that_is_not_published_is_found_by_its_number"),
    (Blind, "test_content_of_another_ledger_is_found"),
    (Rounding, "test_what_was_decided_is_shown_value_by_value"),
    (Careless, "test_lost_staging_is_told_and_nothing_of_the_batch_is_shown"),
]


@pytest.fixture
def bench(tmp_path, request):
    rig = SpooledMemoryRig(tmp_path)
    rig.make = lambda: request.param(name=NAME, spool=str(tmp_path / "spool"), inline_limit_bytes=0)
    bench = Bench(rig)
    yield bench
    bench.close()
    memory.clear_memory_table(NAME)


@pytest.mark.parametrize(("bench", "test"), WRONG, indirect=["bench"], ids=lambda value: getattr(value, "__name__", value))
def test_a_wrong_sink_is_caught(bench, test):
    contract = StagingLossContract() if hasattr(StagingLossContract, test) else SinkContract()
    with pytest.raises((AssertionError, pytest.fail.Exception, StagedDataLost)):
        getattr(contract, test)(bench)


@pytest.mark.parametrize("damage", ["lost", "doubled", "changed", "foreign"])
@pytest.mark.parametrize("bench", [Blind], indirect=True)
def test_a_blind_verify_is_caught(bench, damage):
    with pytest.raises(AssertionError):
        SinkContract().test_damage_is_found(bench, damage)


def test_the_right_sink_passes_the_same_tests(tmp_path):
    for number, (_, test) in enumerate(WRONG):
        bench = Bench(SpooledMemoryRig(tmp_path / str(number)))
        contract = StagingLossContract() if hasattr(StagingLossContract, test) else SinkContract()
        getattr(contract, test)(bench)
        memory.clear_memory_table(NAME)
    assert issubclass(SpooledMemoryRig, MemoryRig)
