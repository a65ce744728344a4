"""A reader that lists the accounts all the time while the pipeline is being killed, and trusts nothing."""

from collections import Counter

import pyarrow as pa

from tests.crash.polling import Poller
from tests.crash.world import Row, World


class Probe(Poller):
    """Takes every file once, and remembers what it saw."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self._taken = {account: Counter[Row]() for account in world.expected}
        self._seen: dict[str, dict[str, object]] = {account: {} for account in world.expected}

    def look(self) -> None:
        """List every account."""
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
