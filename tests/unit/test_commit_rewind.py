"""Taking batches back in the ledger: what the coordinator records, and what a sink that stays ahead gets."""

from collections import Counter
from dataclasses import replace

import pytest
from tests.unit.commit_bench import OPENED, PIPELINE, Bench, batch_of

from penstock.commit.acts import ActingCoordinator
from penstock.commit.backfill import lacking_batches
from penstock.commit.publication import decided_entry, decision_in, publications
from penstock.commit.rewind import decided_to, rewound_since
from penstock.commit.summary import FOR_EVER
from penstock.commit.verification import LedgerDecisions
from penstock.core.model import (
    Adopted,
    Batch,
    BatchId,
    Entry,
    OffsetRange,
    Position,
    QueryId,
    Rewound,
    SinkName,
    SourceName,
)
from penstock.errors import BatchForgotten, BatchGap, Failed, Fenced, OffsetsConflict, Refused
from penstock.ledger.log import LogLedger

FILES, TABLE = SinkName("files"), SinkName("table")


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    coordinator = made.opened()
    for number in range(4):
        made.deliver(coordinator, number)
    return made


def rewind(bench: Bench, to_batch: int, *kept: SinkName) -> Entry:
    coordinator = bench.opened()
    to = decided_to(bench.ledger(), BatchId(to_batch)).position
    act = coordinator.rewind(Rewound(batch_id=BatchId(to_batch), to=to, kept=kept, reason="", operator="ann"))
    coordinator.settle(OPENED)
    return act


def test_a_sink_that_is_kept_skips_the_batches_until_it_is_level(bench: Bench) -> None:
    act = rewind(bench, 1, TABLE)
    assert act.summary.ahead == {TABLE: 3}
    assert act.summary.totals[FILES][""].rows == 2
    assert act.summary.totals[TABLE][""].rows == 4
    coordinator = bench.opened()
    delivered = bench.deliver(coordinator, 2)
    assert delivered.sinks[TABLE].already
    coordinator = bench.opened()  # what it published again is nothing of the sink that is ahead
    bench.deliver(coordinator, 3)
    assert coordinator.summary.ahead == {TABLE: 3}
    bench.deliver(coordinator, 4)
    assert coordinator.summary.ahead == {}
    files, table = bench.shown()
    assert table == Counter(range(5))
    assert files == Counter([0, 1, 2, 2, 3, 3, 4])  # these sinks cannot lose what was taken back
    assert coordinator.summary.totals[TABLE][""].rows == coordinator.summary.totals[FILES][""].rows == 5


def test_a_batch_with_other_offsets_is_refused_while_a_sink_is_ahead(bench: Bench) -> None:
    rewind(bench, 1, TABLE)
    coordinator = bench.opened()
    other = Batch(query_id=batch_of(2).query_id, batch_id=BatchId(2), offsets=(offsets("2", "9"),))
    with pytest.raises(
        OffsetsConflict, match=r"Sink 'table' kept batch 2 .* with other offsets or files: events 2..9, expected events 2..3"
    ):
        coordinator.deliver(other, bench.stage(other))
    coordinator = bench.coordinator(sinks=bench.sinks()[:1])  # the way out
    coordinator.open(OPENED)
    coordinator.deliver(other, bench.stage(other))
    assert coordinator.summary.next_batch_id == 3


def test_other_files_under_the_same_offsets_are_told_apart(bench: Bench) -> None:
    """Offsets of files only count the entries of a log: both sides of the refusal read alike."""
    rewind(bench, 1, TABLE)
    coordinator = bench.opened()
    planned = replace(batch_of(2).offsets[0], content="0123456789abcdef")
    other = replace(batch_of(2), offsets=(planned,))
    said = r"events 2..3 \(content 0123456789ab\), expected events 2..3\."
    with pytest.raises(OffsetsConflict, match=said) as refused:
        coordinator.deliver(other, bench.stage(other))
    assert "`penstock checkpoint rewind FILE --to-batch 1 --yes`, and start again" in refused.value.remedy


