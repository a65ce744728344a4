"""One coordinator at a time, step by step; what interleavings do is the simulator's part."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest
from tests.unit.commit_bench import OPENED, PIPELINE, Bench, batch_of, trouble

from penstock.commit.coordinator import Coordinator
from penstock.commit.outcome import Recovered, StagedBatch
from penstock.core.model import (
    Decided,
    Entry,
    Generation,
    Opened,
    PipelineName,
    Position,
    Publication,
    Published,
    QueryId,
    SinkName,
    SweepCut,
)
from penstock.errors import (
    CheckpointReplaced,
    Failed,
    Fenced,
    LedgerMismatch,
    NotPublishedYet,
    OutcomeUnknown,
    PenstockError,
    PositionTaken,
    PublishFailed,
    Retryable,
    StageFailed,
)
from penstock.ledger.log import LogLedger
from penstock.ledger.store import ConditionalStore
from penstock.protocols import InTransaction
from penstock.testing.simulator.sinks import FilesSink, TableSink


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_batch_is_staged_then_decided_then_published_everywhere(bench: Bench) -> None:
    coordinator = bench.opened()
    delivered = bench.deliver(coordinator, 0)
    assert (delivered.already, delivered.rows_in) == (False, 1)
    assert {name: published.totals.rows for name, published in delivered.sinks.items()} == {"files": 1, "table": 1}
    kinds = [type(entry.body) for entry in bench.ledger().newest_first()]
    assert kinds == [Decided, Opened]
    assert bench.shown() == [Counter([0])] * 2
    last_stage = max(at for at, step in enumerate(bench.steps.done) if step.startswith("stage"))
    assert bench.steps.done[last_stage + 1] == "marker files"


def test_a_decided_batch_is_not_staged_again_and_nothing_is_written(bench: Bench) -> None:
    """Bug 1: the crash between the sink and Spark's commit log wrote the batch twice."""
    coordinator = bench.opened()
    bench.deliver(coordinator, 0)

    def never(_: Generation) -> StagedBatch:
        raise AssertionError

    for again in (coordinator, bench.opened(), bench.opened()):
        entries = len(list(bench.ledger().newest_first()))
        delivered = again.deliver(batch_of(0), never)
        assert delivered.already
        assert {name: (done.already, done.totals.rows) for name, done in delivered.sinks.items()} == {
            "files": (True, 1),
            "table": (True, 1),
        }
        assert len(list(bench.ledger().newest_first())) == entries
    assert bench.shown() == [Counter([0])] * 2


def test_another_checkpoint_is_refused_and_nothing_changes(bench: Bench) -> None:
    """Bugs 2 and 3: batches of a new checkpoint were skipped, or written twice, by their number."""
    bench.deliver(bench.opened(), 0)
    for number in (0, 1):
        coordinator = bench.opened()
        batch = batch_of(number, query=QueryId("other"))
        with pytest.raises(CheckpointReplaced):
            coordinator.deliver(batch, bench.stage(batch))
    assert bench.shown() == [Counter([0])] * 2


def test_whoever_raised_is_spent(bench: Bench) -> None:
    """Bug 5: an object in an unknown state was used on."""
    coordinator = bench.coordinator()
    with pytest.raises(Failed, match="never opened"):
        bench.deliver(coordinator, 0)
    coordinator.open(OPENED)

    def fail(_: Generation) -> StagedBatch:
        raise StageFailed("No.", remedy="Mend it.")

    with pytest.raises(StageFailed):
        coordinator.deliver(batch_of(0), fail)
    with pytest.raises(Failed, match="failed earlier"):
        bench.deliver(coordinator, 0)
    bench.deliver(bench.opened(), 0)
    assert bench.shown() == [Counter([0])] * 2


def test_every_kind_of_exception_of_the_stage_leaves_the_coordinator_spent(bench: Bench) -> None:
    for kind in (SystemExit, KeyboardInterrupt, ZeroDivisionError):
        coordinator = bench.opened()

        def fail(_: Generation, kind: type[BaseException] = kind) -> StagedBatch:
            raise kind

        with pytest.raises(kind):
            coordinator.deliver(batch_of(0), fail)
        with pytest.raises(Failed, match="failed earlier"):
            bench.deliver(coordinator, 0)


class AwayForAWhile(LogLedger):
    """A ledger whose server is away as often as it is told to."""

    failing: Sequence[PenstockError] = ()

    def append(self, entry: Entry, *, within: InTransaction | None = None) -> None:
        if self.failing:
            error, *self.failing = self.failing
            raise error
        super().append(entry, within=within)


