"""Readers of a journal, each with the first event that it still needs. A segment is removed when no reader needs it."""

from pathlib import Path

from penstock.core.faults import FaultPoint
from penstock.core.model import new_nonce
from penstock.errors import LedgerMismatch
from penstock.journal.format import READERS, Registration, decode_registration, encode_registration, reader_path
from penstock.journal.storage import Storage
from penstock.support.private_files import io_error

RELEASE = FaultPoint("journal.release", "A reader's registration takes the place of its former one.")

_TEMPORARY = "~"


def registrations(storage: Storage, home: Path) -> tuple[Registration, ...]:
    """Return the registered readers, by name. Raises LedgerMismatch where a file is damaged: nothing is removed then."""
    directory = home / READERS
    found = (_found(storage, directory / name) for name in storage.names(directory) if not name.endswith(_TEMPORARY))
    return tuple(filter(None, found))


def registration_of(storage: Storage, home: Path, reader: str) -> Registration | None:
    """Return the registration of `reader`, None without one."""
    return _found(storage, reader_path(home, reader))


def register(storage: Storage, home: Path, registration: Registration) -> None:
    """Write a registration, durably. One that is there already never goes back. Raises LedgerMismatch, OSError."""
    known = registration_of(storage, home, registration.reader)
    if known is not None and known.journal_id != registration.journal_id:
        raise LedgerMismatch(
            f"Reader {registration.reader!r} is registered at {home} for the journal {known.journal_id}, "
            f"and the journal there is {registration.journal_id}.",
            remedy=f"If the journal was begun anew, remove {reader_path(home, registration.reader)}.",
        )
    if known is not None and known.next >= registration.next:
        return
    path = reader_path(home, registration.reader)
    storage.make_directory(path.parent)
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
