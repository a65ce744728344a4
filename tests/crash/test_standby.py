"""A standby and real processes: it takes over, and however wrong the lease is, only one driver decides."""

import asyncio
import os
import re
import signal
import sys
from itertools import groupby
from pathlib import Path

from penstock.core.model import Decided, new_nonce
from penstock.errors import Retryable
from penstock.ledger.directory import DirectoryStore
from penstock.ledger.log import LogLedger
from penstock.ledger.open import open_ledger
from penstock.observe.supervision import standby, supervision
from penstock.supervise.driver import Limits
from penstock.supervise.lease import Lease, LeaseRecord
from penstock.supervise.supervisor import Supervised, supervise
from penstock.testing.entries import PIPELINE

LIMITS = Limits(grace_s=30, hung_after_s=60)

DRIVER = """
import os, sys, time
from itertools import islice
from penstock.errors import PositionTaken
from penstock.ledger.open import open_ledger
from penstock.supervise.heartbeat import Heartbeat
from penstock.supervise.turn import Turn
from penstock.testing.entries import PIPELINE, decided_entry, opened_entry

heartbeat, turn = Heartbeat.of_environment(), Turn.of_environment()
while heartbeat.warm() and not turn.has_come_within(0.01):
    pass
ledger = open_ledger(sys.argv[1], pipeline=PIPELINE)
try:
    newest = opened_entry(after=ledger.tail())
    ledger.append(newest)
    while heartbeat.beat() and newest.generation < 3:
        newest = decided_entry(after=newest)
        ledger.append(newest)
        time.sleep(0.005)
except PositionTaken:
    sys.exit(4)
"""
"""A driver that decides batch after batch, as fast as it can, until it is fenced; the third one is done at once."""


class Away(LogLedger):
    """A store that answers no supervisor while it `is_away`."""

    is_away = False

    def append_lease(self, number, data):
        if Away.is_away:
            raise Retryable("The store does not answer.", remedy="Wait.")
        return super().append_lease(number, data)


def machine(here, name, *, ledger=LogLedger):
    """What the supervisor of a machine looks after."""
    (here / name).mkdir()
    place = here / "ledger"
    own = LeaseRecord(pipeline=PIPELINE, holder=new_nonce(), owner=name, lease_ms=300)
    lease = Lease(ledger(DirectoryStore(place), pipeline=PIPELINE), own, where=str(place))
    return Supervised(pipeline=name, home=str(here / name), command=[sys.executable, "-c", DRIVER, str(place)], lease=lease)


class Events:
    """The events of supervisors in this process, by the names of their machines."""

    def __init__(self):
        self.texts = {"first": [], "second": []}
        self._more = asyncio.Event()

    def look_after(self, one):
        return asyncio.create_task(supervise([one], LIMITS, most_failures=1, report=self._report))

    def _report(self, event):
        self.texts[event.pipeline].append(event.text)
        self._more.set()

    async def until(self, name, text):
        while not any(text in seen for seen in self.texts[name]):
            self._more.clear()
            await self._more.wait()


async def two_machines(here):
    """The first supervisor cannot renew its lease while its driver decides on; later the second one's driver is killed."""
    events = Events()
    first = events.look_after(machine(here, "first", ledger=Away))
    await events.until("first", "begins")
    Away.is_away = True
    second = events.look_after(machine(here, "second"))
    await events.until("first", "ended with exit code 4")
    Away.is_away = False
    await events.until("first", "waits: second has the lease")
    assert standby(str(here / "first")).state == "standby"
    assert supervision(str(here / "first")) is None, "it runs nothing any more"
    assert supervision(str(here / "second")).state == "running"
    os.kill(int(events.texts["second"][0].split()[-1]), signal.SIGKILL)
    return [await first, await second], events.texts


def test_whatever_the_lease_says_one_driver_decides(tmp_path):
    codes, texts = asyncio.run(two_machines(tmp_path))
    log = tmp_path / "second" / "run-HOST.log"
    assert codes == [0, 1]
    noticed = "has lost the lease to second, whose driver fences this one"  # unless its driver ends before it looks
    assert [shape(text) for text in texts["first"] if text != noticed] == [
        "started as process N",
        "has the lease and begins",
        "cannot use the lease at present: The store does not answer.",
        "ended with exit code 4; starts again in N s",
        "started as process N",
        "is warm and waits: second has the lease",
        "has the lease and begins",
        "has delivered what was there",
    ]
    assert [shape(text) for text in texts["second"]] == [
        "started as process N",
        "is warm and waits: first has the lease",
        "has the lease and begins",
        f"was killed by signal 9 and is not started again; see {log}",
    ]
    page = (Path(__file__).parents[2] / "docs" / "howto" / "supervise.md").read_text()
    shown = page.partition("$ penstock supervise --standby flights.yaml\n")[2].partition("```")[0]
    shown = shown.replace("host-a process 3977", "first").replace("flights: ", "")
    assert [shape(text) for text in shown.splitlines()] == [shape(text) for text in texts["second"][:3]]
    entries = list(open_ledger(str(tmp_path / "ledger"), pipeline=PIPELINE).newest_first())[::-1]
    assert [generation for generation, _ in groupby(entry.generation for entry in entries)] == [1, 2, 3]
    batches = [entry.body.decision.batch.batch_id for entry in entries if isinstance(entry.body, Decided)]
    assert batches == list(range(len(batches)))


def shape(text):
    return re.sub(r"run-.*\.log", "run-HOST.log", re.sub(r"(process|in) \d+", r"\1 N", text))
