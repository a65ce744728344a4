"""`penstock state`: shows what a query keeps from batch to batch, how it grows, and the state of a key."""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from penstock.cli.check import working
from penstock.cli.opening import File, Json, Overrides, pipeline, quiet_session
from penstock.cli.output import json_line, show
from penstock.cli.table import facts, table
from penstock.errors import Usage
from penstock.support import formatting

if TYPE_CHECKING:
    from penstock.checkpoint.state_layout import OperatorLayout
    from penstock.observe.state_size import Forecast, Growth, OperatorSize
    from penstock.run.pipeline import Pipeline
    from penstock.run.state import OperatorState, StateReport
    from penstock.run.state_rows import StateExport, StateRows

_SKEWED = 2.0
"""A partition with so many times the mean is worth a look."""
_ROWS = 100

Memory = Annotated[
    str | None, typer.Option("--memory", metavar="SIZE", help="Say when the state reaches this size in memory, such as 4GB.")
]
Disk = Annotated[
    str | None, typer.Option("--disk", metavar="SIZE", help="Say when the state reaches this size in the checkpoint.")
]
Key = Annotated[
    list[str] | None,
    typer.Option(
        "--key",
        metavar="COLUMN=VALUE",
        help="Show the state of this key; once for each column. Starts Spark.",
        show_default=False,
    ),
]
Export = Annotated[
    str | None,
    typer.Option("--export", metavar="DIR", help="Write the state as Parquet into a new directory. Starts Spark."),
]
Operator = Annotated[
    int | None,
    typer.Option("--operator", min=0, metavar="N", help="With --key or --export: the operator, where the query has several."),
]
Side = Annotated[
    Literal["left", "right"] | None,
    typer.Option("--side", help="With --key or --export: the side of a stream-stream join.", show_default=False),
]
Store = Annotated[
    str | None, typer.Option("--store", metavar="NAME", help="With --key or --export: the store, where the operator has several.")
]
Variable = Annotated[
    str | None, typer.Option("--variable", metavar="NAME", help="With --key or --export: the variable of transformWithState.")
]
Batch = Annotated[
    int | None,
    typer.Option("--batch", min=0, metavar="N", help="With --key or --export: the state after this batch, not the newest."),
]


