"""Files that were removed on purpose: what an operator can accept, and the entries of the ledger that say so.

The act fences nobody. A driver that finds it at its next position takes it for the ledger's tail and appends behind it: see
`Coordinator`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from tenacity import Retrying

from penstock.commit.append import append_once
from penstock.commit.publication import decision_in, holds_rows_of
from penstock.commit.summary import after_removal
from penstock.core.model import (
    AccountName,
    Entry,
    MissingFiles,
    Position,
    Removal,
    RemovalAccepted,
    SinkName,
    Totals,
    new_nonce,
)
from penstock.errors import Refused, Retryable
from penstock.protocols import Ledger

FILES_PER_ENTRY = 1_000
"""How many files of one entry are listed by name at most: some 100 KB."""
_TRIES = 20


def removal_acts(ledger: Ledger) -> Iterator[RemovalAccepted]:
    """Yield the retained acts, newest first. Takes two reads of the ledger for each, however many batches there are."""
    tail = ledger.tail()
    at = None if tail is None else tail.summary.removed_at
    while at is not None and (entry := ledger.read(at)) is not None:
        if isinstance(entry.body, RemovalAccepted):
            yield entry.body
        before = ledger.read(Position(at - 1))
        at = None if before is None else before.summary.removed_at


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedFiles:
    """What is missing from one account: `removals` to record, and for people of which decisions it was.

    `batches` counts decisions whose files in the account are gone, all or some. `oldest` and `newest` are of these; `oldest` is
    None where files of forgotten decisions are gone, too. Then `batches` does not count these, and `unchecked` are files of such
    decisions that are left.
    """

    sink: SinkName
    account: AccountName
    removals: tuple[Removal, ...]
    names: frozenset[str]
    totals: Totals
    unchecked: Totals = field(default_factory=Totals)
    batches: int = 0
    oldest: Entry | None = None
    newest: Entry | None = None


@dataclass(slots=True)
class _Account:
    """Collects what is missing from one account, decision by decision, oldest first."""

    sink: SinkName
    missing: MissingFiles
    ranges: list[tuple[Position, Position]] = field(default_factory=list)
    whole: Totals = field(default_factory=Totals)
    files: list[tuple[str, Totals]] = field(default_factory=list)
    affected: list[Entry] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    goes_on: bool = False
    """Whether the newest range goes up to the decision before."""

    def take(self, entry: Entry) -> None:
        """Take the next decision that has files for the account."""
        pieces = [piece for piece in decision_in(entry).of_sink(self.sink) if piece.account == self.missing.account]
        gone = [piece for piece in pieces if piece.name in self.missing.names]
        self.affected += [entry] if gone else []
        self.names |= {piece.name for piece in gone}
        if not pieces:
            return
        if len(gone) < len(pieces):
            self.files += [(piece.name, piece.totals) for piece in gone]
            self.goes_on = False
            return
        first = self.ranges.pop()[0] if self.goes_on else entry.position
        self.ranges.append((first, entry.position))
        self.whole = sum((piece.totals for piece in gone), self.whole)
        self.goes_on = True

    def found(self) -> RemovedFiles:
        removals = []
        if self.ranges:
            removals.append(self._removal(tuple(self.ranges), (), self.whole))
        if self.missing.unchecked.files:
            by_sum = self._removal((), (), self.missing.older)
            removals.append(replace(by_sum, unchecked=self.missing.unchecked))
        adopted = [(name, Totals()) for name in sorted(self.missing.adopted)]  # the ledger never counted their rows
        files = [*self.files, *adopted]
        for start in range(0, len(files), FILES_PER_ENTRY):
            part = files[start : start + FILES_PER_ENTRY]
            totals = sum((of_file for _, of_file in part), Totals())
            removals.append(self._removal((), tuple(name for name, _ in part), totals))
        return RemovedFiles(
            sink=self.sink,
            account=self.missing.account,
            removals=tuple(removals),
            names=frozenset(self.names) | self.missing.adopted,
            totals=sum((removal.totals for removal in removals), Totals()),
            unchecked=self.missing.unchecked,
            batches=len(self.affected),
            oldest=None if self.missing.older.rows or not self.affected else self.affected[0],
            newest=self.affected[-1] if self.affected else None,
        )

    def _removal(self, decided: tuple[tuple[Position, Position], ...], files: tuple[str, ...], totals: Totals) -> Removal:
        return Removal(sink=self.sink, account=self.missing.account, decided=decided, files=files, totals=totals)


def removed_files(sink: SinkName, missing: MissingFiles, retained: Sequence[Entry], *, before: Position | None) -> RemovedFiles:
    """Return what an operator accepts of `missing`: files of decisions below the position `before`, or all of them.

    `retained` are the entries of the ledger, oldest first. What forgotten decisions had is older than all of them.
    """
    account = _Account(sink=sink, missing=missing)
    if missing.older.rows and not missing.unchecked.files:
        account.ranges.append((Position(1), Position(retained[0].position - 1)))
        account.whole, account.goes_on = missing.older, True
    for entry in retained:
        if holds_rows_of(entry, sink) and (before is None or entry.position < before):
            account.take(entry)
    return account.found()


def acts_of(found: Iterable[RemovedFiles], *, reason: str, operator: str) -> Iterator[RemovalAccepted]:
    """Yield the acts to append, each of bounded size: at most `FILES_PER_ENTRY` files by name, or a single removal."""
    removals = list[Removal]()
    for removal in (each for account in found for each in account.removals):
        if removals and sum(len(each.files) for each in (*removals, removal)) > FILES_PER_ENTRY:
            yield RemovalAccepted(removals=tuple(removals), reason=reason, operator=operator)
            removals = []
        removals.append(removal)
    if removals:
        yield RemovalAccepted(removals=tuple(removals), reason=reason, operator=operator)


def append_removal(
    ledger: Ledger,
    accepted: RemovalAccepted,
    *,
    after: Position | None,
    rewound_at: Position | None,
    now_ms: Callable[[], int],
    retrying: Retrying,
) -> Entry:
    """Append the act behind the ledger's tail, in the tail's generation, whatever a driver appends meanwhile.

    `after` is where the newest act stood when the sinks were compared, `rewound_at` where the newest rewind. Raises Refused if
    there is a newer one: it may have accepted, or taken back, the same files. Raises Retryable if every try met another entry.
    """
    for _ in range(_TRIES):
        tail = ledger.tail()
        assert tail is not None
        if tail.summary.removed_at != after:
            raise Refused(
                f"Another removal was accepted at position {tail.summary.removed_at}, while the sinks were compared.",
                remedy="Verify again.",
            )
        if tail.summary.rewound_at != rewound_at:
            raise Refused(
                f"The pipeline was rewound at position {tail.summary.rewound_at}, while the sinks were compared.",
                remedy="Verify again, when the rewind is finished.",
            )
        position = Position(tail.position + 1)
        entry = Entry(
            pipeline=tail.pipeline,
            position=position,
            generation=tail.generation,
            nonce=new_nonce(),
            written_at_ms=now_ms(),
            body=accepted,
            summary=after_removal(tail.summary, accepted, position=position),
        )
        if append_once(ledger, entry, retrying=retrying) is None:
            return entry
    raise Retryable(
        f"The ledger at {ledger.location} got another entry at each of {_TRIES} tries to record the act.",
        remedy="Try again.",
    )
