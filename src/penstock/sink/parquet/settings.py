"""The settings that tasks of the Parquet sink need; picklable."""

from dataclasses import dataclass, field

from penstock.core.model import NEWEST_ROW_DIGEST, AccountName, RowDigest, SinkName
from penstock.sink.parquet.encoding import EncodingSettings

ROW_GROUP_ROWS = 1 << 20
ROW_GROUP_BYTES = 64 * 1024 * 1024
BUFFER_BYTES = 128 * 1024 * 1024
OPEN_FILES = 64
INLINE_LIMIT_BYTES = 100 * 1024
"""Per attempt, however many files it has, as for the spool. A decision holds up to this much for each of its tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    """How files are written.

    `unrouted` takes rows whose route names no account; with None such rows fail the batch. `null_for_lost_texts` stores texts
    that no partition directory can express (the empty one) as null instead of failing. Sizes of row groups and buffers are of
    Arrow data in memory, `buffer_bytes` for all files of an attempt together. Small files of an attempt travel in the decision,
    up to `inline_limit_bytes` in all, if the store can put them at once. `owner` is part of every file's name. `row_digest` is
    how rows are hashed, which the ledger says.
    """

    sink: SinkName
    owner: str
    accounts: tuple[AccountName, ...]
    unrouted: AccountName | None = None
    partition_by: tuple[str, ...] = ()
    null_for_lost_texts: bool = False
    compression: str = "zstd"
    encoding: EncodingSettings = field(default_factory=EncodingSettings)
    target_file_size_bytes: int = 128_000_000
    row_group_rows: int = ROW_GROUP_ROWS
    row_group_bytes: int = ROW_GROUP_BYTES
    buffer_bytes: int = BUFFER_BYTES
    open_files: int = OPEN_FILES
    inline_limit_bytes: int = INLINE_LIMIT_BYTES
    row_digest: RowDigest = NEWEST_ROW_DIGEST
