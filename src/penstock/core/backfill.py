"""Frozen values of a backfill, which gives a sink batches that were decided without it.

A backfill **fences** the driver, or runs **beside** it: then the driver decides without the sink until it has everything.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.core.model import Decision, Nonce, Position, SinkName


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfilled:
    """An earlier batch, decided again for one sink that did not take part in it: the body of an entry.

    `decision` has the identity of that batch, with pieces of `sink`, and of the quarantine for rows that the sink could not take.
    `original` is the position at which the batch was decided. Everything that the sink was given at positions up to `previous`
    was published by then; 0 if nothing was.
    """

    sink: "SinkName"
    original: "Position"
    previous: "Position"
    decision: "Decision"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillOpened:
    """A process began to give `sink` earlier batches beside the driver: from here on the sink takes no part in decisions.

    It fences every older backfill of the sink, and no driver. `writer` identifies the process, `owner` names it for people.
    """

    sink: "SinkName"
    writer: "Nonce"
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillEnded:
    """A sink has every batch that was decided before this entry. `joins`: it takes part in each decision behind it."""

    sink: "SinkName"
    joins: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillProgress:
    """How far a sink was given batches that were decided without it: those at positions from `first` up to `through`.

    `newest` is where the newest `Backfilled` of the sink stands, 0 before there is one. `ended`: all of them are published. Until
    then the newest one counts as not published yet, and after a backfill that fences a start with this sink is refused.

    Of a backfill beside the driver: `writer` is that of its newest `BackfillOpened`. While the sink is `apart`, decisions are
    made without it, and `lacking` is the newest one with rows. `awaited`: the newest run has the sink, so that it may join.
    """

    first: "Position"
    through: "Position"
    newest: "Position"
    ended: bool
    writer: "Nonce | None" = None
    apart: bool = False
    lacking: "Position | None" = None
    awaited: bool = False

    @property
    def is_level(self) -> bool:
        """Whether the sink was given every batch that was decided without it."""
        return self.lacking is None or self.lacking <= self.through
