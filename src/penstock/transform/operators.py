"""The operators of a streaming plan that keep state, and whether that state can ever shrink."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from penstock.transform.plan import PlanNode

_WATERMARKED = re.compile(r"#\d+L?-T\d+ms")
_RANDOM = re.compile(
    r"\b(rand|randn|random|randstr|uniform|uuid|shuffle|monotonically_increasing_id|spark_partition_id"
    r"|reflect|try_reflect|java_method)\(",
    re.IGNORECASE,
)
"""Spark's functions that give other values for the same row, and those that call Java methods, whose values nobody knows."""
_AGGREGATIONS = frozenset({"Aggregate", "Distinct"})
_USER_STATE = re.compile(r"FlatMapGroups(InPandas)?WithState|TransformWithState\w*")


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


def stateful_operators(plan: PlanNode) -> tuple[StatefulOperator, ...]:
    """Return every stateful operator of the plan, from the result down to the sources."""
    return tuple(_operator(node) for node in plan.walk() if _keeps_state(node))


def has_aggregation(plan: PlanNode) -> bool:
    """Return whether a stream is aggregated, which output mode complete needs."""
    return any(node.name in _AGGREGATIONS and node.is_stream for node in plan.walk())


def has_unwatermarked_aggregation(plan: PlanNode) -> bool:
    """Return whether a stream is aggregated without a watermark in its keys, which output mode append does not allow."""
    return any(node.name in _AGGREGATIONS and node.is_stream and not _by_watermark(node) for node in plan.walk())


def final_only(plan: PlanNode) -> str | None:
    """Return what in the plan yields only final rows, which output mode update does not allow; None if nothing does."""
    for node in plan.walk():
        if node.name == "GlobalLimit" and node.is_stream:
            return "LIMIT"
        if node.name in _AGGREGATIONS and node.is_stream and "session_window" in _keys(node):
            return "session windows"
    return None


def _keeps_state(node: PlanNode) -> bool:
    if not node.is_stream:
        return False
    if node.name == "Join":
        return sum(child.is_stream for child in node.children) > 1
    return node.name in _WHAT or _USER_STATE.fullmatch(node.name) is not None


def _operator(node: PlanNode) -> StatefulOperator:
    what, bounded = _WHAT.get(node.name, _user_state)(node)
    return StatefulOperator(name=node.name, what=what, bounded=bounded, random=tuple(sorted(set(_random(node)))))


def _random(node: PlanNode) -> Iterator[str]:
    for below in node.walk():
        if below.name == "Sample":
            yield "sample"
        yield from below.random
        yield from (found.lower() for found in _RANDOM.findall(below.detail))


def _keys(node: PlanNode) -> str:
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
    return _WATERMARKED.search(_keys(node)) is not None


def _aggregate(node: PlanNode) -> tuple[str, bool]:
    if not _keys(node):
        return "one row for the whole stream", True
    if _by_watermark(node):
        return "one row for each group until the watermark passes it", True
    return "one row for each distinct group, for ever", False


def _deduplicate(node: PlanNode) -> tuple[str, bool]:
    if _by_watermark(node):
        return "every key until the watermark passes it", True
    return "every distinct key, for ever", False


def _within_watermark(_: PlanNode) -> tuple[str, bool]:
    return "every key until the watermark passes it", True


def _limit(_: PlanNode) -> tuple[str, bool]:
    return "the number of rows so far", True


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
    "DeduplicateWithinWatermark": _within_watermark,
    "GlobalLimit": _limit,
    "Join": _join,
}
