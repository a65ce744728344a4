"""The lease by which supervisors agree whose driver runs: by a clock that the test moves, on a ledger in memory."""

import asyncio
from contextlib import suppress

import pytest

from penstock.core.model import PipelineName
from penstock.errors import LedgerMismatch, OutcomeUnknown, Retryable
from penstock.ledger.log import LogLedger
from penstock.ledger.store import MemoryStore
from penstock.supervise.heartbeat import Signs
from penstock.supervise.lease import Lease, LeaseRecord, decode_lease, encode_lease
from penstock.supervise.standby import Standby

FLIGHTS = PipelineName("flights")


class Machines:
    """Supervisors of one pipeline on machines whose clocks all stand still until `passes`."""

    def __init__(self):
        self.store, self.now_s = MemoryStore(), 0.0

    def lease(self, holder, *, ledger=LogLedger, lease_s=3.0):
        own = LeaseRecord(pipeline=FLIGHTS, holder=holder, owner=f"{holder} process 7", lease_ms=round(1000 * lease_s))
        return Lease(ledger(self.store, pipeline=FLIGHTS), own, where="memory", clock=lambda: self.now_s)

    def passes(self, seconds, *watched_by):
        """Time goes by; those that watch look at the lease eight times a second."""
        end_s = self.now_s + seconds
        while watched_by and self.now_s < end_s - 1 / 8:
            self.now_s += 1 / 8
            for lease in watched_by:
                lease.holder()
        self.now_s = end_s


@pytest.fixture
def machines():
    return Machines()


def test_who_comes_first_has_the_lease(machines):
    one, other = machines.lease("one"), machines.lease("other")
    assert one.take()
    assert not other.take()
    assert other.holder().owner == "one process 7"
    assert one.take(), "it is its own already"


def test_a_lease_that_is_renewed_is_not_taken(machines):
    one, other = machines.lease("one"), machines.lease("other")
    assert one.take()
    for _ in range(100):
        assert not other.take()
        machines.passes(1)
        assert one.renew() is None


def test_a_standby_waits_as_long_as_the_holder_has_promised(machines):
    one, other = machines.lease("one", lease_s=9), machines.lease("other", lease_s=1)
    assert one.take()
    assert not other.take()
    machines.passes(8.875, other)
    assert not other.take()
    machines.passes(0.125)
    assert other.take()
    assert one.renew().owner == "other process 7"


def test_a_standby_measures_from_its_own_first_look(machines):
    one = machines.lease("one")
    assert one.take()
    machines.passes(1_000)
    other = machines.lease("other")
    assert not other.take()
    machines.passes(3, other)
    assert other.take()


def test_a_standby_that_slept_does_not_take_what_it_did_not_watch(machines):
    """What held it up may have held up the holder, too: a machine that was paused goes on with both."""
    one, other = machines.lease("one"), machines.lease("other")
    assert one.take()
    assert not other.take()
    machines.passes(1_000)
    assert not other.take()
    assert one.renew() is None
    machines.passes(1_000)
    for _ in range(3):
        assert not other.take()
        machines.passes(1)
    assert other.take()


def test_of_two_standbys_one_takes_over(machines):
    gone, standbys = machines.lease("gone"), [machines.lease("one"), machines.lease("other")]
    assert gone.take()
    assert [each.holder() is None for each in standbys] == [False, False]
    machines.passes(3, *standbys)
    assert [each.holder() for each in standbys] == [None, None]
    assert [each.take() for each in standbys] == [True, False]


def test_two_standbys_that_look_at_the_same_moment_do_not_both_take_it(machines):
    class Slow(LogLedger):
        """Another supervisor appends between the look and the append."""

        def append_lease(self, number, data):
            assert other.take()
            return super().append_lease(number, data)

    other = machines.lease("other")
    assert not machines.lease("one", ledger=Slow).take()
    assert other.renew() is None


def test_a_lease_that_was_given_back_is_free_at_once(machines):
    one, other = machines.lease("one"), machines.lease("other")
    assert one.take()
    one.release()
    assert other.take()
    one.release()
    assert other.renew() is None, "only the holder gives it back"


def test_a_holder_that_slept_finds_out(machines):
    one, other = machines.lease("one"), machines.lease("other")
    assert one.take()
    assert not other.take()
    machines.passes(3, other)
    assert other.take()
    for _ in range(5):
        assert other.renew() is None
    assert one.renew().holder == "other"
    assert not one.take()


