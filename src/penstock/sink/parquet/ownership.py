"""An account belongs to one account of one sink of one pipeline and to one ledger: what two fill, neither can prove."""

from penstock.errors import LedgerMismatch, Refused, Retryable
from penstock.highwatermark import AccountOwner
from penstock.model import AccountName, PipelineName, SinkName, SweepCut
from penstock.sink.parquet.account import Area

REMEDY = "Give every sink of every pipeline accounts of its own, and let readers read them together."


def require_own_account(
    found: AccountOwner | None, *, pipeline: PipelineName, sink: SinkName, account: AccountName, url: str
) -> None:
    """Raise Refused if `found`, the owner of the account at `url`, is not that account of that sink."""
    if found is None or (found.pipeline, found.sink, found.account) == (pipeline, sink, account):
        return
    raise Refused(
        f"{url} belongs to account {found.account!r} of sink {found.sink!r} of pipeline {found.pipeline!r}, expected account "
        f"{account!r} of sink {sink!r} of pipeline {pipeline!r}.",
        remedy=REMEDY,
    )


def is_anothers(found: AccountOwner | None, cut: SweepCut) -> bool:
    """Whether `found` says that the account is another ledger's, for which `cut` means nothing (I10).

    Asked after what is dead was listed: a ledger that claims the account later stages later, and nothing of it was listed.
    """
    return found is not None and found.ledger_id != cut.ledger_id


def claim_account(area: Area, owner: AccountOwner, *, url: str) -> None:
    """Note `owner` in the account unless it is noted there (I2). Raises Refused, LedgerMismatch, Retryable."""
    found = area.claimed_by()
    if found is None:
        area.claim(owner)
        found = area.claimed_by()
    if found is None:
        raise Retryable(f"Whose {url} is was written, but is not there.", remedy="Try again.")
    require_own_account(found, pipeline=owner.pipeline, sink=owner.sink, account=owner.account, url=url)
    if found.ledger_id != owner.ledger_id:
        raise LedgerMismatch(
            f"{url} is filled by ledger {found.ledger_id} of pipeline {found.pipeline!r}, but this is ledger {owner.ledger_id}.",
            remedy="Put that ledger back and start again. If it is lost, or both are to go on, give the sink another name and "
            "empty accounts: two ledgers would deliver the same rows twice.",
        )