class TestAdoption:
    """A checkpoint that is adopted while a sink is ahead: its batches are not those that the sink kept."""

    def adopt(self, bench: Bench, query: str, next_batch_id: int) -> ActingCoordinator:
        coordinator = bench.opened()
        coordinator.adopt(Adopted(query_id=QueryId(query), next_batch_id=BatchId(next_batch_id), reason="", operator="ann"))
        return bench.opened()

    def other(self, query: str, number: int) -> Batch:
        return Batch(query_id=QueryId(query), batch_id=BatchId(number), offsets=(offsets(str(number), "9"),))

    @pytest.mark.parametrize(("query", "number"), [("another", 0), ("another", 3), ("query", 2)])
    def test_the_sink_takes_every_batch_of_it(self, bench: Bench, query: str, number: int) -> None:
        rewind(bench, 1, TABLE)
        coordinator = self.adopt(bench, query, number)
        assert coordinator.summary.ahead == {}
        batch = self.other(query, number)
        delivered = coordinator.deliver(batch, bench.stage(batch))
        assert not delivered.sinks[TABLE].already
        totals = coordinator.summary.totals
        assert (totals[FILES][""].rows, totals[TABLE][""].rows) == (3, 5)  # what it kept still counts

    def test_it_stays_ahead_of_the_same_query_behind_a_gap(self, bench: Bench) -> None:
        rewind(bench, 1, TABLE)
        coordinator = self.adopt(bench, "query", 3)
        assert coordinator.summary.ahead == {TABLE: 3}
        delivered = bench.deliver(coordinator, 3)
        assert delivered.sinks[TABLE].already

    def test_a_sink_of_which_nothing_is_known_stays_out(self, bench: Bench) -> None:
        rewind(bench, 1, TABLE)
        coordinator = bench.coordinator(sinks=bench.sinks()[:1])
        coordinator.open(OPENED)
        other = self.other("query", 2)
        coordinator.deliver(other, bench.stage(other))
        assert coordinator.summary.ahead == {TABLE: FOR_EVER}
        assert self.adopt(bench, "another", 0).summary.ahead == {TABLE: FOR_EVER}


def test_a_sink_that_is_back_after_other_batches_came_in_the_place_of_what_it_kept_gets_none() -> None:
    """By their numbers it would be level: what it kept as batch 3 would come to it as batch 4."""
    bench = Bench()
    coordinator = bench.opened()
    for number in range(4):
        deliver(bench, coordinator, number, 10 * number, 10 * number + 10)
    rewind(bench, 1, TABLE)
    coordinator = bench.coordinator(sinks=bench.sinks()[:1])
    coordinator.open(OPENED)
    deliver(bench, coordinator, 2, 20, 25)
    deliver(bench, coordinator, 3, 25, 30)
    with pytest.raises(Refused, match=r"Sink 'table' kept batches .* others came in their place while it was not there"):
        deliver(bench, bench.opened(), 4, 30, 40)
    assert bench.shown()[1] == Counter(range(4))
    with pytest.raises(Refused, match="Sink 'table' kept batches when the pipeline was rewound before"):
        rewind(bench, 2)
    rewind(bench, 2, TABLE)
    coordinator = bench.coordinator(sinks=bench.sinks()[:1])
    coordinator.open(OPENED)
    deliver(bench, coordinator, 3, 25, 40)


def deliver(bench: Bench, coordinator: ActingCoordinator, number: int, start: int, end: int) -> None:
    planned = Batch(query_id=batch_of(2).query_id, batch_id=BatchId(number), offsets=(offsets(str(start or ""), str(end)),))
    if not start:
        planned = replace(planned, offsets=(replace(planned.offsets[0], start=None),))
    coordinator.deliver(planned, bench.stage(planned))


def test_a_sink_that_is_back_after_the_same_batches_is_level(bench: Bench) -> None:
    rewind(bench, 1, TABLE)
    coordinator = bench.coordinator(sinks=bench.sinks()[:1])
    coordinator.open(OPENED)
    for number in (2, 3):
        bench.deliver(coordinator, number)
    bench.deliver(bench.opened(), 4)
    assert bench.shown()[1] == Counter(range(5))


def offsets(start: str, end: str) -> OffsetRange:
    return OffsetRange(source=SourceName("events"), start=start, end=end)


def test_what_a_sink_has_is_what_stands_for_it(bench: Bench) -> None:
    act = rewind(bench, 1, TABLE)
    bench.deliver(bench.opened(), 2)
    entries = list(bench.ledger().newest_first())
    assert [each.batch.batch_id for each in publications(entries, FILES)] == [2, 1, 0]
    assert [each.batch.batch_id for each in publications(entries, TABLE)] == [2, 3, 2, 1, 0]
    tail = entries[0]
    for sink, rows in ((FILES, 2), (TABLE, 4)):
        decisions = LedgerDecisions(bench.ledger(), sink, tail=tail)
        for position in (act.position - 1, act.position - 2, act.position):
            assert decisions.totals(Position(position))[""].rows == rows
    assert rewound_since(bench.ledger(), Position(2), tail=tail) is None


def test_a_sink_that_is_ahead_stays_ahead_in_another_rewind(bench: Bench) -> None:
    rewind(bench, 1, TABLE)
    bench.deliver(bench.opened(), 2)
    with pytest.raises(Refused, match="Sink 'table' kept the batches up to 3"):
        rewind(bench, 0)
    act = rewind(bench, 0, TABLE)
    assert act.summary.ahead == {TABLE: 3}
    coordinator = bench.opened()
    for number in range(1, 6):
        bench.deliver(coordinator, number)
    assert bench.shown()[1] == Counter(range(6))
    with pytest.raises(Refused, match="Sink 'table' kept the batches up to 3"):
        rewind(bench, 2)
    assert rewind(bench, 3).summary.ahead == {}  # there it was level


