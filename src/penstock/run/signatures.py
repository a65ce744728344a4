"""The check that what the sinks stage into is this ledger's, because another ledger would sweep it."""

from collections.abc import Iterable

from penstock.core.model import Entry, PipelineName
from penstock.errors import LedgerMismatch
from penstock.protocols import HasStaging, Ledger, Signature, Sink
from penstock.run.ledger_match import describe_identity, identity_of


def require_own_staging(ledger: Ledger, sinks: Iterable[Sink], *, pipeline: PipelineName) -> None:
    """Raise LedgerMismatch where a sink stages for another ledger. Costs two reads of the ledger for each signature."""
    for sink in sinks:
        for signature in sink.signatures(pipeline=pipeline) if isinstance(sink, HasStaging) else ():
            _require_own(ledger, signature, sink)


def _require_own(ledger: Ledger, signature: Signature, sink: Sink) -> None:
    entry = ledger.read(signature.position)
    tail = ledger.tail()
    if signature.ledger_id is not None:
        _require_same_ledger(ledger, tail, signature, sink)
    if entry is None and tail is not None and tail.position > signature.position and tail.generation >= signature.generation:
        return  # no longer retained
    if entry is not None and entry.nonce == signature.nonce:
        return
    raise LedgerMismatch(
        f"Sink {sink.name!r} would stage into {signature.place}, which is in use by a ledger with entry {signature.nonce} at "
        f"position {signature.position}, but the ledger at {ledger.location} {_found(entry, tail)}: another ledger, or an older "
        "copy, is in its place.",
        remedy=_remedy(signature),
    )


def _require_same_ledger(ledger: Ledger, tail: Entry | None, signature: Signature, sink: Sink) -> None:
    """Raise LedgerMismatch for another identity. Entries do not suffice: a ledger that pruned the position would pass."""
    if signature.ledger_id == identity_of(tail):
        return
    raise LedgerMismatch(
        f"Sink {sink.name!r} would stage into {signature.place}, which is in use by ledger {signature.ledger_id}, but the ledger "
        f"at {ledger.location} {describe_identity(tail)}: another ledger, or an older copy, is in its place.",
        remedy=_remedy(signature),
    )


def _remedy(signature: Signature) -> str:
    return (
        "Put the newest ledger back. Where there are two, one would sweep what the other stages: give each a `spool:` of "
        f"its own. If that ledger is gone for good, remove {signature.place}/{signature.name} and start again."
    )


def _found(entry: Entry | None, tail: Entry | None) -> str:
    if entry is not None:
        return f"has entry {entry.nonce} there"
    return f"ends at position {0 if tail is None else tail.position}"
