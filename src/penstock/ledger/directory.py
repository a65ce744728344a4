"""A `ConditionalStore` in a directory: a hard link creates a name only if it is free, atomically.

Source: link(2). A file is complete and on disk before it gets its name, so no reader ever sees a part of it. A failed fsync is
never repeated: pages that the kernel then considers clean may not be on the disk. So the run ends, and the next start reads the
disk.
"""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.core.faults import FaultPoint
from penstock.core.model import new_nonce
from penstock.errors import Failed, OutcomeUnknown, PenstockError, Retryable, StoreIgnoresConditions
from penstock.support.filesystem_errors import problem_of
from penstock.support.private_files import io_error, make_private_directory, open_private, sync_directory

WRITE = FaultPoint("ledger.directory_write", "An object is written to a temporary file.", tears=True)
SYNC_FILE = FaultPoint("ledger.directory_sync_file", "The temporary file is forced to the disk.")
LINK = FaultPoint("ledger.directory_link", "The temporary file gets the object's name, if that is free.")
UNLINK = FaultPoint("ledger.directory_unlink", "The temporary name is removed.")
SYNC = FaultPoint("ledger.directory_sync", "The new name is forced to the disk.")

_TEMPORARY = "tmp"
_OURS = re.compile(r"[0-9a-f]{16}")
_SHARDED = ("entries", "prove")
"""Folders whose subfolders come and go. Anything else in the directory is not the ledger's."""
_PASSING = frozenset(
    {errno.EINTR, errno.EAGAIN, errno.EBUSY, errno.ENFILE, errno.EMFILE, errno.ENOMEM, errno.ETIMEDOUT, errno.ESTALE}
)
_UNCHANGED = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.ENAMETOOLONG, errno.ENOTDIR, errno.ENOMEM})
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})


class DirectoryStore:
    """A `ConditionalStore` in the directory `root`, which the first write creates. For local disks and reliable network ones."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made: set[Path] = set()

    @property
    def location(self) -> str:
        return str(self._root)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Raises StoreIgnoresConditions where the file system has no hard links."""
        path = self._root / key
        self._make(path.parent)
        temporary = self._write(data, durably=True)
        created = self._link(temporary, path)
        if created:
            self._sync(path.parent)
        with suppress(OSError), UNLINK.around(error=io_error, lost=io_error):  # garbage, which `sweep` collects
            temporary.unlink()
        return created

    def get(self, key: str) -> bytes | None:
        with self._translate_errors("read", key), suppress(FileNotFoundError):
            return (self._root / key).read_bytes()
        return None

    def put(self, key: str, data: bytes) -> None:
        """Does not force the object to the disk."""
        path = self._root / key
        self._make(path.parent)
        temporary = self._write(data, durably=False)
        with self._translate_errors("write", key):
            temporary.replace(path)

    def delete(self, key: str) -> None:
        with self._translate_errors("delete", key):
            (self._root / key).unlink(missing_ok=True)

    def keys(self, folder: str) -> Iterator[str]:
        for name, is_folder in self._names(folder):
            if is_folder:
                yield from self.keys(f"{folder}{name}/")
            else:
                yield f"{folder}{name}"

    def sweep(self) -> None:
        """Remove temporary files and empty folders."""
        for name, _ in self._names(f"{_TEMPORARY}/"):
            if _OURS.fullmatch(name):
                self.delete(f"{_TEMPORARY}/{name}")
        for top in _SHARDED:
            for name, _ in self._names(f"{top}/"):
                self._remove_if_empty(self._root / top / name)

    # --- steps

    def _make(self, folder: Path) -> None:
        if folder in self._made:
            return
        inside = [parent for parent in (folder, *folder.parents) if self._root in parent.parents]
        with self._translate_errors("create", str(folder)):
            missing = [parent for parent in (folder, *folder.parents) if not parent.is_dir()]
            for private in (self._root, folder, self._root / _TEMPORARY):
                make_private_directory(private)
            for new in {*missing, *inside}:  # another run may have made the inner ones and died before it synced them
                sync_directory(new.parent)
        self._made.add(folder)

    def _write(self, data: bytes, *, durably: bool) -> Path:
        path = self._root / _TEMPORARY / new_nonce()
        try:
            with open_private(path, "xb") as file:
                with WRITE.around(error=_full_disk, lost=io_error):
                    WRITE.write(file, data)
                file.flush()
                if durably:
                    with SYNC_FILE.around(error=io_error, lost=io_error):
                        os.fsync(file.fileno())
        except FileNotFoundError as error:
            raise Failed(f"{path.parent} was removed while in use.", remedy="Restore the directory from a backup.") from error
        except OSError as error:
            raise self._error_for("write", path.name, error) from error
        return path

    def _link(self, temporary: Path, path: Path) -> bool:
        try:
            with LINK.around():
                os.link(temporary, path)  # I7: it never replaces an entry
        except FileExistsError:
            return False
        except FileNotFoundError as error:
            self._made.discard(path.parent)
            raise Retryable(f"{temporary} or the folder of {path} was swept meanwhile.", remedy="Try again.") from error
        except OSError as error:
            raise self._link_error(path, error) from error
        return True

    def _link_error(self, path: Path, error: OSError) -> PenstockError:
        if error.errno in _NO_LINKS:
            return StoreIgnoresConditions(
                f"The file system of {self._root} makes no hard links ({error.strerror}), so put-if-absent fails.",
                remedy="Keep the ledger in an SQLite file, or on another file system.",
            )
        if error.errno in _UNCHANGED:
            return self._error_for("create", path.name, error)
        return OutcomeUnknown(
            f"Whether {path} was created is unknown: {error.strerror}.", remedy="Start again: the start reads what is there."
        )

    def _sync(self, folder: Path) -> None:
        try:
            with SYNC.around(error=io_error, lost=io_error):
                sync_directory(folder)
        except OSError as error:
            raise Failed(
                f"{folder} could not be forced to the disk ({error.strerror}): a power cut may undo what was just written.",
                remedy="Mend the disk, then start again: the start reads what is there.",
            ) from error

    def _names(self, folder: str) -> list[tuple[str, bool]]:
        with self._translate_errors("list", folder), suppress(FileNotFoundError), os.scandir(self._root / folder) as found:
            return sorted((item.name, item.is_dir(follow_symlinks=False)) for item in found)
        return []

    def _remove_if_empty(self, folder: Path) -> None:
        try:
            folder.rmdir()
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR}:
                raise self._error_for("delete", folder.name, error) from error
        else:
            self._made.discard(folder)

    @contextmanager
    def _translate_errors(self, act: str, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._error_for(act, what, error) from error

    def _error_for(self, act: str, what: str, error: OSError) -> PenstockError:
        problem = problem_of(error)
        message = f"The ledger {self._root} cannot be used: could not {act} {what!r}, {problem.reason}."
        if error.errno in _PASSING or isinstance(error, FileNotFoundError):
            return Retryable(message, remedy="Try again.")
        return Failed(message, remedy=f"{problem.advice}, then start again: nothing that was decided is lost.")


def _full_disk(point: str) -> OSError:
    return OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} at {point}")