def test_an_append_whose_answer_was_lost_is_recognised(machines):
    class Lossy(LogLedger):
        def append_lease(self, number, data):
            super().append_lease(number, data)
            raise OutcomeUnknown("the answer was lost", remedy="read")

    one, other = machines.lease("one", ledger=Lossy), machines.lease("other")
    with pytest.raises(OutcomeUnknown):
        one.take()
    assert one.take()
    assert not other.take()


def test_a_store_that_answers_a_repetition_of_its_own_append_loses_no_lease(machines):
    class Repeating(LogLedger):
        def append_lease(self, number, data):
            super().append_lease(number, data)
            return super().append_lease(number, data)

    one = machines.lease("one", ledger=Repeating)
    assert not one.take()
    assert one.take()
    assert one.renew() is None
    assert not machines.lease("other").take()


def test_a_record_that_cannot_be_read_lapses_as_any_other(machines):
    for data in (b"{", b'{"format":"penstock.lease","version":99}', b'{"format":"penstock.lease","version":1}'):
        store = LogLedger(machines.store, pipeline=FLIGHTS)
        newest = store.newest_lease()
        assert store.append_lease(1 if newest is None else newest[0] + 1, data)
        lease = machines.lease("one")
        assert not lease.take()
        machines.passes(3, lease)
        assert lease.take()
    with pytest.raises(LedgerMismatch, match="Record 3 of the lease is damaged: expected pipeline, holder"):
        decode_lease(b'{"format":"penstock.lease","version":1}', where="Record 3 of the lease")


def test_old_records_are_forgotten(machines):
    one = machines.lease("one")
    assert one.take()
    for _ in range(50):
        assert one.renew() is None
    assert len(list(machines.store.keys("lease/"))) == 2


def run_standby(lease, *, until, warm=True):
    """What a standby noted, and what began, until `until` is among the texts."""
    noted = []

    async def attend():
        seen, signs = asyncio.Event(), Signs()

        def note(state, text):
            noted.append((state, text))
            if until in text:
                seen.set()

        standby = Standby(lease, note)
        if warm:
            signs.heard(b"...w")
        attending = asyncio.create_task(standby.attend(signs, lambda: note("begins", "the driver begins")))
        await seen.wait()
        attending.cancel()
        with suppress(asyncio.CancelledError):
            await attending
        await standby.release()

    asyncio.run(attend())
    return noted


def test_a_warm_driver_begins_when_the_lease_is_free(machines):
    began = run_standby(machines.lease("one", lease_s=0.03), until="the driver begins")
    assert began == [("running", "has the lease and begins"), ("begins", "the driver begins")]
    assert machines.lease("other").take(), "it was given back"


def test_a_standby_says_for_whom_it_waits(machines):
    assert machines.lease("one").take()
    waiting = run_standby(machines.lease("other", lease_s=0.03), until="waits")
    assert waiting == [("standby", "is warm and waits: one process 7 has the lease")]
    assert machines.lease("one").renew() is None, "what it did not have it cannot give back"


def test_a_ledger_that_does_not_answer_is_tried_again(machines):
    class Away(LogLedger):
        left = 3

        def newest_lease(self):
            Away.left -= 1
            if Away.left >= 0:
                raise Retryable("The store does not answer.", remedy="Wait.")
            return super().newest_lease()

    noted = run_standby(machines.lease("one", ledger=Away, lease_s=0.03), until="the driver begins")
    away = ("standby", "cannot use the lease at present: The store does not answer.")
    assert noted == [away, ("running", "has the lease and begins"), ("begins", "the driver begins")]


def test_a_supervisor_that_lost_the_lease_says_to_whom(machines):
    lease, thief = machines.lease("one", lease_s=0.03), machines.lease("other")
    renew = lease.renew

    def renew_too_late():
        thief.holder()
        machines.passes(3, thief)
        assert thief.take()
        return renew()

    lease.renew = renew_too_late
    noted = run_standby(lease, until="lost")
    assert noted[-1] == ("standby", "has lost the lease to other process 7, whose driver fences this one")


def test_the_format_of_a_record():
    record = LeaseRecord(pipeline=FLIGHTS, holder="00112233aabbccdd", owner="host process 7", lease_ms=5000, released=True)
    assert decode_lease(encode_lease(record), where="it") == record
