"""A disk in memory that a machine's crash makes forget what was not forced to it: contents, names, renames and removals."""

import errno
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from penstock.errors import Retryable


class Crashed(BaseException):
    """The machine stopped, in the middle of an operation. No handler of errors catches it."""


@dataclass(eq=False)
class Node:
    """A file: its bytes as programs see them, those on the disk, and the changes between the two."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    changes: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Each is a position and the bytes written there, or None for a cut."""

    def apply(self, at: int, written: bytes | None, to: bytearray) -> None:
        if written is None:
            del to[at:]
            return
        to.extend(bytes(max(0, at - len(to))))
        to[at : at + len(written)] = written

    def change(self, at: int, written: bytes | None) -> None:
        self.apply(at, written, self.data)
        self.changes.append((at, written))

    def cut_last_change(self, size: int) -> None:
        """Take away what the last change wrote beyond `size` bytes."""
        at, written = self.changes.pop()
        if written is not None:
            written = written[: max(0, size - at)]
        self.changes.append((at, written))
        del self.data[size:]

    def forget(self, generator: random.Random) -> None:
        """Keep of the changes what the disk happened to have written, in any order and in part."""
        kept = bytearray(self.durable)
        for at, written in self.changes:
            if generator.random() < 0.5:
                part = written if written is None else written[: generator.randint(0, len(written))]
                self.apply(at, part, kept)
        self.data, self.durable, self.changes = kept, bytes(kept), []


class ForgetfulDisk:
    """A `Storage`. `crash_at` counts its changing operations; `failing_sync` is the count of the fsync that fails."""

    def __init__(self, *, crash_at: int | None = None, failing_sync: int | None = None, room: int | None = None) -> None:
        self.crash_at, self.failing_sync, self.room = crash_at, failing_sync, room
        self.operations = self.syncs = 0
        self._names: dict[Path, Node | None] = {}
        self._durable_names: dict[Path, Node | None] = {}
        self._renamings: list[tuple[Path, Node | None]] = []
        self.locked: set[Path] = set()
        self._moments = threading.Lock()

    def crash(self, generator: random.Random) -> None:
        """Restart the machine: only what was forced to the disk is sure to be there."""
        for path, node in self._renamings[: generator.randint(0, len(self._renamings))]:
            self._durable_names[path] = node
        self._names = {path: node for path, node in self._durable_names.items() if node is not None and self._is_reached(path)}
        self._durable_names = dict(self._names)
        self._renamings.clear()
        for node in {id(node): node for node in self._names.values() if node is not None}.values():
            node.forget(generator)
        self.end_process()

    def _is_reached(self, path: Path) -> bool:
        """Whether the names of all directories above are on the disk: without them nobody finds what is inside."""
        return all(self._durable_names.get(each) is not None for each in _above(path))

    def forget_renamings(self) -> None:
        """Let the next crash undo every change of names that is not on the disk yet."""
        self._renamings.clear()

    def undo_last_renaming(self) -> None:
        """Give a name back what it had before the last change of names."""
        path, _ = self._renamings.pop()
        before = [node for other, node in self._renamings if other == path]
        self._names[path] = before[-1] if before else self._durable_names.get(path)

    def end_process(self) -> None:
        """End the writer's process: the machine goes on, and so nothing is forgotten."""
        self.locked.clear()
        self.crash_at = self.failing_sync = None

    def step(self) -> None:
        self.operations += 1
        if self.operations == self.crash_at:
            raise Crashed

    def make_directory(self, path: Path) -> None:
        every = [*reversed(_above(path)), path]
        for each in every:
            if self._names.get(each) is None:
                self.step()
                self._rename(each, Node())
        for each in every:
            self.sync_directory(each.parent)

    def names(self, directory: Path) -> list[str]:
        inside = [
            path.relative_to(directory).parts[0] for path, node in self._names.items() if node and directory in path.parents
        ]
        return sorted(set(inside))

    def size(self, path: Path) -> int:
        return len(self.node(path).data)

    def read(self, path: Path, start: int = 0, size: int = -1) -> bytes:
        data = self.node(path).data
        return bytes(data[start:] if size < 0 else data[start : start + size])

    def create(self, path: Path) -> "DiskFile":
        self.step()
        for each in _above(path):
            self.node(each)
        if self._names.get(path) is not None:
            raise FileExistsError(path)
        self._rename(path, Node())
        return self.open(path)

    def open(self, path: Path) -> "DiskFile":
        return DiskFile(self, self.node(path))

    def replace(self, path: Path, by: Path) -> None:
        self.step()
        node = self.node(by)
        self._rename(path, node)
        self._rename(by, None)

    def remove(self, path: Path) -> None:
        self.step()
        if self.room is not None:
            self.room += self.size(path)
        self._rename(path, None)

    def sync_directory(self, directory: Path) -> None:
        self.step()
        for path, node in self._renamings:
            if path.parent == directory:
                self._durable_names[path] = node
        self._renamings = [each for each in self._renamings if each[0].parent != directory]

    def free_bytes(self, directory: Path) -> int:
        return 1 << 40

    def lock(self, path: Path) -> "DiskLock":
        if path in self.locked:
            raise Retryable("locked", remedy="wait")
        self.locked.add(path)
        return DiskLock(lambda: self.locked.discard(path))

    def wait_for_lock(self, path: Path) -> "DiskLock":
        assert self._moments.acquire(timeout=30), f"{path} is held for ever"
        return DiskLock(self._moments.release)

    def node(self, path: Path) -> Node:
        node = self._names.get(path)
        if node is None:
            raise FileNotFoundError(path)
        return node

    def _rename(self, path: Path, node: Node | None) -> None:
        self._names[path] = node
        self._renamings.append((path, node))


def _above(path: Path) -> list[Path]:
    """Return the directories above `path`, but for the root."""
    return list(path.parents)[:-1]


class DiskFile:
    def __init__(self, disk: ForgetfulDisk, node: Node) -> None:
        self._disk, self._node, self._at = disk, node, 0

    def seek(self, at: int) -> None:
        self._at = at

    def write(self, data: bytes, /) -> None:
        if self._disk.room is not None and self._growth(data) > self._disk.room:
            self._write(data[: len(data) - self._growth(data) + self._disk.room])
            raise OSError(errno.ENOSPC, "No space left on device")
        try:
            self._disk.step()
        except Crashed:
            self._write(data[: len(data) // 2])
            raise
        self._write(data)

    def _growth(self, data: bytes) -> int:
        """Return the room that `data` needs: what is written over needs none."""
        return max(0, self._at + len(data) - len(self._node.data))

    def _write(self, data: bytes) -> None:
        if self._disk.room is not None:
            self._disk.room -= self._growth(data)
        self._node.change(self._at, bytes(data))
        self._at += len(data)

    def flush(self) -> None: ...

    def truncate(self, size: int) -> None:
        self._disk.step()
        if size < len(self._node.data):
            self._node.change(size, None)

    def sync(self) -> None:
        self._disk.step()
        self._disk.syncs += 1
        node = self._node
        if self._disk.syncs == self._disk.failing_sync:
            node.changes.clear()  # as Linux does: the pages count as clean, and are not on the disk
            raise OSError(errno.EIO, "Input/output error")
        on_disk = bytearray(node.durable)
        for at, written in node.changes:
            node.apply(at, written, on_disk)
        node.durable, node.changes = bytes(on_disk), []

    def close(self) -> None: ...


class DiskLock:
    def __init__(self, release: Callable[[], None]) -> None:
        self.release = release
