"""Records of a transaction whose end no broker will write: as after one that was killed while it ended the transaction.

A producer's own records, sent to a partition of which its coordinator was told nothing: it takes the transaction for ended.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import RetriableError
from kafka.protocol.producer.produce import ProduceRequest
from kafka.record.default_records import DefaultRecordBatchBuilder
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

_TRUSTED = "transaction.partition.verification.enable"
_SIZE, _BEFORE_VERSION_2 = 100_000, 8
_ANEW = Retrying(retry=retry_if_exception_type(RetriableError), stop=stop_after_delay(30), wait=wait_fixed(0.05), reraise=True)
"""The broker of a partition that was added a moment ago may not know yet that it leads it."""


@contextmanager
def trusting(running: Any) -> Iterator[None]:
    """Brokers ask no coordinator whether a partition belongs to the transaction."""
    _set(running, _TRUSTED, "false")
    yield
    _set(running, _TRUSTED, "true")


def leave_open(bootstrap: str, name: str, topic: str, partition: int, records: Sequence[tuple[bytes | None, bytes]]) -> None:
    """Records (key, value) of the producer that the transactional id `name` has now."""
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        owner = admin.describe_transactions([name])[name]
        at = TopicPartition(topic, partition)
        producers = _ANEW(admin.describe_producers, [at])[at].active_producers
        same = [one for one in producers if (one.producer_id, one.producer_epoch) == (owner.producer_id, owner.producer_epoch)]
        first = same[0].last_sequence + 1 if same else 0
        batch = DefaultRecordBatchBuilder(2, 0, 0, owner.producer_id, owner.producer_epoch, first, _SIZE)
        batch.set_producer_state(owner.producer_id, owner.producer_epoch, first, is_transactional=True)
        for number, (key, value) in enumerate(records):
            assert batch.append(number, None, key, value, []) is not None
        topics, partitions = ProduceRequest.TopicProduceData, ProduceRequest.TopicProduceData.PartitionProduceData
        data = [topics(name=topic, partition_data=[partitions(index=partition, records=bytes(batch.build()))])]
        request = ProduceRequest(
            transactional_id=name, acks=-1, timeout_ms=10_000, topic_data=data, max_version=_BEFORE_VERSION_2
        )
        admin._manager.run(_sent, admin, at, request)


async def _sent(admin: Any, at: TopicPartition, request: ProduceRequest) -> None:
    [leader] = await admin._async_get_leader_for_partitions([at])
    response = await admin._manager.send(request, node_id=leader)
    [code] = [part.error_code for topic in response.responses for part in topic.partition_responses]
    assert code == 0, response


def _set(running: Any, name: str, value: str) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    every = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    [future] = running.admin().incremental_alter_configs([every]).values()
    future.result(60)
