"""Rows that a sink cannot take, staged for the quarantine by the task that has them. Runs in tasks, without Spark."""

import json
import math
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from penstock.core.bad_record import SCHEMA
from penstock.core.model import Attempt, RowDigest, SinkName, Staged
from penstock.core.row_hash import row_hashes
from penstock.errors import StageFailed
from penstock.protocols import SCHEMA_KEY, Stager, StageWriter
from penstock.spark.schema import arrow_schema


@runtime_checkable
class FindsRefusedRows(Protocol):
    """A stager that tells which rows its sink cannot take, so that they need not fail the batch."""

    def refused(self, rows: "pa.RecordBatch", accounts: "pa.StringArray | None") -> Mapping[int, str]:
        """Return the positions of such rows, in order, each with the reason. Arguments are those of `StageWriter.write`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineShare:
    """The quarantine's part in the pass. It takes at most `max_rows` of one task. Picklable.

    `histories`: of rows that are replayed, by their JSON.
    """

    sink: SinkName
    stager: Stager
    row_digest: RowDigest
    max_rows: int
    histories: Mapping[str, str] = field(default_factory=dict)


class RefusedRows:
    """The rows of one attempt on their way into the quarantine."""

    def __init__(self, share: QuarantineShare, attempt: Attempt) -> None:
        self._share, self._attempt = share, attempt
        self._writer: StageWriter | None = None
        self._rows = 0

    def take(self, sink: SinkName, rows: "pa.RecordBatch", reasons: Sequence[str]) -> None:
        """Stage `rows`, which `sink` refused, each with its reason. Raises StageFailed beyond the limit."""
        self._rows += rows.num_rows
        if self._rows > self._share.max_rows:
            raise too_many(sink, self._rows, f"max_rows: {self._share.max_rows}", reasons[0])
        schema = pa.schema(arrow_schema(SCHEMA), metadata={SCHEMA_KEY: SCHEMA.encode()})
        texts = [row_as_json(row) for row in _python_rows(rows)]
        made: dict[str, Sequence[str | None]] = {
            "sink": [sink] * rows.num_rows,
            "row": texts,
            "error": reasons,
            "history": [self._share.histories.get(text) for text in texts],
        }
        columns = [pa.array(made.get(each.name, [None] * rows.num_rows), each.type) for each in schema]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        if self._writer is None:
            self._writer = self._share.stager.open(self._attempt, schema)
        self._writer.write(batch, hashes=row_hashes(batch, self._share.row_digest), accounts=None)

    def finish(self) -> "Sequence[Staged]":
        return () if self._writer is None else self._writer.finish()

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.abandon()


def too_many(sink: SinkName, number: int, limit: str, reason: str) -> StageFailed:
    """Return the error about more rows for the quarantine than its `limit` allows."""
    return StageFailed(
        f"Sink {sink!r} cannot take {number} rows or more of the batch; `quarantine: {{{limit}}}` allows fewer. One of them: "
        f"{reason}",
        remedy="Nothing of the batch was decided. Correct the sink's settings, or what makes such rows, or allow more.",
    )


def row_as_json(row: Mapping[str, Any]) -> str:
    """Return a row of Arrow as JSON: bytes in base64, times in ISO 8601, decimals as texts, maps as lists of pairs."""
    return json.dumps({name: _plain(value) for name, value in row.items()}, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    return value.isoformat() if isinstance(value, date | datetime | time) else str(value)


def _python_rows(rows: "pa.RecordBatch") -> list[dict[str, Any]]:
    """Return the rows as Python values: texts that are no UTF-8 as bytes, times beyond Python's as Arrow writes them."""
    columns = [_python_values(column) for column in rows.columns]
    return [dict(zip(rows.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _python_values(column: "pa.Array") -> list[Any]:
    found: list[Any]
    try:
        found = column.to_pylist()
    except UnicodeDecodeError:
        found = column.cast(_replaced(column.type, pa.types.is_string, pa.binary())).to_pylist()
    except (ValueError, OverflowError):
        found = column.cast(_replaced(column.type, _has_years, pa.string())).to_pylist()
    return found


def _has_years(data_type: "pa.DataType") -> bool:
    return bool(pa.types.is_date(data_type) or pa.types.is_timestamp(data_type))


def _replaced(data_type: "pa.DataType", is_replaced: Callable[["pa.DataType"], bool], other: "pa.DataType") -> "pa.DataType":
    """Return `data_type` with `other` for each type in it that is to be replaced."""
    if is_replaced(data_type):
        return other
    if pa.types.is_map(data_type):
        return pa.map_(*(_replaced(each, is_replaced, other) for each in (data_type.key_type, data_type.item_type)))
    if pa.types.is_list(data_type):
        return pa.list_(_replaced(data_type.value_type, is_replaced, other))
    if pa.types.is_struct(data_type):
        return pa.struct([each.with_type(_replaced(each.type, is_replaced, other)) for each in data_type])
    return data_type
