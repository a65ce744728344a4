"""The records in a pipeline's quarantine, as people and programs look at them."""

import hashlib
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.core.bad_record import NAME
from penstock.errors import Failed, Usage
from penstock.run.assembly import DeliveryPlan, quarantine_of
from penstock.run.reading import read_table

_ID_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedRecord:
    """One record that could not be decoded, a row that did not meet `rule`, or one that `sink` could not take.

    Bytes are in base64, None where there are none.

    `row` is the row as JSON, of a rule or a sink. A record from Kafka has `topic`, `partition` and `offset`, a row of a file has
    `file`. `id` is a digest of all other fields: equal records have the same.
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

    def __post_init__(self) -> None:
        content = {name: getattr(self, name) for name in type(self).__dataclass_fields__ if name != "id"}
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        object.__setattr__(self, "id", digest[:_ID_DIGITS])


def quarantined_records(plan: DeliveryPlan, *, batch: int | None = None) -> Sequence[QuarantinedRecord]:
    """Return all records, or those of one batch, by source, place and rule. Raises Usage without a quarantine."""
    if quarantine_of(plan) is None:
        raise Usage(
            f"The pipeline {plan.pipeline!r} has no quarantine.",
            remedy="Add `quarantine:` to its file, and `undecodable: quarantine` to a source that decodes, or a rule of `expect` "
            "with `on_violation: quarantine`.",
        )
    rows = read_table(plan, NAME, None, batch, added=batch is not None, counted=False)
    found = [] if rows.as_of is None else rows.arrow().to_pylist()
    return sorted((_record(row) for row in found), key=_order)


def quarantined_record(
    plan: DeliveryPlan,
    *,
    offset: int | None = None,
    partition: int | None = None,
    topic: str | None = None,
    record_id: str | None = None,
) -> QuarantinedRecord:
    """Return one record, by its id or by its place in Kafka.

    Raises Usage unless one of them is given, Failed if the record is not there, or if several have that place and no topic or id
    tells which.
    """
    if record_id is None and (offset is None or partition is None):
        raise Usage(
            "Neither the id of a record is given nor its partition and offset.",
            remedy="Write --id ID, which `penstock quarantine list` shows, or --partition N --offset N.",
        )
    found = [one for one in quarantined_records(plan) if _is_wanted(one, offset, partition, topic, record_id)]
    if record_id is not None and found:
        return found[0]  # equal records have one id
    if len(found) != 1:
        topics = ", ".join(dict.fromkeys(f"{one.topic}" for one in found))
        held = f"holds {len(found)} records" if found else "holds no record"
        where = f"the id {record_id}" if record_id is not None else f"offset {offset} of partition {partition}"
        raise Failed(
            f"The quarantine {held} with {where}{f' (of {topics})' if found else ''}.",
            remedy="Name one by --topic or --id." if found else "`penstock quarantine list` lists what it holds.",
        )
    return found[0]


def _is_wanted(
    one: QuarantinedRecord, offset: int | None, partition: int | None, topic: str | None, record_id: str | None
) -> bool:
    if record_id is not None:
        return one.id == record_id
    return (one.partition, one.offset) == (partition, offset) and topic in {None, one.topic}


def _order(one: QuarantinedRecord) -> tuple[object, ...]:
    place = (one.topic or "", one.partition or 0, one.offset or 0, one.file or "")
    return (one.source or "", *place, one.rule or "", one.sink or "", one.id)


def _record(row: Mapping[str, Any]) -> QuarantinedRecord:
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
    )


def _text(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode("ascii")
