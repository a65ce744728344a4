"""The selections of a pipeline: which rows a sink takes, and which columns of them, computed in the one staging pass."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql.types import BooleanType, DataType, StructField, StructType

from penstock.core.model import SinkName
from penstock.errors import Usage
from penstock.protocols import ALL_ROWS, OwnRows, Taken
from penstock.spark.column_name import quoted
from penstock.spark.error import read_spark_error
from penstock.spec.selection import TakesRows
from penstock.spec.settings import nearest
from penstock.support.secret import scrub
from penstock.transform.guarantee import random_in
from penstock.transform.plan import plan_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_SUBQUERY = "\n:  +- "
"""How a plan's text draws the plan of a subquery below the operator that has it."""


def taken_of(selections: Mapping[SinkName, TakesRows], rows: "DataFrame") -> Mapping[SinkName, Taken]:
    """Return what each sink takes of rows like these. Analyses expressions and runs nothing.

    Called once for each start, before anything is opened. Raises Usage for an expression that Spark does not understand, that
    looks at other rows than its own, or that gives a column which is there already, and for a predicate of chance.
    """
    if not selections:
        return ALL_ROWS
    none = rows.sparkSession.createDataFrame([], rows.schema)
    return {sink: RowAnalysis(none, f"sinks.{sink}").taken(selection) for sink, selection in selections.items()}


def selected(rows: "DataFrame", selection: TakesRows) -> "DataFrame":
    """Return what a sink takes of `rows`, for queries that Spark runs without the staging pass."""
    if selection.where is not None:
        rows = rows.where(f"({selection.where}\n)")
    if selection.select:
        return rows.selectExpr(*selection.select)
    return rows.select(*(quoted(name) for name in rows.columns if name not in selection.exclude))


def random_functions(computed: "DataFrame") -> str:
    """Return the functions in the expressions that `computed` selects which give another value each time; empty without any."""
    return ", ".join(sorted(set(random_in(plan_of(computed)))))


class RowAnalysis:
    """Has Spark analyse expressions over rows. `rows` is an empty DataFrame with their columns; `where` is a place in the file.

    `remedy` is what to do about an expression that Spark cannot compute.
    """

    def __init__(self, rows: "DataFrame", where: str, *, remedy: str = "correct it, or the transform") -> None:
        self._rows, self._where, self._remedy = rows, where, remedy

    def taken(self, selection: TakesRows) -> Taken:
        """Return what a sink with this selection takes. Raises Usage."""
        for key, predicate in (("where", selection.where), ("delete_when", selection.deletes)):
            if predicate is not None:
                self.require_predicate(predicate, key)
        own = None
        if selection.select:
            own = self._own(list(self._selected(selection)))
        elif selection.exclude:
            own = self._own(list(self._left(selection)))
        schema = self._rows.schema.json() if own is None else own.schema
        return Taken(where=selection.where, own=own, schema=schema, deletes=selection.deletes)

    def require_predicate(self, predicate: str, key: str) -> None:
        """Raise Usage unless `predicate`, which is below `key`, is one over a single row and always gives the same for it."""
        [field] = self._fields(f"({predicate}\n) AS taken", key=key, shown=predicate)
        if field.dataType != BooleanType():
            raise Usage(
                f"{self._where}.{key} is {predicate!r}, which gives {field.dataType.simpleString()}, expected true or false.",
                remedy="Write a comparison, such as `amount > 0`.",
            )
        random = random_functions(self._rows.selectExpr(f"({predicate}\n) AS taken"))
        if random:  # a predicate is computed once for each column of the row
            raise Usage(
                f"{self._where}.{key} is {predicate!r}, and {random} gives another value each time it is computed, expected one "
                "value for each row.",
                remedy="Compute it in the transform, as `rand() AS chance`, and compare that column.",
            )

    def _selected(self, selection: TakesRows) -> Iterator[tuple[str, StructField]]:
        for place, item in enumerate(selection.select):
            for field in self._fields(item, key=f"select[{place}]", shown=item):
                yield f"struct({item}\n).{quoted(field.name)}", field

    def _left(self, selection: TakesRows) -> Iterator[tuple[str, StructField]]:
        names = self._rows.columns
        for name in selection.exclude:
            if name not in names:
                guess = nearest(name, names)
                raise Usage(
                    f"{self._where}.exclude names column {name!r}, but the rows have {', '.join(names)}.",
                    remedy=f"Did you mean {guess}?" if guess else "Correct it.",
                )
        yield from ((quoted(field.name), field) for field in self._rows.schema if field.name not in selection.exclude)

    def _own(self, columns: list[tuple[str, StructField]]) -> OwnRows:
        names = [field.name for _, field in columns]
        twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
        if twice is not None:
            raise Usage(f"{self._where}.select gives two columns named {scrub(twice)!r}.", remedy="Rename one of them by AS.")
        if not names:
            raise Usage(f"{self._where}.exclude names every column of the rows.", remedy="Keep one at least.")
        return OwnRows(
            columns={field.name: sql for sql, field in columns}, schema=StructType([field for _, field in columns]).json()
        )

    def _fields(self, item: str, *, key: str, shown: str) -> list[StructField]:
        """Return the columns that an item gives, under the names that Spark gives them."""
        try:
            analysed = self._rows.selectExpr("*", f"struct({item}\n)")
            made: DataType = analysed.schema.fields[-1].dataType
            nodes = list(plan_of(analysed).walk())
        except PySparkException as error:
            found = read_spark_error(scrub(str(error)))
            if found.line is not None and found.line > shown.count("\n") + 1:  # the parentheses here, which nobody wrote
                found = replace(found, message="Syntax error at its end")
            raise Usage(
                f"{self._where}.{key} is {shown!r}, which Spark cannot compute from the rows: {found.sentence}",
                remedy=f"The rows have {', '.join(self._rows.columns)}: {self._remedy}.",
            ) from error
        has_subquery = any(_SUBQUERY in node.detail for node in nodes)
        if len(nodes) != 2 or has_subquery or not isinstance(made, StructType):  # a projection of what is there, and nothing else
            raise Usage(
                f"{self._where}.{key} is {shown!r}, which looks at more than the row itself.",
                remedy="Compute aggregates, windows, subqueries and rows out of arrays in the transform.",
            )
        return made.fields
