"""The lease: by it the supervisors of a pipeline agree which one's driver runs, and a standby notices that it is gone.

A log of its own beside the ledger's entries, with the same conditional append. Its holder appends a record every third of the
lease's time, under the next number. A standby measures by its own clock how long the newest number stays the same; the clocks of
two machines are never compared. Whoever appends the next number first has the lease.

Nothing that is exact depends on it. A holder that slept, or two that believe they have it, at worst start two drivers, of which
the ledger's fence stops the older one.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol, runtime_checkable

from penstock.core.codec import decode_document, encode_document
from penstock.core.model import Json, PipelineName
from penstock.errors import FormatTooNew, LedgerMismatch

_FORMAT, _VERSION = "penstock.lease", 1
RENEWALS: Final = 3
"""How often a lease is renewed in its time: a lost renewal, or a slow one, does not give it away."""


@runtime_checkable
class KeepsLease(Protocol):
    """A ledger that also keeps a lease: records under dense numbers, of which only the newest counts, beside the entries."""

    def newest_lease(self) -> tuple[int, bytes] | None:
        """Return number and content of the newest record, None if there is none. Creates nothing. Raises Retryable, Failed."""
        ...

    def append_lease(self, number: int, data: bytes) -> bool:
        """Put `data` at `number` unless that is occupied, and forget records before the one below it. False: it is occupied.

        A number that was forgotten may be occupied a second time: the newest record is that of the greatest number. Raises
        Retryable, OutcomeUnknown, Failed.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """One record. `holder` is random for each supervisor's pipeline, `owner` names its process for people.

    `lease_ms`: how long a standby that sees nothing newer waits. `released`: the holder gave the lease back.
    """

    pipeline: PipelineName
    holder: str
    owner: str
    lease_ms: int
    released: bool = False


def encode_lease(record: LeaseRecord) -> bytes:
    """Return the durable form of a record."""
    fields: dict[str, Json] = {
        "pipeline": record.pipeline,
        "holder": record.holder,
        "owner": record.owner,
        "lease_ms": record.lease_ms,
        "released": record.released,
    }
    return encode_document(_FORMAT, _VERSION, fields)


def decode_lease(data: bytes, *, where: str) -> LeaseRecord:
    """Return the record in `data`, found at `where`. Raises LedgerMismatch, FormatTooNew."""
    _, fields = decode_document(data, kind=_FORMAT, newest=_VERSION, where=where)
    match fields:
        case {"pipeline": str(name), "holder": str(holder), "owner": str(owner), "lease_ms": int(ms), "released": bool(given)}:
            return LeaseRecord(pipeline=PipelineName(name), holder=holder, owner=owner, lease_ms=ms, released=given)
    raise LedgerMismatch(
        f"{where} is damaged: expected pipeline, holder, owner, lease_ms and released, found {', '.join(sorted(fields))}.",
        remedy="Stop all supervisors of the pipeline, and remove it.",
    )


class Lease:
    """One supervisor's view of the lease of a pipeline in `ledger`, by `clock` in seconds. One thread at a time.

    Methods raise what the ledger raises; after that, the next call reads what is there.
    """

    def __init__(self, ledger: KeepsLease, own: LeaseRecord, *, where: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._ledger, self._own, self._where, self._clock = ledger, own, where, clock
        self._number, self._unchanged_s, self._looked_s = 0, 0.0, clock()

    @property
    def lease_s(self) -> float:
        return self._own.lease_ms / 1000

    def holder(self) -> LeaseRecord | None:
        """Return whose lease it is, as far as one sees from here; None if nobody holds it any more."""
        newest = self._look()
        return None if newest is None or newest.released or self._has_lapsed(newest) else newest

    def take(self) -> bool:
        """Take the lease if nobody holds it. Return whether it is this supervisor's now."""
        holder = self.holder()
        if holder is None:
            return self._append(self._own)
        return holder.holder == self._own.holder

    def renew(self) -> LeaseRecord | None:
        """Append another record, unless somebody else has taken the lease: return that one's record, None if it is renewed."""
        newest = self._look()
        if (newest is None or newest.holder == self._own.holder) and not self._append(self._own):
            newest = self._look()  # of this supervisor, if the store met its own repetition of the append
        return None if newest is None or newest.holder == self._own.holder else newest

    def release(self) -> None:
        """Give the lease back, if it is this supervisor's: a standby need not wait until it lapses."""
        newest = self._look()
        if newest is not None and newest.holder == self._own.holder and not newest.released:
            self._append(replace(self._own, released=True))

    def _look(self) -> LeaseRecord | None:
        found = self._ledger.newest_lease()
        if found is None:
            return None
        number, data = found
        try:
            newest = decode_lease(data, where=f"Record {number} of the lease at {self._where}")
        except (LedgerMismatch, FormatTooNew):  # it lapses like any other
            newest = replace(self._own, holder="", owner="a supervisor whose record is not readable")
        self._watch(number, newest)
        return newest

    def _watch(self, number: int, newest: LeaseRecord) -> None:
        """Measure how long the newest record has been the same; of the time between two looks at most a renewal's counts."""
        now_s = self._clock()
        between_s = min(now_s - self._looked_s, newest.lease_ms / 1000 / RENEWALS)
        self._unchanged_s = self._unchanged_s + between_s if number == self._number else 0.0
        self._number, self._looked_s = number, now_s

    def _has_lapsed(self, newest: LeaseRecord) -> bool:
        return self._unchanged_s >= newest.lease_ms / 1000

    def _append(self, record: LeaseRecord) -> bool:
        return self._ledger.append_lease(self._number + 1, encode_lease(record))
