"""One transactional id as its brokers know it: what its coordinator says, where its producer's transaction is open, and its end.

A coordinator that restarts while it ends a transaction may lack metadata of some partitions, and then takes them for deleted: it
reports that the transaction has ended, and writes no end there. Readers of these partitions wait until the producer's next
transaction ends there, and see the records of both with the outcome of the later one (seen on Kafka 4.3).

All functions raise KafkaError of kafka-python.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final, TypeAlias

from kafka import TopicPartition
from kafka.admin import AbortTransactionSpec, KafkaAdminClient
from kafka.errors import (
    ConcurrentTransactionsError,
    KafkaError,
    OperationNotAttemptedError,
    TransactionalIdNotFoundError,
    for_code,
)
from kafka.protocol.metadata import CoordinatorType
from kafka.protocol.producer.transaction import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest

ONGOING, COMMITTED, ABORTED = "Ongoing", "CompleteCommit", "CompleteAbort"
COMMITTING: Final = "PrepareCommit"
ENDING: Final = frozenset({COMMITTING, "PrepareAbort", "PrepareEpochFence"})
_TOPICS_IN, _ABORTS_IN = 3, 4
"""Newest request versions in which the producer, not the broker, adds partitions, and in which an abort fences nobody."""

Open: TypeAlias = Mapping[TopicPartition, Any]
"""Where a producer's transaction is open: its `kafka.admin.ProducerState`."""


def coordinated(admin: KafkaAdminClient, name: str) -> Any:
    """Return the `TransactionDescription` of a transactional id, None if its coordinator knows none."""
    try:
        return admin.describe_transactions([name])[name]
    except TransactionalIdNotFoundError:
        return None


def open_of(admin: KafkaAdminClient, producer_id: int, places: Collection[TopicPartition]) -> Open:
    """Return in which of `places` a transaction of that producer is open."""
    described = admin.describe_producers(places)
    every = [(at, one) for at, state in described.items() for one in state.active_producers]
    return {at: one for at, one in every if one.producer_id == producer_id and one.current_transaction_start_offset >= 0}


def fence(admin: KafkaAdminClient, name: str, *, timeout_ms: int) -> None:
    """Fence all producers of a transactional id. An open transaction begins to abort, and the coordinator still knows that.

    A client's `init_transactions` asks until the abort is complete; with that answer the coordinator forgets what it aborted.
    """
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms, producer_id=-1, producer_epoch=-1)
    _require(_asked(admin, name, request).error_code, fine=ConcurrentTransactionsError)


def abort_again(admin: KafkaAdminClient, owner: Any, name: str, where: Open) -> None:
    """Have the coordinator abort a transaction in the partitions where it forgot to. The rights of its producer are enough.

    A producer that starts in between finds it as an ongoing transaction, and aborts it.
    """
    of_topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    added = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=owner.producer_id,
        v3_and_below_producer_epoch=owner.producer_epoch,
        v3_and_below_topics=[of_topic(name=at.topic, partitions=[at.partition]) for at in where],
        max_version=_TOPICS_IN,
    )
    answer = _asked(admin, name, added).results_by_topic_v3_and_below
    codes = {partition.partition_error_code for found in answer for partition in found.results_by_partition}
    for code in sorted(codes, key=lambda code: code == OperationNotAttemptedError.errno):  # which only says that another failed
        _require(code)
    ended = EndTxnRequest(
        transactional_id=name,
        producer_id=owner.producer_id,
        producer_epoch=owner.producer_epoch,
        committed=False,
        max_version=_ABORTS_IN,
    )
    _require(_asked(admin, name, ended).error_code)


def write_end(admin: KafkaAdminClient, at: TopicPartition, one: Any, *, committed: bool) -> None:
    """Write the end of the transaction that producer `one` has open in a partition, as an administrator.

    Needs the right Alter on the cluster. It ends whatever that producer has open there when it arrives. The partition refuses the
    end of an older producer or coordinator than those that it knows.
    """
    spec = AbortTransactionSpec(at, one.producer_id, one.producer_epoch, one.coordinator_epoch)

    async def write() -> None:
        [leader] = await admin._async_get_leader_for_partitions([at])
        request = admin._abort_transaction_request(spec)
        request.markers[0].transaction_result = committed  # what its public `abort_transaction` does not let one say
        admin._abort_transaction_process_response(await admin._manager.send(request, node_id=leader), spec)

    admin._manager.run(write)


def _asked(admin: KafkaAdminClient, name: str, request: Any) -> Any:
    """Return the coordinator's answer. kafka-python has these requests for its producer only, which sends them as it sees fit."""

    async def ask() -> Any:
        coordinators = await admin._find_coordinator_ids([name], key_type=CoordinatorType.TRANSACTION)
        return await admin._manager.send(request, node_id=coordinators[name])

    return admin._manager.run(ask)


def _require(code: int, *, fine: type[KafkaError] | None = None) -> None:
    kind = for_code(code)
    if code and kind is not fine:
        raise kind