@pytest.mark.parametrize("kind", [Retryable, OutcomeUnknown])
def test_an_append_is_tried_again_after_a_while(bench: Bench, kind: type[Retryable]) -> None:
    """A server that starts again takes a second: five tries at once would all be too early."""
    ledger = AwayForAWhile(bench.watched, pipeline=PIPELINE)
    coordinator = bench.coordinator(ledger=ledger)
    ledger.failing = [trouble(kind) for _ in range(4)]
    coordinator.open(OPENED)
    assert len(bench.slept) == 4
    ledger.failing = [trouble(kind) for _ in range(4)]
    bench.deliver(coordinator, 0)
    assert len(bench.slept) == 8
    assert bench.shown() == [Counter([0])] * 2


def test_publishing_is_tried_again_and_the_other_sink_is_published_whatever_happens(bench: Bench) -> None:
    coordinator = bench.opened()
    bench.steps.failing["promote files"] = [trouble(), trouble(OutcomeUnknown), trouble()]
    bench.deliver(coordinator, 0)
    assert len(bench.slept) == 3
    bench.steps.failing["promote files"] = [trouble() for _ in range(5)]
    with pytest.raises(NotPublishedYet, match="Sink 'files' could not publish batch 1"):
        bench.deliver(coordinator, 1)
    assert bench.shown() == [Counter([0]), Counter([0, 1])]
    with pytest.raises(Failed, match="failed earlier"):
        bench.deliver(coordinator, 1)
    recovered = recover(bench)
    assert recovered.rolled_forward
    assert {name: done.already for name, done in recovered.sinks.items()} == {"files": False, "table": True}
    assert bench.shown() == [Counter([0, 1])] * 2
    assert not recover(bench).rolled_forward


def recover(bench: Bench) -> Recovered:
    return bench.coordinator().open(OPENED)


def test_nothing_is_collected_on_the_way_out_of_an_error(bench: Bench) -> None:
    """Bugs 12 and 13: clean-up after an unknown commit, and `abort` after a failed one, deleted live data."""
    coordinator = bench.opened()
    staged = bench.targets.table.staged
    bench.steps.done.clear()
    bench.steps.failing["transact table"] = [trouble(OutcomeUnknown) for _ in range(5)]
    with pytest.raises(NotPublishedYet):
        bench.deliver(coordinator, 0)
    assert len(staged) == 1
    assert not [step for step in bench.steps.done if step.startswith(("collect", "list"))]
    coordinator = bench.coordinator(ledger=Unreachable(bench.ledger()))
    coordinator.open(OPENED)
    bench.steps.done.clear()
    assert isinstance(coordinator._ledger, Unreachable)
    coordinator._ledger.reachable = False
    with pytest.raises(OutcomeUnknown):
        bench.deliver(coordinator, 1)
    assert not [step for step in bench.steps.done if step.startswith(("collect", "list"))]
    bench.deliver(bench.opened(), 2)
    assert bench.shown() == [Counter([0, 1, 2])] * 2


class Unreachable:
    """A ledger that takes the entry and then never answers again."""

    home = None
    location = "far away"

    def __init__(self, ledger: LogLedger) -> None:
        self._ledger, self.reachable = ledger, True

    def tail(self) -> Entry | None:
        self._require()
        return self._ledger.tail()

    def read(self, position: Position) -> Entry | None:
        self._require()
        return self._ledger.read(position)

    def append(self, entry: Entry, *, within: object = None) -> None:
        try:
            self._ledger.append(entry)
        except PositionTaken:
            self._require()
            raise
        self._require()

    def newest_first(self) -> Iterator[Entry]:
        return self._ledger.newest_first()

    def prove(self) -> None:
        self._require()

    def prune(self, *, below: Position) -> None:
        self._require()

    def close(self) -> None:
        pass

    def _require(self) -> None:
        if not self.reachable:
            raise trouble(OutcomeUnknown)


@pytest.mark.parametrize("kind", [Retryable, OutcomeUnknown, Failed])
def test_a_ledger_that_cannot_be_pruned_now_is_pruned_after_the_next_batch(bench: Bench, kind: type[PenstockError]) -> None:
    ledger = Unprunable(bench.watched, pipeline=PIPELINE)
    coordinator = bench.coordinator(ledger=ledger, retained=1, prune_every=3)
    coordinator.open(OPENED)
    ledger.failing = [trouble(kind), trouble(kind)]
    warnings = [bench.deliver(coordinator, number).warnings for number in range(5)]
    told = "The ledger at memory could not be pruned: It hurts. Wait."
    assert warnings == [(), (told,), (told,), (), ()]
    assert ledger.asked == [2, 3, 4, 5]
    assert [entry.position for entry in bench.ledger().newest_first()] == [6, 5]
    assert bench.shown() == [Counter(range(5))] * 2


