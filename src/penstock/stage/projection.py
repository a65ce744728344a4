"""What travels from Spark to a staging task: the columns under positional names, the row's hash, one column for each route.

Positional names keep any column name of the user intact (dots, backticks, names of ours) and need no reserved ones.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructType

from penstock.errors import Usage
from penstock.protocols import Sink
from penstock.rowhash import row_hashes
from penstock.stage.rowhash_sql import quoted, rowhash_sql

TOO_MANY_ROWS = "PENSTOCK_TOO_MANY_ROWS"
_ROW_IN_PARTITION = "(monotonically_increasing_id() & 8589934591)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """`columns` name the rows' columns; then follow the hash and those `routes` that are more than a column of text."""

    columns: tuple[str, ...]
    texts: Mapping[str, int]
    routes: tuple[str, ...]
    hash_sql: str

    @staticmethod
    def of(schema: StructType, sinks: Sequence[Sink]) -> "Projection":
        """The projection that `sinks` need. Raises Usage for columns that cannot be staged."""
        _require_unique(schema.names)
        texts = {
            f"CAST({quoted(field.name)} AS STRING)": place for place, field in enumerate(schema) if field.dataType == StringType()
        }
        routes = dict.fromkeys(sink.route_sql for sink in sinks)
        return Projection(
            columns=tuple(schema.names),
            texts=texts,
            routes=tuple(route for route in routes if route is not None and route not in texts),
            hash_sql=rowhash_sql(schema),
        )

    def route_index(self, route: str | None) -> int | None:
        """The place of a sink's route among the projected columns, None without a route."""
        if route is None or route in self.texts:
            return None if route is None else self.texts[route]
        return len(self.columns) + 1 + self.routes.index(route)

    def of_arrow(self, rows: "pa.Table") -> "Iterator[pa.RecordBatch]":
        """Unprojected `rows`, projected without Spark; there must be no `routes`. Raises TypeError for rare types."""
        for batch in rows.to_batches():
            columns = [*batch.columns, row_hashes(batch).view(pa.int64())]
            yield pa.RecordBatch.from_arrays(columns, names=[str(place) for place in range(len(columns))])

    def of_rows(self, rows: DataFrame, *, at_most: int | None = None) -> DataFrame:
        """`rows` projected. Spark fails with TOO_MANY_ROWS in its message if a partition has more than `at_most` rows."""
        plain = [f"{quoted(name)} AS c{place}" for place, name in enumerate(self.columns)]
        routes = [f"CAST(({route}) AS STRING) AS r{place}" for place, route in enumerate(self.routes)]
        return rows.selectExpr(*plain, f"{self._guarded_hash(at_most)} AS h", *routes)

    def _guarded_hash(self, at_most: int | None) -> str:
        if at_most is None:
            return self.hash_sql
        return f"if({_ROW_IN_PARTITION} < {at_most}, {self.hash_sql}, CAST(raise_error('{TOO_MANY_ROWS}') AS BIGINT))"


def _require_unique(names: Sequence[str]) -> None:
    if not names:
        raise Usage("The batch has no columns.", remedy="Select at least one column in the transform.")
    doubled = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if doubled is not None:
        raise Usage(
            f"The batch has two columns named {doubled!r}.",
            remedy="Rename one of them in the transform.",
        )
