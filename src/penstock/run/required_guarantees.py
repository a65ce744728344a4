"""What is demanded of a streaming query before anything of it is staged: the same checks at every entry point."""

import logging
from collections.abc import Iterable, Mapping

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from penstock.core.guarantee import Claim, at_least_once, exactly_once, too_weak
from penstock.core.model import Guarantee, SinkKind
from penstock.errors import GuaranteeTooWeak, Usage
from penstock.protocols import ProjectsRows, Sink
from penstock.run.assembly import DeliveryPlan, sinks_of
from penstock.run.query_facts import QueryFacts
from penstock.source.guarantee import source_claims
from penstock.spark.error import read_spark_error
from penstock.spec.combinations import mode_complaints, own_output_complaints
from penstock.spec.complaint import sentence
from penstock.spec.kafka import Kafka
from penstock.spec.pipeline import PipelineSettings, Trigger
from penstock.spec.sink import Console, Memory
from penstock.stage.opening import OpensTables
from penstock.support.secret import scrub
from penstock.transform.guarantee import operator_claims, option_claims, output_mode_claim, require_mode, trigger_claim
from penstock.transform.selection import random_functions

_log = logging.getLogger(__name__)

_WHY: Mapping[SinkKind, str] = {
    SinkKind.STAGING: "Rows are staged where no reader looks, decided once in the ledger, and moved into place by name.",
    SinkKind.TRANSACTIONAL: "Rows and the mark that the batch is there commit in one transaction.",
    SinkKind.IDEMPOTENT: "The same batch writes the same keys with the same values, however often.",
}

UNPROVED: Mapping[str, str] = {
    "redshift": " Not run against a live server: only by Redshift's driver on a PostgreSQL that stands in for it.",
    "sqlserver": " Not run against a live server: only its statements, on SQLite behind a stand-in for the driver.",
}
"""Kinds of sinks that nobody has run against a live server of that kind."""

_WEAK: Mapping[str, tuple[str, str]] = {
    "http": (
        "The endpoint takes a request again whose answer was lost.",
        "Let it remember the Idempotency-Key of requests and set `receiver: idempotent`: docs/howto/http_sink.md shows one.",
    )
}
"""What a kind of sink that delivers at least once may repeat, and the remedy."""

_RESTS_ON: Mapping[str, str] = {
    "http": " It rests on the endpoint, which must remember the Idempotency-Key of requests for as long as an outage lasts.",
}
"""What delivery exactly once rests on besides Penstock."""

_AS_WRITTEN = " Its author claims this; the suite of penstock.testing checks it."


def require_demanded(facts: QueryFacts, plan: DeliveryPlan) -> tuple[Claim, ...]:
    """Raise Usage or GuaranteeTooWeak if the query cannot be delivered as `plan` demands. Log what `facts` does not show.

    Return what each part guarantees.

    Called by every entry point before the ledger is opened: a refused query leaves nothing behind.
    """
    claims = claims_of(facts, plan)
    _require_strong(claims, plan.settings.guarantee)
    if facts.unseen and plan.settings.guarantee is Guarantee.EXACTLY_ONCE:
        _log.warning(
            "Pipeline %s: not checked, because it cannot be seen from here: %s. docs/GUARANTEES.md says what each way to start "
            "a query checks.",
            plan.pipeline,
            "; ".join(facts.unseen),
        )
    return claims


def require_demanded_of_parts(settings: PipelineSettings, plan: DeliveryPlan) -> None:
    """Raise GuaranteeTooWeak for a source, trigger or sink that is too weak whatever Spark would say of the query.

    Called before Spark starts; the start asks again, of the query too.
    """
    sinks = sinks_of(plan)
    try:
        of_sinks = [_sink_claim(sink, plan, settings.trigger) for sink in sinks]
    finally:
        for sink in sinks:
            sink.close()
    claims = (*source_claims(settings.sources, {}), trigger_claim(settings.trigger), *of_sinks)
    _require_strong(claims, settings.guarantee)
    if not settings.trigger.batches_have_identity:
        unprotected_sink(settings)


def unprotected_sink(settings: PipelineSettings) -> tuple[str, Console | Kafka | Memory]:
    """Return name and settings of the sink of a continuous or real-time query, which Spark's own sink stands for.

    Raises GuaranteeTooWeak for other sinks, or several, and Usage for what real time cannot do.
    """
    name, sink = next(iter(settings.sinks.items()))
    if len(settings.sinks) != 1 or not isinstance(sink, Console | Kafka | Memory):
        raise batches_without_identity()
    if settings.trigger.real_time is None:
        return name, sink
    if isinstance(sink, Memory):
        raise Usage(
            "Trigger real_time: expected a sink of type console or kafka, found memory, which Spark does not fill in real time.",
            remedy="Take type: kafka or console, or use trigger continuous.",
        )
    if settings.output_mode != "update":
        raise Usage(
            f"Trigger real_time sends rows when they change: expected output_mode update, found {settings.output_mode}.",
            remedy="Write `output_mode: update`; without an operator that keeps state every row is sent once, as in append.",
        )
    return name, sink


