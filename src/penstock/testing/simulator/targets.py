"""What is true, observed outside the code under test: the targets of the three kinds of sink, and the history of the ledger.

Only decided rows may become visible, only maintenance removes what is visible, and staging that may still be needed stays:
checks of invariants I1-I3, I6, I8 and I10. The history checks I7, I8 and I9. It parses the durable format as any other program
would, so that it shares neither values nor mistakes with the codec.
"""

import json
from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Any

from penstock.core.model import DIGEST_MODULUS, Attempt, SinkName, Totals
from penstock.testing.simulator.schedule import ViolationError

_PRIME = 0x9E37_79B9_7F4A_7C15


@dataclass(frozen=True, slots=True, order=True)
class Row:
    """Row `number` of the source, with the salt of the attempt that staged it: rows differ from attempt to attempt."""

    number: int
    salt: int


def totals_of(rows: tuple[Row, ...]) -> Totals:
    """Return the totals that a stage writer would count."""
    digest = sum((row.number + 1) * _PRIME ^ row.salt for row in rows) % DIGEST_MODULUS
    return Totals(rows=len(rows), files=1, size_bytes=16 * len(rows), digest=digest)


def to_bytes(rows: tuple[Row, ...]) -> bytes:
    """Return the rows as the content of an inline piece."""
    return ",".join(f"{row.number}:{row.salt}" for row in rows).encode()


def from_bytes(data: bytes) -> tuple[Row, ...]:
    """Return the rows of an inline piece."""
    pairs = (pair.split(":") for pair in data.decode().split(","))
    return tuple(Row(int(number), int(salt)) for number, salt in pairs)


Rows = tuple[Row, ...]

FILES, TABLE, KEYED = SinkName("files"), SinkName("table"), SinkName("keyed")
KEYS = 5
"""Rows share a key if their numbers are equal modulo this number; no batch holds two such rows."""


class Target:
    """The place of one sink: invisible staging, a marker, and what the ledger decided for it."""

    def __init__(self, sink: SinkName) -> None:
        self.sink = sink
        self.staged: dict[str, Rows] = {}
        self.wrote: dict[str, Rows] = {}
        self.decided: dict[str, int] = {}
        self.marked = 0

    def stage(self, name: str, rows: Rows, *, kept: bool = True) -> None:
        """Store the piece of a task attempt, unless it is not `kept` but inline. Its rows are remembered for ever."""
        if name in self.wrote:
            raise ViolationError(f"I3: two attempts share the name {name}")
        self.wrote[name] = rows
        if kept:
            self.staged[name] = rows

    def raise_marker(self, position: int) -> None:
        """Raise the marker to `position` unless it is greater: one atomic operation, as in every real target."""
        self.marked = max(self.marked, position)

    def collect(self, name: str, *, generation: int, newest_batch: int) -> None:
        """Remove a staged piece in a sweep by the open `generation`. Raises ViolationError if the piece is still needed."""
        if self.decided.get(name, 0) > self.marked:
            raise ViolationError(f"I10: {name} is collected, though it is decided and not published in {self.sink}")
        attempt = Attempt.find(name)
        assert attempt is not None
        if name not in self.decided and attempt.generation == generation and attempt.batch_id > newest_batch:
            raise ViolationError(f"I10: {name} is collected, though its batch is being staged")
        self.staged.pop(name, None)

    def require_decided(self, name: str) -> None:
        """Raise ViolationError if a piece that becomes visible was not decided."""
        if name not in self.decided:
            raise ViolationError(f"I3: {name} becomes visible in {self.sink}, though nobody decided it")

    def content(self) -> Counter[Row]:
        """Return every row that is visible, or was and was removed by maintenance."""
        raise NotImplementedError

    def expected(self) -> Counter[Row]:
        """Return what `content` must be once everything decided is published."""
        return Counter(row for name in self.decided for row in self.wrote[name])

    def maintain(self, random: Random | None) -> None:
        """Remove one published item as maintenance does, or without `random` all of them."""
        raise NotImplementedError


class FilesTarget(Target):
    """Staging kind: publishing consumes the staged piece."""

    def __init__(self) -> None:
        super().__init__(FILES)
        self.visible: dict[str, Rows] = {}
        self._removed: Counter[Row] = Counter()

    def promote(self, name: str) -> bool | None:
        """Make a staged piece visible. Return False if it is visible already, None if it does not exist."""
        if name not in self.staged:
            return False if name in self.visible else None
        self.require_decided(name)
        self.visible[name] = self.staged.pop(name)
        return True

    def content(self) -> Counter[Row]:
        return self._removed + Counter(row for rows in self.visible.values() for row in rows)

    def maintain(self, random: Random | None) -> None:
        published = sorted(name for name in self.visible if self.decided[name] <= self.marked)
        for name in published if random is None else random.sample(published, min(1, len(published))):
            self._removed.update(self.visible.pop(name))


