"""Claims about what the operators, trigger, output mode and options of a query guarantee."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from penstock.core.guarantee import Claim, at_least_once, exactly_once
from penstock.errors import Usage
from penstock.spec.pipeline import Trigger
from penstock.transform.plan import PlanNode

ASYNC_OPTION = "asyncProgressTrackingEnabled"
_REMEMBER = "Put a watermark on the source and use the event time in the keys, or accept that memory and disk run out one day."
_MODES = {
    "append": "Every row of the result is sent once, when it is final.",
    "update": "A row of the result is sent again whenever it changes; the sink keeps the newest by key.",
    "complete": "Every batch is the whole result and replaces the one before.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StatefulOperator:
    """One operator that keeps state from batch to batch.

    `what` describes the state. `bounded` is None where it depends on the user's own code. `random` names functions at or below
    the operator that give other values when a batch is computed again.
    """

    name: str
    what: str
    bounded: bool | None
    random: tuple[str, ...]


def operator_claims(plan: PlanNode, *, output_mode: str) -> tuple[Claim, ...]:
    """Return one claim for each stateful operator, or one claim that there is none."""
    operators = stateful_operators(plan)
    if not operators:
        why = "None keeps state. What a batch yields is decided once, so even rand() and uuid() give one result."
        return (exactly_once("operators", why),)
    return tuple(_operator_claim(operator, output_mode) for operator in operators)


def _operator_claim(operator: StatefulOperator, output_mode: str) -> Claim:
    subject = f"operator {operator.name}"
    if operator.random:
        return at_least_once(
            subject,
            f"{', '.join(operator.random)} below it gives other values when a batch is repeated, so that the state no longer "
            "fits the rows that were delivered.",
            "Move it behind the stateful operator, or derive the value from columns (xxhash64, say).",
            warnings=_state_warnings(operator, output_mode),
        )
    return exactly_once(
        subject,
        f"It keeps {operator.what}. A repeated batch starts from the same state, so state and delivered rows agree.",
        "Python functions that give other values for the same row.",
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
        return at_least_once(
            "trigger continuous",
            "Continuous processing has no batches that could be recognised; after a crash it sends rows again.",
            "Use processing_time, or available_now.",
        )
    if trigger.real_time is not None:
        return at_least_once(
            "trigger real_time",
            "Real-time mode logs a batch's offsets only when it ends, so that its number can come again with other rows.",
            "Use processing_time, or available_now.",
        )
    if trigger.once is not None:
        return exactly_once(
            "trigger once", "Run as available_now, which Spark put in its place: rate limits hold, and it ends by itself."
        )
    name = "available_now" if trigger.available_now is not None else "processing_time"
    return exactly_once(f"trigger {name}", "Spark logs a batch's offsets before it runs, so a repeated batch is recognised.")


def output_mode_claim(output_mode: str) -> Claim:
    """Return the claim that says what the output mode means for the rows that arrive."""
    return exactly_once(f"output mode {output_mode}", _MODES[output_mode])


def option_claims(options: Mapping[str, str]) -> tuple[Claim, ...]:
    """Return one claim for each option of the query (`writeStream.option`) that weakens it."""
    given = {name.lower(): value for name, value in options.items()}  # Spark ignores the case of an option's name
    if given.get(ASYNC_OPTION.lower(), "false").lower() != "true":
        return ()
    why = "Asynchronous progress leaves gaps in the offset log; after a crash a batch number comes again with other rows."
    return (at_least_once(f"option {ASYNC_OPTION}", why, f"Leave {ASYNC_OPTION} out."),)


def require_mode(plan: PlanNode, *, output_mode: str) -> None:
    """Raise Usage where Spark would refuse the output mode for this plan when the query starts."""
    aggregations = [node for node in plan.walk() if node.name in _AGGREGATIONS and node.is_stream]
    if output_mode == "complete" and not aggregations:
        raise Usage(
            "output_mode: complete needs an aggregation, and the query has none.",
            remedy="Use output_mode: append, or aggregate in the transform.",
        )
    if output_mode == "append" and not all(map(_by_watermark, aggregations)):
        raise Usage(
            "output_mode: append needs rows that become final, but the query aggregates without a watermark in its keys.",
            remedy="Use output_mode: update or complete, or put a watermark on the source and group by its time.",
        )
    if output_mode == "update" and (final := _final_only(plan)) is not None:
        raise Usage(f"output_mode: update does not go with {final}.", remedy="Use output_mode: append, or leave that out.")


_WATERMARKED = re.compile(r"#\d+L?-T\d+ms")
_RANDOM = re.compile(
    r"\b(rand|randn|random|randstr|uniform|uuid|shuffle|monotonically_increasing_id|spark_partition_id"
    r"|reflect|try_reflect|java_method)\(",
    re.IGNORECASE,
)
"""Spark's functions that give other values for the same row, and those that call Java methods, whose values nobody knows."""
_AGGREGATIONS = frozenset({"Aggregate", "Distinct"})
_USER_STATE = re.compile(r"FlatMapGroups(InPandas)?WithState|TransformWithState\w*")


