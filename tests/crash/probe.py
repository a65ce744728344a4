"""A reader that lists the accounts all the time while the pipeline is being killed, and trusts nothing."""

import os
import threading
from collections import Counter
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from tests.crash.world import ACCOUNTS, Row, World, file_rows


class Probe:
    """Polls in a thread of its own; `violations` names what no reader may ever see."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._taken = {account: Counter[Row]() for account in ACCOUNTS}
        self._seen: dict[Path, tuple[int, int]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="probe")
        self.violations: list[str] = []
        self.passes = 0

    def __enter__(self) -> "Probe":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._stop.wait(0.01):
            try:
                self._look()
            except Exception as error:  # noqa: BLE001 - a probe that dies unseen would prove nothing
                self.violations.append(f"the reader failed: {error!r}")
                return

    def _look(self) -> None:
        for path, (size, inode) in list(self._seen.items()):
            try:
                now = path.stat()
            except FileNotFoundError:
                self.violations.append(f"{path} was seen and vanished")
                del self._seen[path]
                continue
            if (now.st_size, now.st_ino) != (size, inode):
                self.violations.append(f"{path} changed after it was seen")
        for account in ACCOUNTS:
            self._look_at(account)
        self.passes += 1

    def _look_at(self, account: str) -> None:
        for directory, _, names in os.walk(self._world.account(account)):
            for name in names:
                path = Path(directory, name)
                if path not in self._seen:
                    self._take(account, path)

    def _take(self, account: str, path: Path) -> None:
        status = path.stat()
        self._seen[path] = (status.st_size, status.st_ino)
        try:
            rows = file_rows(path)
        except (pa.ArrowException, OSError, ValueError) as torn:
            self.violations.append(f"{path} cannot be read: {torn}")
            return
        self._taken[account].update(rows)
        doubled = [row for row in rows if self._taken[account][row] > self._world.expected[account][row]]
        if doubled:
            self.violations.append(f"{path} holds rows that are there already or not in the source: {doubled[0]}")
