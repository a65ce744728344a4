"""The quarantine: the storage writer over one account, whose rows are records that cannot be decoded."""

from penstock.core.bad_record import NAME, SCHEMA
from penstock.core.model import AccountName, PipelineName
from penstock.sink.parquet import ParquetSink
from penstock.sink.parquet.account import Account

ACCOUNT = AccountName("records")


class QuarantineSink(ParquetSink):
    """As any account of the storage writer, with columns of its own: what the other sinks get does not concern it."""

    def __init__(self, *, pipeline: PipelineName, account: Account) -> None:
        super().__init__(name=NAME, pipeline=pipeline, accounts={ACCOUNT: account})

    def prepare(self, *, pipeline: PipelineName, schema: str | None) -> None:
        """As ParquetSink; `schema` only says whether rows are to follow."""
        super().prepare(pipeline=pipeline, schema=None if schema is None else SCHEMA)

    def require_schema_accepted(self, *, pipeline: PipelineName, schema: str) -> None:  # noqa: ARG002 - of the other sinks' rows
        """As ParquetSink, for the quarantine's own columns."""
        super().require_schema_accepted(pipeline=pipeline, schema=SCHEMA)
