"""Encoding of rows as the bytes that a server takes: lines of LOAD DATA, or the rows of an INSERT."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.sink.mysql.storage import encoded, storage_of
from penstock.sink.table.nested import is_bytes

_BYTES = pa.large_binary()
_NOTHING = pa.scalar(b"", _BYTES)
_TAB, _LINE_FEED, _COMMA = (pa.scalar(sign, _BYTES) for sign in (b"\t", b"\n", b","))
_ESCAPES_OF_LINES = ((b"\\", b"\\\\"), (b"\t", b"\\t"), (b"\n", b"\\n"))
_ESCAPES_OF_QUOTES = ((b"\\", b"\\\\"), (b"'", b"\\'"), (b"\0", b"\\0"))
_LARGE_NUMBER = 10**18
_AROUND_ROWS = 64
"""More than the bytes of an INSERT into the staging table without its rows, plus those of the protocol before it."""

LOAD_OPTIONS = r"CHARACTER SET binary FIELDS TERMINATED BY '\t' ESCAPED BY '\\' LINES TERMINATED BY '\n'"
"""The options with which to read `lines`. Bytes are stored as they are: Arrow's texts are UTF-8, as are their columns."""


def lines(batch: "pa.RecordBatch") -> memoryview:
    """Return one line per row, for LOAD DATA with `LOAD_OPTIONS`."""
    return _lines(_columns(batch))


def numbered_lines(batch: "pa.RecordBatch", start: int) -> memoryview:
    """Return `lines` with the row's number, counted from `start`, before its columns."""
    return _lines([_numbers(batch, start), *_columns(batch)])


def rows_of_insert(batch: "pa.RecordBatch", start: int, size_bytes: int) -> Iterator[bytes]:
    """Yield `(number, column, …),(…` for each statement; each has about `size_bytes`, and one row at least."""
    rows = _rows(batch, start)
    ends = np.frombuffer(rows.buffers()[1], dtype=np.int64)[rows.offset :][: len(rows) + 1]
    data, first = memoryview(rows.buffers()[2]), 0
    while first < len(rows):
        last = max(first + 1, int(np.searchsorted(ends, ends[first] + size_bytes, side="right")) - 1)
        yield bytes(data[ends[first] + 1 : ends[last]])
        first = last


def longest_insert(batch: "pa.RecordBatch") -> int:
    """Return the bytes of the longest INSERT of one row, whatever the row's number is."""
    longest = pc.max(pc.binary_length(_rows(batch, _LARGE_NUMBER))).as_py() or 0
    return int(longest) + _AROUND_ROWS


def _columns(batch: "pa.RecordBatch") -> "list[pa.Array]":
    return [_escaped(column, _ESCAPES_OF_LINES) for column in batch.columns]


def _lines(columns: "list[pa.Array]") -> memoryview:
    joined = _join(*columns, _TAB, null="\\N")
    return _data(_join(joined, _LINE_FEED, _NOTHING))


def _rows(batch: "pa.RecordBatch", start: int) -> "pa.Array":
    """Return `,(number, column, …)` for each row."""
    columns = [_literal(column) for column in batch.columns]
    joined = _join(_numbers(batch, start), *columns, _COMMA, null="NULL")
    return _join(pa.scalar(b",(", _BYTES), joined, pa.scalar(b")", _BYTES), _NOTHING)


def _numbers(batch: "pa.RecordBatch", start: int) -> "pa.Array":
    return pa.array(np.arange(start, start + batch.num_rows)).cast(pa.string()).cast(_BYTES)


def _literal(column: "pa.Array") -> "pa.Array":
    """Return SQL literals: numbers bare, others in quotes, escaped if they can hold any character.

    Bytes get the prefix `_binary`, so that the server does not take them for a text in the connection's character set.
    """
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_null(column.type):
        return encoded(column)
    opening = pa.scalar(b"_binary'" if is_bytes(column.type) else b"'", _BYTES)
    return _join(opening, _escaped(column, _ESCAPES_OF_QUOTES), pa.scalar(b"'", _BYTES), _NOTHING)


def _escaped(column: "pa.Array", escapes: tuple[tuple[bytes, bytes], ...]) -> "pa.Array":
    values = encoded(column)
    if not storage_of(column.type).in_quotes:
        return values
    signs = np.frombuffer(_data(values), dtype=np.uint8)
    for sign, escape in escapes:
        if (signs == ord(sign)).any():  # few texts have one, and looking is much cheaper than replacing
            values = pc.replace_substring(values, sign, escape)
    return values


def _join(*parts: "pa.Array | pa.Scalar", null: str | None = None) -> "pa.Array":
    """Join the values with the last part between them. A NULL becomes `null`, or makes the result NULL if `null` is None."""
    if null is None:
        return pc.binary_join_element_wise(*parts)
    return pc.binary_join_element_wise(*parts, null_handling="replace", null_replacement=null)


def _data(values: "pa.Array") -> memoryview:
    """Return the bytes of all values, one after the other."""
    if values.buffers()[2] is None:
        return memoryview(b"")
    ends = np.frombuffer(values.buffers()[1], dtype=np.int64)[values.offset :][: len(values) + 1]
    return memoryview(values.buffers()[2])[ends[0] : ends[-1]]
