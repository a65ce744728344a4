"""Checks that ledger, places and staging belong together: none is an older copy, and no place is an empty mount point."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice

from penstock.commit.publication import decision_in, waiting_entries
from penstock.core.backfill import Backfilled
from penstock.core.high_water_mark import HighWaterMark
from penstock.core.model import AccountName, Decided, Decision, Entry, LedgerId, PipelineName, Position, SinkName, Summary, Totals
from penstock.core.replay import Replayed
from penstock.errors import LedgerMismatch, Refused
from penstock.protocols import HasMarker, HasStaging, Ledger, Signature, Sink
from penstock.stage.opening import OpensTables

_LOOKED_AT = 20
"""How many published decisions are read at most to find rows for every account. Mostly the first one has them."""

Place = tuple[SinkName, AccountName]
Markers = Mapping[Place, HighWaterMark | None]


def use_tables(sinks: Iterable[Sink], tail: Entry | None) -> None:
    """Have sinks into many tables use those that the ledger knows. `tail` is its newest entry."""
    for sink in sinks:
        if isinstance(sink, OpensTables) and tail is not None:
            sink.use_tables(tail.summary.totals.get(sink.name, {}))


def require_present(ledger: Ledger, sinks: tuple[Sink, ...], *, pipeline: PipelineName) -> Markers:
    """Return the markers of accounts with rows. Raises Refused for a marker that is missing or older than the newest rows there.

    Costs a few reads of the ledger. Called before anything is prepared, so that nothing is created below a mount point. The
    newest decision is left out, and that of a backfill that has not ended: it may not have been published yet.
    """
    tail = ledger.tail()
    if tail is None:
        return {}
    use_tables(sinks, tail)
    markers = dict[Place, HighWaterMark | None]()
    unsettled = _unsettled(ledger, tail)
    shown: Mapping[Place, Position] | None = None
    for sink in sinks:
        for account, rows in _published(sink, tail.summary, unsettled):
            if isinstance(sink, HasMarker):
                shown = _shown(ledger, tail, sinks) if shown is None else shown
                found = markers[sink.name, account] = sink.high_water_mark(account, pipeline=pipeline)
                position = None if found is None else found.position
                require_marker_not_older(position, rows, shown.get((sink.name, account)), sink=sink.name, account=account)
    return markers


def require_decided(ledger: Ledger, sinks: tuple[Sink, ...], *, pipeline: PipelineName, markers: Markers) -> None:
    """Raise LedgerMismatch for an account that shows what another ledger decided, or more than this one holds (I2).

    A marker of an older Penstock names no ledger: it is this one's if the entry at its position decided the batch that it names.
    Reads the markers that `markers`, the result of `require_present`, lacks. Called when all places are prepared, and before
    this run's own entry lengthens the ledger. Costs a read of the ledger for each position that a marker stands at.
    """
    tail = ledger.tail()
    entry_at = cache(ledger.read)
    for sink in sinks:
        if not isinstance(sink, HasMarker):
            continue
        for account in sink.accounts:
            place = (sink.name, account)
            mark = markers[place] if place in markers else sink.high_water_mark(account, pipeline=pipeline)
            if mark is None:
                continue
            if mark.position > _end(tail):
                tail = ledger.tail()  # a run that is still alive may have decided and published since
            _require_own(mark, tail, entry_at, ledger.location, sink=sink.name, account=account)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """Why an account is not this ledger's: `foreign` if another ledger filled it, `ahead` if this ledger is an older copy."""

    state: str
    error: LedgerMismatch


def ledger_mismatch(mark: HighWaterMark, ledger: Ledger, *, sink: SinkName, account: AccountName) -> Mismatch | None:
    """Return what `require_decided` would raise for one account with the marker `mark`, None if the marker fits the ledger."""
    tail = ledger.tail()
    try:
        _require_own(mark, tail, ledger.read, ledger.location, sink=sink, account=account)
    except LedgerMismatch as error:
        is_copy = mark.ledger_id == identity_of(tail) and mark.position > _end(tail)
        return Mismatch(state="ahead" if is_copy else "foreign", error=error)
    return None