def state(
    *,
    context: typer.Context,
    file: File,
    memory: Memory = None,
    disk: Disk = None,
    key: Key = None,
    export: Export = None,
    operator: Operator = None,
    side: Side = None,
    store: Store = None,
    variable: Variable = None,
    batch: Batch = None,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """What the query keeps from batch to batch: operators, keys, rows, bytes, growth, when a limit is reached, skew.

    Works beside a running driver, without Java; only --key and --export start Spark.
    """
    chosen = pipeline(file, overrides)
    wanted = _key(key or ())
    part = {"--operator": operator, "--side": side, "--store": store, "--variable": variable, "--batch": batch}
    if not wanted and export is None:
        given = [name for name, value in part.items() if value is not None]
        if given:
            raise Usage(f"{given[0]} goes with --key or --export.", remedy="Add --key COLUMN=VALUE, or leave it out.")
        show(_measured(chosen, memory, disk), as_json=as_json, text=text_of)
        return
    if wanted and export is not None:
        raise Usage("--key and --export do not go together.", remedy="Run the command once for each.")
    from penstock.run.startable import require_pyspark

    require_pyspark()
    with working(chosen, context):
        from penstock.run.state_rows import StateChoice, require_choice

        choice = StateChoice(operator_id=operator, side=side, store=store, variable=variable, batch_id=batch)
        require_choice(chosen.plan, choice=choice, directory=export)
        spark = quiet_session(chosen.session)
        done = (
            chosen.find_state(wanted, spark, choice=choice)
            if export is None
            else chosen.export_state(export, spark, choice=choice)
        )
    show(done, as_json=as_json, text=_done)


def _measured(chosen: "Pipeline", memory: str | None, disk: str | None) -> "StateReport":
    try:
        return chosen.state(memory=memory, disk=disk)
    except Usage as mistake:
        raise Usage(mistake.message.replace("StateLimits: ", "--"), remedy=mistake.remedy) from None


def _done(done: "StateRows | StateExport") -> RenderableType:
    from penstock.run.state_rows import StateRows

    return _found(done) if isinstance(done, StateRows) else _exported(done)


def _key(given: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    if not all(name and equals for name, equals, _ in pairs):
        raise Usage("`--key` should be COLUMN=VALUE, found a text without COLUMN or =.", remedy="Write --key id=17.")
    return {name: value for name, _, value in pairs}


def text_of(found: "StateReport", *, now_ms: int | None = None) -> RenderableType:
    """Render the state of a query for people: the forecasts first, then every operator."""
    from penstock.observe.state_size import describe_forecast

    now_ms = int(time.time() * 1000) if now_ms is None else now_ms
    if not found.operators:
        return Text.assemble(
            (found.pipeline, "bold"),
            "  no state\n",
            f"{found.checkpoint} holds none: the query has no stateful operator, or no batch has run yet.",
        )
    head = Text.assemble((found.pipeline, "bold"), f"  {formatting.size(found.size_bytes)} of state in {found.checkpoint}")
    parts: list[RenderableType] = [head, Text(_as_of(found, now_ms=now_ms))]
    parts += [Text(describe_forecast(each), _style(each)) for each in found.forecasts]
    for operator in found.operators:
        parts += [Text(), Text(_title(operator.on_disk), "bold"), facts(_facts(operator)), *_stores(operator.on_disk)]
    return Group(*parts)


def _as_of(found: "StateReport", *, now_ms: int) -> str:
    if found.batch_id is None or found.at_ms is None:
        return "How many rows that are is not known: no driver noted it in the home of the pipeline."
    return f"Rows and memory are those after batch {found.batch_id}, {formatting.ago(found.at_ms, now_ms=now_ms)}."


def _style(forecast: "Forecast") -> str:
    return "bold red" if forecast.is_reached else "yellow" if forecast.is_near else ""


def _title(operator: "OperatorLayout") -> str:
    return f"operator {operator.operator_id}: {operator.name or 'unknown'}"


_KEEPS = {
    True: "until the watermark passes it",
    False: "for ever: no watermark removes anything",
    None: "as long as its condition or your code says",
}


def _facts(operator: "OperatorState") -> "list[tuple[str, object]]":
    layout, size = operator.on_disk, operator.measured
    partitions = layout.partitions or len(layout.partition_bytes)
    return [
        ("keeps", _KEEPS[layout.bounded]),
        ("rows", None if size is None else _grown(formatting.count(size.rows), _growth(size, "rows"))),
        ("memory", None if size is None else _grown(formatting.size(size.memory_bytes), _growth(size, "memory"))),
        ("checkpoint", f"{formatting.size(layout.size_bytes)} in {formatting.counted(partitions, 'partition')}"),
        (
            "tables",
            None if size is None or size.disk_bytes is None else _grown(formatting.size(size.disk_bytes), _growth(size, "disk")),
        ),
        ("provider", layout.provider),
        ("versions", _versions(layout)),
        ("largest", _skew(layout)),
    ]


def _grown(now: str, growth: str | None) -> str:
    return now if growth is None else f"{now}, {growth}"


def _growth(size: "OperatorSize", of: str) -> str | None:
    """Return how fast something grows, None if that was not measured for long enough: seconds say nothing of a day."""
    from penstock.observe.state_size import MEASURED_MS

    if size.growth is None or size.growth.measured_ms < MEASURED_MS:
        return None
    per_day, measured = _per_day(size.growth, of), formatting.roughly(size.growth.measured_ms)
    return None if per_day is None else f"{per_day} a day, measured over {measured}"


def _per_day(growth: "Growth", of: str) -> str | None:
    if of == "rows":
        return f"{growth.rows_per_day:+,}"
    number = growth.memory_bytes_per_day if of == "memory" else growth.disk_bytes_per_day
    return None if number is None else f"{'-' if number < 0 else '+'}{formatting.size(abs(number))}"


def _versions(layout: "OperatorLayout") -> str | None:
    if layout.oldest_version is None or layout.newest_version is None:
        return None
    return f"{layout.oldest_version} to {layout.newest_version}, the newest of batch {layout.newest_version - 1}"


def _skew(layout: "OperatorLayout") -> Text | None:
    if layout.skew is None:
        return None
    share = formatting.size(layout.partition_bytes[layout.largest_partition or 0])
    text = f"partition {layout.largest_partition} has {share}, {layout.skew:.1f} times the mean"
    return Text(text, "yellow" if layout.skew >= _SKEWED else "")


def _stores(layout: "OperatorLayout") -> "Iterator[RenderableType]":
    rows = list[tuple[object, ...]]()
    for store in layout.stores:
        rows += [(f"{store.name} {each.name}", each.schema.key, each.schema.value) for each in store.variables]
        if not store.variables:
            rows.append((store.name, *(() if store.schema is None else (store.schema.key, store.schema.value))))
    yield table(("store", "keys", "values"), rows)


def _found(found: "StateRows") -> RenderableType:
    if not found.rows:
        return Text(f"Operator {found.operator_id} holds nothing for this key.")
    more = [Text(f"There is more: only {len(found.rows)} rows are shown.", "dim")] if found.more else []
    return Group(*(Text(json_line(row)) for row in found.rows), *more)


def _exported(done: "StateExport") -> Text:
    rows = formatting.counted(done.rows, "row")
    return Text(f"Wrote {rows} of operator {done.operator_id} into {done.directory}.")
