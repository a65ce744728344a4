"""The frozen value of a replay, which delivers records of the quarantine after all."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.core.model import Decision, Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """Records of the quarantine, delivered as a batch of their own: the body of an entry.

    `decision` has the query and the number of the batch that was decided last, and its end offsets as start and end: it reads
    nothing of the sources. Its pieces for the quarantine hold a receipt for each of the `records`, and what was refused again.
    Everything that sinks were given at positions up to `previous` was published by then.
    """

    decision: "Decision"
    records: int
    previous: "Position"
