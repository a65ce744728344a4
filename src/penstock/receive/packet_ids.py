"""Packet identifiers of MQTT messages of QoS 2 that are in the journal, and that the broker has not released (MQTT 5, 4.3.3).

A broker sends such a message again until it has our PUBREC, and gives its identifier to another message only after our PUBCOMP.
So a message whose identifier is here is a repeat. What PUBREL released is noted, durably, before PUBCOMP; messages that became
durable since the last note are found in the journal. Not for several threads, but for `save`.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.core.codec.document import decode, encode_document
from penstock.core.codec.fields import INTEGER, TEXT, Record
from penstock.core.faults import FaultPoint
from penstock.journal.reading import JournalReader
from penstock.journal.storage import Storage
from penstock.support.private_files import io_error

HEADER = "packet_id"
"""Of an event that came with QoS 2."""
NAME = "mqtt.json"
NOTE = FaultPoint("mqtt.note", "The note of packet identifiers that the broker has not released takes the place of the last one.")
_FORMAT, _VERSION = "penstock.journal.mqtt", 1
_TEMPORARY = f"{NAME}~"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreleased:
    """The note: of the session's messages below event `next` of the journal, those are not released."""

    journal_id: str
    broker: str
    client_id: str
    next: int
    packet_ids: tuple[int, ...]


_NOTE = Record(
    Unreleased,
    {"journal_id": TEXT, "broker": TEXT, "client_id": TEXT, "next": INTEGER, "packet_ids": INTEGER.listed},
)


def encode_unreleased(note: Unreleased) -> bytes:
    """Return the bytes of the note."""
    return encode_document(_FORMAT, _VERSION, _NOTE.fields_of(note))


def decode_unreleased(data: bytes, *, where: str) -> Unreleased:
    """Return the note in `data`. Raises LedgerMismatch, FormatTooNew."""
    return decode(data, kind=_FORMAT, where=where, readers={_VERSION: _NOTE.read})


class PacketIds:
    """The identifiers of one session. `in` asks whether an identifier is there."""

    def __init__(self, note: Unreleased) -> None:
        self._session, self._next, self._ids = note, note.next, set(note.packet_ids)

    def __contains__(self, packet_id: int | None) -> bool:
        return packet_id in self._ids

    def add(self, packet_id: int, sequence: int) -> None:
        """Count the message as in the journal: event `sequence` is durable. In the order of the events."""
        self._ids.add(packet_id)
        self._next = sequence + 1

    def release(self, packet_id: int) -> None:
        """Let the identifier stand for another message, once this is saved."""
        self._ids.discard(packet_id)

    def forget(self) -> None:
        """Release all: the broker has lost the session."""
        self._ids.clear()

    @property
    def note(self) -> Unreleased:
        """What is to be saved."""
        session = self._session
        return Unreleased(
            journal_id=session.journal_id,
            broker=session.broker,
            client_id=session.client_id,
            next=self._next,
            packet_ids=tuple(sorted(self._ids)),
        )


def packet_ids_in(storage: Storage, homes: Sequence[Path], *, broker: str, client_id: str) -> PacketIds:
    """Return what is not released of that session, by the note in the journal or else in its copy, and the events since then.

    Without a note nothing is known: what comes again is stored again. Raises LedgerMismatch, FormatTooNew, OSError.
    """
    reader = JournalReader(storage, homes[0])
    extent = reader.extent()
    assert extent is not None, "its writer has opened it"
    blank = Unreleased(journal_id=extent.journal_id, broker=broker, client_id=client_id, next=extent.next, packet_ids=())
    note = next(filter(None, (_note_in(storage, home) for home in homes)), blank)
    if (note.journal_id, note.broker, note.client_id) != (extent.journal_id, broker, client_id) or note.next > extent.next:
        return PacketIds(blank)
    found = PacketIds(note)
    for record in reader.read(max(note.next, extent.first), extent.next, journal_id=extent.journal_id):
        packet_id = dict(record.event.headers).get(HEADER)
        if packet_id is not None and record.event.remote == broker:
            found.add(int(packet_id), record.sequence)
    return found


def save(storage: Storage, homes: Sequence[Path], note: Unreleased) -> None:
    """Write the note into the journal and its copy, durably, in place of the last one. Raises OSError."""
    for home in homes:
        if _TEMPORARY in storage.names(home):
            storage.remove(home / _TEMPORARY)
        file = storage.create(home / _TEMPORARY)
        try:
            file.write(encode_unreleased(note))
            file.sync()
        finally:
            file.close()
        with NOTE.around(error=io_error, lost=io_error):
            storage.replace(home / NAME, home / _TEMPORARY)
        storage.sync_directory(home)


def _note_in(storage: Storage, home: Path) -> Unreleased | None:
    with suppress(FileNotFoundError):
        return decode_unreleased(storage.read(home / NAME), where=str(home / NAME))
    return None
