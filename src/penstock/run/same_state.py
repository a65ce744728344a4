"""Whether a query that computes decided batches once more makes the state that it made then."""

import re
from collections.abc import Iterator, Sequence

from penstock.core.model import SourceName
from penstock.errors import Refused
from penstock.run.preflight.description import RunDescription, Values
from penstock.spec.file_options import HOW_FILES_ARE_FOUND
from penstock.spec.source import FILE_FORMATS
from penstock.transform.guarantee import keeps_state, random_in, stateful_operators
from penstock.transform.plan import PlanNode

_CLOCK = re.compile(
    r"\b(?:current_timestamp|current_date|current_time|now|localtimestamp)\((?:\d+, )?(?:None|Some\([^)]*\))?\)"
    r"|\bProcessingTime(?:Timeout)?\b(?!#)"
)
"""As Spark writes them in a plan, some with precision and time zone; a column of such a name has a number behind it."""

_CHANGES_NO_STATE = frozenset({"Project"})
"""Operators that, above all state, give as many rows whatever they compute."""

_OF_QUERY = ("transform", "output_mode", "spark.conf.spark.sql.session.", "spark.conf.spark.sql.ansi.")
_OF_SOURCE = ("format", "schema", "watermark", "decode", "expect")


def require_repeatable(query: PlanNode, *, remedy: str) -> None:
    """Raise Refused where the state depends on when a batch is computed, or on chance."""
    nodes = list(_deciding(query))
    found = sorted({re.sub(r"\(.*", "()", match[0]) for node in nodes for match in _CLOCK.finditer(node.detail)})
    if found:
        raise Refused(
            f"The query keeps state and looks at the clock ({', '.join(found)}): computed now, its state would be another one.",
            remedy=remedy,
        )
    random = sorted({name for node in nodes for name in random_in(node)})
    if random:
        raise Refused(
            f"The query keeps state and draws at random ({', '.join(random)}): computed again, its state would be another one.",
            remedy=remedy,
        )


def _deciding(query: PlanNode) -> Iterator[PlanNode]:
    """Yield the operators that decide what the state becomes, or how many rows come out above it."""
    if keeps_state(query):
        yield from query.walk()
        return
    holds = bool(stateful_operators(query))
    if not (holds and query.name in _CHANGES_NO_STATE):
        yield query
    for child in query.children:
        yield from _deciding(child)


def read_beside(query: PlanNode) -> Sequence[str]:
    """Return what the query reads beside its streams, of which nobody knows whether it is what it was."""
    leaves = (node for node in query.walk() if not node.children and not node.is_stream_source)
    found = (node for node in leaves if "Relation" in node.name and node.name not in {"LocalRelation", "OneRowRelation"})
    return tuple(dict.fromkeys(re.sub(r"#\d+L?", "", f"{node.name} {node.detail}").strip()[:80] for node in found))


def differences(then: RunDescription, now: RunDescription, *, sources: Sequence[SourceName]) -> Sequence[str]:
    """Return the settings that make the query, or the rows of `sources`, other ones than they were."""
    keys = {key for key in {*then.query, *now.query} if key.startswith(_OF_QUERY)}
    other = [key for key in sorted(keys) if then.query.get(key) != now.query.get(key)]
    for name in sorted({str(source).partition("#")[0] for source in sources}):
        before, after = then.sources.get(name), now.sources.get(name)
        if before is not None and after is not None:  # under another name it is a source of the same place
            other += [f"sources.{name}.{key}" for key in _of_rows(before, after)]
    return other


def _of_rows(before: Values, after: Values) -> Iterator[str]:
    for key in sorted({*before, *after}):
        option = key.partition("options.")[2].lower() if key.startswith("options.") else None
        matters = key.startswith(_OF_SOURCE) if option is None else _makes_rows(option, after.get("format", ""))
        if matters and before.get(key) != after.get(key) and not (key == "schema" and _has_more(before, after)):
            yield key


def _makes_rows(option: str, kind: str) -> bool:
    return kind in FILE_FORMATS and option not in HOW_FILES_ARE_FOUND


def _has_more(before: Values, after: Values) -> bool:
    """Return whether a schema only has columns more, behind the others: a transform that is the same reads none of them."""
    return after.get("schema", "").startswith(f"{before.get('schema', '')},")
