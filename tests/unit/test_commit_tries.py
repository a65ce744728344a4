"""How long an append or a publication is tried, and what is told of a sink that did not answer in that time."""

from collections import Counter

import pytest
from tests.unit.commit_bench import OPENED, Bench, trouble

from penstock.commit.append import RETRY_TIMEOUT_S, StopTries, stop_after_time, with_backoff
from penstock.errors import NotPublishedYet, OutcomeUnknown, PublishFailed, Retryable
from penstock.spec.pipeline import DeliverySettings
from penstock.support.error_transport import decode_error, encode_error


@pytest.fixture
def bench() -> Bench:
    return Bench()


class Silent:
    """Something that does not answer, however often it is asked; the pauses between are only noted."""

    def __init__(self) -> None:
        self.asked, self.slept = 0, list[float]()

    def ask(self) -> None:
        self.asked += 1
        raise trouble()

    def try_until(self, stop: StopTries) -> None:
        with pytest.raises(Retryable):
            with_backoff(stop, self.slept.append)(self.ask)


def test_an_outage_is_waited_for_a_minute_with_growing_pauses() -> None:
    """A failover takes some ten seconds: five tries within three were all too early."""
    silent = Silent()
    silent.try_until(stop_after_time(60))
    assert 60 <= sum(silent.slept) < 70
    assert [pause for number, pause in enumerate(silent.slept) if pause > min(10, 0.2 * 2**number)] == []
    assert silent.asked == len(silent.slept) + 1


def test_the_settings_say_a_minute_too() -> None:
    assert DeliverySettings.model_fields["retry_timeout"].default == 1000 * RETRY_TIMEOUT_S


def test_what_took_all_the_time_is_tried_once_more() -> None:
    """The answer may have been lost, and the second try finds what the first one did."""
    silent = Silent()
    silent.try_until(stop_after_time(0))
    assert silent.asked == 2


def test_a_stop_ends_the_tries() -> None:
    silent = Silent()
    silent.try_until(stop_after_time(60, lambda: silent.asked > 3))
    assert silent.asked == 4
    silent = Silent()
    silent.try_until(stop_after_time(60, lambda: True))
    assert silent.asked == 2


@pytest.mark.parametrize("kind", [Retryable, OutcomeUnknown])
def test_a_sink_that_did_not_answer_is_to_be_tried_again_by_the_next_start(bench: Bench, kind: type[Retryable]) -> None:
    """A scheduler starts again after 75; after 1 a person was called, and read "Try again"."""
    coordinator = bench.opened()
    bench.steps.failing["promote files"] = [trouble(kind) for _ in range(5)]
    with pytest.raises(NotPublishedYet, match="Sink 'files' could not publish batch 0: It hurts") as raised:
        bench.deliver(coordinator, 0)
    assert raised.value.exit_code == 75
    assert raised.value.remedy == "Wait. The batch is decided; the next start publishes it."
    assert isinstance(raised.value.__cause__, kind)
    assert type(decode_error(encode_error(raised.value))) is NotPublishedYet
    assert bench.coordinator().open(OPENED).rolled_forward
    assert bench.shown() == [Counter([0])] * 2


def test_what_a_person_must_mend_is_tried_once(bench: Bench) -> None:
    coordinator = bench.opened()
    error = PublishFailed("The user may not write.", remedy="GRANT it.")
    bench.steps.failing["promote files"] = [error]
    with pytest.raises(PublishFailed) as raised:
        bench.deliver(coordinator, 0)
    assert raised.value is error
    assert bench.slept == []


def test_a_sink_that_has_waited_by_itself_is_not_asked_again(bench: Bench) -> None:
    """Cassandra waits for minutes, step by step."""
    coordinator = bench.opened()
    error = NotPublishedYet("The cluster has not answered for 300 s.", remedy="Start it.")
    bench.steps.failing["promote files"] = [error]
    with pytest.raises(NotPublishedYet) as raised:
        bench.deliver(coordinator, 0)
    assert raised.value is error
    assert bench.slept == []
