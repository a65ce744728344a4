"""The checkpoints in the archives that `checkpoints/make.py` makes, in memory, where a test damages them at no cost."""

import tarfile
from collections.abc import Mapping
from pathlib import Path

ARCHIVES = sorted((Path(__file__).parent / "checkpoints").glob("spark-*.tar.xz"))


def content_of(archive: Path) -> dict[str, bytes]:
    """Return the content of every file of the checkpoint in an archive, by its place."""
    with tarfile.open(archive) as opened:
        files = {entry.name: opened.extractfile(entry) for entry in opened if entry.isfile()}
        return {
            name.removeprefix("checkpoint/"): file.read()
            for name, file in files.items()
            if file is not None and name.startswith("checkpoint/")
        }


class MemoryFiles:
    """`Files` over a mapping that the test changes.

    Writes after the first `writes` raise KeyboardInterrupt, as a kill would; `changes` counts writes and removals alike.
    """

    def __init__(self, content: dict[str, bytes], *, writes: int | None = None, changes: int | None = None) -> None:
        self.content = content
        self.writes = writes
        self.changes = changes

    @property
    def location(self) -> str:
        return "memory"

    def names(self, folder: str) -> tuple[str, ...]:
        return tuple(self.sizes(folder))

    def sizes(self, folder: str) -> Mapping[str, int | None]:
        start = f"{folder}/" if folder else ""
        found: dict[str, int | None] = {}
        for name, data in self.content.items():
            if name.startswith(start):
                first, slash, _ = name[len(start) :].partition("/")
                found[first] = None if slash else len(data)
        return found

    def size_bytes(self, name: str) -> int | None:
        data = self.content.get(name)
        return None if data is None else len(data)

    def read(self, name: str, *, start: int = 0, size_bytes: int | None = None) -> bytes | None:
        data = self.content.get(name)
        return None if data is None else data[start : None if size_bytes is None else start + size_bytes]

    def delete(self, name: str) -> None:
        self._count_change()
        self.content.pop(name, None)

    def _count_change(self) -> None:
        if self.changes is not None:
            if self.changes == 0:
                raise KeyboardInterrupt
            self.changes -= 1

    def write(self, name: str, data: bytes) -> None:
        self._count_change()
        if self.writes is not None:
            if self.writes == 0:
                raise KeyboardInterrupt
            self.writes -= 1
        self.content[name] = data
