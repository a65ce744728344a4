"""`DirectoryArea`, the driver side of a directory account for one sink: publishes, marks, sweeps, lists."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar

from penstock.core.adopted_files import AdoptedFiles
from penstock.core.faults import FaultPoint
from penstock.core.model import Attempt, Finding, Staged, SweepCut, Waiting, new_nonce
from penstock.errors import Failed, Refused, Retryable
from penstock.sink.concurrent import map_concurrently
from penstock.sink.parquet.account import Area, PieceState, StoredFile
from penstock.sink.parquet.directory.adoption import adopted_in, log_of
from penstock.sink.parquet.directory.marker import MarkedArea
from penstock.sink.parquet.directory.rename import (
    Move,
    forget,
    is_one_mount,
    publishing,
    rename_or_refuse,
    state_of,
)
from penstock.sink.parquet.directory.upload import PIECES, SUFFIX, DirectoryUploads, staged_name
from penstock.sink.parquet.layout import is_hidden
from penstock.sink.parquet.ownership import is_anothers
from penstock.support.filesystem_errors import problem_of, translate_os_errors
from penstock.support.private_files import create_durably, create_private, io_error, make_private_directory, sync_directory

PREPARE = FaultPoint("parquet.prepare", "The directories of an account and its staging are created.")
MAKE = FaultPoint("parquet.publish.directory", "The partition directories of a batch are created.")
SEAL = FaultPoint("parquet.publish.sync", "The new names in a published directory are made durable.")
SWEEP = FaultPoint("parquet.sweep.unlink", "A staged file that can never be decided any more is removed.")

REMOVE = FaultPoint("rewind.file_unlink", "A published file that a rewind takes back is removed.")
SEAL_REMOVED = FaultPoint("rewind.file_sync", "The removal of files from a directory is made durable.")

_IDENTITY_SUFFIX = ".id"


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryArea(MarkedArea, Area):
    """The part of a directory account that one sink of one pipeline uses. `publish`: how a file gets its published name."""

    is_remote: ClassVar = False

    publish: Move

    def prepare(self) -> DirectoryUploads:
        """Create root and staging, and prove that a rename leads from staging to root. Raises Refused, Failed."""
        unprepared = f"The account {self.root} with staging in {self.staging} cannot be prepared"
        with translate_os_errors(
            Failed, unprepared, then=", or correct the account's URL or its option `staging`; then start again."
        ):
            with PREPARE.around(error=io_error, lost=io_error):
                create_durably(self.root)
                create_durably(self.staging, make_private_directory)
                create_durably(self.staging / PIECES, make_private_directory)
                identities = [path.name for path in self.staging.glob(f"*{_IDENTITY_SUFFIX}")]
                if not identities:
                    identities = [new_nonce() + _IDENTITY_SUFFIX]
                    create_private(self.staging / identities[0])
                    sync_directory(self.staging)
            one_mount = is_one_mount(self.staging, self.root)
        if not one_mount:
            raise Refused(
                f"The account {self.root} and its staging {self.staging} are on different file systems or mounts.",
                remedy="Set the account's option `staging` to a directory on the mount of the account, outside of it.",
            )
        return DirectoryUploads(directory=str(self.staging), identity=min(identities))

    def state(self, piece: Staged) -> PieceState:
        with publishing(f"Looking for {self.root / piece.name}"):
            return state_of(self._staged(piece), self.root / piece.name, size_bytes=piece.totals.size_bytes)

    def show(self, pieces: Sequence[Staged]) -> Sequence[Staged]:
        """Move all pieces, then make the directories durable up to the root. Return the pieces that are gone."""
        with publishing(f"Creating partition directories in {self.root}"), MAKE.around(error=io_error, lost=io_error):
            for directory in dict.fromkeys((self.root / piece.name).parent for piece in pieces):
                directory.mkdir(parents=True, exist_ok=True)
        shown = map_concurrently(self._show_one, pieces)
        gone = [piece for piece, is_shown in zip(pieces, shown, strict=True) if not is_shown]
        parents = (parent for piece in pieces if piece not in gone for parent in (self.root / piece.name).parents)
        # every parent up to the root: an earlier try may have created it
        map_concurrently(self._seal, list(dict.fromkeys(parent for parent in parents if parent.is_relative_to(self.root))))
        return gone

    def remove(self, pieces: Sequence[Staged]) -> None:
        map_concurrently(self._remove_one, pieces)
        map_concurrently(self._seal_removed, list(dict.fromkeys((self.root / piece.name).parent for piece in pieces)))

    def sweep(self, cut: SweepCut, *, dry_run: bool) -> Sequence[str]:
        """Remove staged files of dead attempts, and markers and claims that never counted. Raises PublishFailed, Retryable."""
        with publishing(f"Sweeping {self.staging}"):
            dead = [path for path, attempt in self._staged_files() if attempt is None or cut.is_dead(attempt)]
            if is_anothers(self.claimed_by(), cut):
                return []
            for path in () if dry_run else dead:
                with SWEEP.around(error=io_error, lost=io_error):
                    path.unlink(missing_ok=True)
        return [str(path) for path in dead]

    @contextmanager
    def task_check(self) -> "Iterator[DirectoryCheck | None]":
        there = _existing(self.staging)
        if there is None or not check_area(self.root, self.staging).ok:
            yield None
            return
        proof = there / f".penstock-check-{new_nonce()}"
        make_private_directory(proof)
        try:
            yield DirectoryCheck(root=self.root, staging=self.staging, proof=proof)
        finally:
            proof.rmdir()

    def waiting(self) -> Iterator[Waiting]:
        with publishing(f"Looking for what waits in {self.staging}"):
            for path, attempt in self._staged_files():
                with suppress(FileNotFoundError):  # published meanwhile
                    yield Waiting(name=str(path), attempt=attempt, size_bytes=path.lstat().st_size)

    def missing_directory(self) -> str | None:
        with publishing(f"Looking for the account {self.root}"):
            try:
                self.root.stat()
            except (FileNotFoundError, NotADirectoryError):
                return str(self.root)
        return None

    def files(self) -> Iterator[StoredFile]:
        """Yield every file below the root that is not hidden from readers. Links are followed, as readers do. Raises Failed."""
        for directory, below, names in os.walk(self.root, followlinks=True, onerror=self._unlisted):
            below[:] = [name for name in below if not is_hidden(name) and not self._leads_back(Path(directory, name))]
            for path in (Path(directory, name) for name in names if not is_hidden(name)):
                with suppress(FileNotFoundError):  # maintenance removed it meanwhile
                    yield StoredFile(name=path.relative_to(self.root).as_posix(), size_bytes=_size_of(path))

    def spark_log(self) -> str | None:
        log = log_of(self.root)
        return None if log is None else str(log)

    def adopted(self) -> AdoptedFiles | None:
        return adopted_in(self.staging)

    def _leads_back(self, path: Path) -> bool:
        """Return whether a link leads to a directory that it lies in, on the way from the root."""
        if not path.is_symlink():
            return False
        inside = [os.path.realpath(parent) for parent in path.parents if parent.is_relative_to(self.root)]
        return os.path.realpath(path) in inside

    def open(self, name: str) -> BinaryIO:
        return open(self.root / name, "rb")

    def check(self) -> Sequence[Finding]:
        return [check_area(self.root, self.staging)]

    def _unlisted(self, cause: OSError) -> None:
        """Raise Failed unless the directory is missing: maintenance may have removed it. An unreadable one is not empty."""
        if not isinstance(cause, FileNotFoundError):
            problem = problem_of(cause)
            raise Failed(f"{cause.filename} cannot be listed: {problem.reason}.", remedy=f"{problem.advice}, and try again.")

    # --- sweeping

    def _staged_files(self) -> Iterator[tuple[Path, Attempt | None]]:
        """Yield pieces and their attempts, then markers and claims that never counted."""
        if not self.staging.is_dir():
            return
        pieces = self.staging / PIECES
        for path in sorted(pieces.iterdir()) if pieces.is_dir() else ():  # else a run was killed while it created them
            attempt = Attempt.find(path.name) if path.suffix == SUFFIX else None
            if attempt is not None:
                yield path, attempt
        yield from ((path, None) for path in self._unplaced())

    # --- publishing

    def _staged(self, piece: Staged) -> Path:
        return self.staging / PIECES / str(piece.ref.get("staged", staged_name(piece.name)))

    def _show_one(self, piece: Staged) -> bool:
        staged, target = self._staged(piece), self.root / piece.name
        with publishing(f"Publishing {target}"):
            if state_of(staged, target, size_bytes=piece.totals.size_bytes) is PieceState.STAGED:
                with suppress(FileExistsError, FileNotFoundError):  # another publisher did it: I12, the target is looked at
                    self.publish(staged, target)  # I3, I6: whole, and only what was decided
            state = state_of(staged, target, size_bytes=piece.totals.size_bytes)
            if state is PieceState.STAGED:
                raise Retryable(f"The directory of {target} was removed while it was published.", remedy="Try again.")
            if state is PieceState.SHOWN and os.path.lexists(staged):
                forget(staged)
        return state is PieceState.SHOWN

    def _remove_one(self, piece: Staged) -> None:
        if self.state(piece) is PieceState.SHOWN:
            path = self.root / piece.name
            with publishing(f"Removing {path}"), REMOVE.around(error=io_error, lost=io_error):
                path.unlink(missing_ok=True)

    def _seal_removed(self, directory: Path) -> None:
        with (
            publishing(f"Making the removal of files from {directory} durable"),
            suppress(FileNotFoundError),
            SEAL_REMOVED.around(error=io_error, lost=io_error),
        ):
            sync_directory(directory)

    def _seal(self, directory: Path) -> None:
        with (
            publishing(f"Making the names in {directory} durable"),
            suppress(FileNotFoundError),  # maintenance removed it meanwhile
            SEAL.around(error=io_error, lost=io_error),
        ):
            sync_directory(directory)


def _size_of(path: Path) -> int:
    """Return the size that readers find; for a broken link, the link's own. Raises FileNotFoundError."""
    try:
        return path.stat().st_size
    except OSError:
        return path.lstat().st_size


