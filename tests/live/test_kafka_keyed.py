"""The kafka sink without transactions: a record may come again, under the same name."""

from collections import Counter

import pytest
from tests.servers.kafka import records
from tests.unit.kafka_target import topics, values

from penstock.core import faults
from penstock.core.model import SinkKind
from penstock.errors import Retryable
from penstock.sink.kafka import marker_store
from penstock.testing.conformance import PIPELINE

topic = pytest.fixture(topics)


def names(place):
    return Counter(dict(message.headers())["penstock-id"].decode() for message in records(place.rig.bootstrap, place.rig.topic))


def test_it_promises_less(topic):
    sink = topic(keyed=True).sink()
    assert (sink.exactly_once, sink.kind) == (False, SinkKind.IDEMPOTENT)
    assert "may come again" in sink.describe()["publish"]


@pytest.mark.parametrize("fault", ["kafka.mark=error@2", "kafka.mark=lost@2"])
def test_a_record_that_comes_again_has_the_same_name(topic, fault):
    place = topic(keyed=True, partitions=2, lanes=2)
    sink = place.sink()
    publication = place.decided_but_not_published(sink, range(10), range(10, 30), batch_id=0)
    faults.arm(fault)
    with pytest.raises(Retryable):
        sink.publish(publication)
    place.sink().publish(publication)
    found = names(place)
    assert len(found) == 30
    assert found.total() > 30
    assert f"{publication.pipeline}={sink.name}={publication.position:012d}=1=19" in found
    assert place.content().keys() == values(range(30)).keys()
    report = place.verify(sink)
    assert (report.ok, report.unread) == (True, True)


def test_what_is_marked_is_not_sent_again(topic):
    place = topic(keyed=True, transaction_bytes=500)
    sink = place.sink()
    shown = place.put(sink, range(50), batch_id=0)
    assert place.sink().publish(shown.publication).already
    assert place.content() == values(range(50))
    assert set(names(place).values()) == {1}


def test_markers_come_after_their_rows(topic):
    """What is not acknowledged is not marked; the marker has taken the ledger before."""
    place = topic(keyed=True)
    sink = place.sink()
    publication = place.decided_but_not_published(sink, range(10), batch_id=0)
    before = len(place.markers())
    place.rig.running.set_topic(place.rig.topic, max_message_bytes="60")
    with pytest.raises(Exception, match="found a record too large"):
        sink.publish(publication)
    assert len(place.markers()) == before + 1
    assert marker_store.decode_lane_marker(place.markers()[-1].value(), pipeline=PIPELINE, sink=sink.name).marker.position == 0