def _require_own(
    mark: HighWaterMark,
    tail: Entry | None,
    entry_at: Callable[[Position], Entry | None],
    location: str,
    *,
    sink: SinkName,
    account: AccountName,
) -> None:
    difference = _difference(mark, tail, entry_at)
    if difference is not None:
        shown, found = difference
        raise LedgerMismatch(
            f"{_named(sink, account)} shows {shown}, but the ledger at {location} {found}: another ledger, or an "
            "older copy, is in its place.",
            remedy="Put that ledger back and start again: what it decided would be delivered a second time. If it is lost, give "
            "the sink another name and an empty place: new accounts, another table or topic.",
        )


def _named(sink: SinkName, account: AccountName) -> str:
    """Return an account as the begin of a sentence. A sink that has only one place, such as a table, has no name for it."""
    return f"Account {account!r} of sink {sink!r}" if account else f"Sink {sink!r}"


def _difference(mark: HighWaterMark, tail: Entry | None, entry_at: Callable[[Position], Entry | None]) -> tuple[str, str] | None:
    """Return what the place of `mark` shows and what the ledger has instead, None if the marker fits the ledger.

    An entry that is no longer retained is not compared.
    """
    if mark.ledger_id is not None and mark.ledger_id != identity_of(tail):
        return f"what ledger {mark.ledger_id} decided, up to its position {mark.position}", describe_identity(tail)
    if mark.position > _end(tail):
        return f"batches up to position {mark.position} of the ledger", f"ends at position {_end(tail)}"
    entry = entry_at(mark.position)
    if mark.batch_id is None or entry is None:
        return None
    found = "decided no batch there"
    if isinstance(entry.body, Decided | Backfilled | Replayed):
        batch = decision_in(entry).batch
        if (entry.generation, batch.query_id, batch.batch_id) == (mark.generation, mark.query_id, mark.batch_id):
            return None
        found = f"decided batch {batch.batch_id} of query {batch.query_id} there, in generation {entry.generation}"
    shown = f"batch {mark.batch_id} of query {mark.query_id}, decided in generation {mark.generation} at position {mark.position}"
    return shown, found


def published_rows(ledger: Ledger, sinks: Sequence[Sink]) -> Mapping[Place, int]:
    """Return how many rows each account holds for certain. A newest decision that may not be published yet is left out."""
    tail = ledger.tail()
    if tail is None:
        return {}
    use_tables(sinks, tail)
    unsettled = _unsettled(ledger, tail)
    return {(sink.name, account): rows for sink in sinks for account, rows in _published(sink, tail.summary, unsettled)}


def identity_of(tail: Entry | None) -> LedgerId | None:
    """Return the identity of the ledger that ends with `tail`."""
    return None if tail is None else tail.summary.ledger_id


def describe_identity(tail: Entry | None) -> str:
    """Return what is found instead of an expected identity, as the end of a sentence that begins with the ledger."""
    if tail is None:
        return "is empty"
    own = identity_of(tail)
    return "has no identity: an older Penstock wrote all of it" if own is None else f"is {own}"


def _end(tail: Entry | None) -> Position:
    return Position(0) if tail is None else tail.position


def require_marker_not_older(
    found: Position | None, rows: int, shown: Position | None, *, sink: SinkName, account: AccountName
) -> None:
    """Raise Refused if `found`, the marker's position in an account with `rows` rows, is None or before `shown`."""
    if found is None:
        raise Refused(
            f"{_named(sink, account)} shows no trace of the {rows:,} rows that were published there: "
            "it was removed, or something else is mounted in its place.",
            remedy="Mount it or restore it, with its marker, and start again. To go on without those rows, "
            "give the sink another name and an empty place: new accounts, another table or topic.",
        )
    if shown is not None and found < shown:
        raise Refused(
            f"{_named(sink, account)} stands at position {found} of the ledger, but rows were published there up to "
            f"position {shown}: an older copy is in its place.",
            remedy="Put the newest copy back, with its marker, and start again. To go on without the rows that are missing, "
            "give the sink another name and an empty place: new accounts, another table or topic.",
        )


