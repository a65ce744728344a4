"""Frozen values of a backfill, which gives a sink batches that were decided without it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.core.model import Decision, Position, SinkName


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
class BackfillProgress:
    """How far a sink was given batches that were decided without it: those at positions from `first` up to `through`.

    `newest` is where the newest `Backfilled` of the sink stands. `ended`: all of them are published, and the sink may take part
    in the pipeline. Until then a start with this sink is refused, and the newest one counts as not published yet.
    """

    first: "Position"
    through: "Position"
    newest: "Position"
    ended: bool
