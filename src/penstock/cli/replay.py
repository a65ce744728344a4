"""`penstock quarantine replay`: delivers records of the quarantine after all."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from penstock.cli.opening import File, Json, Overrides, SparkLog, Yes, debugging, pipeline, quiet_session
from penstock.cli.output import show, with_file
from penstock.core.dropped_rows import total
from penstock.errors import Usage
from penstock.support import formatting

if TYPE_CHECKING:
    from penstock.run.replay import Replay


def replay(
    *,
    context: typer.Context,
    file: File,
    batch: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Only records that this batch brought.", show_default=False)
    ] = None,
    rows: Annotated[
        list[str] | None,
        typer.Option(metavar="ID[,ID]…", help="Only these, by their ids in the list; may be repeated.", show_default=False),
    ] = None,
    reason: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Only those of this rule or sink, `undecodable` ones, or those whose error contains the text.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done, as without --yes.")] = False,
    yes: Yes = False,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Deliver records of the quarantine after all, by the pipeline as it is now, each exactly once.

    Starts Spark. Without --yes it only says what it would do. The records are a batch of their own, and are marked as replayed;
    what is refused again is put aside again. A call that was killed is finished by the same call, or by the next start. Stop the
    run first: it is fenced.
    """
    if yes and dry_run:
        raise Usage("--yes and --dry-run exclude each other.", remedy="Leave one of them out.")
    chosen = pipeline(file, overrides)
    ids = [each for given in rows or () for each in given.replace(",", " ").split()]
    from penstock.run.quarantined import require_quarantine
    from penstock.run.startable import require_pyspark

    require_quarantine(chosen.plan)  # this and the ids before a minute of starting Spark
    require_pyspark()
    if ids:
        from penstock.run.replay import Choice

        Choice(ids=tuple(ids)).of(chosen.quarantined())
    if debugging(context):
        found = chosen.replay(batch=batch, rows=ids, reason=reason, yes=yes)
    else:
        with SparkLog(chosen.settings.home):
            found = chosen.replay(quiet_session(chosen.session), batch=batch, rows=ids, reason=reason, yes=yes)
    show(found, as_json=as_json, text=_text)


def _text(found: "Replay") -> RenderableType:
    recovered = [Text("What an earlier call decided was published now.", "green")] if found.recovered else []
    outstanding = (
        [Text("What an earlier call decided is not in every sink yet: --yes publishes it.")] if found.outstanding else []
    )
    if not found.records:
        waits = formatting.counted(found.waiting, "record waits", "records wait")
        return Group(
            *recovered, *outstanding, Text(with_file(f"No record is to be replayed; {waits} in the quarantine.{_shown(found)}"))
        )
    records = formatting.counted(found.records, "record")
    if found.done:
        return Group(*recovered, *map(Text, _done(found, records)))
    places = [*(f"{number:,} of source {name}" for name, number in found.sources.items())]
    places += [f"{number:,} for sink {name} alone" for name, number in found.sinks.items()]
    head = Text(f"{records} of {found.waiting:,} in the quarantine would be replayed: {', '.join(places)}.")
    asked = Text("Nothing was changed. Do it with --yes.", "yellow")
    return Group(*outstanding, head, *(Text(each, "yellow") for each in found.warnings), asked)


def _shown(found: "Replay") -> str:
    """Return what to do if records wait and none of them was chosen."""
    return " `penstock quarantine list` shows their batches, ids, rules and errors." if found.waiting else ""


def _done(found: "Replay", records: str) -> list[str]:
    rows = formatting.counted(found.rows_out, "row")
    lines = [f"Replayed {records} of the quarantine: {rows}."]
    lines += [f"{sink}: {formatting.counted(totals.rows, 'row')}" for sink, totals in found.totals.items()]
    if found.dropped:
        lines.append(f"Rules dropped {formatting.counted(total(found.dropped), 'row')}.")
    if found.refused:
        lines.append(with_file(f"Put aside again: {found.refused:,}; `penstock quarantine list` says why."))
    lines.append(f"{formatting.counted(found.waiting, 'record waits', 'records wait')} in the quarantine.")
    return lines
