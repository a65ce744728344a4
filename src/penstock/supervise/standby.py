"""A standby: keeps a driver warm until the lease is free, lets it begin, and renews the lease for as long as it runs."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from penstock.errors import PenstockError
from penstock.supervise.heartbeat import Signs
from penstock.supervise.lease import RENEWALS, Lease, LeaseRecord

T = TypeVar("T")
Note = Callable[[str, str], None]
"""Notes the state of the pipeline, and what happened, in words."""

WAITS, RUNS = "standby", "running"
_LOOKS = 8
"""How often a standby looks at the lease in the lease's time."""
_LONGEST_LOOK_S = 0.5


class Standby:
    """What a supervisor does for one pipeline of which another supervisor may be the active one.

    The ledger is called by a thread of its own, one call at a time: a store that hangs delays no other pipeline.
    """

    def __init__(self, lease: Lease, note: Note) -> None:
        self._lease, self._note = lease, note
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="penstock-lease")
        self.state, self._problem = WAITS, ""

    async def attend(self, signs: Signs, begin: Callable[[], None]) -> None:
        """Call `begin` once the driver is warm and the lease is this supervisor's. Then renew the lease until cancelled."""
        await signs.is_warm.wait()
        await self._await_turn()
        self.state = RUNS
        self._note(RUNS, "has the lease and begins")
        begin()
        newer = None
        while newer is None:
            await asyncio.sleep(self._lease.lease_s / RENEWALS)
            newer = await self._try(self._lease.renew)
        self.state = WAITS
        self._note(WAITS, f"has lost the lease to {newer.owner}, whose driver fences this one")

    async def release(self) -> None:
        """Give the lease back: called when the driver and all that it started are gone."""
        self.state = WAITS
        await self._try(self._lease.release)

    async def _await_turn(self) -> None:
        shown: LeaseRecord | None = None
        while not await self._try(self._lease.take):
            holder = await self._try(self._lease.holder)
            if holder is not None and (shown is None or holder.holder != shown.holder):
                shown = holder
                self._note(WAITS, f"is warm and waits: {holder.owner} has the lease")
            await asyncio.sleep(min(_LONGEST_LOOK_S, self._lease.lease_s / _LOOKS))

    async def _try(self, call: Callable[[], T]) -> T | None:
        """Return what `call` returns, None if the ledger fails: the next call tries again. Says so once for each failure."""
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._thread, call)
        except PenstockError as error:
            if error.message != self._problem:
                self._problem = error.message
                self._note(self.state, f"cannot use the lease at present: {error.message}")
            return None
        self._problem = ""
        return found
