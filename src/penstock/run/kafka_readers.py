"""Which reader each Kafka source of a query has, and whether it can go on from the checkpoint."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.core.kafka_offset import beginning_in
from penstock.core.model import BatchId, Finding, SourceName
from penstock.errors import Refused
from penstock.source.kafka.reader.settings import FORMAT
from penstock.source.kafka.watch import kafka_sources
from penstock.spec.pipeline import DeliverySettings
from penstock.transform.plan import plan_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FIRST = BatchId(0)
_IN_WORDS = {True: "Penstock's own reader", False: "Spark's connector"}
_SETTING = {True: "python", False: "spark"}


def readers(frames: "Mapping[SourceName, DataFrame]", settings: DeliverySettings) -> Mapping[SourceName, bool]:
    """Return for each source that is read from Kafka whether Penstock's own reader reads it."""
    return {name: _is_ours(frames[name]) for name, _ in kafka_sources(settings) if name in frames}


def _is_ours(frame: "DataFrame") -> bool:
    return any(FORMAT in node.name + node.detail for node in plan_of(frame).walk() if not node.children)


def require_first_batch_goes_on(
    checkpoint: SparkCheckpoint, names: Sequence[SourceName], found: Mapping[SourceName, bool]
) -> None:
    """Raise Refused if the first batch is planned, not committed, and by the other reader, which alone knows where it begins."""
    if checkpoint.latest_offsets_id() != _FIRST or checkpoint.latest_commit_id() is not None:
        return
    entry = checkpoint.offsets(_FIRST)
    if entry is None:
        return
    for name, keys in checkpoint.keys(_FIRST, names).items():
        offset = next((entry.offsets[key] for key in keys if key in entry.offsets), None)
        planned_by_us = beginning_in(offset) is not None
        if name in found and offset is not None and found[name] != planned_by_us:
            raise Refused(
                f"The first batch of source {name!r} was planned by {_IN_WORDS[planned_by_us]} and is not delivered yet; where "
                f"it begins {_IN_WORDS[found[name]]} does not know.",
                remedy=f"Let it be delivered with `reader: {_SETTING[planned_by_us]}`; from then on either reader goes on.",
            )


def reader_findings(found: Mapping[SourceName, bool]) -> Iterator[Finding]:
    """Yield for `penstock check` which reader each source has."""
    for name, is_ours in found.items():
        yield Finding(subject=f"reader of {name}", ok=True, message=_IN_WORDS[is_ours])
