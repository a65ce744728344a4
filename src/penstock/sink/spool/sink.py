"""What all sinks have in common that stage through the spool: a name, one place to write to, and no route."""

from collections.abc import Sequence

from penstock.model import ONLY_ACCOUNT, AccountName, SinkName
from penstock.sink.spool.spool import Spool


class SpooledSink:
    """The common part of a `Sink` over one spool."""

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
