"""A standby and real processes: it takes over, and however wrong the lease is, only one driver decides."""

import asyncio
import json
import os
import random
import re
import signal
import sqlite3
import sys
from contextlib import suppress
from itertools import groupby
from pathlib import Path

import pytest

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
from tests.crash import awaited, shared_java
from tests.crash.commandline import penstock
from tests.crash.killing import await_that
from tests.crash.world import database_rows, make_world
from tests.seed import SEED

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


def rows(world):
    with suppress(sqlite3.OperationalError):
        return database_rows(world.root / "warehouse.db").total()
    return 0


def await_event(process, text):
    """Read the events of a supervisor until one has `text`; return all of them."""
    events = []
    for line in process.stdout:
        events.append(json.loads(line))
        if text in events[-1]["text"]:
            return events
    raise AssertionError(f"{text!r} was not seen: {events}\n{process.stderr.read()}")


@pytest.mark.crash
@pytest.mark.spark
def test_a_standby_takes_over_from_a_machine_that_sleeps_and_nothing_comes_twice(tmp_path):
    """The supervisor and the driver that slept go on afterwards: the driver is fenced, and waits for its turn again."""
    world = make_world(tmp_path / "world", files=2, rows_per_file=20, seed=SEED)
    world.rewrite(("trigger: {available_now: true}", "trigger: {processing_time: 200ms}\nledger: ./state/ledger"))
    command = ("supervise", str(world.file), "--standby", "--lease=1", "--json")
    active = world.start(*command, java=shared_java.environment())
    started = await_event(active, "begins")
    sleeping = (active.pid, int(started[0]["text"].split()[-1]))
    await_that(lambda: rows(world) == 40, what="the first batch", driver=active)
    other = world.start(*command)
    await_event(other, "waits")
    for pid in sleeping:
        os.kill(pid, signal.SIGSTOP)
    await_event(other, "begins")
    world.feed(random.Random(SEED), files=1, rows_per_file=20)
    await_that(lambda: rows(world) == 60, what="the batch of the standby", driver=other)
    for pid in sleeping:
        os.kill(pid, signal.SIGCONT)
    world.feed(random.Random(SEED + 1), files=1, rows_per_file=20)
    await_event(active, "ended with exit code 4; starts again in")
    await_that(lambda: rows(world) == 80, what="the last batch", driver=other)
    shown = penstock("status", str(world.file)).out
    assert re.search(r"^supervisor +running", shown, re.MULTILINE), shown
    assert re.search(r"^standby +(standby|waiting)", shown, re.MULTILINE), shown
    errors = list[str]()
    for process in (active, other):
        process.send_signal(signal.SIGTERM)
        errors.append(awaited.ended(process)[1])
    shared_java.end_application()
    assert [active.returncode, other.returncode] == [0, 0], errors
    assert all("takes over only if it has the same files: ledger (" in error for error in errors)
    world.assert_exact()
    world.assert_verified()
