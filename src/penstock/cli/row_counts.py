"""The part of `penstock verify` that says where the rows went."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from penstock.commit.row_counts import RowCounts
from penstock.support import formatting

_WRONG_SHOWN = 20


def row_fields(found: RowCounts) -> dict[str, object]:
    """Return the counts as `verify --json` prints them.

    `sources`: rows read of each source whose number is known, what was dropped and put aside of them, what the transform got.
    `rows_out`: what it gave. `sinks`: rows that each sink was to get, of batches in which it takes all. `replays`: of `records`
    of the quarantine, `rows_out` came out, and `aside` were put aside again. `waiting`: records in the quarantine that were not
    replayed. `batches`: the first and the last one counted. `unknown`: decisions that are not counted.
    """
    return {
        "ok": found.ok,
        "batches": None if found.first is None else [found.first, found.last],
        "sources": {
            source: {
                "rows_in": rows,
                "dropped": found.dropped.get(source, 0),
                "aside": found.aside.get(source, 0),
                "to_transform": found.to_transform(source),
            }
            for source, rows in found.read.items()
        },
        "rows_out": found.rows_out,
        "sinks": {
            sink: {"ok": rows.ok, "rows_in": rows.rows_in, "rows_out": rows.rows_out, "aside": rows.aside}
            for sink, rows in found.sinks.items()
        },
        "replays": {"records": found.replayed, "rows_out": found.replayed_rows, "aside": found.again},
        "waiting": found.waiting,
        "unknown": found.unknown,
        "wrong": [{"batch_id": batch_id, "sink": sink} for batch_id, sink in found.wrong],
    }


def row_text(found: RowCounts) -> RenderableType:
    """Render the counts as sums of rows."""
    return Group(*(Text(line) for line in _lines(found)), *(Text(line, "bold red") for line in _wrong(found)))


def _lines(found: RowCounts) -> Iterator[str]:
    if found.first is not None:
        yield f"Rows of batches {found.first} to {found.last}:"
    for source, rows in found.read.items():
        went = (
            f"{found.to_transform(source):,} to the transform",
            f"{found.aside.get(source, 0):,} in the quarantine",
            f"{found.dropped.get(source, 0):,} dropped",
        )
        yield f"  source {source}: {rows:,} in = {' + '.join(went)}."
    if found.first is not None:
        yield f"  transform: {found.rows_out:,} out."
    for sink, each in found.sinks.items():
        if each.aside or not each.ok:
            is_or_not = "=" if each.ok else "is not"
            yield f"  sink {sink}: {each.rows_in:,} in {is_or_not} {each.rows_out:,} out + {each.aside:,} in the quarantine."
    if found.replays:
        replayed = f"{formatting.counted(found.replayed, 'record')} of the quarantine: {found.replayed_rows:,} out"
        yield f"  replays: {replayed}, {found.again:,} in the quarantine again."
    yield f"  quarantine: {formatting.counted(found.waiting, 'record waits', 'records wait')}."
    if found.unknown:
        yield f"  Not counted: {formatting.counted(found.unknown, 'decision')} whose files of the quarantine are not there."


def _wrong(found: RowCounts) -> Iterator[str]:
    for batch_id, sink in found.wrong[:_WRONG_SHOWN]:
        yield f"Batch {batch_id}: sink {sink} and the quarantine together do not have the rows that the transform gave."
    for source in found.read:
        if found.to_transform(source) < 0:
            yield f"Source {source}: more rows were dropped and put aside than were read."
