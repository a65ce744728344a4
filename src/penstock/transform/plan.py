"""Spark's analysed logical plan, parsed from its text, which is the same on classic sessions and on Spark Connect.

The text draws a tree with `+- `, `:- ` and `:  `. A line that does not fit the tree continues the one before it (a literal with
a line break in it).
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.core.model import SourceName
from penstock.errors import Usage
from penstock.spark.session_settings import applied

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WHOLE_PLANS = {"spark.sql.debug.maxToStringFields": str(2**31 - 1)}
"""By default Spark's text leaves out what follows the 25th column, and `rand()` there would go unseen."""

_LINE = re.compile(r"((?:[: ] {2})*(?:[:+]- )?)([!'~]*)([A-Z]\w*)(.*)", re.DOTALL)
_STREAMS = frozenset({"StreamingRelation", "StreamingRelationV2", "StreamingExecutionRelation", "StreamingDataSourceV2Relation"})
_HEADING = "== Analyzed Logical Plan =="


@dataclass(frozen=True, slots=True)
class PlanNode:
    """One operator: its name (`Aggregate`), the text that follows the name, and its inputs.

    `random` names functions in it that their author declared nondeterministic, which the plan's text does not show.
    """

    name: str
    detail: str
    children: "tuple[PlanNode, ...]"
    random: tuple[str, ...] = ()

    def walk(self) -> "Iterator[PlanNode]":
        """Yield the node and everything below it in Spark's own order: each node before its inputs, inputs from left to right."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def is_stream_source(self) -> bool:
        """Whether rows enter the query here, as a stream."""
        return self.name in _STREAMS

    @property
    def is_stream(self) -> bool:
        """Whether rows keep arriving here, because some source below is a stream."""
        return any(node.is_stream_source for node in self.walk())


def plan_of(frame: "DataFrame") -> PlanNode:
    """Return the analysed plan of a DataFrame; a streaming one is not run. Raises Usage if the plan's text is not understood."""
    explained = getattr(frame, "_explain_string", None)
    if explained is None:
        return plan_in(frame.sparkSession, frame._jdf.queryExecution().analyzed())
    with applied(frame.sparkSession, _WHOLE_PLANS):
        return parse_plan(str(explained(extended=True)).partition(_HEADING)[2].partition("\n== ")[0].partition("\n")[2])


def plan_in(spark: "SparkSession", analyzed: Any) -> PlanNode:
    """Parse `analyzed`, a plan in the JVM of a classic session. Raises Usage if its text is not understood."""
    with applied(spark, _WHOLE_PLANS):
        return parse_plan(str(analyzed.treeString()), random=frozenset(_declared_random(analyzed)))


def _declared_random(plan: Any) -> Iterator[str]:
    """Yield the text of each user-defined function in a JVM plan that is declared nondeterministic."""
    if plan.deterministic():
        return
    for expression in java_items(plan.expressions()):
        yield from _random_functions(expression)
    for child in java_items(plan.children()):
        yield from _declared_random(child)


def _random_functions(expression: Any) -> Iterator[str]:
    inner = [child for child in java_items(expression.children()) if not child.deterministic()]
    if not inner and not expression.deterministic() and str(expression.getClass().getSimpleName()).endswith("UDF"):
        yield str(expression.toString())
    for child in inner:
        yield from _random_functions(child)


def java_items(items: Any) -> Iterator[Any]:
    """Yield the elements of a collection in the JVM, of Java or of Scala."""
    found = items.iterator()
    while found.hasNext():
        yield found.next()


def parse_plan(text: str, *, random: Collection[str] = ()) -> PlanNode:
    """Return the tree in a plan's text; `random` holds texts of functions that are declared nondeterministic. Raises Usage."""
    lines = list(_joined(text.strip("\n").split("\n")))
    if not lines or lines[0].depth != 0:
        raise Usage("Spark's plan of the query could not be read.", remedy="Report it with the output of df.explain(True).")
    return _tree(lines, 0, random)[0]


@dataclass(slots=True)
class _Line:
    depth: int
    name: str
    detail: str


def _joined(lines: Sequence[str]) -> Iterator[_Line]:
    current: _Line | None = None
    for text in lines:
        found = _LINE.fullmatch(text)
        depth = len(found[1]) // 3 if found else 0
        if found is None or (current is not None and (depth == 0 or depth > current.depth + 1)):
            if current is not None:
                current.detail += "\n" + text
            continue
        if current is not None:
            yield current
        current = _Line(depth, found[3], found[4].strip())
    if current is not None:
        yield current


def _tree(lines: Sequence[_Line], index: int, random: Collection[str]) -> tuple[PlanNode, int]:
    line = lines[index]
    children: list[PlanNode] = []
    index += 1
    while index < len(lines) and lines[index].depth > line.depth:
        child, index = _tree(lines, index, random)
        children.append(child)
    declared = tuple(text.partition("(")[0] for text in random if text in line.detail)
    return PlanNode(line.name, line.detail, tuple(children), declared), index


def source_order(plan: PlanNode, names: Sequence[SourceName]) -> tuple[SourceName, ...]:
    """Return the query's sources in the order in which Spark logs their offsets, one name for each occurrence in the plan.

    A source that the query reads in two places through one relation (a union with itself) is named twice. One that Spark reads
    twice (a join with itself) is `name` and then `name#2`. Streams that were opened elsewhere are `source-1`, `source-2`, …
    """
    given: dict[str, SourceName] = {}
    order = []
    for name, relation in _relations(plan, None, frozenset(names)):
        key = relation.name + relation.detail
        if key not in given:
            given[key] = _unused(name, set(given.values()), len(given))
        order.append(given[key])
    return tuple(order)


def _unused(name: str | None, used: set[SourceName], place: int) -> SourceName:
    base = name if name is not None else f"source-{place + 1}"
    copies = sum(other == base or other.startswith(f"{base}#") for other in used)
    return SourceName(base if copies == 0 else f"{base}#{copies + 1}")


def _relations(node: PlanNode, alias: str | None, names: frozenset[SourceName]) -> Iterator[tuple[str | None, PlanNode]]:
    if node.is_stream_source:
        yield alias, node
    if node.name == "SubqueryAlias":
        inner = node.detail.replace("``", "\0").strip("`").replace("\0", "`")
        alias = inner if inner in names else alias
    for child in node.children:
        yield from _relations(child, alias, names)
