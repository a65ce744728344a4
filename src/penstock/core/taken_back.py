"""What a rewind takes back from one sink."""

from dataclasses import dataclass

from penstock.core.model import Generation, LedgerId, PipelineName, Position, Publication, SinkName, Totals


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenBack:
    """Everything that was published in one sink after position `after` and before `position`, which is that of the act.

    `publications`: newest first, without pieces whose files were removed on purpose. `generation` is that of whoever carries the
    act out.
    """

    pipeline: PipelineName
    sink: SinkName
    ledger_id: LedgerId | None
    generation: Generation
    after: Position
    position: Position
    publications: tuple[Publication, ...]

    @property
    def totals(self) -> Totals:
        return sum((publication.totals for publication in self.publications), Totals())
