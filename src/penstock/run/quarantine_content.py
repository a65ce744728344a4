"""The records in the quarantine, one by one, for people; read without Spark and Java."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.core.bad_record import NAME
from penstock.errors import Failed, Usage
from penstock.run.assembly import DeliveryPlan
from penstock.run.reading import read_table
from penstock.spec.pipeline import PipelineSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedRecord:
    """One record that could not be decoded. Bytes are in base64, None where the record has none."""

    source: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: str | None
    value: str | None
    headers: tuple[tuple[str, str | None], ...]
    undecodable: str
    schema_id: int | None
    error: str


def quarantined_records(
    settings: PipelineSettings, plan: DeliveryPlan, *, batch: int | None = None
) -> Sequence[QuarantinedRecord]:
    """Return all records, or those of one batch, by source, topic, partition and offset. Raises Usage without a quarantine."""
    if settings.quarantine is None:
        raise Usage(
            f"The pipeline {settings.pipeline!r} has no quarantine.",
            remedy="Add `quarantine:` to its file, and `undecodable: quarantine` to a source that decodes.",
        )
    rows = read_table(plan, NAME, None, batch, added=batch is not None, counted=False)
    found = [] if rows.as_of is None else rows.arrow().to_pylist()
    return sorted((_record(row) for row in found), key=lambda one: (one.source, one.topic, one.partition, one.offset))


def quarantined_record(
    settings: PipelineSettings, plan: DeliveryPlan, *, offset: int, partition: int, topic: str | None = None
) -> QuarantinedRecord:
    """Return one record. Raises Failed if it is not there, or if several topics have one there and none is named."""
    every = quarantined_records(settings, plan)
    found = [one for one in every if (one.partition, one.offset) == (partition, offset) and topic in {None, one.topic}]
    if len(found) != 1:
        topics = ", ".join(dict.fromkeys(one.topic for one in found))
        held = f"holds {len(found)} records" if found else "holds no record"
        raise Failed(
            f"The quarantine {held} with offset {offset} of partition {partition}{f' (of {topics})' if found else ''}.",
            remedy="Name one by --topic." if found else "`penstock quarantine list` lists what it holds.",
        )
    return found[0]


def _record(row: Mapping[str, Any]) -> QuarantinedRecord:
    return QuarantinedRecord(
        source=row["source"],
        topic=row["topic"],
        partition=row["partition"],
        offset=row["offset"],
        timestamp_ms=_millis(row["timestamp"]),
        key=_text(row["key"]),
        value=_text(row["value"]),
        headers=tuple((header["key"], _text(header["value"])) for header in row["headers"] or ()),
        undecodable=row["undecodable"],
        schema_id=row["schema_id"],
        error=row["error"],
    )


def _millis(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


def _text(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode("ascii")
