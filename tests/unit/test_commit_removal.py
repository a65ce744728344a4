"""An operator's act that fences nobody, at the very position where a driver appends."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from tests.unit.commit_bench import OPENED, PIPELINE, Bench

from penstock.commit.removal import append_removal, removal_acts
from penstock.commit.summary import after_removal
from penstock.core.model import (
    AccountName,
    Adopted,
    BatchId,
    Decided,
    Entry,
    Generation,
    Opened,
    Position,
    Publication,
    Published,
    Removal,
    RemovalAccepted,
    Rewound,
    SinkName,
    Totals,
)
from penstock.errors import Fenced, Refused, Retryable
from penstock.ledger.log import LogLedger
from penstock.testing.simulator.sinks import TableSink

ACT = RemovalAccepted(
    removals=(
        Removal(
            sink=SinkName("files"),
            account=AccountName(""),
            decided=((Position(2), Position(2)),),
            files=(),
            totals=Totals(rows=1, files=1),
        ),
    ),
    reason="old",
    operator="ann",
)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def accept(bench: Bench, *, after: int | None = None) -> Entry:
    position = None if after is None else Position(after)
    return append_removal(bench.ledger(), ACT, after=position, rewound_at=None, now_ms=lambda: 0, retrying=bench.retrying)


def test_what_a_rewind_took_meanwhile_was_not_removed_on_purpose(bench: Bench) -> None:
    """It counts no more, and would be counted out of what stands: nothing that `verify` finds would be right again."""
    coordinator = bench.opened()
    for number in range(2):
        bench.deliver(coordinator, number)
    coordinator = bench.opened()
    coordinator.rewind(Rewound(batch_id=BatchId(0), to=Position(2), kept=(), reason="", operator="ann"))
    with pytest.raises(Refused, match="The pipeline was rewound at position 5, while the sinks were compared"):
        accept(bench)


def kinds(bench: Bench) -> list[type]:
    return [type(entry.body) for entry in bench.ledger().newest_first()][::-1]


def test_a_driver_decides_behind_the_act_and_knows_what_it_has_published(bench: Bench) -> None:
    coordinator = bench.opened()
    bench.deliver(coordinator, 0)
    act = accept(bench)
    assert (act.summary.published_at, act.summary.removed_at) == (None, 3)
    bench.deliver(coordinator, 1)
    assert kinds(bench) == [Opened, Decided, RemovalAccepted, Decided]
    summary = coordinator.summary
    assert (summary.decided_at, summary.published_at, summary.removed_at) == (4, 4, 3)
    newest = next(bench.ledger().newest_first())
    assert newest.summary.published_at == 2
    assert newest.summary.removed == {"files": {"": Totals(rows=1, files=1)}}
    assert bench.shown() == [Counter([0, 1])] * 2
    accept(bench, after=3)
    accept(bench, after=5)
    bench.deliver(coordinator, 2)
    assert [act.reason for act in removal_acts(bench.ledger())] == ["old"] * 3
    assert coordinator.summary.removed["files"][AccountName("")].rows == 3


def test_an_adoption_goes_behind_it_too_and_records_what_is_published(bench: Bench) -> None:
    bench.deliver(bench.opened(), 0)
    coordinator = bench.opened()
    accept(bench)
    coordinator.adopt(Adopted(query_id=None, next_batch_id=BatchId(0), reason="new", operator="ann"))
    assert kinds(bench) == [Opened, Decided, Opened, RemovalAccepted, Adopted]
    summary = next(bench.ledger().newest_first()).summary
    assert (summary.adopted_at, summary.removed_at, summary.published_at) == (5, 4, 2)


def test_an_act_behind_the_fence_of_a_newer_run_does_not_let_the_older_one_go_on(bench: Bench) -> None:
    older = bench.opened()
    bench.deliver(older, 0)
    bench.opened()
    accept(bench)
    with pytest.raises(Fenced):
        bench.deliver(older, 1)
    assert kinds(bench) == [Opened, Decided, Opened, RemovalAccepted]


def test_an_act_at_the_position_of_an_older_run_fences_it(bench: Bench) -> None:
    """Only the generation tells it: a newer run has opened, and the older one meets the act of its generation."""
    older, taken = bench.opened(), bench.ledger()
    entry = older._entry(ACT, summary=after_removal(older.summary, ACT, position=Position(2)), after=older._open_tail())
    taken.append(replace(entry, generation=Generation(2)))
    with pytest.raises(Fenced, match="This run is generation 1, but position 2"):
        bench.deliver(older, 0)


def test_the_next_start_opens_behind_it(bench: Bench) -> None:
    bench.deliver(bench.opened(), 0)
    accept(bench)
    coordinator = bench.opened()
    assert coordinator.summary.removed_at == 3
    bench.deliver(coordinator, 1)
    assert bench.shown() == [Counter([0, 1])] * 2


def test_an_act_that_meets_a_decision_is_appended_behind_it(bench: Bench) -> None:
    """The tail was read, and then a driver decided."""
    coordinator = bench.opened()

    class Late(LogLedger):
        decided = False

        def append(self, entry: Entry, *, within: Callable[[object], None] | None = None) -> None:
            if not self.decided:
                self.decided = True
                bench.deliver(coordinator, 0)
            super().append(entry, within=within)

    ledger = Late(bench.watched, pipeline=PIPELINE)
    entry = append_removal(ledger, ACT, after=None, rewound_at=None, now_ms=lambda: 0, retrying=bench.retrying)
    assert entry.position == 3
    assert entry.summary.decided_at == 2


def test_an_act_that_always_meets_another_entry_gives_up(bench: Bench) -> None:
    coordinator = bench.opened()

    class Late(LogLedger):
        number = 0

        def append(self, entry: Entry, *, within: Callable[[object], None] | None = None) -> None:
            bench.deliver(coordinator, self.number)
            self.number += 1
            super().append(entry, within=within)

    with pytest.raises(Retryable, match="got another entry at each of 20 tries"):
        append_removal(
            Late(bench.watched, pipeline=PIPELINE), ACT, after=None, rewound_at=None, now_ms=lambda: 0, retrying=bench.retrying
        )


def test_an_act_that_was_compared_before_another_one_is_refused(bench: Bench) -> None:
    bench.opened()
    accept(bench)
    with pytest.raises(Refused, match="Another removal was accepted at position 2"):
        accept(bench)


def test_a_sink_in_the_ledgers_own_database_publishes_in_the_transaction_behind_the_act() -> None:
    published: list[str] = []

    class InLedger(TableSink):
        home = "here"

        @contextmanager
        def ledger_transaction(self, publication: Publication) -> Iterator[None]:
            published.append(f"before {publication.position}")
            yield
            published.append(f"after {publication.position}")

        def publish_within(self, transaction: object, publication: Publication) -> Published:
            return Published(totals=publication.totals, already=False)

    class HomeLedger(LogLedger):
        home = "here"  # type: ignore[assignment]

        def append(self, entry: Entry, *, within: Callable[[object], None] | None = None) -> None:
            super().append(entry)
            if within is not None:
                within("transaction")
                self.published = self._newest

    bench = Bench()
    in_ledger = InLedger(bench.targets.table, bench.history, bench.steps)
    coordinator = bench.coordinator(ledger=HomeLedger(bench.watched, pipeline=PIPELINE), sinks=(bench.sinks()[0], in_ledger))
    coordinator.open(OPENED)
    accept(bench)
    published.clear()
    delivered = bench.deliver(coordinator, 0)
    assert published == ["before 2", "before 3", "after 3"]
    assert set(delivered.sinks) == {"files", "table"}
