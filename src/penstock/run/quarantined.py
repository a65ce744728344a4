"""The records in a pipeline's quarantine, as people and programs look at them."""

from collections.abc import Sequence

from penstock.core.bad_record import NAME, SCHEMA
from penstock.core.quarantined_record import QuarantinedRecord, QuarantinedRows, records_in
from penstock.errors import Failed, Usage
from penstock.run.assembly import DeliveryPlan, quarantine_of
from penstock.run.reading import read_table


def require_quarantine(plan: DeliveryPlan) -> None:
    """Raise Usage for a pipeline without a quarantine."""
    if quarantine_of(plan) is None:
        raise Usage(
            f"The pipeline {plan.pipeline!r} has no quarantine.",
            remedy="Add `quarantine: ./quarantine` to its file, and `undecodable: quarantine` to a source that decodes, or a "
            "rule of `expect` with `on_violation: quarantine`.",
        )


def quarantined_records(plan: DeliveryPlan, *, batch: int | None = None) -> Sequence[QuarantinedRecord]:
    """Return all records, or those that a batch of that number brought, by source, place and rule.

    Receipts of replays count as of the newest batch. Raises Usage without a quarantine.
    """
    require_quarantine(plan)
    reading = read_table(plan, NAME, None, None, added=False, counted=False)
    found = records_in(
        QuarantinedRows(generation=file.generation, batch=file.batch_id, rows=rows.to_pylist())
        for file, rows in reading.by_file(schema=SCHEMA)
    )
    return [record for record in found if batch in {None, record.batch}]


def file_names(plan: DeliveryPlan) -> frozenset[str]:
    """Return the names of all files in the pipeline's quarantine."""
    quarantine = quarantine_of(plan)
    tables = () if quarantine is None else quarantine.tables().values()
    return frozenset(file.name for table in tables for file in table.area.files())


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
    waiting = [one for one in found if not one.replayed]
    found = waiting or found[-1:]
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
