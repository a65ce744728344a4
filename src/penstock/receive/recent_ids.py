"""The ids of messages that the journal has among its newest events: what a broker sends again is recognised by its id."""

from penstock.journal.reading import JournalReader

ID_HEADER = "message_id"
WINDOW = 100_000
"""Events at the journal's end, and ids in memory."""


class RecentIds:
    """A window of ids, the oldest of which goes when another one comes. `in` asks whether an id is there."""

    def __init__(self, *, most: int = WINDOW) -> None:
        self._ids: dict[str, None] = {}
        self._most = most

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._ids

    def add(self, message_id: str) -> None:
        """Note the id of an event that is durable."""
        self._ids.pop(message_id, None)
        self._ids[message_id] = None
        if len(self._ids) > self._most:
            del self._ids[next(iter(self._ids))]


def recent_ids(journal: JournalReader, *, queue: str, remote: str, most: int = WINDOW) -> RecentIds:
    """Return the ids of the messages of a queue of the broker `remote` among the newest events of the journal.

    Raises as `JournalReader.read`.
    """
    found = RecentIds(most=most)
    extent = journal.extent()
    if extent is None:
        return found
    for record in journal.read(max(extent.first, extent.next - most), extent.next, journal_id=extent.journal_id):
        headers = dict(record.event.headers) if record.event.remote == remote else {}
        if ID_HEADER in headers and headers.get("queue") == queue.encode():
            found.add(headers[ID_HEADER].decode())
    return found
