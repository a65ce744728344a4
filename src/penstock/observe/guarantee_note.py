"""What a driver found when it started that the pipeline guarantees, part by part, noted in the pipeline's home."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.core.guarantee import Claim, too_weak
from penstock.core.model import Guarantee
from penstock.observe.note import read_note, write_note
from penstock.support.secret import scrub

_KIND = "guarantee"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuaranteeNote:
    """The claims of a query as it was started at `at_ms`, in the order of a row's way."""

    at_ms: int
    claims: tuple[Claim, ...]

    @property
    def given(self) -> Guarantee:
        """What the whole pipeline guarantees."""
        return Guarantee.AT_LEAST_ONCE if too_weak(self.claims, Guarantee.EXACTLY_ONCE) else Guarantee.EXACTLY_ONCE

    @classmethod
    def read(cls, *, at_ms: int, claims: Sequence[dict[str, object]]) -> "GuaranteeNote":
        """Return the note that was written with these fields. Raises TypeError, ValueError for those of another version."""
        found = (Claim(**{**each, "guarantee": Guarantee(each["guarantee"])}) for each in claims)  # type: ignore[arg-type]
        return cls(at_ms=at_ms, claims=tuple(found))


def note_guarantee(home: str, claims: Sequence[Claim]) -> None:
    """Write `claims` into `home`, in place of those before, if that is possible."""
    shown = tuple(
        replace(claim, subject=scrub(claim.subject), why=scrub(claim.why), remedy=scrub(claim.remedy)) for claim in claims
    )
    write_note(home, _KIND, GuaranteeNote(at_ms=time.time_ns() // 1_000_000, claims=shown))


def guarantee_note(home: str) -> GuaranteeNote | None:
    """Return what the newest start noted in `home`; None if there is nothing that this version can read."""
    return read_note(home, _KIND, GuaranteeNote.read)
