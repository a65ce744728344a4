"""Readers of a journal, each with the first event that it still needs. A segment is removed when no reader needs it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from penstock.core.faults import FaultPoint
from penstock.core.model import new_nonce
from penstock.errors import LedgerMismatch
from penstock.journal.format import READERS, Registration, decode_registration, encode_registration, reader_path
from penstock.journal.storage import Storage
from penstock.support.private_files import io_error

RELEASE = FaultPoint("journal.release", "A reader's registration takes the place of its former one.")

_TEMPORARY = "~"
_LOCK = f"lock{_TEMPORARY}"


@contextmanager
def settled(storage: Storage, home: Path) -> Iterator[None]:
    """Wait until nobody else registers, releases or removes, and let nobody meanwhile. Raises OSError.

    Without it a segment could be removed beside a reader that registers for it: by a look from before.
    """
    directory = home / READERS
    storage.make_directory(directory)
    lock = storage.wait_for_lock(directory / _LOCK)
    try:
        yield
    finally:
        lock.release()


def registrations(storage: Storage, home: Path) -> tuple[Registration, ...]:
    """Return the registered readers, by name. Raises LedgerMismatch where a file is damaged: nothing is removed then."""
    directory = home / READERS
    found = (_found(storage, directory / name) for name in storage.names(directory) if not name.endswith(_TEMPORARY))
    return tuple(filter(None, found))


def registration_of(storage: Storage, home: Path, reader: str) -> Registration | None:
    """Return the registration of `reader`, None without one."""
    return _found(storage, reader_path(home, reader))


def register(storage: Storage, home: Path, registration: Registration) -> None:
    """Write a registration, durably, in place of the reader's former one. Only within `settled`.

    Raises LedgerMismatch, OSError.
    """
    known = registration_of(storage, home, registration.reader)
    if known is not None:
        require_same_journal(known, home, registration.journal_id)
    path = reader_path(home, registration.reader)
    temporary = path.with_name(f"{path.name}.{new_nonce()}{_TEMPORARY}")
    file = storage.create(temporary)
    try:
        file.write(encode_registration(registration))
        file.sync()
    finally:
        file.close()
    with RELEASE.around(error=io_error, lost=io_error):
        storage.replace(path, temporary)
    storage.sync_directory(path.parent)


def release(storage: Storage, home: Path, reader: str, *, journal_id: str, below: int, now_us: int) -> None:
    """Note, durably, that `reader` needs no event below `below` any more. Raises LedgerMismatch, OSError.

    It never goes back, and whoever is not registered stays so.
    """
    with settled(storage, home):
        known = registration_of(storage, home, reader)
        if known is not None:
            require_same_journal(known, home, journal_id)
        if known is not None and known.next < below:
            register(storage, home, replace(known, next=below, released_at_us=now_us))


def require_same_journal(known: Registration, home: Path, journal_id: str) -> None:
    """Raise LedgerMismatch if the journal in `home` is not the one that the reader is registered for."""
    if known.journal_id != journal_id:
        raise LedgerMismatch(
            f"Reader {known.reader!r} is registered at {home} for the journal {known.journal_id}, "
            f"and the journal there is {journal_id}.",
            remedy=f"If the journal was begun anew, remove {reader_path(home, known.reader)}.",
        )


def forget(storage: Storage, home: Path, reader: str) -> None:
    """Remove a registration, durably: segments wait for that reader no longer. Raises OSError."""
    storage.remove(reader_path(home, reader))
    storage.sync_directory(home / READERS)


def _found(storage: Storage, path: Path) -> Registration | None:
    """Return the registration in a file, None if it is not there (any more)."""
    try:
        return decode_registration(storage.read(path), where=str(path))
    except FileNotFoundError:
        return None
