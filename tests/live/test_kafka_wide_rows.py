"""Rows so wide that not all of a batch should be records in memory at once."""

import pytest
from tests.unit.kafka_target import topics, values

from penstock.core import faults
from penstock.errors import Retryable

topic = pytest.fixture(topics)


def text(number):
    return f"{number:05}" * 20_000


def test_of_wide_rows_only_a_few_are_records_at_a_time(topic):
    """A piece of them is handed over in as many steps as its bytes need, in one transaction, and in its order."""
    place = topic()
    place.rig.row = lambda number: {"value": text(number), "key": "one"}
    sink = place.sink()
    publication = place.decided_but_not_published(sink, range(10), batch_id=0)
    faults.arm("kafka.rows=error@3")
    with pytest.raises(Retryable):
        sink.publish(publication)
    faults.arm("")
    assert place.content() == values()
    assert not sink.publish(publication).already
    assert list(place.content()) == [text(number) for number in range(10)]
