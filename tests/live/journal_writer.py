"""A process that pushes numbered events into a journal, and prints the number of each once it is acknowledged."""

import sys
from pathlib import Path

from penstock.journal.event import Event
from penstock.journal.format import Registration
from penstock.journal.journal import Journal, JournalLimits
from penstock.journal.readers import register, settled
from penstock.journal.reading import JournalReader
from penstock.journal.storage import LocalStorage


def main(home: Path, copy: Path, until: int) -> None:
    """Push every number from 1 to `until`; a journal takes those that it has as repeats. A reader follows and releases."""
    journal = Journal(home, now_us=lambda: 1, copy=copy, limits=JournalLimits(segment_bytes=500, least_free_bytes=0))
    extent = JournalReader(LocalStorage(), home).extent()
    assert extent is not None
    for number in range(1, until + 1):
        journal.append([Event(value=b"%d" % number, producer="p", number=number)])
        journal.commit()
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
        if number % 7 == 0:
            released = min(number - 7, journal.durable)
            with settled(LocalStorage(), home):
                known = Registration(reader="r", journal_id=extent.journal_id, next=released, planned=released, released_at_us=1)
                register(LocalStorage(), home, known)
            journal.remove_released()
    journal.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
