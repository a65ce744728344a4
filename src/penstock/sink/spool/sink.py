"""The base class of sinks that stage through the spool: one name, one account, no route, and the spool."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from penstock.core.model import ONLY_ACCOUNT, AccountName, Entry, Finding, LedgerId, PipelineName, SinkName, Waiting
from penstock.protocols import Signature, TaskCheck
from penstock.sink.spool.spool import Spool


class SpooledSink:
    """The common part of a `Sink` over one spool. Implements `HasStaging` and `CountsRequests` for the spool."""

    def __init__(self, *, name: SinkName, spool: Spool) -> None:
        self._name, self._spool = name, spool

    @property
    def name(self) -> SinkName:
        return self._name

    @property
    def route_sql(self) -> str | None:
        return None

    @property
    def accounts(self) -> Sequence[AccountName]:
        return [ONLY_ACCOUNT]

    def waiting(self, account: AccountName, *, pipeline: PipelineName) -> Iterator[Waiting]:  # noqa: ARG002 - there is one
        return self._spool.waiting(pipeline)

    def signatures(self, *, pipeline: PipelineName) -> Sequence[Signature]:
        return self._spool.signatures(pipeline)

    def sign(self, entry: Entry) -> None:
        self._spool.sign(entry)

    def claim(self, ledger_id: LedgerId) -> None:
        """Check the signatures: the opening has signed the spool, and another ledger's may have at the same moment."""
        self._spool.claim(ledger_id)

    def task_checks(self) -> AbstractContextManager[Sequence[TaskCheck]]:
        """Give none: the spool is checked once for all sinks."""
        return nullcontext(())

    def lifecycle(self) -> Sequence[Finding]:
        """Return nothing: targets delete nothing, and the spool is checked once for all sinks."""
        return []

    def requests_sent(self) -> Mapping[str, int]:
        return self._spool.root.requests_sent()
