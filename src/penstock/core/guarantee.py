"""The guarantee that one part of a pipeline allows, and why: one line of `penstock check`."""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.core.model import Guarantee


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One part (`source flights (csv)`, `operator Deduplicate`, `trigger`) and the guarantee it allows the whole pipeline.

    `breaks`: events outside Penstock's control that would break the guarantee. `warnings`: allowed settings that will hurt, such
    as state that grows for ever. `remedy`: how to get exactly-once; empty where that is given already. `may_lose_rows`: the
    settings let rows be lost unseen, which is less than at-least-once; who demands `at_least_once` accepts it.
    """

    subject: str
    guarantee: Guarantee
    why: str
    breaks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    remedy: str = ""
    may_lose_rows: bool = False

    @property
    def allows(self) -> str:
        """What the part allows, in a word or two for people."""
        return "may lose rows" if self.may_lose_rows else self.guarantee.value


def exactly_once(subject: str, why: str, *breaks: str, warnings: Iterable[str] = ()) -> Claim:
    """Return the claim of a part that gives exactly-once."""
    return Claim(subject=subject, guarantee=Guarantee.EXACTLY_ONCE, why=why, breaks=breaks, warnings=tuple(warnings))


def at_least_once(subject: str, why: str, remedy: str, *, warnings: Iterable[str] = ()) -> Claim:
    """Return the claim of a part that gives no more than at-least-once."""
    return Claim(subject=subject, guarantee=Guarantee.AT_LEAST_ONCE, why=why, remedy=remedy, warnings=tuple(warnings))


def losing_rows(subject: str, why: str, remedy: str) -> Claim:
    """Return the claim of a part whose settings let rows be lost unseen."""
    return Claim(subject=subject, guarantee=Guarantee.AT_LEAST_ONCE, why=why, remedy=remedy, may_lose_rows=True)


def too_weak(claims: Iterable[Claim], demanded: Guarantee) -> tuple[Claim, ...]:
    """Return the claims that allow less than `demanded`."""
    if demanded is Guarantee.AT_LEAST_ONCE:
        return ()
    return tuple(claim for claim in claims if claim.guarantee is not Guarantee.EXACTLY_ONCE)
