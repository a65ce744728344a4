"""The client of a stream's API. The only module that imports boto3 for this source.

A shard may be read five times a second and with 2 MB/s, by all readers together: this client paces its own reads of a shard, and
asks again for a while when Kinesis says that it is too much (Amazon Kinesis Data Streams API reference, GetRecords).
"""

import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError, HTTPClientError
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from penstock.errors import Failed, PenstockError, Retryable
from penstock.source.kinesis.settings import KinesisSettings
from penstock.source.kinesis.shard import ForeignNumber, IteratorExpired, Page, Record, Shard, StreamSummary

_BETWEEN_READS_S = 0.2
_PATIENCE_S = 60.0
_LONGEST_WAIT_S = 5.0
"""A shard that gave 10 MB gives nothing more for up to five seconds."""
_NAMES: Final[Mapping[str, str]] = {
    "region": "region_name",
    "endpoint": "endpoint_url",
    "access_key_id": "aws_access_key_id",
    "secret_access_key": "aws_secret_access_key",
    "session_token": "aws_session_token",
}
_THROTTLED = frozenset({
    "ProvisionedThroughputExceededException", "LimitExceededException", "KMSThrottlingException", "ThrottlingException",
    "InternalFailure", "InternalServerError", "ServiceUnavailable", "RequestLimitExceeded", "Throttling",
})  # fmt: skip
_HOUR_MS = 3_600_000
_SERVER_FAILS = 500


class StreamClient:
    """A `Kinesis`, by boto3. One may serve several threads. `patience_s`: how long a request is repeated that may pass later."""

    def __init__(
        self, settings: KinesisSettings, *, pause: Callable[[float], None] = time.sleep, patience_s: float = _PATIENCE_S
    ) -> None:
        self._settings, self._pause, self._patience_s = settings, pause, patience_s
        self._reads = dict[str, float]()
        self._lock = threading.Lock()
        given = settings.connection
        try:
            session = boto3.session.Session(profile_name=given.get("profile"))
            config = Config(retries={"mode": "standard", "total_max_attempts": 2}, connect_timeout=5, max_pool_connections=32)
            options = {_NAMES[name]: value for name, value in given.items() if name in _NAMES}
            self._client: Any = session.client("kinesis", config=config, **options)
        except (BotoCoreError, ValueError) as error:
            raise Failed(
                f"The client of source {settings.name!r} (kinesis) could not be made: {str(error).removesuffix('.')}.",
                remedy="Give `region`, or AWS_REGION, and correct what else is named.",
            ) from error

    def summary(self) -> StreamSummary:
        answer = self._ask(lambda: self._client.describe_stream_summary(StreamName=self._settings.stream))
        found = answer["StreamDescriptionSummary"]
        return StreamSummary(
            created_ms=_ms(found["StreamCreationTimestamp"]),
            retention_ms=int(found["RetentionPeriodHours"]) * _HOUR_MS,
            now_ms=_now_ms(answer),
        )

    def shards(self) -> Mapping[str, Shard]:
        found = dict[str, Shard]()
        asked: dict[str, Any] | None = {"StreamName": self._settings.stream}
        while asked is not None:
            answer = self._ask(partial(self._client.list_shards, **asked))
            found |= {each["ShardId"]: _shard(each) for each in answer["Shards"]}
            asked = {"NextToken": answer["NextToken"]} if answer.get("NextToken") else None
        return found

    def iterator(self, shard: str, position: str) -> str:
        kind, _, value = position.partition(" ")
        given: dict[str, Any] = {"ShardIteratorType": kind}
        if kind.endswith("NUMBER"):
            given["StartingSequenceNumber"] = value
        elif kind == "AT_TIMESTAMP":
            given["Timestamp"] = datetime.fromtimestamp(int(value) / 1000, timezone.utc)
        ask = self._client.get_shard_iterator
        return str(self._ask(lambda: ask(StreamName=self._settings.stream, ShardId=shard, **given))["ShardIterator"])

    def page(self, shard: str, iterator: str, *, limit: int) -> Page:
        def read() -> Any:
            self._pace(shard)
            return self._client.get_records(ShardIterator=iterator, Limit=limit)

        answer = self._ask(read)
        return Page(
            records=tuple(map(_record, answer["Records"])),
            following=answer.get("NextShardIterator"),
            behind_ms=int(answer.get("MillisBehindLatest") or 0),
            now_ms=_now_ms(answer),
        )

    def _pace(self, shard: str) -> None:
        with self._lock:
            now = time.monotonic()
            at = max(now, self._reads.get(shard, 0.0) + _BETWEEN_READS_S)
            self._reads[shard] = at
        self._pause(at - now)

    def _ask(self, question: Callable[[], Any]) -> Any:
        asking = Retrying(
            retry=retry_if_exception(_passes),
            stop=stop_after_delay(self._patience_s),
            sleep=self._pause,
            wait=wait_random_exponential(multiplier=_BETWEEN_READS_S, max=_LONGEST_WAIT_S),
            reraise=True,
        )
        try:
            return asking(question)
        except (ClientError, BotoCoreError) as error:
            raise self._error_for(error) from error

    def _error_for(self, error: Exception) -> Exception:
        code, text = _code(error), str(error).removesuffix(".")
        if code == "ExpiredIteratorException":
            return IteratorExpired(text)
        if code == "InvalidArgumentException" and "equence" in text:
            return ForeignNumber(text)
        return self._explained(error, code, text)

    def _explained(self, error: Exception, code: str, text: str) -> PenstockError:
        given = self._settings
        if code == "ResourceNotFoundException":
            return Failed(
                f"Stream {given.stream!r} of source {given.name!r} does not exist at {given.place}: {text}.",
                remedy="Create it, or correct streamName, region or endpoint.",
            )
        if _passes(error):
            return Retryable(
                f"Kinesis at {given.place} does not answer for source {given.name!r}: {text}.",
                remedy="See whether it is within reach, and whether other readers use up the shards' limits; then try again.",
            )
        return Failed(
            f"Kinesis at {given.place} refuses a request of source {given.name!r}: {text}.",
            remedy="Correct the credentials, or allow them DescribeStreamSummary, ListShards, GetShardIterator and GetRecords.",
        )


def _passes(error: BaseException) -> bool:
    """Return whether the same request may be answered later."""
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return _code(error) in _THROTTLED or status >= _SERVER_FAILS
    return isinstance(error, EndpointConnectionError | HTTPClientError)


def _code(error: Exception) -> str:
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def _shard(found: Mapping[str, Any]) -> Shard:
    parents = (found.get("ParentShardId"), found.get("AdjacentParentShardId"))
    hashes = found["HashKeyRange"]
    return Shard(
        shard=found["ShardId"],
        parents=tuple(parent for parent in parents if parent),
        is_closed=found["SequenceNumberRange"].get("EndingSequenceNumber") is not None,
        hashes=(int(hashes["StartingHashKey"]), int(hashes["EndingHashKey"])),
    )


def _record(found: Mapping[str, Any]) -> Record:
    return Record(
        number=found["SequenceNumber"],
        key=found["PartitionKey"],
        data=found["Data"],
        arrived_ms=_ms(found["ApproximateArrivalTimestamp"]),
    )


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _now_ms(answer: Mapping[str, Any]) -> int:
    """Return the time of the answer: by the clock that also stamps records, in whole seconds."""
    date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    return time.time_ns() // 1_000_000 if date is None else _ms(parsedate_to_datetime(date))
