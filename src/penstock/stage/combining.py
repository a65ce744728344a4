"""Pieces of many tasks become fewer before they are decided, where a stager can do that."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from penstock.core.model import AccountName, Attempt, Staged, Totals, new_nonce
from penstock.errors import StageFailed
from penstock.stage.staging import StagePass


@runtime_checkable
class CombinesPieces(Protocol):
    """A stager that makes one piece of several: one task for each partition of Spark leaves many small ones."""

    def combine(self, pieces: Sequence[Staged], attempt: Attempt) -> Sequence[Staged]:
        """Return pieces with the same rows in each account, those that are not combined as they are.

        Called in the driver with all pieces of a batch for the sink, in the order of the tasks. Raises StageFailed, Retryable.
        """
        ...


def combined(pieces: Sequence[Staged], stage_pass: StagePass) -> tuple[Staged, ...]:
    """Return what is to be decided instead of `pieces`, which the tasks of `stage_pass` staged. Raises StageFailed, Retryable."""
    attempt = Attempt(
        generation=stage_pass.generation, batch_id=stage_pass.batch_id, partition=0, task_attempt=0, nonce=new_nonce()
    )
    decided = list[Staged]()
    for sink, stager in stage_pass.stagers.items():
        own = [piece for piece in pieces if piece.sink == sink]
        fewer = stager.combine(own, attempt) if isinstance(stager, CombinesPieces) else own
        _require_same_rows(own, fewer)
        decided += fewer
    return tuple(decided)


def _require_same_rows(before: Sequence[Staged], after: Sequence[Staged]) -> None:
    """Raise StageFailed unless each account gets the rows that its tasks counted (I1, I2): what is decided is final."""
    then, now = _content(before), _content(after)
    if then != now:
        account = next(name for name in {**then, **now} if then.get(name) != now.get(name))
        expected, found = then.get(account, (0, 0)), now.get(account, (0, 0))
        raise StageFailed(
            f"Tasks staged {expected[0]} rows with digest {expected[1]:016x} for account {account!r}, and the files that were "
            f"made of theirs hold {found[0]} rows with digest {found[1]:016x}.",
            remedy="Nothing of the batch was decided. Start again; if it comes again, report it as a defect of Penstock.",
        )


def _content(pieces: Sequence[Staged]) -> dict[AccountName, tuple[int, int]]:
    totals: dict[AccountName, Totals] = {}
    for piece in pieces:
        totals[piece.account] = totals.get(piece.account, Totals()) + piece.totals
    return {account: (each.rows, each.digest) for account, each in totals.items()}