def test_a_batch_that_was_taken_back_is_found_no_more(bench: Bench) -> None:
    rewind(bench, 1)
    ledger = bench.ledger()
    assert decided_entry(ledger, BatchId(2)) is None
    assert decided_entry(ledger, BatchId(1)) is not None
    with pytest.raises(BatchGap, match="has decided batches up to 1"):
        decided_to(ledger, BatchId(2))
    bench.deliver(bench.opened(), 2)
    found = decided_entry(ledger, BatchId(2))
    assert found is not None
    assert found.generation == 3


def test_the_first_publication_after_it_passes_the_marker_of_what_was_taken_back(bench: Bench) -> None:
    act = rewind(bench, 1)
    bench.deliver(bench.opened(), 2)
    newest = next(publications(bench.ledger().newest_first(), FILES))
    assert newest.previous == act.position
    assert newest.may_follow_marker_at(Position(act.position - 2))


def test_the_batch_that_was_rewound_to_is_not_published_again(bench: Bench) -> None:
    """It was published so many batches ago that a sink may not remember what was at its position."""
    rewind(bench, 1)
    bench.steps.done.clear()
    recovered = bench.coordinator().open(OPENED)
    assert recovered.batch == batch_of(1)
    assert not recovered.rolled_forward
    assert [step for step in bench.steps.done if step.startswith("marker")] == []


def test_no_other_run_starts_until_it_is_carried_out(bench: Bench) -> None:
    coordinator = bench.opened()
    to = decided_to(bench.ledger(), BatchId(1)).position
    act = coordinator.rewind(Rewound(batch_id=BatchId(1), to=to, kept=(), reason="", operator="ann"))
    with pytest.raises(Refused, match="is being rewound to batch 1, as position 7 of the ledger says"):
        bench.opened()
    with pytest.raises(Failed):
        bench.deliver(coordinator, 2)
    finishing = bench.coordinator()
    finishing.open(OPENED, finishing=act.position)
    with pytest.raises(Fenced):
        coordinator.settle(OPENED)
    finishing.settle(OPENED)
    bench.deliver(bench.opened(), 2)


def test_it_fences_a_run_that_is_alive(bench: Bench) -> None:
    older = bench.opened()
    rewind(bench, 1)
    with pytest.raises(Fenced):
        bench.deliver(older, 4)


def test_it_does_not_go_behind_an_adoption_or_what_is_forgotten(bench: Bench) -> None:
    coordinator = bench.opened()
    coordinator.adopt(Adopted(query_id=batch_of(0).query_id, next_batch_id=BatchId(4), reason="a copy", operator="ann"))
    bench.deliver(coordinator, 4)
    with pytest.raises(Refused, match="where a checkpoint or a gap was adopted by ann: a copy"):
        decided_to(bench.ledger(), BatchId(3))
    ledger = LogLedger(bench.watched, pipeline=PIPELINE)
    tail = ledger.tail()
    assert tail is not None
    ledger.prune(below=Position(tail.position))
    with pytest.raises(BatchForgotten, match="no longer holds the decision of batch 2"):
        decided_to(ledger, BatchId(2))


def test_a_sink_lacks_each_batch_that_stands_once(bench: Bench) -> None:
    """A backfill would deliver twice what was taken back and done again."""
    rewind(bench, 1)
    coordinator = bench.opened()
    for number in (2, 3, 4):
        bench.deliver(coordinator, number)
    found = lacking_batches(bench.ledger(), SinkName("later"), from_batch=None)
    assert [decision_in(entry).batch.batch_id for entry in found.entries] == [0, 1, 2, 3, 4]


def test_a_sink_that_was_kept_is_given_nothing_once_more(bench: Bench) -> None:
    rewind(bench, 1, TABLE)
    coordinator = bench.opened()
    for number in (2, 3):
        bench.deliver(coordinator, number)
    with pytest.raises(Refused, match="kept batches when the pipeline was rewound"):
        lacking_batches(bench.ledger(), TABLE, from_batch=None)
    assert lacking_batches(bench.ledger(), FILES, from_batch=None).entries == ()


def test_a_sink_that_may_have_been_kept_is_given_nothing_once_more(bench: Bench) -> None:
    """The act is pruned, and decisions are left that repeat what the sink has."""
    act = rewind(bench, 1, TABLE)
    coordinator = bench.opened()
    for number in (2, 3):
        bench.deliver(coordinator, number)
    bench.ledger().prune(below=Position(act.position + 1))
    with pytest.raises(Refused, match="kept batches when the pipeline was rewound"):
        lacking_batches(bench.ledger(), TABLE, from_batch=None)
