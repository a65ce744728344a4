"""What each stateful operator of a query keeps, as text that is the same whenever the query is.

Spark knows an operator's state by its number in the plan, and the columns in it by position and type. So a query that groups by
another column of the same type goes on with the old state without an error.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from penstock.transform.guarantee import grouping_of, keeps_state
from penstock.transform.plan import PlanNode

LONGEST = 200
"""Expressions of more characters are told apart by their digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateHeld:
    """The state of one operator.

    `kind` is Spark's name of it, `keys` what rows are told apart by, `holds` what is kept for a key as far as the plan's text
    says so. `opaque` is 1 where more is kept than that: the columns of a joined row, or what the user's code keeps.
    """

    kind: str
    keys: str
    holds: str
    opaque: int = 0


_KINDS: Mapping[str, str] = {
    "Aggregate": "stateStoreSave",
    "Distinct": "stateStoreSave",
    "Deduplicate": "dedupe",
    "DeduplicateWithinWatermark": "dedupeWithinWatermark",
    "GlobalLimit": "globalLimit",
    "Join": "symmetricHashJoin",
}
"""Spark's names of operators in `state/<n>/_metadata`, by those of the plan."""
KINDS = frozenset(_KINDS.values())
"""The names that are known; state of user code has others."""

SESSIONS = "sessionWindowStateStoreSaveExec"
_REFERENCE = re.compile(r"(`[^`]+`|[A-Za-z_]\w*)#(\d+)L?")
_MARK = re.compile(r"#\d+L?(-T\d+ms)?")
_ZONE = re.compile(r"Some\((?:UTC|GMT|Z|[+-]\d\d:\d\d|[A-Z]\w+/[\w+/-]+)\)")
"""The session's time zone, by default the machine's: another machine's would make each key a new one."""
_DEEPEST = 20


def state_held(plan: PlanNode) -> tuple[StateHeld, ...]:
    """Return what the stateful operators of a plan keep, in the order of the plan."""
    return tuple(_held(node) for node in plan.walk() if keeps_state(node))


def _held(node: PlanNode) -> StateHeld:
    definitions = dict(_definitions(node))
    keys = grouping_of(node) if node.name != "Join" else node.detail
    is_session = node.name in {"Aggregate", "Distinct"} and "session_window" in keys
    kind = SESSIONS if is_session else _KINDS.get(node.name, node.name)
    results = node.detail[len(keys) :] if node.name == "Aggregate" else ""
    told_apart = _shown(keys, definitions) if node.name in _KINDS else ""
    aggregates = _shown(", ".join(aggregate_calls(results)), definitions)
    return StateHeld(kind=kind, keys=told_apart, holds=aggregates, opaque=int(node.name == "Join" or node.name not in _KINDS))


def _shown(text: str, definitions: Mapping[str, str]) -> str:
    """Return `text` by the columns of the sources; if that is long, as it is, with a digest of the whole."""
    whole = _ZONE.sub("Some(zone)", _whole(text, definitions))
    if len(whole) <= LONGEST:
        return whole
    return f"{_MARK.sub('', text)[:LONGEST]} (sha256 {hashlib.sha256(whole.encode()).hexdigest()[:16]})"


def _definitions(node: PlanNode) -> Iterator[tuple[str, str]]:
    """Yield the expression of each column that is computed below `node`, by the number of the column."""
    for below in node.walk():
        if below is not node and below.name in {"Project", "Aggregate"}:
            for item in _items(below.detail):
                expression, _, named = item.rpartition(" AS ")
                found = _REFERENCE.fullmatch(named.partition("-T")[0].strip("[] "))
                if expression and found is not None:
                    yield found[2], expression.strip("[ ")


def _whole(text: str, definitions: Mapping[str, str], depth: int = 0) -> str:
    """Return `text` with each column replaced by what it is computed of, and without the numbers that differ from run to run."""

    def replaced(found: re.Match[str]) -> str:
        expression = definitions.get(found[2])
        if expression is None or depth == _DEEPEST:
            return found[1]
        return _whole(expression, definitions, depth + 1)

    return _MARK.sub("", _REFERENCE.sub(replaced, re.sub(r"-T\d+ms", "", text)))


def _items(detail: str) -> Iterator[str]:
    """Yield the items of the lists in an operator's text, which are separated by commas outside of brackets."""
    depth = start = 0
    for index, character in enumerate(detail):
        depth += (character in "([") - (character in ")]")
        if character == "," and depth <= 1:
            yield detail[start:index]
            start = index + 1
    yield detail[start:]


_AGGREGATES = re.compile(
    r"\b(any_value|approx_count_distinct|approx_percentile|array_agg|avg|bit_and|bit_or|bit_xor|bool_and|bool_or|bitmap_\w+_agg"
    r"|collect_list|collect_set|corr|count|count_if|count_min_sketch|covar_pop|covar_samp|first|first_value|hll_\w+_agg"
    r"|kurtosis|last|last_value|listagg|max|max_by|mean|median|min|min_by|mode|percentile|percentile_approx|regr_\w+|skewness"
    r"|std|stddev|stddev_pop|stddev_samp|sum|try_avg|try_sum|var_pop|var_samp|variance)\(",
    re.IGNORECASE,
)


def aggregate_calls(results: str) -> tuple[str, ...]:
    """Return the calls of Spark's aggregate functions in the results of an aggregation, each once, in their order."""
    calls = dict[str, None]()
    for found in _AGGREGATES.finditer(results):
        depth = 0
        for index in range(found.end() - 1, len(results)):
            depth += (results[index] == "(") - (results[index] == ")")
            if depth == 0:
                calls[results[found.start() : index + 1]] = None
                break
    return tuple(calls)