_LITTLE_SPACE_BYTES = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryCheck:
    """The check that a task makes. `proof`: a directory that the driver made, which exists only while it waits."""

    root: Path
    staging: Path
    proof: Path

    def findings(self) -> Sequence[Finding]:
        if self.proof.is_dir():
            return [check_area(self.root, self.staging)]
        message = f"{self.proof.parent} is not the driver's directory: mount it at the same path on driver and executors."
        return [Finding(subject=f"account {self.root}", ok=False, message=message)]


def check_area(root: Path, staging: Path) -> Finding:
    """Return whether both directories exist or can be created, on one file system with room, and files can be moved."""
    try:
        ok, message = _checked(root, staging)
    except OSError as cause:
        ok, message = False, f"{cause.filename} cannot be looked at: {problem_of(cause).reason}."
    return Finding(subject=f"account {root}", ok=ok, message=message)


def _checked(root: Path, staging: Path) -> tuple[bool, str]:
    here, there = _existing(root), _existing(staging)
    if here is None or there is None:
        return False, f"{root if here is None else staging} is a file, or lies below one; expected a directory."
    unwritable = next((path for path in (here, there) if not os.access(path, os.W_OK | os.X_OK)), None)
    if unwritable is not None:
        return False, f"{unwritable} cannot be written: grant access, or use another path."
    if not is_one_mount(there, here):
        remedy = "set the account's option `staging` to a directory on its own"
        return False, f"staging {staging} is on another file system or mount: {remedy}."
    try:
        with tempfile.TemporaryDirectory(prefix=".penstock-check-", dir=there) as name:
            how = _try_to_move(Path(name))
    except OSError as cause:
        return False, f"a file cannot be written below {there}: {problem_of(cause).reason}."
    if how is None:
        return False, f"{there} supports neither renames that refuse to replace nor hard links: use another file system."
    free_bytes = shutil.disk_usage(here).free
    enough = free_bytes >= _LITTLE_SPACE_BYTES
    advice = "." if enough else ": make room, staged and published files share this disk."
    return enough, f"{here} can be written; files are published by {how}; {free_bytes / 1e9:.1f} GB free{advice}"


def _existing(path: Path) -> Path | None:
    """Return the directory itself or the one below which it would be created, None if that is no directory."""
    while not path.exists() and not path.is_symlink():
        path = path.parent
    return path if path.is_dir() else None


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
