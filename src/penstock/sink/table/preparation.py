"""Preparation of a table's marker: it is created or checked, before anything is published into the table."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pyarrow as pa

from penstock.core.model import PipelineName, SinkName, Totals
from penstock.errors import Refused, Usage
from penstock.sink.table.columns import as_code
from penstock.sink.table.history import HISTORY, history_changed
from penstock.sink.table.marker import MarkerStore, TableMarker
from penstock.sink.table.publication import other_table, require_unchanged, unreadable_refused
from penstock.sink.table.target import MERGE, NotStoredError, Target, require_continued, widened
from penstock.spark.column_name import quoted
from penstock.spark.schema import arrow_schema

_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")


def ledger_id_missing(statement: str, reason: str) -> Refused:
    """Return the error for an older Penstock's marker table, to which the driver's role may not add the column `ledger_id`."""
    return Refused(
        f"The table of markers lacks the column ledger_id, which says whose batches a table shows, and the role cannot add it: "
        f"{reason}.",
        remedy=f"Have the owner of that table run `{statement}`, and start again.",
    )


@contextmanager
def settings_of(sink: SinkName) -> Iterator[None]:
    """Re-raise a Usage from the body with the name of the sink whose settings are wrong."""
    try:
        yield
    except Usage as wrong:
        raise Usage(f"Sink {sink!r}: {wrong.message}", remedy=wrong.remedy) from wrong


def require_not_lost(marker: TableMarker | None, target: Target, *, exists: bool) -> None:
    """Raise Refused if a table with published rows is gone: an empty new one would hide the loss."""
    if exists or marker is None or not target.is_table(marker.table_name):
        return
    rows = marker.before.rows + marker.after.rows
    if rows:
        raise Refused(
            f"Table {target.table!r} is gone, and {rows} rows with it that were published.",
            remedy="Rename it back or restore it from a backup; or give the sink another name and another table, "
            "to fill that one from here on.",
        )


def prepare_marker(
    markers: MarkerStore, *, pipeline: PipelineName, sink: SinkName, schema: str, target: Target, content: Callable[[str], Totals]
) -> None:
    """Create the marker, or check that the existing one continues. Raise Refused.

    `content` counts what the table holds in the columns of a schema, or raises NotStoredError.
    """
    found = marker = markers.read(pipeline, sink)
    is_in_sequence = target.chooses_rows
    require_continuing(marker, markers, pipeline=pipeline, sink=sink, schema=schema, target=target, content=content)
    if marker is None:
        require_never_marked(markers, pipeline, sink, target.table)
        before = Totals() if target.write in {"replace", MERGE} else _before(partial(content, schema), target)
        markers.write(
            TableMarker(
                pipeline=pipeline,
                sink=sink,
                table_name=target.table,
                write=target.write,
                schema=schema,
                before=before,
                is_in_sequence=is_in_sequence,
            )
        )
        return
    if _widens(marker, schema, target):
        marker = replace(marker, is_widening=True)
    now = replace(marker, schema=marker.schema or schema, is_in_sequence=marker.is_in_sequence or is_in_sequence)
    if now != found:
        markers.write(now)


def require_continuing(
    marker: TableMarker | None,
    markers: MarkerStore,
    *,
    pipeline: PipelineName,
    sink: SinkName,
    schema: str,
    target: Target,
    content: Callable[[str], Totals],
) -> None:
    """Raise Refused for a table of another sink, and for rows with which `marker` and the published rows cannot go on.

    Changes nothing: `penstock check` calls this, too. `content`: see `prepare_marker`; it is called only if columns were left out
    or have wider types.
    """
    if marker is None:
        _require_unowned(markers, pipeline, sink, target.table)
        return
    if not target.is_table(marker.table_name):
        raise other_table(marker, target.table)
    _require_merged_always(marker, target)
    _require_history_always(marker, target)
    require_same_types(marker, arrow_schema(schema), target)
    if marker.schema is None or target.write in {"replace", MERGE}:
        return
    names = set(arrow_schema(schema).names)
    wider = _widens(marker, schema, target)
    left_out = [name for name in arrow_schema(marker.schema).names if name not in names]
    _require_none_left_out(marker, left_out, None if wider else partial(content, schema))
    if wider:
        _require_unchanged(marker, partial(content, marker.schema))


def _widens(marker: TableMarker, schema: str, target: Target) -> bool:
    """Return whether columns of rows of `schema` have wider types than the published rows, whose digest depends on these."""
    if marker.schema is None or target.write in {"replace", MERGE}:
        return False
    old = arrow_schema(marker.schema)
    return widened(old, arrow_schema(schema)) is not old


def require_same_types(marker: TableMarker | None, rows: "pa.Schema", target: Target) -> None:
    """Raise Refused if the rows' columns have other types, or another order, than the published rows."""
    if marker is not None and marker.schema is not None and target.write not in {"replace", MERGE}:
        require_continued(arrow_schema(marker.schema), rows, target.table, widens=target.widens)


