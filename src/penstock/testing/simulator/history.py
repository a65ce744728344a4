"""The true history of the ledger, observed outside the code under test; checks of invariants I7, I8 and I9.

It parses the durable format as any other program would, so that it shares neither values nor mistakes with the codec.
"""

import json
from dataclasses import dataclass
from typing import Any

from penstock.testing.simulator.stepping import ViolationError
from penstock.testing.simulator.targets import Targets


@dataclass(frozen=True, slots=True)
class Decided:
    """One decision: its batch, the source row at which it ends, and the attempts whose pieces it names."""

    position: int
    query_id: str
    batch_id: int
    generation: int
    end: int
    attempts: frozenset[str]


class History:
    """Observes every object that is created, replaced or deleted in the ledger's store."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets
        self.length = 0
        self.nonces: dict[int, str] = {}
        self.decided: dict[tuple[str, int], Decided] = {}
        self.newest: Decided | None = None
        self.floor = 1
        self.generation = 0

    def created(self, key: str, data: bytes) -> None:
        """Check an object that was created under a free key."""
        folder, _, _ = key.partition("/")
        number = int(key[-12:])
        if folder == "floor":
            if number > self.length:
                raise ViolationError(f"I7: a floor at {number} forgets the tail at {self.length}")
            self.floor = max(self.floor, number)
        elif number >= self.floor:  # below it the object is no entry, and its writer must get PositionTaken
            self._take(json.loads(data), number)

    def overwritten(self, key: str) -> None:
        """Check an object that is about to be replaced without a condition."""
        if key != "hint":
            raise ViolationError(f"I7: {key} is overwritten")

    def deleted(self, key: str) -> None:
        """Check an object that is about to be deleted."""
        if key.startswith("entries/") and int(key[-12:]) >= self.floor:
            raise ViolationError(f"I7: {key} is deleted, though nothing below {self.floor} may be forgotten")

    def _take(self, entry: dict[str, Any], position: int) -> None:
        if position != entry["position"] or position != self.length + 1:
            raise ViolationError(f"I7: entry {entry['position']} is written at {position} behind {self.length} entries")
        self.length = position
        self.nonces[position] = entry["nonce"]
        body = entry["body"]
        if body["kind"] == "opened":
            if entry["generation"] != self.generation + 1:
                raise ViolationError(f"I7: generation {entry['generation']} follows generation {self.generation}")
            self.generation = entry["generation"]
        elif body["kind"] == "decided":
            self._decide(position, entry["generation"], body["decision"])

    def _decide(self, position: int, generation: int, decision: dict[str, Any]) -> None:
        if generation != self.generation:
            raise ViolationError(f"I9: generation {generation} decides though {self.generation} is open")
        batch = (decision["query_id"], decision["batch_id"])
        if batch in self.decided:
            raise ViolationError(f"I8: batch {batch[1]} is decided a second time, at {position}")
        if self.newest is not None:
            self._targets.require_published(self.newest.position, before=position)
            self._require_later(self.newest, generation, decision)
        attempts = frozenset(piece["attempt"] for piece in decision["staged"])
        self.newest = Decided(position, *batch, generation, int(decision["offsets"][0]["end"]), attempts)
        self.decided[batch] = self.newest
        for piece in decision["staged"]:
            self._targets.of(piece["sink"]).decided[piece["name"]] = position

    def _require_later(self, newest: Decided, generation: int, decision: dict[str, Any]) -> None:
        """Require a later (generation, batch): readers cut a table by these two, which are in the names of its files."""
        order, before = (generation, decision["batch_id"]), (newest.generation, newest.batch_id)
        if order <= before:
            raise ViolationError(f"I9: the files of {order} are named as if they were older than those of {before}")
        token = f"g{generation}-b{decision['batch_id']}-"
        foreign = [piece["attempt"] for piece in decision["staged"] if not piece["attempt"].startswith(token)]
        if foreign:
            raise ViolationError(f"I9: {foreign[0]} is decided as a file of {order}")
