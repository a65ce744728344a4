"""The guarantee that one part of a pipeline allows, and why: one line of `penstock check`."""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.core.model import Guarantee


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One part (`source flights (csv)`, `operator Deduplicate`, `trigger`) and the guarantee it allows the whole pipeline.

    `breaks`: events outside Penstock's control that would break the guarantee. `warnings`: allowed settings that will hurt, such
    as state that grows for ever. `remedy`: how to get exactly-once; empty where that is given already.
    """

    subject: str
    guarantee: Guarantee
    why: str
    breaks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    remedy: str = ""


def too_weak(claims: Iterable[Claim], demanded: Guarantee) -> tuple[Claim, ...]:
    """Return the claims that allow less than `demanded`."""
    if demanded is Guarantee.AT_LEAST_ONCE:
        return ()
    return tuple(claim for claim in claims if claim.guarantee is not Guarantee.EXACTLY_ONCE)