def _shown(ledger: Ledger, tail: Entry, sinks: tuple[Sink, ...]) -> Mapping[Place, Position]:
    """Return the newest position with rows for each account, among those that are certainly published there."""
    wanted = {(sink.name, account) for sink in sinks for account in sink.accounts}
    found: dict[Place, Position] = {}
    for entry in islice(_settled(ledger, tail), _LOOKED_AT):
        for piece in decision_in(entry).staged:
            found.setdefault((piece.sink, piece.account), entry.position)
        if wanted <= found.keys():
            break
    summary = tail.summary
    waiting = {name for name, backfill in summary.backfills.items() if not backfill.ended}
    beside = {backfill.newest for backfill in summary.backfills.values() if backfill.ended}
    beside |= {summary.replayed_at} if summary.replayed_at is not None and summary.replaying_at is None else set()
    for position in beside:
        newest = ledger.read(position)
        for piece in () if newest is None else decision_in(newest).staged:
            if piece.sink not in waiting:  # a backfill that put rows aside may lack its own
                place = (piece.sink, piece.account)
                found[place] = max(found.get(place, position), position)
    return found


def _settled(ledger: Ledger, tail: Entry) -> Iterator[Entry]:
    """Yield published decisions, newest first: the summary of each says where the one before it is."""
    position = tail.summary.published_at
    while position is not None and (entry := ledger.read(position)) is not None:
        yield entry
        position = entry.summary.published_at


def _unsettled(ledger: Ledger, tail: Entry) -> Sequence[Decision]:
    """Return the decisions that may not be published yet."""
    found = [*waiting_entries(ledger, tail.summary)]
    decided_at = tail.summary.decided_at
    if decided_at is not None and decided_at != tail.summary.published_at:
        newest = ledger.read(decided_at)
        found += [] if newest is None else [newest]
    return [decision_in(entry) for entry in found]


def _published(sink: Sink, summary: Summary, unsettled: Sequence[Decision]) -> Iterator[tuple[AccountName, int]]:
    """Yield the sink's accounts that hold rows for certain, and how many."""
    totals = summary.totals.get(sink.name, {})
    pending = [piece for decision in unsettled for piece in decision.of_sink(sink.name)]
    for account in sink.accounts:
        rows = totals.get(account, Totals()).rows - sum(piece.totals.rows for piece in pending if piece.account == account)
        if rows > 0:
            yield account, rows


def require_own_staging(ledger: Ledger, sinks: Iterable[Sink], *, pipeline: PipelineName) -> None:
    """Raise LedgerMismatch where a sink stages for another ledger. Costs two reads of the ledger for each signature."""
    for sink in sinks:
        for signature in sink.signatures(pipeline=pipeline) if isinstance(sink, HasStaging) else ():
            _require_own_signature(ledger, signature, sink)


def _require_own_signature(ledger: Ledger, signature: Signature, sink: Sink) -> None:
    entry = ledger.read(signature.position)
    tail = ledger.tail()
    if signature.ledger_id is not None and signature.ledger_id != identity_of(tail):
        # Entries do not suffice: a ledger that pruned the position would pass.
        user, found = f"ledger {signature.ledger_id}", describe_identity(tail)
    elif entry is None and tail is not None and tail.position > signature.position and tail.generation >= signature.generation:
        return  # no longer retained
    elif entry is not None and entry.nonce == signature.nonce:
        return
    else:
        user = f"a ledger with entry {signature.nonce} at position {signature.position}"
        found = f"ends at position {_end(tail)}" if entry is None else f"has entry {entry.nonce} there"
    raise LedgerMismatch(
        f"Sink {sink.name!r} would stage into {signature.place}, which is in use by {user}, but the ledger at {ledger.location} "
        f"{found}: another ledger, or an older copy, is in its place.",
        remedy="Put the newest ledger back. Where there are two, one would sweep what the other stages: give each a `spool:` of "
        "its own. If that ledger is gone for good, take away first what it published and this one does not know: "
        f"`penstock verify FILE` names it. Then remove {signature.place}/{signature.name} and start again.",
    )
