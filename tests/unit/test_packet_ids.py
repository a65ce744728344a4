"""Messages of QoS 2 that a broker sends again are recognised, whatever a machine that stops has forgotten."""

import random
from pathlib import Path

import pytest
from tests.seed import SEED
from tests.unit.forgetful_disk import Crashed, ForgetfulDisk
from tests.unit.journal_clients import COPY, HOME, ROOMY, content, opened

from penstock.journal.event import Event
from penstock.receive.packet_ids import HEADER, NAME, PacketIds, packet_ids_in, save

BROKER, ROUNDS = "broker:1883", 12
MOST = 3
"""Identifiers, so that each is soon given to another message."""


def message(packet_id: int, number: int) -> Event:
    return Event(value=b"%d" % number, headers=((HEADER, b"%d" % packet_id),), remote=BROKER)


class Broker:
    """Sends each message with an identifier that is free, again until it has PUBREC; then PUBREL, again until it has PUBCOMP."""

    def __init__(self) -> None:
        self.sent, self.received, self.next = dict[int, int](), set[int](), 0

    def publish(self) -> None:
        for packet_id in range(1, 1 + MOST):
            if packet_id not in self.sent:
                self.sent[packet_id] = self.next
                self.next += 1


def receive(disk: ForgetfulDisk, broker: Broker, *, rounds: int, homes: tuple[Path, ...]) -> None:
    """A life of a receiver."""
    journal = opened(disk, limits=ROOMY, copy=homes[1] if len(homes) > 1 else None)
    ids = packet_ids_in(disk, homes, broker=BROKER, client_id="c")
    save(disk, homes, ids.note)
    for _ in range(rounds):
        broker.publish()
        for packet_id in sorted(broker.sent.keys() - broker.received):
            if packet_id not in ids:
                [receipt] = journal.append([message(packet_id, broker.sent[packet_id])])
                journal.commit()
                assert receipt.sequence is not None
                ids.add(packet_id, receipt.sequence)
            broker.received.add(packet_id)
        released = sorted(broker.received)[: broker.next % MOST + 1]
        for packet_id in released:
            ids.release(packet_id)
        save(disk, homes, ids.note)
        for packet_id in released:
            broker.received.discard(packet_id)
            del broker.sent[packet_id]
    journal.close()


def stored(disk: ForgetfulDisk) -> list[int]:
    return [int(value) for value in content(disk)]


@pytest.mark.parametrize("homes", [(HOME,), (HOME, COPY)], ids=["alone", "with a copy"])
@pytest.mark.parametrize("ends", ["machine", "process"])
def test_each_message_is_stored_once_though_the_receiver_ends_at_any_operation(homes: tuple[Path, ...], ends: str) -> None:
    generator, whole = random.Random(SEED), ForgetfulDisk()
    receive(whole, Broker(), rounds=ROUNDS, homes=homes)
    for at in generator.sample(range(1, whole.operations + 1), 60):
        disk, broker = ForgetfulDisk(crash_at=at), Broker()
        for _ in range(2):
            with pytest.raises(Crashed):
                receive(disk, broker, rounds=ROUNDS, homes=homes)
            if ends == "machine":
                disk.crash(generator)
            else:
                disk.end_process()
            disk.crash_at = disk.operations + generator.randint(1, 40)
        disk.crash_at = None
        receive(disk, broker, rounds=2, homes=homes)
        known = set(broker.sent.values())
        assert [each for each in stored(disk) if each not in known] == [
            each for each in range(broker.next) if each not in known
        ], f"PENSTOCK_SEED={SEED} operation {at}"
        assert len(stored(disk)) == len(set(stored(disk)))


def ids_of(disk: ForgetfulDisk, *, client_id: str = "c", homes: tuple[Path, ...] = (HOME,)) -> PacketIds:
    return packet_ids_in(disk, homes, broker=BROKER, client_id=client_id)


def test_a_note_of_another_session_counts_for_nothing() -> None:
    disk = ForgetfulDisk()
    journal = opened(disk, limits=ROOMY)
    save(disk, (HOME,), ids_of(disk).note)
    journal.append([message(5, 0)])
    journal.commit()
    assert 5 in ids_of(disk)
    assert 5 not in ids_of(disk, client_id="other")
    assert 5 not in packet_ids_in(disk, (HOME,), broker="other:1883", client_id="c")
    disk.remove(HOME / NAME)
    assert 5 not in ids_of(disk), "nothing is known, and what comes again is stored"


def test_a_journal_that_is_lost_has_its_note_in_the_copy() -> None:
    disk = ForgetfulDisk()
    journal = opened(disk, limits=ROOMY, copy=COPY)
    save(disk, (HOME, COPY), ids_of(disk).note)
    journal.append([message(5, 0)])
    journal.commit()
    disk.remove(HOME / NAME)
    assert 5 in ids_of(disk, homes=(HOME, COPY))


def test_a_session_that_the_broker_has_lost_releases_all() -> None:
    disk = ForgetfulDisk()
    journal = opened(disk, limits=ROOMY)
    save(disk, (HOME,), ids_of(disk).note)
    journal.append([message(5, 0)])
    journal.commit()
    ids = ids_of(disk)
    ids.forget()
    save(disk, (HOME,), ids.note)
    assert 5 not in ids_of(disk)
