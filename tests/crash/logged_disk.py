"""What is on a disk after a machine's crash, by the log of what a process did with its files."""

import json
import random
from base64 import b85decode
from collections.abc import Sequence
from pathlib import Path

from penstock.journal.format import NOTE, SEGMENTS
from tests.unit.forgetful_disk import ForgetfulDisk


class LoggedDisk:
    """The files of a journal below `home`, which a `LoggedStorage` writes. `log` begins anew with each crash of the machine."""

    def __init__(self, home: Path, log: Path) -> None:
        self._home, self.log = home, log
        self._disk, self._done = ForgetfulDisk(), 0
        self._disk.make_directory(home / SEGMENTS)

    def end_process(self) -> None:
        """Go by the log up to here. What was logged last may not have been done, or in part only."""
        operations = [json.loads(line) for line in self.log.read_bytes().splitlines()[self._done :]] if self.log.exists() else []
        for name, path, *more in operations:
            self._apply(name, Path(path), *more)
        self._done += len(operations)
        if operations:
            name, path, *_ = operations[-1]
            self._correct(name, Path(path))

    def crash_machine(self, generator: random.Random) -> int:
        """Leave only what a crash leaves; the process must have ended. Return how many bytes it took away."""
        self.end_process()
        before = self._bytes()
        self._disk.crash(generator)
        for path in self._real():
            if path not in self._known():
                path.unlink()
        for path in self._known():
            path.write_bytes(self._disk.read(path))
        return before - self._bytes()

    def _bytes(self) -> int:
        return sum(path.stat().st_size for path in self._real())

    def _real(self) -> Sequence[Path]:
        return [path for path in (*(self._home / SEGMENTS).glob("*"), self._home / NOTE) if path.exists()]

    def _known(self) -> Sequence[Path]:
        found = [self._home / SEGMENTS / name for name in self._disk.names(self._home / SEGMENTS)]
        return [*found, *([self._home / NOTE] if NOTE in self._disk.names(self._home) else [])]

    def _apply(self, name: str, path: Path, *more: object) -> None:
        if name in {"create", "make_directory", "remove", "sync_directory"}:
            getattr(self._disk, name)(path)
            return
        file = self._disk.open(path)
        if name == "write":
            at, data = more
            file.seek(int(str(at)))
            file.write(b85decode(str(data)))
        elif name == "truncate":
            file.truncate(int(str(more[0])))
        else:
            file.sync()

    def _correct(self, name: str, path: Path) -> None:
        """Take back of the last operation what was not done when the process was killed."""
        is_undone = (name == "create" and not path.exists()) or (name == "remove" and path.exists())
        if is_undone:
            self._disk.undo_last_renaming()
        elif name == "write":
            self._disk.node(path).cut_last_change(path.stat().st_size)
