"""Reads in a task exactly the records of one piece as Arrow batches, or raises.

A piece names its first and its last record. Kinesis removes the oldest records first, so that all are there if the first one is.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from penstock.errors import InputLost
from penstock.source.kinesis.aggregated import UserRecord, user_records
from penstock.source.kinesis.scan import GO_ON
from penstock.source.kinesis.settings import KinesisSettings
from penstock.source.kinesis.shard import ForeignNumber, IteratorExpired, Kinesis, Page, Record
from penstock.source.kinesis.stream import Piece

_SCHEMA = pa.schema(
    [
        ("data", pa.binary()),
        ("partition_key", pa.string()),
        ("sequence_number", pa.string()),
        ("sub_sequence_number", pa.int64()),
        ("shard_id", pa.string()),
        ("approximate_arrival_timestamp", pa.timestamp("us", tz="UTC")),
        ("stream", pa.string()),
    ]
)
_PAGE = 10_000
"""The most records of one answer. It has at most 10 MB, and is one Arrow batch."""
_US_PER_MS = 1_000


def batches_of(piece: Piece, settings: KinesisSettings, kinesis: Kinesis) -> Iterator[pa.RecordBatch]:
    """Yield the records of `piece`, in their order. Raises InputLost, Retryable, Failed."""
    for records in _pages(piece, settings, kinesis):
        if records:
            yield _record_batch(list(_rows(records, piece, settings)), piece.shard, settings.stream)


def _rows(records: Sequence[Record], piece: Piece, settings: KinesisSettings) -> Iterator[UserRecord]:
    for record in records:
        if settings.is_split:
            yield from user_records(record, piece.hashes)
        else:
            yield UserRecord(record.key, record.data, 0, record)


def _pages(piece: Piece, settings: KinesisSettings, kinesis: Kinesis) -> Iterator[Sequence[Record]]:
    """Yield the records from `first` to `last`."""
    last, reached = int(piece.last), int(piece.first) - 1
    page = _page_at(piece, settings, kinesis, piece.first)
    while True:
        if page.records and reached < int(piece.first) < int(page.records[0].number):
            _require_allowed(settings, piece, f"the first that is there is {page.records[0].number}")
        new = [each for each in page.records if reached < int(each.number) <= last]
        yield new
        reached = int(page.records[-1].number) if page.records else reached
        if reached >= last:
            _require_last(settings, piece, new)
            return
        if page.following is None or (page.behind_ms == 0 and not page.records):
            _require_allowed(settings, piece, "the shard ends before its last")
            return
        try:
            page = kinesis.page(piece.shard, page.following, limit=_PAGE)
        except IteratorExpired:
            page = _page_at(piece, settings, kinesis, str(max(reached, int(piece.first))))


def _page_at(piece: Piece, settings: KinesisSettings, kinesis: Kinesis, number: str) -> Page:
    try:
        return kinesis.page(piece.shard, kinesis.iterator(piece.shard, f"AT_SEQUENCE_NUMBER {number}"), limit=_PAGE)
    except ForeignNumber as error:
        raise gone(settings, piece, f"the shard does not know the first: {error}") from error


def _require_last(settings: KinesisSettings, piece: Piece, new: Sequence[Record]) -> None:
    if not new or new[-1].number != piece.last:
        _require_allowed(settings, piece, "its last is not there")


def _require_allowed(settings: KinesisSettings, piece: Piece, why: str) -> None:
    if settings.fails_on_loss:
        raise gone(settings, piece, why)


def gone(settings: KinesisSettings, piece: Piece, why: str) -> InputLost:
    """Return the error that records are gone which a batch was planned with."""
    return InputLost(
        f"Records of shard {piece.shard} of stream {settings.stream!r} that a batch was planned with, from {piece.first} to "
        f"{piece.last}, are gone: {why}.",
        remedy=GO_ON,
    )


def _record_batch(rows: Sequence[UserRecord], shard: str, stream: str) -> pa.RecordBatch:
    times = pa.array([row.record.arrived_ms * _US_PER_MS for row in rows], pa.int64())
    arrays = [
        pa.array([row.data for row in rows], pa.binary()),
        pa.array([row.key for row in rows], pa.string()),
        pa.array([row.record.number for row in rows], pa.string()),
        pa.array([row.place for row in rows], pa.int64()),
        pa.repeat(pa.scalar(shard), len(rows)),
        times.cast(_SCHEMA.field("approximate_arrival_timestamp").type),
        pa.repeat(pa.scalar(stream), len(rows)),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
