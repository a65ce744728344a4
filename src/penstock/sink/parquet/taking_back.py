"""Takes the files of later batches out of accounts: these files, and no others."""

from collections.abc import Mapping, Sequence

from penstock.core.model import AccountName, Staged
from penstock.core.taken_back import TakenBack
from penstock.errors import LedgerMismatch, Refused
from penstock.sink.concurrent import map_concurrently
from penstock.sink.parquet.account import Area, PieceState


def require_removable(areas: Mapping[AccountName, Area], taken: TakenBack) -> None:
    """Raise Refused unless every decided file is where it was published.

    A file that is gone may have been rewritten by maintenance: its rows would then stay, in files of other names. Raises
    LedgerMismatch for an account of another ledger, ContentConflict for another file under a decided name.
    """
    for account, pieces in _by_account(areas, taken).items():
        _require_own(areas[account], account, taken)
        states = map_concurrently(areas[account].state, pieces)
        gone = [piece for piece, state in zip(pieces, states, strict=True) if state is not PieceState.SHOWN]
        if gone:
            raise Refused(
                f"{len(gone)} of {len(pieces)} files to take back are not in account {account!r} of sink {taken.sink!r}, "
                f"{gone[0].name} for one: something removed them, or rewrote their rows into other files.",
                remedy="`penstock verify FILE` says what differs. If they were removed on purpose, accept that with "
                "`penstock verify FILE --accept-removed`; else put them back.",
            )


def remove_pieces(areas: Mapping[AccountName, Area], taken: TakenBack) -> None:
    """Remove the files of `taken`; those that are gone are passed over. Raises LedgerMismatch, ContentConflict, Retryable."""
    for account, pieces in _by_account(areas, taken).items():
        _require_own(areas[account], account, taken)
        areas[account].remove(pieces)


def _by_account(areas: Mapping[AccountName, Area], taken: TakenBack) -> Mapping[AccountName, Sequence[Staged]]:
    found = dict[AccountName, list[Staged]]()
    for piece in (piece for publication in taken.publications for piece in publication.staged):
        found.setdefault(piece.account, []).append(piece)
    absent = next((account for account in found if account not in areas), None)
    if absent is not None:
        raise Refused(
            f"Batches to take back have rows in account {absent!r}, which sink {taken.sink!r} no longer has.",
            remedy="Put the account back into the pipeline file, and try again.",
        )
    return found


def _require_own(area: Area, account: AccountName, taken: TakenBack) -> None:
    owner = area.claimed_by()
    if owner is not None and owner.ledger_id != taken.ledger_id:
        raise LedgerMismatch(
            f"Account {account!r} of sink {taken.sink!r} belongs to ledger {owner.ledger_id}, expected {taken.ledger_id}.",
            remedy="Put the ledger back that belongs to this account, or the account that belongs to this ledger.",
        )
