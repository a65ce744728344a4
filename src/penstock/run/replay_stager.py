"""Staging of replayed records: those of sources go through the query, rows that a sink could not take to that sink alone."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from penstock.commit.acts import ActingCoordinator
from penstock.core.bad_record import SCHEMA
from penstock.core.dropped_rows import sum_of
from penstock.core.model import Batch, Decision, Generation, OffsetRange, RowDigest, SinkName, SourceName
from penstock.core.quarantined_record import QuarantinedRecord
from penstock.errors import Refused
from penstock.protocols import Sink, Taken
from penstock.run.batch_query import BatchQuery
from penstock.run.runtime import Runtime, now_ms
from penstock.source.kafka.options import is_kafka
from penstock.source.replayed_rows import ReplayedFileRows, ReplayedRecords, unreadable
from penstock.spark.error import read_spark_error
from penstock.spark.json_row import RowUnreadable, row_of
from penstock.spark.schema import arrow_schema
from penstock.spec.pipeline import quarantined
from penstock.stage.batch import StagedRows, stage_batch
from penstock.stage.quarantine import QuarantineMember
from penstock.stage.rules import NO_VIOLATIONS, RuleCheck, Violations
from penstock.support.secret import scrub

if TYPE_CHECKING:
    import pyarrow as pa

_UNLIMITED = {"max_rows": sys.maxsize, "max_rows_per_hour": sys.maxsize, "max_share": 1.0}
"""No more is put aside again than there was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayStager:
    """Stages the records of one replay under the generation of an open coordinator."""

    query: BatchQuery
    runtime: Runtime

    def stage(self, records: Sequence[QuarantinedRecord], coordinator: ActingCoordinator, *, batch: Batch) -> Decision:
        """Return the decision of the replay behind `batch`, the newest of the query. Raises what staging raises, and Refused."""
        started_ms = now_ms()
        task = _Task(
            query=self.query,
            runtime=self.runtime,
            sources=_by_source(self.query, records),
            receipts=_receipts(records),
            histories={one.row: one.history_if_refused for one in records if one.source is None and one.row is not None},
            generation=coordinator.generation,
            batch=batch,
            row_digest=coordinator.summary.row_digest,
        )
        violations, staged = NO_VIOLATIONS, list[StagedRows]()
        if any(one.source is not None for one in records):
            violations, through = task.through_query()
            staged.append(through)
        for sink in self.runtime.row_sinks:
            own = [one for one in records if one.source is None and one.sink == sink.name]
            if own:
                staged.append(task.into_sink(sink, own, receipts=not staged))
        requests = [part.requests for part in staged if part.requests is not None]
        return Decision(
            batch=replace(batch, offsets=tuple(OffsetRange(source=at.source, start=at.end, end=at.end) for at in batch.offsets)),
            staged=tuple(piece for part in staged for piece in part.pieces),
            rows_in=sum(part.rows_in for part in staged),
            schema=self.query.schema,
            stage_ms=now_ms() - started_ms,
            stage_requests=sum(requests) if requests else None,
            schemas={sink: taken.schema for sink, taken in self.query.taken.items()},
            dropped=reduce(sum_of, (part.dropped for part in staged), violations.dropped),
        )


def require_readable(query: BatchQuery, records: Sequence[QuarantinedRecord]) -> None:
    """Raise Refused for a record whose row is none of the present schema. Called before anything is done."""
    for each in _by_source(query, records).values():
        if isinstance(each, ReplayedFileRows):
            each.require_readable(query.spark)
    for one in records:
        if one.source is None and one.sink is not None:
            _values(one, _schema_of(query, SinkName(one.sink)))


