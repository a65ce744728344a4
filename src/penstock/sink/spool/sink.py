"""What all sinks have in common that stage through the spool: a name, one place, no route, and the spool."""

from collections.abc import Iterator, Mapping, Sequence

from penstock.core.model import ONLY_ACCOUNT, AccountName, Entry, Finding, LedgerId, PipelineName, SinkName, Waiting
from penstock.protocols import Signature
from penstock.sink.spool.spool import Spool


class SpooledSink:
    """The common part of a `Sink` over one spool: `ReportsStaging` and `CountsRequests` for it."""

    def __init__(self, *, name: SinkName, spool: Spool) -> None:
        self._name, self._spool = name, spool

    @property
    def name(self) -> SinkName:
        """The key under `sinks:`."""
        return self._name

    @property
    def route_sql(self) -> str | None:
        """None: there is one place."""
        return None

    @property
    def accounts(self) -> Sequence[AccountName]:
        """The only one."""
        return [ONLY_ACCOUNT]

    def waiting(self, account: AccountName, *, pipeline: PipelineName) -> Iterator[Waiting]:  # noqa: ARG002 - there is one
        """What the spool holds."""
        return self._spool.waiting(pipeline)

    def signatures(self, *, pipeline: PipelineName) -> Sequence[Signature]:
        """In the spool."""
        return self._spool.signatures(pipeline)

    def sign(self, entry: Entry) -> None:
        """The spool."""
        self._spool.sign(entry)

    def claim(self, ledger_id: LedgerId) -> None:
        """As `ClaimsPlaces.claim`: an opening has signed the spool, and so may another ledger's in the same moment."""
        self._spool.claim(ledger_id)

    def lifecycle(self) -> Sequence[Finding]:
        """Nothing: targets keep everything, and the spool is looked at once for all sinks."""
        return []

    def requests_sent(self) -> Mapping[str, int]:
        """To the spool's store."""
        return self._spool.root.requests_sent()
