"""Whether the checkpoint of a query with state has lost all of it, which its files alone do not tell."""

from penstock.checkpoint.entries import RESTORE
from penstock.commit.publication import continued_decision
from penstock.core.model import Summary
from penstock.errors import CheckpointDamaged
from penstock.protocols import Ledger
from penstock.run.assembly import DeliveryPlan, checkpoint_of
from penstock.run.continuation import MADE_AGAIN
from penstock.run.preflight.description import recorded_run


def require_state(plan: DeliveryPlan, ledger: Ledger, summary: Summary) -> None:
    """Raise CheckpointDamaged if the run that decided the newest batch kept state, and its checkpoint has none.

    Spark would refuse the query, after its own start. Nothing is raised where no description of that run is left.
    """
    decided = continued_decision(ledger, summary)
    newest = None if decided is None or summary.decided_at is None else ledger.read(summary.decided_at)
    last = None if newest is None else recorded_run(plan.settings.home, newest.generation, ledger_id=summary.ledger_id)
    checkpoint = checkpoint_of(plan)
    if last is None or not last.state or checkpoint.latest_commit_id() is None or checkpoint.has_state():
        return
    kept = ", ".join(held.kind for held in last.state)
    raise CheckpointDamaged(
        f"The checkpoint {checkpoint.location} has lost the state of the query: its directory `state` is missing or empty, and "
        f"the last run kept {kept} there.",
        remedy=f"{RESTORE} {MADE_AGAIN}",
    )
