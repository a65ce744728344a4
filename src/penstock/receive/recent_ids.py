"""The ids of messages that the journal has among its newest events: what a broker sends again is recognised by its id."""

from penstock.journal.event import Event
from penstock.journal.reading import JournalReader

ID_HEADER = "message_id"
WINDOW = 100_000
"""Events at the journal's end, and ids in memory."""


class RecentIds:
    """A window of ids, the oldest of which goes when another one comes. `in` asks whether an id is there."""

    def __init__(self, *, most: int = WINDOW) -> None:
        self._ids: dict[bytes, None] = {}
        self._most = most

    def __contains__(self, message_id: bytes) -> bool:
        return message_id in self._ids

    def add(self, message_id: bytes) -> None:
        """Note the id of an event that is durable."""
        self._ids.pop(message_id, None)
        self._ids[message_id] = None
        if len(self._ids) > self._most:
            del self._ids[next(iter(self._ids))]


def message_id_of(event: Event) -> bytes | None:
    """Return the id that the publisher gave a message; None without one. Any bytes are an id, and none at all are no id."""
    return dict(event.headers).get(ID_HEADER) or None


def recent_ids(journal: JournalReader, *, queue: str, remote: str, most: int = WINDOW) -> RecentIds:
    """Return the ids of the messages of a queue of the broker `remote` among the newest events of the journal.

    Raises as `JournalReader.read`.
    """
    found = RecentIds(most=most)
    extent = journal.extent()
    if extent is None:
        return found
    for record in journal.read(max(extent.first, extent.next - most), extent.next, journal_id=extent.journal_id):
        event = record.event
        message_id = message_id_of(event)
        if message_id is not None and event.remote == remote and dict(event.headers).get("queue") == queue.encode():
            found.add(message_id)
    return found
