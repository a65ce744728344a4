"""The second act: flights are sent by HTTP while the receiver and the driver are killed. Run by `make demo ARGS=push`.

It goes on from what an interrupted one left: clients begin again with event 1, and the journal knows what it has.
"""

import json
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable

import commands
from clients import FLIGHTS_PER_REQUEST, Clients, Counts
from commands import COMMAND, Background, console, penstock, shortened
from flights import as_events
from proof import WAREHOUSE, compare, rows_now
from reader import Reader
from report import fail, heading, proof_of, result
from typing_extensions import Self

WORK = commands.WORK / "push"
PIPELINE = os.path.relpath(commands.HERE / "push.yaml")
FINISHED, STARTED = WORK / "finished", WORK / "flights"
HOST, PORT = "127.0.0.1", 8765
CLIENTS = 8
SENDING_S, LEAST_EVENTS_PER_S = 20, 6_000
FAULT = "rename.move=kill@20,hardlink.link=kill@20"
"""In the middle of publishing a batch: some of its files are there and some are not."""
_ENDS_WITHIN_S, _KILLED_WITHIN_S, _IDLE_S = 900, 300, 20
_LOOK_S = 0.05


def tell_push(flights: int, *, fresh: bool) -> int:
    """The story. The exit code is 0 only if every flight is where it belongs exactly once."""
    started_s = time.monotonic()
    begin(flights, fresh=fresh)
    heading("What is promised, before anything runs")
    if penstock("check", PIPELINE) != 0:
        return fail("The check failed, so nothing was started.")
    heading(f"A receiver, a driver, and {CLIENTS} clients that send. Receiver and driver are killed meanwhile")
    try:
        with Reader(WORK) as reader, Act(flights) as act:
            act.play()
    except ActFailed as failed:
        return fail(str(failed))
    heading("Is it all there? First Penstock's own answer")
    verified = penstock("verify", PIPELINE) == 0
    heading("Then without Penstock: every flight that was sent against every row in the accounts and in SQLite")
    places = compare(WORK, flights)
    console.print(result(places, act.seen_when_killed), of_clients(act.counts), proof_of(reader), sep="\n")
    if not (verified and all(place.exact for place in places) and not reader.torn and not reader.vanished):
        return fail("That is not exactly once. Please report it with the folder demo/work.")
    FINISHED.touch()
    console.print(
        f"[bold green]Exactly once.[/] It took {time.monotonic() - started_s:.0f} s. Look around in demo/work/push, or try:"
    )
    journal = os.path.relpath(WORK / "journal")
    console.print(f"  {COMMAND} history {PIPELINE}\n  {COMMAND} journal inspect {journal}", style="bold")
    return 0


def begin(flights: int, *, fresh: bool) -> None:
    """Start over, or go on where an interrupted demo of as many flights stopped."""
    is_same = STARTED.exists() and STARTED.read_text() == str(flights)
    if fresh or FINISHED.exists() or not is_same:
        shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(exist_ok=True)
    console.print(
        f"{flights:,} flights left New York in 2013. Clients send them by HTTP. Each becomes a row exactly once in one of three\n"
        "accounts, and in a database, although receiver and driver are killed. All of it is in demo/work/push."
    )
    if STARTED.exists():
        console.print("An earlier demo was interrupted; this one goes on from what it left.")
    STARTED.write_text(str(flights))


class ActFailed(Exception):
    """A process did not do what the story says."""