def _require_none_left_out(marker: TableMarker, left_out: Sequence[str], content: Callable[[], Totals] | None) -> None:
    """Raise Refused if the table no longer reads as what was published: the columns `left_out` were not merely renamed.

    Without `content`, types become wider, too, and no column may be left out.
    """
    if not left_out or marker.schema is None or (content is not None and _reads_as(marker.shown, content)):
        return
    kinds = {field["name"]: field["type"] for field in json.loads(marker.schema)["fields"]}
    raise Refused(
        f"The rows lack column {left_out[0]!r}, which earlier batches filled in table {marker.table_name!r}, so `verify` could "
        f"not check their rows any more (lacking: {', '.join(left_out)}).",
        remedy="Give a column that was renamed its old name, in the transform and in the table. For one that was left out, add "
        f"{as_nulls({name: kinds[name] for name in left_out})} to the transform's SELECT, in the place that it had.",
    )


def _require_unchanged(marker: TableMarker, content: Callable[[], Totals]) -> None:
    """Raise Refused if the table does not hold what was published: the first batch with wider types could not be published."""
    with unreadable_refused(marker):
        require_unchanged(marker, content(), then="Or cast the columns in the transform to what they were.")


def _reads_as(published: Totals, content: Callable[[], Totals]) -> bool:
    try:
        return content() == published
    except NotStoredError:
        return False


def as_nulls(kinds: Mapping[str, object]) -> str:
    """Return, as code for a message, the SELECT items that make these columns NULL. `kinds`: types in Spark's JSON, by name."""
    return ", ".join(as_code(f"CAST(NULL AS {_sql_type(kind)}) AS {_spark_name(name)}") for name, kind in kinds.items())


def _spark_name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else quoted(name)


def _sql_type(kind: object) -> str:
    """Return Spark's SQL name of a type from its JSON, an ellipsis for a nested one: its fields and elements are as before."""
    return kind.upper() if isinstance(kind, str) else "…"


def _require_merged_always(marker: TableMarker, target: Target) -> None:
    """Raise Refused if `write` changes from or to `merge`: nobody knows which rows the user's SQL made of earlier batches."""
    if (marker.write == MERGE) != (target.write == MERGE):
        raise Refused(
            f"Table {target.table!r} was filled with `write: {marker.write}` so far, expected {target.write!r}: from one to the "
            "other nobody could tell which rows are there.",
            remedy="Set `write` back, or give the sink another name and an empty table.",
        )


def _require_history_always(marker: TableMarker, target: Target) -> None:
    """Raise Refused if `history` is set or left out under way: the table's rows are counted with other columns."""
    if (marker.write == HISTORY) != target.keeps_history:
        raise history_changed(f"Table {target.table!r}", was_kept=marker.write == HISTORY)


def _require_unowned(markers: MarkerStore, pipeline: PipelineName, sink: SinkName, table: str) -> None:
    for owner in markers.owners(table):
        if owner != (pipeline, sink):
            raise _filled(table, *owner)


def require_unfilled(rows: Iterable[Sequence[str]], table: str, *, schema: str | None = None) -> None:
    """Raise Refused if a dbapi sink's marker names the table of a native sink, or the reverse: neither sees the other's markers.

    `rows`: those other markers, each as pipeline, sink, table name, and the schema of a name without one. `schema`: the schema of
    `table`, None for the one in each row. Case is ignored: a table that may be another sink's is taken for it.
    """
    name = _folded(table)[1]
    for pipeline, sink, named, default in rows:
        its_schema, its_name = _folded(named)
        if its_name == name and (its_schema or default.lower()) == (schema or default).lower():
            raise _filled(table, pipeline, sink)


def _folded(name: str) -> tuple[str, str]:
    schema, _, table = name.lower().replace('"', "").rpartition(".")
    return schema, table


def _filled(table: str, pipeline: str, sink: str) -> Refused:
    return Refused(
        f"Table {table!r} is filled by sink {sink!r} of pipeline {pipeline!r}, so `verify` could check it for neither sink.",
        remedy="Give every sink a table of its own and join them by a view.",
    )


def require_never_marked(markers: MarkerStore, pipeline: PipelineName, sink: SinkName, table: str) -> None:
    """Raise Refused for batches without a marker: with a new marker, the newest batch would be published once more."""
    position = markers.newest_batch(pipeline, sink)
    if position is not None:
        raise Refused(
            f"The marker of sink {sink!r} is gone from penstock_marker, but its batches up to position {position} are in "
            f"penstock_batch, and their rows in table {table!r}.",
            remedy="Restore penstock_marker from a backup; or give the sink another name and another table, "
            "to fill that one from here on.",
        )


def _before(content: Callable[[], Totals], target: Target) -> Totals:
    try:
        return content()
    except NotStoredError as cause:
        raise Refused(
            f"Table {target.table!r} holds rows that Penstock could not have stored, so `verify` could not count them: {cause}.",
            remedy="Correct them, or use another table.",
        ) from cause
