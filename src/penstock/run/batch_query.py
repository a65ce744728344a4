"""A pipeline's query over tables instead of streams: what it makes of the rows of an earlier batch, or of replayed ones."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.core.model import SinkName, SourceName
from penstock.protocols import Taken
from penstock.run.assembly import DeliveryPlan, selections_of
from penstock.run.query_facts import facts_of_pipeline
from penstock.run.required_guarantees import require_demanded
from penstock.run.start import encoded, frame_of
from penstock.source.kafka.decode import decode_passes
from penstock.source.rows_again import with_all_columns_read
from penstock.spec.pipeline import PipelineSettings
from penstock.transform.apply import apply_to_tables, travel_by_value
from penstock.transform.guarantee import stateful_operators
from penstock.transform.plan import plan_of, source_order
from penstock.transform.rules import meeting_rules
from penstock.transform.selection import taken_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchQuery:
    """The transform of a pipeline file and what comes before it, for tables.

    `plan` has the sources in their order, and how they decode. `sources`: as the stream reads them, without rows that break a
    rule. `schema` is Spark's JSON of the rows that the sinks get, `taken` which of them each sink takes. `state`: the first
    operator that keeps state, None without one.
    """

    settings: PipelineSettings
    plan: DeliveryPlan
    spark: "SparkSession"
    sources: "Mapping[SourceName, DataFrame]"
    schema: str
    taken: Mapping[SinkName, Taken]
    state: str | None

    @classmethod
    def of(cls, settings: PipelineSettings, plan: DeliveryPlan, spark: "SparkSession") -> "BatchQuery":
        """Check the pipeline as a start does, and raise what that raises."""
        decoding = decode_passes(spark, settings.sources)
        frame, sources = frame_of(settings, spark, modules=plan.modules, decoding=decoding)
        facts = facts_of_pipeline(settings, frame, spark)
        require_demanded(facts, plan)
        operators = () if facts.plan is None else stateful_operators(facts.plan)
        travel_by_value()
        return cls(
            settings=settings,
            plan=replace(plan, sources=tuple(source_order(plan_of(frame), tuple(sources))), decoding=decoding),
            spark=spark,
            sources=sources,
            schema=frame.schema.json(),
            taken=taken_of(selections_of(settings), frame),
            state=operators[0].name if operators else None,
        )

    def rows(self, tables: "Mapping[SourceName, DataFrame]") -> "DataFrame":
        """Return what the sinks get of `tables`, which hold the rows of each source that meet its rules."""
        made = apply_to_tables(self.spark, tables, self.settings.transform, modules=self.plan.modules)
        return encoded(self.settings, made)

    def meeting_rules(self, name: SourceName, rows: "DataFrame") -> "DataFrame":
        """Return the rows of a source that meet its rules."""
        source = self.settings.sources[name]
        return meeting_rules(name, with_all_columns_read(name, source, rows), source.expect) if source.expect else rows
