"""The checks of a directory account for `penstock check`, which leave nothing behind."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.core.model import Finding, new_nonce
from penstock.sink.parquet.directory.filesystem import rename_or_refuse
from penstock.support.filesystem_errors import reason
from penstock.support.private_files import make_private_directory

_LITTLE_SPACE_BYTES = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryCheck:
    """The check as a task makes it. `proof` exists for just as long as the driver waits."""

    root: Path
    staging: Path
    proof: Path

    def findings(self) -> Sequence[Finding]:
        if self.proof.is_dir():
            return [check_area(self.root, self.staging)]
        message = f"{self.proof.parent} there is not that of the driver: mount it at the same path on driver and executors."
        return [Finding(subject=f"account {self.root}", ok=False, message=message)]


@contextmanager
def open_directory_check(root: Path, staging: Path) -> Iterator[DirectoryCheck | None]:
    """Yield the check for tasks, None if the driver's own check fails."""
    there = _existing(staging)
    if there is None or not check_area(root, staging).ok:
        yield None
        return
    proof = there / f".penstock-check-{new_nonce()}"
    make_private_directory(proof)
    try:
        yield DirectoryCheck(root=root, staging=staging, proof=proof)
    finally:
        proof.rmdir()


def check_area(root: Path, staging: Path) -> Finding:
    """Return whether both directories exist or can be created, on one file system with room, and files can be moved."""
    subject = f"account {root}"
    here, there = _existing(root), _existing(staging)
    if here is None or there is None:
        wrong = root if here is None else staging
        return Finding(subject=subject, ok=False, message=f"{wrong} is a file, or lies below one; expected a directory.")
    unwritable = next((path for path in (here, there) if not os.access(path, os.W_OK | os.X_OK)), None)
    if unwritable is not None:
        return Finding(subject=subject, ok=False, message=f"{unwritable} cannot be written: grant access, or use another path.")
    if here.stat().st_dev != there.stat().st_dev:
        message = f"staging {staging} is on another file system: set the account's option `staging` to a directory on its own."
        return Finding(subject=subject, ok=False, message=message)
    return _tried(subject, here, there)


def _existing(path: Path) -> Path | None:
    """Return the directory itself or the one below which it would be created, None if that is no directory."""
    while not path.exists() and not path.is_symlink():
        path = path.parent
    return path if path.is_dir() else None


def _tried(subject: str, here: Path, there: Path) -> Finding:
    try:
        with tempfile.TemporaryDirectory(prefix=".penstock-check-", dir=there) as name:
            how = _try_to_move(Path(name))
    except OSError as cause:
        return Finding(subject=subject, ok=False, message=f"a file cannot be written below {there}: {reason(cause)}.")
    if how is None:
        message = f"{there} supports neither renames that refuse to replace nor hard links: use another file system."
        return Finding(subject=subject, ok=False, message=message)
    free_bytes = shutil.disk_usage(here).free
    enough = free_bytes >= _LITTLE_SPACE_BYTES
    advice = "." if enough else ": make room, staged and published files share this disk."
    message = f"{here} can be written; files are published by {how}; {free_bytes / 1e9:.1f} GB free{advice}"
    return Finding(subject=subject, ok=enough, message=message)


def _try_to_move(directory: Path) -> str | None:
    source, target = directory / "staged", directory / "shown"
    source.write_bytes(b"")
    if rename_or_refuse(source, target):
        return "rename"
    try:
        os.link(source, target)
    except OSError:
        return None
    return "hard link"
