"""The column that tells batches apart, and how a table loses the rows of some."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.model import PipelineName, Position, SinkName, Totals
from penstock.core.taken_back import TakenBack
from penstock.errors import Refused, Usage
from penstock.sink.table.columns import CatalogTable
from penstock.sink.table.marker import MarkerStore, TableMarker, minus
from penstock.sink.table.publication import no_marker, require_same_ledger, totals_of
from penstock.sink.table.target import Target, widened
from penstock.spark.schema import arrow_schema


class BatchRows(Protocol):
    """The statements about rows by their batch: `column` is above `after` and below `before`."""

    def count_batches(self, column: str, *, after: int, before: int) -> str: ...

    def delete_batches(self, column: str, *, after: int, before: int) -> str: ...


class ForgetsBatches(MarkerStore, Protocol):
    """A marker store that can forget batches that were taken back."""

    def forget_between(self, pipeline: PipelineName, sink: SinkName, *, after: Position, before: Position) -> None:
        """Forget which batches were published between both positions."""
        ...


def with_batch_column(rows: "pa.Schema", target: Target) -> "pa.Schema":
    """Return the columns that rows have in the table. Raise Usage if they have one of that name themselves."""
    name = target.batch_column
    if name is None:
        return rows
    if name.lower() in {column.lower() for column in rows.names}:
        raise Usage(f"The rows have a column {name!r}, which `batch_column` names.", remedy="Give `batch_column` another name.")
    return rows.append(pa.field(name, pa.int64()))


def numbered(batches: Iterator["pa.RecordBatch"], position: Position, target: Target) -> Iterator["pa.RecordBatch"]:
    """Yield the rows with the position of their batch in the column that tells batches apart, if there is one."""
    if target.batch_column is None:
        yield from batches
        return
    field = pa.field(target.batch_column, pa.int64())
    for batch in batches:
        positions = pa.array([position] * batch.num_rows, pa.int64())
        yield pa.RecordBatch.from_arrays([*batch.columns, positions], schema=batch.schema.append(field))


def require_told_apart(taken: TakenBack, target: Target, table_schema: CatalogTable | None, count: Callable[[], int]) -> None:
    """Raise Refused unless the table holds as many rows of these batches as were decided, and says so of each row."""
    column = target.batch_column
    if target.keeps_history:
        raise Refused(
            f"Table {target.table!r} keeps history: later batches have closed versions of those that are to be taken back.",
            remedy=f"Keep the sink ahead with `--keep {taken.sink}`.",
        )
    if column is None:
        raise Refused(
            f"Rows of table {target.table!r} do not say of which batch they are: the sink has no `batch_column`.",
            remedy=f"Keep the sink ahead with `--keep {taken.sink}`.",
        )
    others = {str(piece.ref.get("write")) for publication in taken.publications for piece in publication.staged} - {"append"}
    if others:
        raise Refused(
            f"Batches were delivered into table {target.table!r} with `write: {min(others)}`, which replaced or skipped rows.",
            remedy=f"Keep the sink ahead with `--keep {taken.sink}`.",
        )
    has_column = table_schema is not None and table_schema.fold(column) in table_schema.by_name
    found = count() if has_column else 0
    if found != taken.totals.rows:
        raise Refused(
            f"Table {target.table!r} holds {found} rows of these batches by its column {column!r}, expected {taken.totals.rows}: "
            "some were delivered before there was that column, or somebody changed rows.",
            remedy=f"`penstock verify FILE` says what differs. Else keep the sink ahead with `--keep {taken.sink}`.",
        )


class BatchRowsThere(Protocol):
    """The rows of the batches that a table loses, in an open transaction."""

    def count(self) -> int: ...

    def totals(self, rows: "pa.Schema") -> Totals:
        """Return the totals of these rows, hashed as `rows` says."""
        ...

    def delete(self) -> None: ...


def lose_batches(markers: ForgetsBatches, taken: TakenBack, there: BatchRowsThere, target: Target) -> None:
    """Delete the rows of these batches and count them out of the marker, unless that was done. The caller commits.

    Its position stays. What tells that it was done is that the newest of these batches is remembered no more. Raises Refused for
    a table without as many rows of these batches as were decided, as where the file names another column since.
    """
    publication = next(each for each in taken.publications if each.staged)
    marker = markers.read(taken.pipeline, taken.sink)
    if marker is None:
        raise no_marker(publication)
    require_same_ledger(marker, publication)
    if markers.batch_at(publication) is None:
        return
    lost = Totals(rows=taken.totals.rows, digest=taken.totals.digest)
    found = 0 if target.batch_column is None else there.count()
    if found != lost.rows:
        raise Refused(
            f"Table {target.table!r} has to lose the rows of these batches, and by its `batch_column` ({target.batch_column}) it "
            f"holds {found} rows of them, expected {lost.rows}.",
            remedy="Give the sink the `batch_column` that it had, put changed rows right, and run the command again.",
        )
    # a marker counts what is there by its own types, which can be wider than those that a batch was decided with
    shown = there.totals(arrow_schema(str(marker.schema))) if _are_wider(marker, taken) else lost
    there.delete()
    markers.write(replace(marker, decided=minus(marker.decided, lost), after=minus(marker.after, shown)))
    markers.forget_between(taken.pipeline, taken.sink, after=taken.after, before=taken.position)


def _are_wider(marker: TableMarker, taken: TakenBack) -> bool:
    """Return whether the types of the marker are wider than those of one of the batches."""
    if marker.schema is None:
        return False
    own = arrow_schema(marker.schema)
    schemas = {publication.schema for publication in taken.publications if publication.staged}
    return any(widened(old, own) is not old for old in map(arrow_schema, schemas))


def totals_between(batches: Iterator["pa.RecordBatch"], taken: TakenBack, target: Target) -> Totals:
    """Return the totals of those rows that are of these batches by their column, which is the last one."""
    own = (batch.filter(_is_between(batch.column(batch.num_columns - 1), taken)) for batch in batches)
    return totals_of((batch.select(batch.schema.names[:-1]) for batch in own), target.row_digest)


def _is_between(positions: "pa.Array", taken: TakenBack) -> "pa.Array":
    return pc.and_(pc.greater(positions, int(taken.after)), pc.less(positions, int(taken.position)))


def has_rows(taken: TakenBack) -> bool:
    """Return whether any of these batches wrote into the table."""
    return any(publication.staged for publication in taken.publications)
