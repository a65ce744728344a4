"""The quarantine sink: Parquet files in one account, whose rows are the records that cannot be decoded."""

from penstock.core.bad_record import NAME, SCHEMA
from penstock.core.model import AccountName, PipelineName
from penstock.sink.parquet import ParquetSink
from penstock.sink.parquet.account import Account

ACCOUNT = AccountName("records")


class QuarantineSink(ParquetSink):
    """A ParquetSink with one account and columns of its own, which do not depend on the rows of the other sinks."""

    def __init__(self, *, pipeline: PipelineName, account: Account) -> None:
        super().__init__(name=NAME, pipeline=pipeline, accounts={ACCOUNT: account})

    def prepare(self, *, pipeline: PipelineName, schema: str | None) -> None:
        """Prepare for the quarantine's own columns; `schema` only says whether rows are to follow."""
        super().prepare(pipeline=pipeline, schema=None if schema is None else SCHEMA)

    def require_schema_accepted(self, *, pipeline: PipelineName, schema: str) -> None:  # noqa: ARG002 - of the other sinks' rows
        """Check the quarantine's own columns, whatever `schema` is."""
        super().require_schema_accepted(pipeline=pipeline, schema=SCHEMA)