def test_a_ledger_that_turns_out_to_be_another_one_while_it_is_pruned_ends_the_delivery(bench: Bench) -> None:
    ledger = Unprunable(bench.watched, pipeline=PIPELINE)
    coordinator = bench.coordinator(ledger=ledger, retained=1, prune_every=3)
    coordinator.open(OPENED)
    ledger.failing = [trouble(LedgerMismatch)]
    bench.deliver(coordinator, 0)
    with pytest.raises(LedgerMismatch):
        bench.deliver(coordinator, 1)


def test_a_ledger_is_pruned_also_where_each_run_delivers_one_batch(bench: Bench) -> None:
    """Decisions then stand at every other position."""
    bench.opened()
    for number in range(12):
        coordinator = bench.coordinator(retained=2, prune_every=4)
        coordinator.open(OPENED)
        bench.deliver(coordinator, number)
    assert [entry.position for entry in bench.ledger().newest_first()] == [25, 24, 23]
    assert bench.shown() == [Counter(range(12))] * 2


class Unprunable(LogLedger):
    """A ledger that fails to prune as often as it is told to."""

    def __init__(self, store: ConditionalStore, *, pipeline: PipelineName) -> None:
        super().__init__(store, pipeline=pipeline)
        self.failing: list[PenstockError] = []
        self.asked: list[Position] = []

    def prune(self, *, below: Position) -> None:
        self.asked.append(below)
        if self.failing:
            raise self.failing.pop(0)
        super().prune(below=below)