def _schema_of(query: BatchQuery, sink: SinkName) -> StructType:
    """Return the columns that a sink takes."""
    taken = query.taken.get(sink)
    return StructType.fromJson(json.loads(query.schema if taken is None else taken.schema))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    query: BatchQuery
    runtime: Runtime
    sources: Mapping[SourceName, ReplayedRecords | ReplayedFileRows]
    receipts: "pa.Table"
    histories: Mapping[str, str]
    generation: Generation
    batch: Batch
    row_digest: RowDigest

    def through_query(self) -> tuple[Violations, StagedRows]:
        """Stage what the query makes of the records of sources, for all sinks, and all receipts."""
        spark, member = self.query.spark, self._member
        ranges = [OffsetRange(source=name, start=None, end=None) for name in self.query.plan.sources]
        bad = member.found(spark, ranges)
        rules = {name: self.query.settings.sources[name].expect for name in self.sources}
        check = RuleCheck(
            rules={name: each for name, each in rules.items() if each}, sources=self.sources, quarantine=member.settings
        )
        found = check.violations(spark, ranges, {})
        rows = self.query.rows({name: self.query.meeting_rules(name, each.table(spark)) for name, each in self.sources.items()})
        return found, stage_batch(
            rows,
            sinks=self.runtime.row_sinks,
            generation=self.generation,
            batch_id=self.batch.batch_id,
            row_digest=self.row_digest,
            quarantine=member,
            bad=bad,
            taken=self.query.taken,
            violations=self._with_receipts(found),
        )

    def into_sink(self, sink: Sink, records: Sequence[QuarantinedRecord], *, receipts: bool) -> StagedRows:
        """Stage rows that `sink` could not take, for it alone. They are what it takes already; `receipts`: all receipts, too."""
        taken, schema = self.query.taken.get(sink.name), _schema_of(self.query, sink.name)
        try:
            return stage_batch(
                self.query.spark.createDataFrame([_values(one, schema) for one in records], schema),
                sinks=[sink],
                generation=self.generation,
                batch_id=self.batch.batch_id,
                row_digest=self.row_digest,
                quarantine=self._member,
                taken={} if taken is None else {sink.name: _as_taken(taken)},
                violations=self._with_receipts(NO_VIOLATIONS) if receipts else NO_VIOLATIONS,
            )
        except PySparkException as cause:
            raise Refused(
                f"Rows that sink {sink.name!r} could not take cannot be given to it: "
                f"{read_spark_error(scrub(str(cause))).sentence}",
                remedy="The quarantine keeps the columns that the sink takes. Give it those that its `route`, or the name "
                "of its table, needs, or put the corrected rows into the source.",
            ) from cause

    @property
    def _member(self) -> QuarantineMember:
        member = self.runtime.quarantine
        assert member is not None
        decoding = quarantined(self.query.settings)
        return replace(
            member,
            settings=member.settings.model_copy(update=_UNLIMITED),
            sources={name: each for name, each in self.sources.items() if name in decoding and isinstance(each, ReplayedRecords)},
            histories=self.histories,
        )

    def _with_receipts(self, violations: Violations) -> Violations:
        import pyarrow as pa

        aside = [self.receipts] if violations.aside is None else [violations.aside, self.receipts]
        return replace(violations, aside=pa.concat_tables(aside))


def _by_source(
    query: BatchQuery, records: Sequence[QuarantinedRecord]
) -> Mapping[SourceName, ReplayedRecords | ReplayedFileRows]:
    """Return the records of each source of the pipeline; a source without any has no rows in the replay."""
    return dict(_each_source(query, records))


def _each_source(
    query: BatchQuery, records: Sequence[QuarantinedRecord]
) -> Iterator[tuple[SourceName, ReplayedRecords | ReplayedFileRows]]:
    for name, frame in query.sources.items():
        source, own = query.settings.sources[name], [one for one in records if one.source == name]
        if is_kafka(source):
            yield name, ReplayedRecords(name=name, source=source, decode_pass=query.plan.decoding.get(name), records=own)
        else:
            yield name, ReplayedFileRows(name=name, source=source, schema=frame.schema.json(), records=own)


def _receipts(records: Sequence[QuarantinedRecord]) -> "pa.Table":
    """Return a row for the quarantine for each record, by which it is known as replayed (I2)."""
    import pyarrow as pa

    schema = arrow_schema(SCHEMA)
    keys = [one.key_text for one in records]
    columns = [pa.array(keys if each.name == "replayed" else [None] * len(keys), each.type) for each in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _values(record: QuarantinedRecord, schema: StructType) -> tuple[object, ...]:
    try:
        return row_of(record.row or "", schema.jsonValue())
    except RowUnreadable as cause:
        raise unreadable(record, str(cause)) from cause


def _as_taken(taken: Taken) -> Taken:
    """Return what a sink takes of rows that have its selection of columns already. None of them deletes: such are never aside."""
    return Taken(where=None, own=None, schema=taken.schema, deletes=None if taken.deletes is None else "false")
