"""The word for how a pipeline does, and what to do next: the cause before its consequences."""

from dataclasses import replace

import pytest

from penstock.core.model import AccountName, BatchId, Generation, Position, SinkName, SourceName
from penstock.observe.condition import LATE_MS, State, condition_of
from penstock.observe.driver import Driver
from penstock.observe.last_error import LastError
from penstock.observe.look import Look
from penstock.observe.state_samples import OperatorSample, StateSample
from penstock.observe.state_size import StateSize, size_of
from penstock.observe.status import PlaceState, Status, WaitingFiles
from penstock.observe.supervision import Supervision
from penstock.source.kafka.lag import TopicLag
from penstock.spec.state_limits import StateLimits

NOW_MS = 10_000_000_000
RUNS = Driver(state="running", text="process 4 of this machine runs")
ENDED = Driver(state="stopped", text="none runs: process 4 of this machine has ended")
FINE = Status(
    pipeline="shop",
    ledger="ledger.db",
    health="ok",
    text="Everything up to batch 7 is decided.",
    generation=Generation(1),
    owner="host process 4",
    last_batch_id=BatchId(7),
    unsettled=None,
    last_written_at_ms=NOW_MS - 1_000,
    tail=Position(9),
    totals={},
    checkpoint=None,
    driver=RUNS,
)
ERROR = LastError(at_ms=NOW_MS, owner="", kind="Failed", message="The disk is full.", remedy="Make room.", exit_code=1)
LAG = TopicLag(
    source=SourceName("s"),
    topic="orders",
    topic_id="t",
    partitions=1,
    records=5,
    behind_ms=1_000,
    loss_in_ms=10**9,
    retention_ms=10**9,
    lost=0,
    gaps=0,
)
LATE = WaitingFiles(source=SourceName("s"), files=3, size_bytes=9, oldest_ms=NOW_MS - LATE_MS - 1)
GIVEN_UP = Supervision(
    owner="", at_ms=NOW_MS, state="given up", restarts=5, ended="was killed by signal 9", next_start_ms=None, log="/srv/run.log"
)


def grown(*, hours: int) -> StateSize:
    """A state that has grown by 100 bytes in each of two hours, and has room for so many hours more."""
    operators = [OperatorSample(name="dedupe", rows=1, memory_bytes=size) for size in (1_000, 1_200)]
    samples = [
        StateSample(generation=Generation(1), batch_id=BatchId(at), at_ms=7_200_000 * at, operators=(operator,))
        for at, operator in enumerate(operators)
    ]
    return size_of(samples, StateLimits(memory=1_200 + 100 * hours))


def place(state: str) -> PlaceState:
    return PlaceState(sink=SinkName("lake"), account=AccountName("EWR"), state=state, trouble=f"It is {state}.")


@pytest.mark.parametrize(
    ("status", "state", "text", "next_step"),
    [
        (FINE, State.HEALTHY, "Everything up to batch 7", None),
        (replace(FINE, driver=Driver(state="unknown", text="not known")), State.HEALTHY, "Everything up to batch 7", None),
        (replace(FINE, driver=ENDED), State.STOPPED, "Everything up to batch 7", "`penstock run FILE`"),
        (replace(FINE, places=(place("unreachable"),)), State.FAILED, "Sink lake EWR: It is unreachable.", "Bring it back"),
        (FINE.with_places((place("lost"),)), State.FAILED, "Sink lake EWR: It is lost.", "`penstock doctor FILE`"),
        (replace(FINE, health="conflict", text="No checkpoint."), State.FAILED, "No checkpoint.", "`penstock doctor FILE`"),
        (replace(FINE, lag=(replace(LAG, gaps=1, lost=44),)), State.FAILED, "44 records of topic orders are gone", "InputLost"),
        (replace(FINE, driver=ENDED, last_error=ERROR), State.FAILED, "The disk is full.", "Make room."),
        (replace(FINE, last_error=ERROR), State.HEALTHY, "Everything up to batch 7", None),
        (replace(FINE, driver=ENDED, last_error=replace(ERROR, at_ms=5)), State.STOPPED, "Everything", "`penstock run FILE`"),
        (replace(FINE, driver=ENDED, supervision=GIVEN_UP), State.FAILED, "The supervisor is given up", "/srv/run.log"),
        (replace(FINE, driver=ENDED, unsettled=BatchId(7), lacking=("lake EWR",)), State.FAILED, "not in lake EWR", "recover"),
        (replace(FINE, unsettled=BatchId(7), lacking=("lake EWR",)), State.HEALTHY, "Everything up to batch 7", None),
        (replace(FINE, lag=(replace(LAG, loss_in_ms=5),)), State.BEHIND, "Retention may soon remove records", "retention first"),
        (replace(FINE, lag=(replace(LAG, behind_ms=LATE_MS + 1),)), State.BEHIND, "Source s is 15 minutes behind", "cores"),
        (replace(FINE, waiting=(LATE,)), State.BEHIND, "Source s is 15 minutes behind", "cores"),
        (replace(FINE, waiting=(LATE,), driver=ENDED), State.STOPPED, "15 minutes behind", "`penstock run FILE`"),
        (replace(FINE, lag_unknown=("No broker answers.",)), State.BEHIND, "No broker answers.", "Bring the source back"),
        (replace(FINE, state=grown(hours=2)), State.GROWING, "reaches its limit in 2 hours in memory", "`penstock state FILE`"),
        (replace(FINE, state=grown(hours=0)), State.GROWING, "is beyond its limit in memory", "a watermark"),
        (replace(FINE, state=grown(hours=100)), State.HEALTHY, "Everything up to batch 7", None),
        (replace(FINE, state=grown(hours=2), driver=ENDED), State.STOPPED, "Everything up to batch 7", "`penstock run FILE`"),
    ],
)
def test_the_condition_of_a_pipeline(status: Status, state: State, text: str, next_step: str | None) -> None:
    found = condition_of(Look(pipeline="shop", status=status), now_ms=NOW_MS)
    assert found.state is state
    assert text in found.text
    assert (found.next_step is None) if next_step is None else (next_step in (found.next_step or ""))


@pytest.mark.parametrize(
    "status",
    [
        replace(FINE, driver=ENDED, last_error=ERROR),
        replace(FINE, places=(place("unreachable"),)),
        replace(FINE, waiting=(LATE,)),
        replace(FINE, driver=ENDED),
    ],
)
def test_what_is_worse_does_not_hide_that_the_state_grows(status: Status) -> None:
    """A driver that was ended for want of memory is gone because of it."""
    alone, both = (
        condition_of(Look(pipeline="shop", status=each), now_ms=NOW_MS)
        for each in (status, replace(status, state=grown(hours=2)))
    )
    assert alone.also is None
    assert both.also is not None
    assert replace(both, also=None) == alone
    assert (both.also.state, "in 2 hours" in both.also.text) == (State.GROWING, True)


def test_a_pipeline_that_cannot_be_read_has_failed() -> None:
    found = condition_of(Look(pipeline="shop", error="The database is away."), now_ms=NOW_MS)
    assert (found.state, found.text) == (State.FAILED, "The database is away.")
