"""What the tasks of one micro-batch read: files of decided batches, grouped so that no task gets too much."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.core.model import AccountName, BatchId, PipelineName
from penstock.sink.parquet.account import Account, Area
from penstock.source.chain.settings import ChainSettings

if TYPE_CHECKING:
    from penstock.commit.table_batches import TableBatch
    from penstock.run.chain.table import ChainedTable

PIECE_BYTES, PIECE_FILES = 64 << 20, 100
"""A task gets no more files once it has that many, or that many bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceFile:
    """One file of a batch: `rows` as decided, and Spark's JSON of the columns that it was decided with."""

    name: str
    rows: int
    batch_id: BatchId
    schema: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one task reads: files of one account, whose rows get the columns `columns`, in Spark's JSON. Picklable."""

    source: str
    pipeline: PipelineName
    account: AccountName
    place: Account
    area: Area
    columns: str
    fails_on_loss: bool
    files: tuple[PieceFile, ...]


def pieces_of(table: "ChainedTable", batches: "Sequence[TableBatch]", settings: ChainSettings) -> Iterator[Piece]:
    """Yield the pieces of `batches`, account by account, files in the order in which they were decided."""
    for account, of in table.tables.items():
        for files in _grouped(_files(batches, account, fixed=table.fixed_schema)):
            assert settings.columns is not None
            yield Piece(
                source=settings.name,
                pipeline=table.pipeline,
                account=account,
                place=of.account,
                area=of.area,
                columns=settings.columns,
                fails_on_loss=settings.fails_on_loss,
                files=files,
            )


def _files(batches: "Sequence[TableBatch]", account: AccountName, *, fixed: str | None) -> Iterator[tuple[PieceFile, int]]:
    for batch in batches:
        for piece in batch.pieces:
            if piece.account == account:
                file = PieceFile(name=piece.name, rows=piece.totals.rows, batch_id=batch.batch_id, schema=fixed or batch.schema)
                yield file, piece.totals.size_bytes


def _grouped(files: Iterator[tuple[PieceFile, int]]) -> Iterator[tuple[PieceFile, ...]]:
    group, size_bytes = list[PieceFile](), 0
    for file, size in files:
        if group and (len(group) >= PIECE_FILES or size_bytes + size > PIECE_BYTES):
            yield tuple(group)
            group, size_bytes = [], 0
        group.append(file)
        size_bytes += size
    if group:
        yield tuple(group)
