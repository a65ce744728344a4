"""How far a reader is behind the table that a pipeline fills, and for how long that pipeline's ledger tells of what waits."""

from dataclasses import dataclass

from penstock.core.model import SourceName
from penstock.source.kafka.lag import span


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLag:
    """Lag of one source. `table`: pipeline and sink. `records`: rows decided there and not here; `behind_ms`: since when.

    `entries_left`: entries that ledger gets until it may forget the next batch, `loss_in_ms` how long that takes at its present
    pace; None where nothing waits. `lost`: rows of batches that it forgot undelivered, `forgotten` the entries of these.
    """

    source: SourceName
    table: str
    records: int
    behind_ms: int | None = None
    entries_left: int | None = None
    loss_in_ms: int | None = None
    is_near_loss: bool = False
    lost: int = 0
    forgotten: int = 0


def describe_lag(lag: TableLag) -> str:
    """Describe the lag of one source in a sentence."""
    if lag.forgotten:
        return (
            f"table {lag.table}: {lag.lost:,} rows of {lag.forgotten:,} entries that the ledger has forgotten were not delivered"
        )
    if lag.records == 0:
        return f"table {lag.table}: everything is delivered"
    behind = "" if lag.behind_ms is None else f", the oldest decided {span(lag.behind_ms)} ago"
    return f"table {lag.table}: {lag.records:,} rows behind{behind}; {time_left(lag)}"


def time_left(lag: TableLag) -> str:
    """Describe how long the ledger still tells of what is to be read next."""
    if lag.entries_left is None:
        return "nothing waits to be forgotten"
    if lag.loss_in_ms is None:
        return f"the ledger tells of it for {lag.entries_left:,} more entries"
    return f"the ledger may forget it in {span(max(0, lag.loss_in_ms))}"