class Act:
    """The processes of the story, and what happens to them. `seen_when_killed`: rows that readers saw when the driver died."""

    def __init__(self, flights: int) -> None:
        self._flights, self._port = flights, free_port()
        rate = max(flights / SENDING_S, LEAST_EVENTS_PER_S)
        self._clients = Clients(as_events(flights), clients=CLIENTS, address=(HOST, self._port), events_per_s=rate)
        self._receiver: Background | None = None
        self._driver: Background | None = None
        self._batches = 0
        self.seen_when_killed: dict[str, int] = {}

    @property
    def counts(self) -> Counts:
        return self._clients.counts

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._clients.end()
        for process in filter(None, (self._driver, self._receiver)):
            if process.ended_by is None:
                process.end(signal.SIGTERM)

    def play(self) -> None:
        """Send everything, kill and start again, and return when all is delivered. Raises ActFailed."""
        requests = self._flights // FLIGHTS_PER_REQUEST
        self._start_receiver(f"journal.note=kill@{max(2, requests // 16)}")  # what is durable then is not answered
        self._start_driver(FAULT)
        self._clients.allow(self._flights * 3 // 4)
        self._clients.start()
        self._await(self._was_receiver_killed)
        self._tell_kill()
        self._await(lambda: self.counts.answered >= self._flights // 2)
        self._required_receiver().end(signal.SIGKILL)
        self._tell_kill()
        self._await_kill()
        self._clients.allow(self._flights)
        self._await(lambda: self._clients.is_done)
        say("clients", f"everything is sent: {self.counts.answered:,} flights are answered, so they are durable")
        self._await(lambda: rows_now(WORK)[WAREHOUSE] >= self._flights)
        self._end()

    def _await_kill(self) -> None:
        """Wait until the driver was killed, and is at work again. One that the fault does not reach is killed by hand."""
        began_s = time.monotonic()
        self._await(lambda: bool(self.seen_when_killed) or self._is_missed(time.monotonic() - began_s))
        if self._driver is not None and not self.seen_when_killed:
            self._driver.end(signal.SIGKILL)
        self._await(lambda: bool(self.seen_when_killed))
        late_s = time.monotonic() + _KILLED_WITHIN_S
        self._await(lambda: self._batches > 0 or time.monotonic() > late_s)

    def _is_missed(self, waited_s: float) -> bool:
        """Whether the driver has delivered what there was without being killed."""
        return waited_s > (_IDLE_S if self._batches > 0 else _KILLED_WITHIN_S)

    def _await(self, condition: Callable[[], bool]) -> None:
        """Wait, and start the driver again when it was killed. Raises ActFailed."""
        deadline_s = time.monotonic() + _ENDS_WITHIN_S
        while not condition():
            self._look_at_driver()
            if self._receiver is not None and self._receiver.ended_by not in {None, -signal.SIGKILL}:
                raise self._failed(self._receiver, "receiver")
            if self._clients.error:
                raise ActFailed(self._clients.error)
            if time.monotonic() > deadline_s:
                raise ActFailed(f"Nothing happened for {_ENDS_WITHIN_S} s.")
            time.sleep(_LOOK_S)

    def _look_at_driver(self) -> None:
        if self._driver is None or self._driver.ended_by is None:
            return
        if self._driver.ended_by != -signal.SIGKILL or self.seen_when_killed:
            raise self._failed(self._driver, "driver")
        self.seen_when_killed = rows_now(WORK)
        lake = sum(rows for place, rows in self.seen_when_killed.items() if place != WAREHOUSE)
        say("driver", "[bold red]killed (SIGKILL)[/]")
        say("", f"readers see {lake:,} flights in the accounts and {self.seen_when_killed[WAREHOUSE]:,} in the database")
        self._start_driver("")

    def _start_receiver(self, faults: str = "") -> None:
        ready = threading.Event()
        moved = [] if self._port == PORT else ["--set", f"receive.http.listen={HOST}:{self._port}"]

        def listening(line: str) -> None:
            say("receiver", f"listens; its journal has {json.loads(line)['next']:,} flights")
            ready.set()

        self._receiver = Background("receive", PIPELINE, *moved, on_line=listening, faults=faults)
        self._await(ready.is_set)

    def _start_driver(self, faults: str) -> None:
        self._batches = 0
        self._driver = Background("run", PIPELINE, on_line=self._delivered, faults=faults)

    def _delivered(self, line: str) -> None:
        if text := shortened(line):
            self._batches += 1
            say("driver", text)

    def _required_receiver(self) -> Background:
        assert self._receiver is not None
        return self._receiver

    def _was_receiver_killed(self) -> bool:
        return self._required_receiver().ended_by == -signal.SIGKILL

    def _tell_kill(self) -> None:
        """Say that the receiver was killed, and start it again."""
        say("receiver", f"[bold red]killed (SIGKILL)[/] when {self.counts.answered:,} flights were answered")
        self._start_receiver()

    def _end(self) -> None:
        for name, process in (("driver", self._driver), ("receiver", self._receiver)):
            assert process is not None
            if process.end(signal.SIGTERM) != 0:
                raise self._failed(process, name)

    def _failed(self, process: Background, name: str) -> ActFailed:
        console.print(process.messages.read_text(errors="replace"), markup=False)
        return ActFailed(f"The {name} ended by itself, with {process.ended_by}.")


def say(who: str, text: str) -> None:
    """What one of those does that are at work beside each other."""
    console.print(f"  [bold]{who:<9}[/] {text}")


def of_clients(counts: Counts) -> str:
    """What the clients know."""
    recognised = f"{counts.repeats:,} of those flights had arrived before, and were recognised by their numbers."
    return (
        f"The clients got an answer for {counts.answered:,} flights. Kills cut off {counts.unanswered} of their "
        f"{counts.requests:,} requests, which they\nsent again: {recognised}"
    )


def free_port() -> int:
    """The port of the pipeline file, another one if that is taken."""
    for port in (PORT, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise ActFailed(f"No port of {HOST} is free.")
