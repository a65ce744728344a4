"""Reads in a task exactly the events of one piece as Arrow batches, or raises."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from penstock.journal.event import Record
from penstock.journal.frame import size_of
from penstock.journal.storage import LocalStorage
from penstock.source.journal.settings import JournalSettings
from penstock.source.journal.stream import Piece, read_failed

_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_SCHEMA = pa.schema(
    [
        ("value", pa.binary()),
        ("key", pa.binary()),
        ("headers", pa.list_(pa.field("element", _HEADER))),
        ("producer", pa.string()),
        ("producer_sequence", pa.int64()),
        ("journal", pa.string()),
        ("sequence", pa.int64()),
        ("received_at", pa.timestamp("us", tz="UTC")),
        ("remote", pa.string()),
    ]
)
_ROWS, _BYTES = 10_000, 4 << 20
"""An Arrow batch is full at either limit."""


def batches_of(piece: Piece, settings: JournalSettings) -> Iterator[pa.RecordBatch]:
    """Yield the events of `piece`, in their order. Raises InputLost, Retryable, LedgerMismatch, Failed."""
    try:
        journal = settings.journal_at(piece.place, LocalStorage(), now_us=_never)
        records = journal.read(piece.first, piece.end, journal_id=piece.journal_id, at=piece.at)
        for batch in _gathered(records):
            yield _record_batch(batch, piece.journal_id)
    except OSError as error:
        raise read_failed(settings.name, piece.place, error) from error


def _never() -> int:
    raise AssertionError("a task registers nothing")


def _gathered(records: Iterator[Record]) -> Iterator[Sequence[Record]]:
    gathered: list[Record] = []
    size = 0
    for record in records:
        gathered.append(record)
        size += size_of(record.event)
        if len(gathered) >= _ROWS or size >= _BYTES:
            yield gathered
            gathered, size = [], 0
    if gathered:
        yield gathered


def _record_batch(records: Sequence[Record], journal_id: str) -> pa.RecordBatch:
    events = [record.event for record in records]
    headers = [[{"key": name, "value": value} for name, value in event.headers] for event in events]
    arrays = [
        pa.array([event.value for event in events], pa.binary()),
        pa.array([event.key for event in events], pa.binary()),
        pa.array(headers, _SCHEMA.field("headers").type),
        pa.array([event.producer for event in events], pa.string()),
        pa.array([event.number for event in events], pa.int64()),
        pa.repeat(pa.scalar(journal_id), len(records)),
        pa.array([record.sequence for record in records], pa.int64()),
        pa.array([record.received_at_us for record in records], pa.int64()).cast(_SCHEMA.field("received_at").type),
        pa.array([event.remote for event in events], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
