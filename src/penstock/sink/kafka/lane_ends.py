"""Looks whether brokers have ended a lane's transactions in every partition, and ends what they forgot.

A forgotten end is written with the next one, whose outcome may be another: rows of an attempt that was aborted would appear
beside those of the attempt that was committed, or rows that were reported as delivered would vanish. So a lane begins a
transaction only when none of its own is open in any partition that it may write to.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import TopicPartition
from kafka import TopicPartition as Place
from kafka.admin import KafkaAdminClient
from kafka.errors import AuthorizationError, ClusterAuthorizationFailedError, KafkaError
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from penstock.core.faults import FaultPoint
from penstock.errors import Refused, Retryable, Usage
from penstock.kafka.transaction_ends import (
    ABORTED,
    COMMITTED,
    ENDING,
    ONGOING,
    Open,
    abort_again,
    commit_again,
    coordinated,
    fence,
    open_of,
)
from penstock.kafka.transactions import connected
from penstock.sink.kafka.clients import Clients
from penstock.sink.kafka.errors import command, connection_lost, overtaken
from penstock.sink.kafka.marker_store import transactional_id
from penstock.sink.kafka.target import Wanted
from penstock.sink.kafka.topics import await_settled, every_place, places_of

END = FaultPoint("kafka-ends.write", "An end that brokers forgot is written into partitions of a lane's transaction.")

_SOON_S = 0.2
"""How long after its commit a transaction may be open before somebody is asked whose it is."""
_ENDED_S = 30.0
"""A broker that starts may take so long to end what its coordinator was ending."""
_GLANCE_S, _LOOK_S = 0.01, 0.05
_KNOWN_S = 60.0


class CannotLook(Retryable):
    """Transactions are open, and nobody can tell whose they are, since this user may not see it."""


class CannotConnect(CannotLook):
    """Or since the client that can ask does not make connections of this kind."""


class LaneEnds:
    """The ends of one lane's transactions. Used by one thread at a time. Raises Retryable, Refused, KafkaException."""

    def __init__(self, clients: Clients, wanted: Wanted, number: int) -> None:
        self._clients = clients
        self._wanted = wanted
        self._number = number
        self._name = transactional_id(wanted.pipeline, wanted.sink, number)
        self._known: list[TopicPartition] = []
        self._known_until_s = 0.0

    def end_older(self) -> None:
        """Return when nothing of the lane is open. Called before `init_transactions`.

        By its answer to that the coordinator forgets how the last transaction ended. Where no connection can be made to ask for
        it, that is left to it all the same: it ends what a driver left open, and `are_written` says what became of the rest.
        """
        self._known_until_s = 0.0
        if self._is_settled(wait_s=0):
            return
        try:
            with self._asking() as admin:
                self._end_older(admin)
        except CannotConnect:
            return
        except CannotLook:
            if not self._is_settled(wait_s=_ENDED_S):
                raise

    def are_written(self, settled: Callable[[Sequence[TopicPartition]], bool]) -> bool:
        """Return whether nothing of the lane is open, since its coordinator has ended everything. Something of others may be.

        `settled` says whether nothing is open at all.
        """
        places = self._every_place()
        is_open = _while_true(lambda: not settled(places), wait_s=_SOON_S, look_s=_GLANCE_S)
        if not is_open or self._is_settled(wait_s=0):  # the second says why nobody answers, if that is so
            return True
        try:
            with self._asking() as admin:
                return _while_true(lambda: self._is_ending(admin), wait_s=_ENDED_S) is None
        except CannotLook:
            if not self._is_settled(wait_s=_ENDED_S):
                raise
            return True

    def _is_ending(self, admin: KafkaAdminClient) -> bool | None:
        """Return whether what is open of the lane is still being ended, None if nothing is open."""
        owner = coordinated(admin, self._name)
        if owner is not None and owner.state == ONGOING:
            raise overtaken(self._clients.place)
        is_open = owner is not None and open_of(admin, owner.producer_id, self._places())
        return owner.state in ENDING if is_open else None

    def _end_older(self, admin: KafkaAdminClient) -> None:
        places, begun = self._places(), dict[Place, int]()

        def is_open() -> bool:
            nonlocal begun
            begun = self._look(admin, places, begun)
            return bool(begun)

        if _while_true(is_open, wait_s=_ENDED_S):
            raise Retryable(
                f"{self._sentence(begun)}, and its coordinator does not end it.",
                remedy="Look into the logs of its brokers, and try again.",
            )

    def _look(self, admin: KafkaAdminClient, places: Sequence[Place], before: Mapping[Place, int]) -> dict[Place, int]:
        """Return where something of the lane is open, and since which offset. End it if that is the same as `before`.

        Open before its coordinator was asked and afterwards: what the coordinator takes for ended is not just being ended, nor
        another driver's that has begun meanwhile.
        """
        owner = coordinated(admin, self._name)
        if owner is None:
            return {}
        try:
            found = open_of(admin, owner.producer_id, places)
        except AuthorizationError:
            if owner.state in {ONGOING, *ENDING}:
                return {}
            raise
        begun = {at: one.current_transaction_start_offset for at, one in found.items()}
        if found and begun == before:
            self._end(admin, owner, found)
        return begun

    def _end(self, admin: KafkaAdminClient, owner: Any, found: Open) -> None:
        if owner.state in ENDING:
            return
        if owner.state == ONGOING and owner.topic_partitions >= found.keys():
            fence(admin, self._name, timeout_ms=owner.transaction_timeout_ms)
        elif owner.state in {COMMITTED, ABORTED}:
            with END.around(error=connection_lost, lost=connection_lost):
                end = commit_again if owner.state == COMMITTED else abort_again
                end(admin, owner, self._name, found)
        else:
            raise self._unknown(found)

    def _is_settled(self, *, wait_s: float) -> bool:
        return await_settled(self._clients.admin, self._every_place(), wait_s=wait_s)

    def _every_place(self) -> list[TopicPartition]:
        """Return each partition that the lane may have written to, new ones within a minute."""
        now_s, target = time.monotonic(), self._wanted.target
        if now_s >= self._known_until_s:
            self._known = every_place(self._clients.admin, target.every) + places_of(target.markers, [self._number])
            self._known_until_s = now_s + _KNOWN_S
        return self._known

    def _places(self) -> list[Place]:
        """Return them as kafka-python has them."""
        return [Place(at.topic, at.partition) for at in self._every_place()]

    @contextmanager
    def _asking(self) -> Iterator[KafkaAdminClient]:
        place = self._clients.place
        try:
            with connected(self._clients.given) as admin:
                yield admin
        except Usage as cause:
            raise CannotConnect(f"A transaction is open in {place}. {cause.message}", remedy=cause.remedy) from cause
        except ClusterAuthorizationFailedError as cause:
            raise Refused(
                f"Brokers forgot to commit a transaction of lane {self._number} of sink {self._wanted.sink!r} in partitions of "
                f"{place}, and the user lacks the right to do it.",
                remedy=f"{command('Alter', '--cluster')} (ClusterAction before Kafka 3.9), and start again, which commits it.",
            ) from cause
        except AuthorizationError as cause:
            topics = " ".join(f"--topic {name}" for name in self._wanted.target.every)
            raise CannotLook(
                f"A transaction is open in {place}, and the user may not see whose it is.",
                remedy=f"{command('Read', topics)}, and start again.",
            ) from cause
        except KafkaError as cause:
            raise Retryable(
                f"{place} did not say which transactions are open: {str(cause) or type(cause).__name__}.",
                remedy="Look into the logs of its brokers, and try again.",
            ) from cause

    def _unknown(self, found: Open) -> Refused:
        names = [f"{at.topic}/{at.partition}/{one.producer_id}" for at, one in found.items()]
        ends = " and ".join(f"`penstock doctor FILE --end {name}`" for name in names)
        return Refused(
            f"{self._sentence(found)}, and its coordinator does not know any more whether it was committed or aborted.",
            remedy=f"Run {ends}, which aborts it, and start again. If the last run reported its batch as delivered, compare the "
            "topic first, since its rows there would be lost.",
        )

    def _sentence(self, found: Iterable[Place]) -> str:
        places = ", ".join(f"{at.topic}-{at.partition}" for at in found)
        return f"A transaction of lane {self._number} of sink {self._wanted.sink!r} is open in {places}"


def _while_true(look: Callable[[], bool | None], *, wait_s: float, look_s: float = _LOOK_S) -> bool | None:
    """Look until it is not true any more, or for `wait_s`, and return what was seen last."""
    waiting = Retrying(
        retry=retry_if_result(bool), stop=stop_after_delay(wait_s), wait=wait_fixed(look_s), retry_error_callback=lambda _: True
    )
    found: bool | None = waiting(look)
    return found