class TableTarget(Target):
    """Transactional kind: rows and marker in one transaction."""

    def __init__(self) -> None:
        super().__init__(TABLE)
        self._rows: list[Row] = []
        self._removed: list[Row] = []

    def transact(self, pieces: dict[str, Rows], position: int) -> bool:
        """Insert rows and raise the marker. Return False, and do nothing, if the marker has reached `position`."""
        if self.marked >= position:
            return False
        for name, rows in pieces.items():
            self.require_decided(name)
            self._rows += rows
        self.raise_marker(position)
        return True

    def content(self) -> Counter[Row]:
        return Counter(self._rows + self._removed)

    def maintain(self, random: Random | None) -> None:
        count = len(self._rows) if random is None else min(1, len(self._rows))
        self._removed += self._rows[:count]
        del self._rows[:count]


class KeyedTarget(Target):
    """Idempotent kind: the last timestamp wins, and the timestamp is the decision's position."""

    def __init__(self) -> None:
        super().__init__(KEYED)
        self._values: dict[int, tuple[int, Row]] = {}

    def write(self, name: str, row: Row, position: int) -> None:
        self.require_decided(name)
        key = row.number % KEYS
        before = self._values.get(key)
        if before is None or before[0] <= position:
            self._values[key] = (position, row)

    def content(self) -> Counter[Row]:
        return Counter(row for _, row in self._values.values())

    def expected(self) -> Counter[Row]:
        """Return the newest decided row of every key."""
        newest: dict[int, tuple[int, Row]] = {}
        for name, position in self.decided.items():
            for row in self.wrote[name]:
                newest[row.number % KEYS] = max(newest.get(row.number % KEYS, (0, row)), (position, row))
        return Counter(row for _, row in newest.values())

    def maintain(self, random: Random | None) -> None:
        """Do nothing: in such stores a removed key leaves a tombstone, so nothing could come back."""


class Targets:
    """The targets of all three kinds of sink."""

    def __init__(self) -> None:
        self.files, self.table, self.keyed = FilesTarget(), TableTarget(), KeyedTarget()
        self.all: tuple[Target, ...] = (self.files, self.table, self.keyed)

    def of(self, sink: str) -> Target:
        return next(target for target in self.all if target.sink == sink)

    def require_published(self, position: int, *, before: int, but: frozenset[str] = frozenset()) -> None:
        """Raise ViolationError unless every sink shows the decision at `position`."""
        for target in self.all:
            if target.sink not in but and target.marked < position:
                raise ViolationError(f"I8: {before} is decided before {position} is published in {target.sink}")


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
        self._newest_kind = ""
        self._ahead = frozenset[str]()
        """Sinks that had kept the newest batch when it was taken back, so that it is not published there."""

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
            records = (
                self._newest_kind in {"opened", "rewound"} and entry["generation"] == self.generation
            )  # that it is carried out
            if not records and entry["generation"] != self.generation + 1:
                raise ViolationError(f"I7: generation {entry['generation']} follows generation {self.generation}")
            self.generation = entry["generation"]
        elif body["kind"] == "decided":
            self._decide(position, entry["generation"], body["decision"])
            self._ahead = frozenset(entry["summary"].get("ahead", {}))
        elif body["kind"] == "rewound":
            self._rewind(entry["generation"], body)
        self._newest_kind = body["kind"]

    def _rewind(self, generation: int, body: dict[str, Any]) -> None:
        if generation != self.generation:
            raise ViolationError(f"I9: generation {generation} rewinds though {self.generation} is open")
        if self.newest is not None:
            self._targets.require_published(self.newest.position, before=self.length, but=self._ahead)
        self.decided = {batch: decided for batch, decided in self.decided.items() if decided.position <= body["to"]}

    def _decide(self, position: int, generation: int, decision: dict[str, Any]) -> None:
        if generation != self.generation:
            raise ViolationError(f"I9: generation {generation} decides though {self.generation} is open")
        batch = (decision["query_id"], decision["batch_id"])
        if batch in self.decided:
            raise ViolationError(f"I8: batch {batch[1]} is decided a second time, at {position}")
        if self.newest is not None:
            self._targets.require_published(self.newest.position, before=position, but=self._ahead)
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
