"""Looks whether brokers have ended a lane's transactions in every partition, and ends what they forgot.

A forgotten end is written with the next one, whose outcome may be another: rows of an attempt that was aborted would appear
beside those of the attempt that was committed, or rows that were reported as delivered would vanish. So a lane begins a
transaction only when none of its own is open in any partition that it may have written to.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import TopicPartition
from kafka import TopicPartition as Place
from kafka.admin import KafkaAdminClient
from kafka.errors import (
    AuthorizationError,
    ClusterAuthorizationFailedError,
    KafkaError,
    RetriableError,
    UnsupportedVersionError,
)
from tenacity import RetryCallState, Retrying, retry_if_exception_type, retry_if_result, stop_after_delay, wait_fixed

from penstock.core.faults import FaultPoint
from penstock.errors import Refused, Retryable, Usage
from penstock.kafka.transaction_ends import (
    ABORTED,
    COMMITTED,
    COMMITTING,
    ENDING,
    ONGOING,
    Open,
    abort_again,
    coordinated,
    fence,
    open_of,
    write_end,
)
from penstock.kafka.transactions import connect
from penstock.sink.kafka.clients import Clients
from penstock.sink.kafka.errors import command, connection_lost, overtaken
from penstock.sink.kafka.marker_store import LaneMarker, newest_mark, transactional_id
from penstock.sink.kafka.target import Wanted
from penstock.sink.kafka.topics import await_settled, every_place, places_of, written

FENCE = FaultPoint("kafka-ends.fence", "A lane's older producers are fenced, and the coordinator aborts what they left open.")
END = FaultPoint("kafka-ends.write", "An end that brokers forgot is written into partitions of a lane's transaction.")

_SOON_S = 0.2
"""How long after a commit a transaction may be open before its owner is looked for."""
_ENDED_S = 30.0
"""A broker that starts may take so long to end what its coordinator was ending."""
_GLANCE_S, _LOOK_S = 0.01, 0.05


class CannotLook(Retryable):
    """Transactions are open, and nobody can tell whose they are: this user may not see it, or this client cannot ask."""


class LaneEnds:
    """The ends of one lane's transactions. Used by one thread at a time. Raises Retryable, Refused, KafkaException."""

    def __init__(self, clients: Clients, wanted: Wanted, number: int) -> None:
        self._clients = clients
        self._wanted = wanted
        self._number = number
        self._name = transactional_id(wanted.pipeline, wanted.sink, number)
        self._topics = wanted.target.every
        self._begun: dict[Place, int] = {}
        self._others_are_open = False
        self._connected: KafkaAdminClient | None = None

    def end_older(self) -> None:
        """Return when no transaction of the lane is open anywhere. Called before `init_transactions`. Raises Retryable, Refused.

        When it answers that call, the coordinator forgets how the last transaction ended. Leaders are asked even where consumers
        see no open transaction: only leaders see records that not all replicas have yet. If nobody can be asked, what consumers
        see must do, once brokers have had time to end by themselves what a driver left open.
        """
        self._topics, self._begun = self._topics_written(), {}
        try:
            with self._explained():
                is_open = self._while_true(self._is_older_open, wait_s=_ENDED_S)
        except CannotLook:
            if not self._is_settled(wait_s=self._wanted.timeout_ms / 1000 + _ENDED_S):
                raise
            return
        finally:
            self.close()
        if is_open:
            raise Retryable(
                f"{self._sentence(self._begun)}, and its coordinator does not end it.",
                remedy="Look into the logs of its brokers, and try again.",
            )

    def are_written(self, settled: Callable[[Sequence[TopicPartition]], bool]) -> bool:
        """Return whether no transaction of the lane is open in any partition. Transactions of other producers may be.

        `settled` says whether no transaction at all is open. Called after each commit, which all replicas have acknowledged.
        """
        places = self._every_place()
        wait_s = 0 if self._others_are_open else _SOON_S
        is_open = _while_true(lambda: not settled(places), wait_s=wait_s, look_s=_GLANCE_S)
        self._others_are_open = False
        if not is_open or self._is_settled(wait_s=0):  # the second call raises an error where nobody answers
            return True
        try:
            with self._explained():
                is_ending = self._while_true(self._is_ending, wait_s=_ENDED_S)
        except CannotLook:
            if not self._is_settled(wait_s=_ENDED_S):
                raise
            return True
        self._others_are_open = is_ending is None
        return self._others_are_open

    def newest_committed(self) -> LaneMarker | None:
        """Return the lane's newest marker, also where brokers have not ended its commit yet, or forgot to. Changes nothing.

        If nobody can be asked, or before the lane's first transaction, that is the newest marker that readers see.
        """
        markers = places_of(self._wanted.target.markers, [self._number])
        [end] = written(self._clients.admin, self._wanted.target.markers, [self._number])
        answers: list[bool] = []
        try:
            with self._explained():
                self._while_true(lambda admin: answers.append(self._is_marker_committed(admin)), wait_s=_ENDED_S)
        except CannotLook:
            if not await_settled(self._clients.admin, markers, wait_s=self._wanted.timeout_ms / 1000 + _ENDED_S):
                raise
        finally:
            self.close()
        is_hidden = answers == [True]
        return newest_mark(self._clients, self._wanted, self._number, below=end if is_hidden else None, visible=not is_hidden)

    def close(self) -> None:
        """Close the connection by which coordinators and leaders are asked; the next look opens another one."""
        connected, self._connected = self._connected, None
        if connected is not None:
            connected.close()

    def _is_ending(self, admin: KafkaAdminClient) -> bool | None:
        """Return whether the lane's open transaction is being ended, None if none is open. Raise Overtaken for an ongoing one."""
        owner = coordinated(admin, self._name)
        if owner is not None and owner.state == ONGOING:
            raise overtaken(self._clients.place)
        is_open = owner is not None and open_of(admin, owner.producer_id, self._places())
        return owner.state in ENDING if is_open else None

    def _is_marker_committed(self, admin: KafkaAdminClient) -> bool:
        """Return whether the coordinator has committed a marker of the lane that readers do not see yet.

        The coordinator is asked once more at the end: what is open may have begun since it was asked first.
        """
        at = Place(self._wanted.target.markers, self._number)
        owner = coordinated(admin, self._name)
        found = None if owner is None else open_of(admin, owner.producer_id, [at]).get(at)
        if found is None:
            return False
        owner = coordinated(admin, self._name)
        is_same = owner is not None and (owner.producer_id, owner.producer_epoch) == (found.producer_id, found.producer_epoch)
        return is_same and owner.state in {COMMITTING, COMMITTED}

    def _is_older_open(self, admin: KafkaAdminClient) -> bool:
        """Return whether a transaction of the lane is open. End it if the last look found the same one.

        It was then open both before and after the coordinator was asked. So if the coordinator takes it for ended, its end was
        forgotten: it is neither just being written, nor is the transaction one that another driver has begun meanwhile.
        """
        owner = coordinated(admin, self._name)
        if owner is None:
            return False
        try:
            found = open_of(admin, owner.producer_id, self._places())
        except AuthorizationError:
            if owner.state == ONGOING:
                self._fence(admin, owner)
            elif owner.state not in ENDING:
                raise
            return True
        begun = {at: one.current_transaction_start_offset for at, one in found.items()}
        if found and begun == self._begun:
            self._end(admin, owner, found)
        self._begun = begun
        return bool(begun)

    def _end(self, admin: KafkaAdminClient, owner: Any, found: Open) -> None:
        if owner.state in ENDING:
            return
        if owner.state == ONGOING and owner.topic_partitions >= found.keys():
            self._fence(admin, owner)
            return
        is_same = all(one.producer_epoch == owner.producer_epoch for one in found.values())
        if owner.state != ABORTED and not (owner.state == COMMITTED and is_same):
            raise self._unknown(found)  # I12
        with END.around(error=connection_lost, lost=connection_lost):
            if owner.state == ABORTED:
                abort_again(admin, owner, self._name, found)
                return
            # Not by the coordinator: whoever came in between would take it for a transaction that goes on, and abort it.
            for at, one in found.items():
                write_end(admin, at, one, committed=True)

    def _fence(self, admin: KafkaAdminClient, owner: Any) -> None:
        with FENCE.around(error=connection_lost, lost=connection_lost):
            fence(admin, self._name, timeout_ms=owner.transaction_timeout_ms)

    def _topics_written(self) -> tuple[str, ...]:
        """Return the topics of the settings, and those of earlier settings, which the newest marker names."""
        mark = newest_mark(self._clients, self._wanted, self._number)
        return tuple(dict.fromkeys((*self._wanted.target.every, *(mark.topics if mark is not None else ()))))

    def _is_settled(self, *, wait_s: float) -> bool:
        return await_settled(self._clients.admin, self._every_place(), wait_s=wait_s)

    def _every_place(self) -> list[TopicPartition]:
        """Return each partition that the lane may have written to, those added a moment ago, too.

        A topic of earlier settings that the user may not see any more is left out: the lane writes there no more, so no later end
        can end an older transaction there.
        """
        wanted = set(self._wanted.target.every)
        places = every_place(self._clients.admin, self._topics, former={*self._topics} - wanted)
        gone = wanted - {place.topic for place in places}
        if gone:
            raise Retryable(
                f"{self._clients.place} does not know topic {min(gone)!r}.",
                remedy="Look into the logs of its brokers, and try again.",
            )
        return places + places_of(self._wanted.target.markers, [self._number])

    def _places(self) -> list[Place]:
        """Return the partitions of `_every_place`, as kafka-python's class."""
        return [Place(at.topic, at.partition) for at in self._every_place()]

    def _while_true(self, look: Callable[[KafkaAdminClient], bool | None], *, wait_s: float) -> bool | None:
        return _while_true(lambda: self._asked(look), wait_s=wait_s)

    def _asked(self, look: Callable[[KafkaAdminClient], bool | None]) -> bool | None:
        """Return what `look` finds, over a connection reused until a look fails: it would remember the former coordinator."""
        if self._connected is None:
            self._connected = self._connect()
        try:
            return look(self._connected)
        except BaseException:
            self.close()
            raise

    def _connect(self) -> KafkaAdminClient:
        try:
            return connect(self._clients.given)
        except Usage as cause:
            raise CannotLook(f"A transaction is open in {self._clients.place}. {cause.message}", remedy=cause.remedy) from cause
        except KafkaError as cause:  # brokers answer librdkafka, so that it is this client which cannot connect
            raise self._cannot_ask(cause) from cause

    @contextmanager
    def _explained(self) -> Iterator[None]:
        place = self._clients.place
        try:
            yield
        except ClusterAuthorizationFailedError as cause:
            raise Refused(
                f"Brokers forgot to commit a transaction of lane {self._number} of sink {self._wanted.sink!r} in partitions of "
                f"{place}, and the user lacks the right to do it.",
                remedy=f"{command('Alter', '--cluster')} (ClusterAction before Kafka 3.9), and start again, which commits it.",
            ) from cause
        except AuthorizationError as cause:
            topics = " ".join(f"--topic {name}" for name in self._topics)
            raise CannotLook(
                f"A transaction is open in {place}, and the user may not see whose it is.",
                remedy=f"{command('Read', topics)}, and start again.",
            ) from cause
        except UnsupportedVersionError as cause:
            raise self._cannot_ask(cause) from cause
        except KafkaError as cause:
            raise Retryable(
                f"{place} did not say which transactions are open: {str(cause) or type(cause).__name__}.",
                remedy="Look into the logs of its brokers, and try again.",
            ) from cause

    def _cannot_ask(self, cause: KafkaError) -> CannotLook:
        return CannotLook(
            f"A transaction is open in {self._clients.place}, and nobody says whose it is: {str(cause) or type(cause).__name__}.",
            remedy="Use Kafka 3.0 or newer, and look into the logs of its brokers why kafka-python cannot ask them.",
        )

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
    """Call `look` until it is not true any more, or for `wait_s`, and return its last result.

    A RetriableError is raised only if it comes last: brokers that start answer with errors for a while.
    """

    def last(state: RetryCallState) -> bool | None:
        assert state.outcome is not None, "a look was taken"
        found: bool | None = state.outcome.result()
        return found

    waiting = Retrying(
        retry=retry_if_result(bool) | retry_if_exception_type(RetriableError),
        stop=stop_after_delay(wait_s),
        wait=wait_fixed(look_s),
        retry_error_callback=last,
    )
    found: bool | None = waiting(look)
    return found
