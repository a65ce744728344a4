"""Claims about what the operators, trigger, output mode and options of a query guarantee."""

from collections.abc import Mapping

from penstock.core.guarantee import Claim
from penstock.core.model import Guarantee
from penstock.errors import Usage
from penstock.spec.pipeline import Trigger
from penstock.transform.operators import (
    StatefulOperator,
    final_only,
    has_aggregation,
    has_unwatermarked_aggregation,
    stateful_operators,
)
from penstock.transform.plan import PlanNode

ASYNC_OPTION = "asyncProgressTrackingEnabled"
_REMEMBER = "Put a watermark on the source and use the event time in the keys, or accept that memory and disk run out one day."
_MODES = {
    "append": "Every row of the result is sent once, when it is final.",
    "update": "A row of the result is sent again whenever it changes; the sink keeps the newest by key.",
    "complete": "Every batch is the whole result and replaces the one before.",
}


def operator_claims(plan: PlanNode, *, output_mode: str) -> tuple[Claim, ...]:
    """Return one claim for each stateful operator, or one claim that there is none."""
    operators = stateful_operators(plan)
    if not operators:
        return (
            _exact(
                "operators", "None keeps state. What a batch yields is decided once, so even rand() and uuid() give one result."
            ),
        )
    return tuple(_operator_claim(operator, output_mode) for operator in operators)


def _operator_claim(operator: StatefulOperator, output_mode: str) -> Claim:
    subject = f"operator {operator.name}"
    if operator.random:
        return Claim(
            subject=subject,
            guarantee=Guarantee.AT_LEAST_ONCE,
            why=f"{', '.join(operator.random)} below it gives other values when a batch is repeated, so that the state no longer "
            "fits the rows that were delivered.",
            warnings=_state_warnings(operator, output_mode),
            remedy="Move it behind the stateful operator, or derive the value from columns (xxhash64, say).",
        )
    return Claim(
        subject=subject,
        guarantee=Guarantee.EXACTLY_ONCE,
        why=f"It keeps {operator.what}. A repeated batch starts from the same state, so state and delivered rows agree.",
        breaks=("Python functions that give other values for the same row.",),
        warnings=_state_warnings(operator, output_mode),
    )


def _state_warnings(operator: StatefulOperator, output_mode: str) -> tuple[str, ...]:
    if operator.bounded is None:
        return (f"It keeps {operator.what}: whether that stays small is up to your code.",)
    if operator.name == "Aggregate" and output_mode == "complete":
        return ("In complete mode all groups are kept for ever, watermark or not, and every batch sends them all.",)
    return () if operator.bounded else (f"It keeps {operator.what}. {_REMEMBER}",)


def trigger_claim(trigger: Trigger) -> Claim:
    """Return the claim about what the trigger guarantees."""
    if trigger.continuous is not None:
        return _weak(
            "trigger continuous",
            "Continuous processing has no batches that could be recognised; after a crash it sends rows again.",
            "Use processing_time, or available_now.",
        )
    if trigger.real_time is not None:
        return _weak(
            "trigger real_time",
            "Real-time mode logs a batch's offsets only when it ends, so that its number can come again with other rows.",
            "Use processing_time, or available_now.",
        )
    if trigger.once is not None:
        return _exact(
            "trigger once", "Run as available_now, which Spark put in its place: rate limits hold, and it ends by itself."
        )
    name = "available_now" if trigger.available_now is not None else "processing_time"
    return _exact(f"trigger {name}", "Spark logs a batch's offsets before it runs, so a repeated batch is recognised.")


def output_mode_claim(output_mode: str) -> Claim:
    """Return the claim that says what the output mode means for the rows that arrive."""
    return _exact(f"output mode {output_mode}", _MODES[output_mode])


def option_claims(options: Mapping[str, str]) -> tuple[Claim, ...]:
    """Return one claim for each option of the query (`writeStream.option`) that weakens it."""
    given = {name.lower(): value for name, value in options.items()}  # Spark does not mind case
    if given.get(ASYNC_OPTION.lower(), "false").lower() != "true":
        return ()
    why = "Asynchronous progress leaves gaps in the offset log; after a crash a batch number comes again with other rows."
    return (_weak(f"option {ASYNC_OPTION}", why, f"Leave {ASYNC_OPTION} out."),)


def require_mode(plan: PlanNode, *, output_mode: str) -> None:
    """Raise Usage where Spark would refuse the output mode for this plan when the query starts."""
    if output_mode == "complete" and not has_aggregation(plan):
        raise Usage(
            "output_mode: complete needs an aggregation, and the query has none.",
            remedy="Use output_mode: append, or aggregate in the transform.",
        )
    if output_mode == "append" and has_unwatermarked_aggregation(plan):
        raise Usage(
            "output_mode: append needs rows that become final, but the query aggregates without a watermark in its keys.",
            remedy="Use output_mode: update or complete, or put a watermark on the source and group by its time.",
        )
    if output_mode == "update" and (final := final_only(plan)) is not None:
        raise Usage(f"output_mode: update does not go with {final}.", remedy="Use output_mode: append, or leave that out.")


def _exact(subject: str, why: str) -> Claim:
    return Claim(subject=subject, guarantee=Guarantee.EXACTLY_ONCE, why=why)


def _weak(subject: str, why: str, remedy: str) -> Claim:
    return Claim(subject=subject, guarantee=Guarantee.AT_LEAST_ONCE, why=why, remedy=remedy)
