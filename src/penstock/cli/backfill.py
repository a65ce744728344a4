"""`penstock backfill`: gives a sink that was added later the batches before it."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from penstock.cli.opening import File, Json, Overrides, SparkLog, debugging, pipeline, quiet_session
from penstock.cli.output import console, show
from penstock.core.model import SinkName
from penstock.support import formatting

if TYPE_CHECKING:
    from penstock.run.backfill import Backfill, BackfilledBatch


def backfill(
    *,
    context: typer.Context,
    file: File,
    sink: Annotated[str, typer.Option(metavar="NAME", help="The sink that gets the batches.", show_default=False)],
    from_batch: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="The first batch to give. Without it: all.", show_default=False)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Give a sink that was added later the batches before it, each exactly once, and let it join the run.

    The sources are read once more, and the transform computes the rows again, for this sink alone. If a batch cannot be read
    again, nothing is done (exit code 3). A call that was killed is finished by the next one. A run goes on without the sink
    meanwhile. It is fenced (exit code 4) only if it delivers to the sink already, or the sink may put rows aside.
    """
    chosen = pipeline(file, overrides)
    from penstock.run.startable import require_fillable

    require_fillable(chosen.settings, SinkName(sink))  # before a minute of starting Spark
    log = SparkLog(chosen.settings.home, name="backfill")  # beside that of a driver
    shown = None if as_json else _Shown()
    if debugging(context):
        found = chosen.backfill(sink, from_batch=from_batch, dry_run=dry_run, on_batch=shown or _Silent())
    else:
        with log:
            spark = quiet_session(chosen.session)
            found = chosen.backfill(sink, spark, from_batch=from_batch, dry_run=dry_run, on_batch=shown or _Silent())
    show(found, as_json=as_json, text=_text)


class _Silent:
    def __call__(self, batch: "BackfilledBatch") -> None:
        """Print nothing."""


class _Shown:
    def __call__(self, batch: "BackfilledBatch") -> None:
        """Print a line for a batch that the sink was given."""
        console().print(f"batch {batch.batch_id}: {formatting.counted(batch.rows, 'row')}", markup=False)


def _text(found: "Backfill") -> RenderableType:
    batches = formatting.counted(found.batches, "batch", "batches")
    first, last = found.first_batch_id, found.last_batch_id
    span = "" if not found.batches else f" (batch {first})" if first == last else f" ({first} to {last})"
    joins = f"It takes part in the pipeline from batch {found.joins_at} on."
    if found.done and found.generation is not None and not found.fences and not found.joined:
        joins = "It takes part from the next start on. If batches were delivered by then, call this once more beside that run."
    if not found.batches and not found.recovered:
        return Text(f"Sink {found.sink} lacks no batch. {joins}")
    if found.done:
        rows = formatting.counted(found.totals.rows, "row")
        return Text(f"Sink {found.sink} was given {batches}{span}, {rows}. {joins}", "green")
    rows = formatting.counted(found.rows, "row")
    given = [] if not found.given else [Text(f"An earlier call gave it {found.given:,} already.")]
    head = Text(f"Sink {found.sink} lacks {batches}{span}, of which the pipeline delivered {rows}. {joins}")
    way = "A run that goes on is fenced." if found.fences else "A run may go on meanwhile, without this sink."
    return Group(head, *given, Text(f"{way} Nothing was changed. Do it without --dry-run.", "yellow"))
