"""Explains why the newest marker of a lane cannot be read: which transaction is open in its partition, and what ends it."""

from penstock.errors import PenstockError, Refused, Retryable
from penstock.kafka.transactions import open_transactions
from penstock.sink.kafka.clients import Clients


def not_closed(clients: Clients, topic: str, lane: int) -> PenstockError:
    """Return the error for a transaction left open in partition `lane` of the markers' topic: Refused if brokers never end it.

    A transaction that no coordinator knows is not ended here. Its partition does not tell whether it was committed or aborted
    elsewhere, and ending it aborts it: rows that are committed in their own partitions would then be delivered twice.
    """
    try:
        found = [one for one in open_transactions(clients.given, [topic]) if one.partition == lane]
    except PenstockError:  # this connection or user cannot list them
        found = []
    hanging = next((one for one in found if one.hangs), None)
    if hanging is not None:
        return Refused(
            f"Transaction {hanging.name!r} is open in the topic of markers, and no coordinator that this user may ask knows it: "
            "brokers never end it by themselves, and the newest marker may be part of it.",
            remedy=f"Run `penstock doctor FILE --end {hanging.name}`, which aborts it, and start again: the newest batch is "
            "published then. If the last run reported that batch as delivered, compare the topic first, since its rows would "
            "come twice.",
        )
    name, ends = "A transaction", ""
    if found:
        name = f"Transaction {found[0].name!r}"
        ends = f" Brokers end it {(found[0].timeout_ms or 0) // 1000} seconds after its begin."
    return Retryable(
        f"{name} of somebody else is open in partition {lane} of topic {topic!r}, which only one sink may write to.{ends}",
        remedy="Look who writes there by `penstock doctor FILE`, and give every sink a `marker_topic` of its own.",
    )
