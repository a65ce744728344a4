"""Producers that number their events: repeats are recognised, gaps refused, and whoever is forgotten begins anew."""

from collections import Counter
from dataclasses import replace

import pytest
from tests.unit.forgetful_disk import ForgetfulDisk
from tests.unit.journal_clients import (
    HOME,
    PLAIN,
    SMALL,
    Clients,
    content,
    event,
    expected,
    opened,
    released,
)

from penstock.errors import Usage
from penstock.journal.event import Event, Receipt
from penstock.journal.format import Numbered
from penstock.journal.journal import Journal
from penstock.journal.producers import FORGET_AFTER_US, MOST_PRODUCERS, NumberOutOfOrder, Producers
from penstock.journal.segment import segment_firsts


@pytest.fixture
def disk() -> ForgetfulDisk:
    return ForgetfulDisk()


def test_a_repeat_of_a_numbered_event_is_recognised_and_has_the_same_place(disk: ForgetfulDisk) -> None:
    journal = opened(disk)
    assert journal.append([event("a", 1), event("a", 1)]) == (Receipt(0), Receipt(None, is_repeat=True))
    journal.commit()
    assert journal.append([event("a", 1)]) == (Receipt(0, is_repeat=True),)
    assert journal.append([event("a", 2), event("a", 3), event("a", 2)]) == (
        Receipt(1),
        Receipt(2),
        Receipt(None, is_repeat=True),
    )
    journal.commit()
    assert content(disk) == [b"a 1", b"a 2", b"a 3"]


def test_a_repeat_is_recognised_after_a_start_and_after_its_segment_is_gone(disk: ForgetfulDisk) -> None:
    journal = opened(disk)
    Clients().push(journal, until=9)
    for _ in range(20):
        journal.append([PLAIN])
        journal.commit()
    released(disk, "r", journal.next)
    assert journal.remove_released() > 0
    assert segment_firsts(disk, HOME)[0] >= 27, "no numbered event is there any more"
    journal.close()
    again = opened(disk)
    assert all(receipt.is_repeat for receipt in again.append([event(each, 1) for each in "abc"]))
    assert again.append([event("a", 10)]) == (Receipt(47),)


def test_a_number_that_leaves_a_gap_is_refused_and_nothing_of_its_request_is_taken(disk: ForgetfulDisk) -> None:
    journal = opened(disk)
    journal.append([event("a", 1)])
    with pytest.raises(NumberOutOfOrder, match="sent number 4, and its last one here is 2") as refused:
        journal.append([event("a", 2), event("a", 4)])
    assert refused.value.remedy.startswith("Send 3 first")
    journal.append([event("a", 2)])
    journal.commit()
    assert content(disk) == [b"a 1", b"a 2"]


def test_a_producer_begins_with_1_so_that_none_of_its_numbers_becomes_a_repeat_unseen(disk: ForgetfulDisk) -> None:
    """A later number may come before an earlier one: by another connection, or because the earlier one was refused."""
    journal = opened(disk)
    with pytest.raises(NumberOutOfOrder, match="sent number 2, and the journal knows none of its numbers") as refused:
        journal.append([PLAIN, event("a", 2)])
    assert refused.value.remedy.startswith("Send 1 first")
    assert journal.append([event("a", 1), event("a", 2)]) == (Receipt(0), Receipt(1))
    with pytest.raises(Usage, match="one that is not 1 to"):
        journal.append([event("a", 0)])
    journal.commit()
    assert content(disk) == [b"a 1", b"a 2"]


def test_events_that_were_lost_with_their_group_are_no_repeats(disk: ForgetfulDisk) -> None:
    """A segment begins with the producers' numbers: those that are only waiting must not be among them."""
    journal = opened(disk, limits=replace(SMALL, segment_bytes=1))
    Clients().push(journal, until=1)
    journal.append([event("a", 2)])
    disk.crash_at = disk.operations + 4  # the new segment has its header and its name by then
    with pytest.raises(BaseException, match=r"^$"):
        journal.commit()
    disk.end_process()
    again = opened(disk)
    Clients({"a": 1, "b": 1, "c": 1}).push(again, until=2)
    assert Counter(content(disk)) == expected(2)


def test_a_silent_producer_is_forgotten_and_too_many_are_refused(disk: ForgetfulDisk) -> None:
    now = [0]
    journal = Journal(HOME, now_us=lambda: now[0], limits=replace(SMALL, segment_bytes=1), storage=disk)
    journal.append([event("old", 1)])
    journal.append([Event(value=b"", producer=f"p{number}", number=1) for number in range(MOST_PRODUCERS - 1)])
    journal.commit()
    with pytest.raises(Exception, match=f"remembers {MOST_PRODUCERS} producers"):
        journal.append([event("new", 1)])
    now[0] = FORGET_AFTER_US
    journal.append([PLAIN])
    journal.commit()  # a segment begins
    assert journal.append([event("new", 1)]) == (Receipt(MOST_PRODUCERS + 1),)


def test_only_as_many_producers_are_forgotten_as_places_are_needed_the_silent_longest_first() -> None:
    """A clock that jumps must not make 10,000 producers forgotten for one that is new."""
    known = {
        f"p{at}": Numbered(number=7, sequence=MOST_PRODUCERS - at, received_at_us=at)  # a clock went backwards meanwhile
        for at in range(MOST_PRODUCERS)
    }
    producers = Producers(known)
    producers.note("p9999", Numbered(number=8, sequence=MOST_PRODUCERS + 1, received_at_us=1))
    with pytest.raises(Exception, match=f"remembers {MOST_PRODUCERS} producers"):
        producers.judge([event("x", 1), event("y", 1)], now_us=FORGET_AFTER_US)  # of which only p0 is silent
    assert len(producers.durable) == MOST_PRODUCERS
    producers.judge([event("x", 1), event("y", 1), event("p9998", 8)], now_us=2 * FORGET_AFTER_US)
    assert known.keys() - producers.durable.keys() == {"p9997", "p9996"}, "neither what is new nor what sends at this moment"


def test_no_clock_alone_makes_a_producer_forgotten(disk: ForgetfulDisk) -> None:
    """A clock that jumps while a client waits for its answer must not make what it sends again a new event."""
    now = [0]
    journal = Journal(HOME, now_us=lambda: now[0], limits=replace(SMALL, segment_bytes=1), storage=disk)
    journal.append([event("a", 1)])
    journal.commit()
    now[0] = 10 * FORGET_AFTER_US
    for _ in range(2):
        journal.append([PLAIN])
        journal.commit()  # a segment begins
    assert journal.append([event("a", 1)]) == (Receipt(0, is_repeat=True),)
    journal.close()
    again = Journal(HOME, now_us=lambda: now[0], storage=disk)
    assert again.append([event("a", 1)]) == (Receipt(0, is_repeat=True),)