class Maintaining(FilesSink):
    """A sink that notes after which batch it maintained its target, and what was shown then; and fails as often as it is told."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.targets.files, bench.history, bench.steps)
        self.failing: list[PenstockError] = []
        self.asked: list[tuple[int, list[Counter[int]]]] = []
        self._bench = bench

    def maintain_target(self, publication: Publication) -> Sequence[str]:
        self.asked.append((publication.batch.batch_id, self._bench.shown()))
        if self.failing:
            raise self.failing.pop(0)
        return ["It creaks."]


def test_targets_are_maintained_after_each_batch_that_is_published_everywhere_and_fail_none(bench: Bench) -> None:
    """A batch that comes again, and what a start publishes, are no reason to."""
    sink = Maintaining(bench)
    sink.failing = [trouble(PublishFailed)]
    coordinator = bench.coordinator(sinks=(sink, TableSink(bench.targets.table, bench.history, bench.steps)))
    coordinator.open(OPENED)
    warnings = [bench.deliver(coordinator, number).warnings for number in (0, 0, 1)]
    failed = f"The target of sink 'files' could not be maintained: {trouble(PublishFailed)}"
    assert warnings == [(failed,), (), ("It creaks.",)]
    assert sink.asked == [(0, [Counter([0])] * 2), (1, [Counter([0, 1])] * 2)]


def test_an_older_run_is_fenced_when_it_decides_and_its_staging_is_collected_later(bench: Bench) -> None:
    zombie, new = bench.opened(), bench.opened()
    with pytest.raises(Fenced, match=r"generation 1.*generation 2 by me"):
        bench.deliver(zombie, 0)
    bench.deliver(new, 0)
    assert bench.shown() == [Counter([0])] * 2
    assert len(bench.targets.files.staged) == 1
    recover(bench)
    assert bench.targets.files.staged == {}


def test_an_older_run_is_told_that_it_is_fenced_not_what_only_looks_wrong_to_it(bench: Bench) -> None:
    zombie, new = bench.opened(), bench.opened()
    bench.deliver(new, 0)
    bench.deliver(new, 1)
    with pytest.raises(Fenced):
        bench.deliver(zombie, 2)


def test_a_ledger_of_another_pipeline_is_refused(bench: Bench) -> None:
    bench.opened()
    stranger = Coordinator(
        pipeline=PipelineName("other"), ledger=bench.ledger(), sinks=(), now_ms=lambda: 0, retrying=bench.retrying
    )
    with pytest.raises(LedgerMismatch, match=r"belongs to pipeline 'flights', not to 'other'"):
        stranger.open(OPENED)


def test_a_sink_with_rows_outstanding_cannot_be_taken_out(bench: Bench) -> None:
    coordinator = bench.opened()
    bench.steps.failing["transact table"] = [trouble() for _ in range(5)]
    with pytest.raises(NotPublishedYet):
        bench.deliver(coordinator, 0)
    files = bench.sinks()[:1]
    with pytest.raises(LedgerMismatch, match="holds rows for sink 'table'"):
        bench.coordinator(sinks=files).open(OPENED)
    full = bench.opened()
    bench.history.generation -= 1  # settling writes a second opening of the same generation
    full.settle(OPENED)
    bench.coordinator(sinks=files).open(OPENED)


@pytest.mark.parametrize("took_part", [["table"], []], ids=["selects", "joined"])
def test_a_start_publishes_to_a_sink_that_took_none_of_the_rows_but_not_to_one_that_joined_since(
    bench: Bench, took_part: list[SinkName]
) -> None:
    """An empty batch clears a table that each batch replaces."""
    coordinator, batch = bench.opened(), batch_of(0)

    def stage(generation: Generation) -> StagedBatch:
        staged = bench.stage(batch)(generation)
        return replace(staged, pieces=staged.pieces[:1], schemas=dict.fromkeys(took_part, "{}"))

    bench.steps.failing["promote files"] = [trouble() for _ in range(5)]
    with pytest.raises(NotPublishedYet):
        coordinator.deliver(batch, stage)
    bench.steps.done.clear()
    recover(bench)
    assert ("marker table" in bench.steps.done) is bool(took_part)


def test_a_sweep_that_fails_is_no_reason_not_to_deliver(bench: Bench) -> None:
    bench.steps.failing["list files"] = [trouble(Failed)]
    coordinator = bench.coordinator()
    recovered = coordinator.open(OPENED)
    assert len(recovered.warnings) == 1
    assert "Sink 'files' could not be swept" in recovered.warnings[0]
    bench.deliver(coordinator, 0)


def test_a_sink_in_the_ledgers_own_database_is_published_by_the_decision_itself() -> None:
    """A sink in the database of the ledger is published once, within the append, and not again after it."""
    published: list[str] = []

    class InLedger(TableSink):
        home = "here"

        @contextmanager
        def ledger_transaction(self, publication: Publication) -> Iterator[None]:
            published.append(f"before {publication.position}")
            yield
            published.append(f"after {publication.position}")

        def publish_within(self, transaction: object, publication: Publication) -> Published:
            published.append(f"{transaction} {publication.position}")
            self._target.raise_marker(publication.position)
            return Published(totals=publication.totals, already=False)

    class HomeLedger(LogLedger):
        home = "here"  # type: ignore[assignment]

        def append(self, entry: Entry, *, within: Callable[[object], None] | None = None) -> None:
            if within is not None:
                within("transaction")
            super().append(entry)
            published.append("committed")

    bench = Bench()
    in_ledger = InLedger(bench.targets.table, bench.history, bench.steps)
    coordinator = bench.coordinator(ledger=HomeLedger(bench.watched, pipeline=PIPELINE), sinks=(bench.sinks()[0], in_ledger))
    coordinator.open(OPENED)
    published.clear()
    delivered = bench.deliver(coordinator, 0)
    assert published == ["before 2", "transaction 2", "committed", "after 2"]
    assert set(delivered.sinks) == {"files", "table"}
    assert "transact table" not in bench.steps.done


def test_the_sweep_is_told_what_is_dead(bench: Bench) -> None:
    cuts: list[SweepCut] = []

    class Noting(FilesSink):
        def sweep(self, cut: SweepCut, *, dry_run: bool) -> Sequence[str]:
            cuts.append(cut)
            return ["something"]

    sinks = (Noting(bench.targets.files, bench.history, bench.steps), bench.sinks()[1])
    coordinator = bench.coordinator(sinks=sinks)
    recovered = coordinator.open(OPENED)
    assert recovered.swept == ("something",)
    assert (cuts[0].generation, cuts[0].batch_id, cuts[0].kept) == (1, None, frozenset())
    bench.deliver(coordinator, 0)
    assert coordinator.sweep() == (("something",), ())
    newest = next(bench.ledger().newest_first())
    assert isinstance(newest.body, Decided)
    attempts = {piece.attempt for piece in newest.body.decision.staged}
    assert (cuts[1].generation, cuts[1].batch_id, cuts[1].kept) == (1, 0, attempts)
    bench.coordinator(sinks=sinks).open(OPENED)
    assert (cuts[2].generation, cuts[2].batch_id, cuts[2].kept) == (2, None, attempts)
