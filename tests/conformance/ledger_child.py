"""A driver that only appends, in a process of its own: started, raced and killed by the conformance tests of the ledger."""

from multiprocessing.context import ForkServerProcess
from pathlib import Path

from penstock.commit.append import append_once
from penstock.core.model import Position
from penstock.ledger.open import open_ledger
from penstock.testing.conformance.story import end, start
from penstock.testing.entries import PIPELINE, decided_entry, opened_entry


class Child:
    """Appends `count` entries at whatever the tail is, notes each one that was acknowledged in the file `told`, on a line of its
    own, and prunes everything below position `prune_at` once the tail is there.
    """

    def __init__(self, place: str, count: int, prune_at: int | None, *, faults: str, told: Path) -> None:
        self._told = told
        told.touch()
        self._process: ForkServerProcess = start(work, place, count, prune_at, told, faults=faults)

    def end(self) -> tuple[int, list[tuple[int, str]]]:
        """Its exit code, and position and nonce of every entry that was acknowledged."""
        code = end(self._process)
        lines = [line.split() for line in self._told.read_text().splitlines()]
        return code, [(int(position), nonce) for position, nonce in lines]


def work(place: str, count: int, prune_at: int | None, told: Path) -> None:
    ledger, done = open_ledger(place, pipeline=PIPELINE), 0
    try:
        while done < count:
            tail = ledger.tail()
            entry = opened_entry() if tail is None else decided_entry(after=tail)
            if append_once(ledger, entry) is not None:
                continue
            done += 1
            with told.open("a") as lines:
                lines.write(f"{entry.position} {entry.nonce}\n")
            if prune_at is not None and entry.position >= prune_at:
                ledger.prune(below=Position(prune_at))
    finally:
        ledger.close()