def _require_strong(claims: Iterable[Claim], demanded: Guarantee) -> None:
    weak = next(iter(too_weak(claims, demanded)), None)
    if weak is not None:
        allows = weak.allows if weak.may_lose_rows else f"gives {weak.allows}"
        accepting = ", which accepts the loss" if weak.may_lose_rows else ""
        raise GuaranteeTooWeak(
            f"The pipeline demands exactly_once, but {weak.subject} {allows}: {weak.why}",
            remedy=f"{weak.remedy} Or demand `guarantee: at_least_once`{accepting}.".lstrip(),
        )


def require_batches(facts: QueryFacts) -> None:
    """Raise GuaranteeTooWeak for a trigger whose batches have no identity: no sink of Penstock's can take them."""
    if facts.trigger is not None and not facts.trigger.batches_have_identity:
        raise batches_without_identity()


def batches_without_identity() -> GuaranteeTooWeak:
    """Return the refusal of continuous and real-time queries, whatever is demanded."""
    return GuaranteeTooWeak(
        "Continuous and real-time triggers run without Penstock's protocol, with a single sink of type console, kafka or memory.",
        remedy="Use trigger processing_time or available_now for every other sink.",
    )


def claims_of(facts: QueryFacts, plan: DeliveryPlan) -> tuple[Claim, ...]:
    """Return every claim that `facts` allow, in the order of a row's way. Raises Usage for settings that do not go together."""
    sinks = sinks_of(plan)
    mode = facts.output_mode
    _require_no_complaint(facts, plan)
    if facts.plan is not None and mode is not None:
        require_mode(facts.plan, output_mode=mode)
    for sink in sinks:
        _require_computable(facts.rows, sink)
    return (
        *(facts.sources.claims or ()),
        *(() if facts.plan is None else operator_claims(facts.plan, output_mode=mode or "append")),
        *(() if mode is None else (output_mode_claim(mode),)),
        *(() if facts.trigger is None else (trigger_claim(facts.trigger),)),
        *option_claims(facts.options or {}),
        *(_sink_claim(sink, plan, facts.trigger) for sink in sinks),
    )


def _require_no_complaint(facts: QueryFacts, plan: DeliveryPlan) -> None:
    """Raise Usage for combinations of query and sinks that loading refuses in a pipeline file; code combines them only here."""
    sinks = plan.settings.sinks
    modes = () if facts.output_mode is None else mode_complaints(sinks, facts.output_mode)
    for complaint in (*modes, *own_output_complaints(sinks, facts.sources.paths)):
        raise Usage(f"{sentence(complaint)}.", remedy=complaint.remedy)


def _require_computable(frame: DataFrame, sink: Sink) -> None:
    """Raise Usage if the route of `sink`, or the rows that it takes, cannot be computed from those of the pipeline."""
    names_table = isinstance(sink, OpensTables)
    wrong = f"sinks.{sink.name}{' names a table that' if names_table else '.route'} cannot be computed from the rows"
    remedy = f"The rows have {', '.join(frame.columns)}: correct the {'table' if names_table else 'route'} or the transform."
    try:
        if sink.route_sql is not None:
            _require_same_account(frame.selectExpr(sink.route_sql), sink)
        own = sink.own_rows(frame.schema.json()) if isinstance(sink, ProjectsRows) else None
        if own is not None:
            wrong = f"sinks.{sink.name} cannot make its records of the rows"
            remedy = "Leave such a column out, or cast it in the transform."
            _ = frame.selectExpr(*own.columns.values()).schema
    except PySparkException as error:
        raise Usage(f"{wrong}: {read_spark_error(scrub(str(error))).sentence}", remedy=remedy) from error


def _require_same_account(routed: DataFrame, sink: Sink) -> None:
    """Raise Usage if a row's account is another one each time that it is computed."""
    _ = routed.schema
    random = random_functions(routed)
    if random:
        raise Usage(
            f"sinks.{sink.name}.route is random: {random} gives another value each time it is computed, expected one account "
            "for each row.",
            remedy="Compute the account in the transform, as `if(rand() < 0.5, 'a', 'b') AS account`, and route by that column.",
        )


def _sink_claim(sink: Sink, plan: DeliveryPlan, trigger: Trigger | None) -> Claim:
    sinks = plan.settings.sinks
    in_file = sinks[sink.name].type if sink.name in sinks else "parquet"  # the quarantine is not among them
    subject = f"sink {sink.name} ({in_file})"
    if trigger is not None and not trigger.batches_have_identity:
        why = f"With this trigger Spark's own {in_file} sink takes the rows, without marker and ledger."
        return at_least_once(subject, why, "Use processing_time, or available_now.")
    if not sink.exactly_once:
        return at_least_once(subject, *_WEAK.get(in_file, ("It may show a batch again after a crash.", "Take it out.")))
    whose = _AS_WRITTEN if in_file == "python" else _RESTS_ON.get(in_file) or UNPROVED.get(in_file, "")
    return exactly_once(subject, _WHY[sink.kind] + whose)