def stateful_operators(plan: PlanNode) -> tuple[StatefulOperator, ...]:
    """Return every stateful operator of the plan, from the result down to the sources."""
    return tuple(_operator(node) for node in plan.walk() if keeps_state(node))


def _final_only(plan: PlanNode) -> str | None:
    """Return what in the plan yields only final rows, which output mode update does not allow; None if nothing does."""
    for node in plan.walk():
        if node.name == "GlobalLimit" and node.is_stream:
            return "LIMIT"
        if node.name in _AGGREGATIONS and node.is_stream and "session_window" in grouping_of(node):
            return "session windows"
    return None


def keeps_state(node: PlanNode) -> bool:
    """Return whether an operator of a plan keeps state from batch to batch."""
    if not node.is_stream:
        return False
    if node.name == "Join":
        return sum(child.is_stream for child in node.children) > 1
    return node.name in _WHAT or _USER_STATE.fullmatch(node.name) is not None


def _operator(node: PlanNode) -> StatefulOperator:
    what, bounded = _WHAT.get(node.name, _user_state)(node)
    random = sorted({name for below in node.walk() for name in random_in(below)})
    return StatefulOperator(name=node.name, what=what, bounded=bounded, random=tuple(random))


def random_in(node: PlanNode) -> Iterator[str]:
    """Yield the functions in this operator alone that give another value each time they are computed."""
    if node.name == "Sample":
        yield "sample"
    yield from node.random
    yield from (found.lower() for found in _RANDOM.findall(node.detail))


def grouping_of(node: PlanNode) -> str:
    """Return the text of the columns that an aggregation or deduplication groups by; empty if it has none.

    Spark writes `Aggregate [keys], [results]`, or `Aggregate [results]` without keys. `Distinct` uses all columns of its input.
    """
    if node.name == "Distinct":
        return node.children[0].detail
    depth = 0
    for index, character in enumerate(node.detail):
        depth += (character == "[") - (character == "]")
        if character == "]" and depth == 0:
            alone = index + 1 == len(node.detail)
            return "" if alone and node.name == "Aggregate" else node.detail[: index + 1]
    return node.detail


def _by_watermark(node: PlanNode) -> bool:
    return _WATERMARKED.search(grouping_of(node)) is not None


def _aggregate(node: PlanNode) -> tuple[str, bool]:
    if not grouping_of(node):
        return "one row for the whole stream", True
    if _by_watermark(node):
        return "one row for each group until the watermark passes it", True
    return "one row for each distinct group, for ever", False


def _deduplicate(node: PlanNode) -> tuple[str, bool]:
    if _by_watermark(node):
        return "every key until the watermark passes it", True
    return "every distinct key, for ever", False


def _join(node: PlanNode) -> tuple[str, bool]:
    columns = {found.split("-T")[0] for found in _WATERMARKED.findall(node.detail)}
    if len(columns) > 1:
        return "the rows of both sides until the watermarks pass what can still match", True
    return "all rows of both sides, for ever", False


def _user_state(node: PlanNode) -> tuple[str, None]:
    timeless = re.search(r"\b(NoTimeout|NoTime)\b", node.detail) is not None
    return ("what your code keeps; nothing expires by itself" if timeless else "what your code keeps"), None


_WHAT: Mapping[str, Callable[[PlanNode], tuple[str, bool | None]]] = {
    "Aggregate": _aggregate,
    "Distinct": _deduplicate,
    "Deduplicate": _deduplicate,
    "DeduplicateWithinWatermark": lambda _: ("every key until the watermark passes it", True),
    "GlobalLimit": lambda _: ("the number of rows so far", True),
    "Join": _join,
}
