"""A reader that lists the accounts all the time while the pipeline is being killed, and trusts nothing."""

import threading
from collections import Counter
from types import TracebackType

import pyarrow as pa

from tests.crash.world import Row, World


class Probe:
    """Polls in a thread of its own; `violations` names what no reader may ever see."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._taken = {account: Counter[Row]() for account in world.expected}
        self._seen: dict[str, dict[str, object]] = {account: {} for account in world.expected}
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
        for account in self._world.expected:
            now = self._world.listing(account)
            for name, version in list(self._seen[account].items()):
                if name not in now:
                    self.violations.append(f"{name} of {account} was seen and vanished")
                    del self._seen[account][name]
                elif now[name] != version:
                    self.violations.append(f"{name} of {account} changed after it was seen")
            for name in now.keys() - self._seen[account].keys():
                self._take(account, name, now[name])
        self.passes += 1

    def _take(self, account: str, name: str, version: object) -> None:
        self._seen[account][name] = version
        try:
            rows = self._world.rows_in(account, name)
        except (pa.ArrowException, OSError, ValueError) as torn:
            self.violations.append(f"{name} of {account} cannot be read: {torn}")
            return
        self._taken[account].update(rows)
        doubled = [row for row in rows if self._taken[account][row] > self._world.expected[account][row]]
        if doubled:
            self.violations.append(f"{name} of {account} holds rows that are there already or not in the source: {doubled[0]}")
