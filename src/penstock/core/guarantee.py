"""What is guaranteed of one part of a pipeline, and why: a line of `penstock check`."""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.core.model import Guarantee


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One part (`source flights (csv)`, `operator Deduplicate`, `trigger`) and what it lets the whole pipeline guarantee.

    `breaks`: what would break the guarantee and is out of Penstock's power. `warnings`: what is allowed and will hurt, such as
    state that grows for ever. `remedy`: how to get exactly-once; empty where that is given.
    """

    subject: str
    guarantee: Guarantee
    why: str
    breaks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    remedy: str = ""


def too_weak(claims: Iterable[Claim], demanded: Guarantee) -> tuple[Claim, ...]:
    """The claims that give less than is demanded."""
    if demanded is Guarantee.AT_LEAST_ONCE:
        return ()
    return tuple(claim for claim in claims if claim.guarantee is not Guarantee.EXACTLY_ONCE)
