"""Records in a pipeline's quarantine as values: where each came from, why it is there, and whether it was replayed."""

import hashlib
import json
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.core.model import BatchId, Generation, SinkName, SourceName

_ID_DIGITS = 12
_OUTSIDE_ID = frozenset({"id", "batch", "generation", "replayed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRefusal:
    """A time before at which a record was put aside: in which batch, under which id, and why."""

    generation: int | None
    batch: int | None
    id: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedRecord:
    """One record that could not be decoded, a row that did not meet `rule`, or one that `sink` could not take.

    Bytes are in base64, None where there are none.

    `row` is the row as JSON, of a rule or a sink. A record from Kafka has `topic`, `partition` and `offset`, a row of a file has
    `file`. `id` is a digest of the fields down to `sink`, and of `history`, which has the earlier times of a record that was
    replayed and put aside again: equal records have the same id. `batch` brought the record; it was decided in `generation`. Both
    are None if the file's name does not tell. `replayed`: a later replay delivered it, or put it aside again.
    """

    id: str = field(init=False)
    source: str | None
    topic: str | None
    partition: int | None
    offset: int | None
    timestamp_ms: int | None
    key: str | None
    value: str | None
    headers: tuple[tuple[str, str | None], ...]
    undecodable: str | None
    schema_id: int | None
    error: str
    rule: str | None
    row: str | None
    file: str | None
    sink: str | None
    history: tuple[EarlierRefusal, ...] = ()
    batch: BatchId | None = None
    generation: Generation | None = None
    replayed: bool = False

    def __post_init__(self) -> None:
        content = {name: getattr(self, name) for name in type(self).__dataclass_fields__ if name not in _OUTSIDE_ID}
        if self.history:
            content["history"] = [each.id for each in self.history]
        else:
            del content["history"]  # so that ids stay what they were
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        object.__setattr__(self, "id", digest[:_ID_DIGITS])

    @property
    def key_text(self) -> str | None:
        """What a receipt names the record by; None if no batch is known that brought it. Equal records of a batch share it."""
        return None if self.batch is None else f"g{self.generation}-b{self.batch}-{self.id}"

    @property
    def history_if_refused(self) -> str:
        """The column `history` of the record if a replay puts it aside again."""
        now = EarlierRefusal(generation=self.generation, batch=self.batch, id=self.id, error=self.error)
        fields = EarlierRefusal.__dataclass_fields__
        return json.dumps([{name: getattr(each, name) for name in fields} for each in (*self.history, now)])

    @property
    def place(self) -> SourceName | SinkName:
        """The source to which a replay gives the record, or the sink alone which could not take it."""
        return SourceName(self.source) if self.source is not None else SinkName(self.sink or "")

    def has_reason(self, reason: str) -> bool:
        """Whether `reason` names the record's rule or sink, is `undecodable`, or is a part of its error."""
        if reason in {self.rule, self.sink} or (reason == "undecodable" and self.undecodable is not None):
            return True
        return reason.casefold() in self.error.casefold()


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedRows:
    """The rows of one file of the quarantine, and the batch that brought it, None where its name does not tell."""

    generation: Generation | None
    batch: BatchId | None
    rows: Sequence[Mapping[str, Any]]


def records_in(files: Iterable[QuarantinedRows]) -> Sequence[QuarantinedRecord]:
    """Return every record, by source, place and rule. Of equal ones as many were replayed as there are receipts."""
    found, receipts = list[QuarantinedRecord](), Counter[str]()
    for file in files:
        for row in file.rows:
            if row["replayed"] is not None:
                receipts[row["replayed"]] += 1
            else:
                found.append(_record(row, file))
    return [_with_receipt(record, receipts) for record in sorted(found, key=_order)]


def _with_receipt(record: QuarantinedRecord, receipts: "Counter[str]") -> QuarantinedRecord:
    key = record.key_text
    if key is None or not receipts[key]:
        return record
    receipts[key] -= 1  # I2
    return replace(record, replayed=True)


def _order(one: QuarantinedRecord) -> tuple[object, ...]:
    place = (one.topic or "", one.partition or 0, one.offset or 0, one.file or "")
    return (one.source or "", *place, one.rule or "", one.sink or "", one.generation or 0, one.batch or 0, one.id)


def _record(row: Mapping[str, Any], file: QuarantinedRows) -> QuarantinedRecord:
    return QuarantinedRecord(
        source=row["source"],
        topic=row["topic"],
        partition=row["partition"],
        offset=row["offset"],
        timestamp_ms=None if row["timestamp"] is None else round(row["timestamp"].timestamp() * 1000),
        key=_text(row["key"]),
        value=_text(row["value"]),
        headers=tuple((header["key"], _text(header["value"])) for header in row["headers"] or ()),
        undecodable=row["undecodable"],
        schema_id=row["schema_id"],
        error=row["error"],
        rule=row["rule"],
        row=row["row"],
        file=row["file"],
        sink=row["sink"],
        history=_history(row["history"]),
        batch=file.batch,
        generation=file.generation,
    )


def _history(text: str | None) -> tuple[EarlierRefusal, ...]:
    return () if text is None else tuple(EarlierRefusal(**each) for each in json.loads(text))


def _text(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode("ascii")
