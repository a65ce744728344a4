"""`penstock receive` that logs what it does with files, by which `logged_disk` finds out what a machine's crash leaves.

Its clock jumps by years, forth and back, and its disk is full at times.
Run as `python -m tests.crash.logged_receiver LOG SEED receive FILE`.
"""

import errno
import json
import os
import random
import sys
import time
from base64 import b85encode
from collections.abc import Callable
from functools import partial
from pathlib import Path

from penstock.cli.app import main
from penstock.journal.journal import Journal
from penstock.journal.storage import LocalFile, LocalStorage
from penstock.receive import receiver

FULL, JUMPS = 0.002, 0.01
"""How often a write finds no room, and how often an event comes after a jump of the clock."""
_FARTHEST_US = 5 * 365 * 86_400_000_000


class Log:
    """Appends an operation a line. What changes a file is logged before it is done, and what forces it to the disk afterwards."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def add(self, *operation: object) -> None:
        os.write(self._file, json.dumps(operation).encode() + b"\n")


class LoggedStorage(LocalStorage):
    """A `Storage` on real files."""

    def __init__(self, log: Log, generator: random.Random) -> None:
        self._log, self._generator = log, generator

    def make_directory(self, path: Path) -> None:
        super().make_directory(path)
        self._log.add("make_directory", str(path))

    def create(self, path: Path) -> "LoggedFile":
        self._log.add("create", str(path))
        super().create(path).close()
        return self.open(path)

    def open(self, path: Path) -> "LoggedFile":
        return LoggedFile(path, self._log, self._generator)

    def remove(self, path: Path) -> None:
        self._log.add("remove", str(path))
        super().remove(path)

    def sync_directory(self, directory: Path) -> None:
        super().sync_directory(directory)
        self._log.add("sync_directory", str(directory))


class LoggedFile(LocalFile):
    """A `JournalFile` of `LoggedStorage`."""

    def __init__(self, path: Path, log: Log, generator: random.Random) -> None:
        super().__init__(path)
        self._path, self._log, self._generator, self._at = str(path), log, generator, 0

    def seek(self, at: int) -> None:
        super().seek(at)
        self._at = at

    def write(self, data: bytes, /) -> None:
        is_full = self._generator.random() < FULL
        part = data[: self._generator.randint(0, len(data))] if is_full else data
        self._log.add("write", self._path, self._at, b85encode(part).decode())
        super().write(part)
        self._at += len(part)
        if is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def truncate(self, size: int) -> None:
        self._log.add("truncate", self._path, size)
        super().truncate(size)

    def sync(self) -> None:
        super().sync()
        self._log.add("sync", self._path)


def jumping_clock(generator: random.Random) -> Callable[[], int]:
    """Return a clock that is wrong by another five years at most, again and again."""
    wrong_us = [generator.randint(-_FARTHEST_US, _FARTHEST_US)]

    def now_us() -> int:
        if generator.random() < JUMPS:
            wrong_us[0] = generator.randint(-_FARTHEST_US, _FARTHEST_US)
        return time.time_ns() // 1_000 + wrong_us[0]

    return now_us


def run(log: Path, seed: str, *arguments: str) -> None:
    generator = random.Random(seed)
    storage = LoggedStorage(Log(log), generator)
    receiver._now_us = jumping_clock(generator)
    receiver.Journal = partial(Journal, storage=storage)  # type: ignore[attr-defined]
    main(list(arguments))


if __name__ == "__main__":
    run(Path(sys.argv[1]), *sys.argv[2:])
