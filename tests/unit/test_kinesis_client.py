"""The client of Kinesis by answers that AWS documents and the emulator never gives: throttling, pages, refusals."""

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
from botocore.stub import Stubber

from penstock.errors import Failed, Retryable
from penstock.source.kinesis.client import StreamClient
from penstock.source.kinesis.settings import KinesisSettings
from penstock.source.kinesis.shard import ForeignNumber, IteratorExpired

KEYS = {"region": "eu-west-1", "access_key_id": "a", "secret_access_key": "b"}
SETTINGS = KinesisSettings(name="web", stream="orders", connection=KEYS)
DATE = {"HTTPHeaders": {"date": "Fri, 15 Jan 2027 08:00:00 GMT"}, "HTTPStatusCode": 200}
NO_RECORDS: dict[str, Any] = {"Records": [], "NextShardIterator": "next", "MillisBehindLatest": 7, "ResponseMetadata": DATE}


class Answering:
    """A client with the next answers, and the pauses that it made."""

    def __init__(self, *, patience_s: float = 60) -> None:
        self.pauses = list[float]()
        self.client = StreamClient(SETTINGS, pause=self.pauses.append, patience_s=patience_s)
        self.stubber = Stubber(self.client._client)

    def fail(self, method: str, code: str, message: str = "so", *, status: int = 400) -> None:
        self.stubber.add_client_error(method, code, message, http_status_code=status)


@pytest.fixture
def answering() -> Iterator[Answering]:
    found = Answering()
    with found.stubber:
        yield found


@pytest.mark.parametrize(
    ("code", "status"), [("ProvisionedThroughputExceededException", 400), ("LimitExceededException", 400), ("Unknown", 503)]
)
def test_what_is_throttled_is_asked_again(answering: Answering, code: str, status: int) -> None:
    for _ in range(3):
        answering.fail("get_records", code, status=status)
    answering.stubber.add_response("get_records", NO_RECORDS, {"ShardIterator": "here", "Limit": 5})
    page = answering.client.page("shard", "here", limit=5)
    assert (page.records, page.following, page.behind_ms, page.now_ms) == ((), "next", 7, 1_800_000_000_000)
    answering.stubber.assert_no_pending_responses()


def test_a_shard_that_is_throttled_for_long_is_tried_again_later() -> None:
    answering = Answering(patience_s=0)
    with answering.stubber:
        answering.fail("get_records", "ProvisionedThroughputExceededException")
        with pytest.raises(Retryable, match=r"does not answer for source 'web': .*ProvisionedThroughputExceeded"):
            answering.client.page("shard", "here", limit=5)


def test_a_shard_is_read_five_times_a_second_at_most(answering: Answering) -> None:
    for shard in ("one", "one", "one", "other"):
        answering.stubber.add_response("get_records", NO_RECORDS)
        answering.client.page(shard, "here", limit=5)
    first, second, third, other = answering.pauses
    assert first == other == 0
    assert 0 < second <= 0.2 < third <= 0.4


@pytest.mark.parametrize(
    ("code", "message", "error"),
    [
        ("ExpiredIteratorException", "Iterator expired.", IteratorExpired),
        ("InvalidArgumentException", "StartingSequenceNumber 4 did not come from this stream.", ForeignNumber),
        ("ResourceNotFoundException", "Stream orders not found.", Failed),
        ("AccessDeniedException", "not authorized to perform: kinesis:GetRecords", Failed),
    ],
)
def test_each_refusal_is_told_apart(answering: Answering, code: str, message: str, error: type[Exception]) -> None:
    answering.fail("get_records", code, message)
    with pytest.raises(error):
        answering.client.page("shard", "here", limit=5)


def test_shards_come_page_by_page(answering: Answering) -> None:
    hashes, numbers = {"StartingHashKey": "0", "EndingHashKey": "9"}, {"StartingSequenceNumber": "1"}
    one = {"ShardId": "shardId-0", "HashKeyRange": hashes, "SequenceNumberRange": {**numbers, "EndingSequenceNumber": "2"}}
    parents = {"ParentShardId": "shardId-0", "AdjacentParentShardId": "shardId-9"}
    other = {"ShardId": "shardId-1", "HashKeyRange": hashes, "SequenceNumberRange": numbers, **parents}
    answering.stubber.add_response("list_shards", {"Shards": [one], "NextToken": "more"}, {"StreamName": "orders"})
    answering.stubber.add_response("list_shards", {"Shards": [other]}, {"NextToken": "more"})
    found = answering.client.shards()
    assert {name: (shard.parents, shard.is_closed, shard.hashes) for name, shard in found.items()} == {
        "shardId-0": ((), True, (0, 9)),
        "shardId-1": (("shardId-0", "shardId-9"), False, (0, 9)),
    }


def test_a_time_is_asked_for_in_milliseconds(answering: Answering) -> None:
    at = datetime(2027, 1, 15, 8, 0, 0, 500_000, tzinfo=timezone.utc)
    asked = {"StreamName": "orders", "ShardId": "shardId-0", "ShardIteratorType": "AT_TIMESTAMP", "Timestamp": at}
    answering.stubber.add_response("get_shard_iterator", {"ShardIterator": "here"}, asked)
    assert answering.client.iterator("shardId-0", "AT_TIMESTAMP 1800000000500") == "here"
