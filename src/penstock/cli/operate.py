"""`penstock recover`, `adopt`, `rewind` and `sweep`: acts of the operator."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from penstock.cli.checkpoint import Options, place_of
from penstock.cli.opening import File, Json, Overrides, Yes, pipeline
from penstock.cli.output import show
from penstock.cli.table import table
from penstock.errors import Refused, Usage
from penstock.support import formatting

if TYPE_CHECKING:
    from penstock.commit.outcome import Recovered
    from penstock.run.continuation import Adoption
    from penstock.run.rewind import Rewind, SinkRewind
    from penstock.run.taking_over import TakeOver


def recover(*, file: File, overrides: Overrides = None, as_json: Json = False) -> None:
    """Publish a decided batch that is not everywhere yet, and collect what dead attempts left. Spark is not started.

    A driver that still runs is fenced: it stops with exit code 4.
    """
    show(pipeline(file, overrides).recover(), as_json=as_json, text=_recovery_text, fields=_recovery)


def _recovery(found: "Recovered") -> dict[str, object]:
    return {
        "generation": found.generation,
        "batch_id": None if found.batch is None else found.batch.batch_id,
        "sinks": found.sinks,
        "swept": found.swept,
        "warnings": found.warnings,
    }


def _recovery_text(done: "Recovered") -> RenderableType:
    warnings = [Text(f"warning: {warning}", "yellow") for warning in done.warnings]
    swept = [Text(f"Swept {formatting.counted(len(done.swept), 'piece')} of dead staging.")] if done.swept else []
    if done.batch is None:
        return Group(*warnings, Text("Nothing was decided yet, so there is nothing to recover."), *swept)
    rows = [
        (name, "was there already" if published.already else "published now", formatting.count(published.totals.rows))
        for name, published in done.sinks.items()
    ]
    head = Text(f"Batch {done.batch.batch_id} is published everywhere (generation {done.generation}).")
    return Group(*warnings, head, table(("sink", "", "rows"), rows), *swept)


def adopt(
    *,
    file: File,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; kept in the ledger. Needed with --yes.")] = "",
    yes: Yes = False,
    txn_app_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="The txnAppId with which a foreachBatch of another program wrote this checkpoint's batches into Delta tables.",
            show_default=False,
        ),
    ] = None,
    origin: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PATH",
            help="The checkpoint of a query that exists, to go on with a copy of it.",
            show_default=False,
        ),
    ] = None,
    option: Options = None,
    trust: Annotated[
        list[str] | None,
        typer.Option(
            "--trust",
            metavar="SINK",
            help="With --from: a sink of which you know that it has no row of the batch that comes next; may be repeated.",
            show_default=False,
        ),
    ] = None,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Accept the present checkpoint as the one that continues the pipeline, although the ledger expects another position.

    Says first what that means: which records can be lost or delivered again. Nothing is done without --yes. With --from, the
    pipeline goes on where another query stopped; of each sink it says what is known of its content, and what is not.
    """
    if yes and not reason.strip():
        raise Usage("--yes without --reason.", remedy="Say why with --reason; the ledger keeps it.")
    if origin is not None:
        place, options = place_of(origin, option)
        found = pipeline(file, overrides).take_over(
            place, options=options, reason=reason, yes=yes, txn_app_id=txn_app_id, trust=trust or ()
        )
        show(found, as_json=as_json, text=_take_over_text, fields=_take_over)
        if found.refused:
            raise typer.Exit(Refused.exit_code)
        return
    if trust or option:
        raise Usage("--trust and --option go with --from.", remedy="Name the checkpoint of the query with --from PATH.")
    show(pipeline(file, overrides).adopt(reason=reason, yes=yes, txn_app_id=txn_app_id), as_json=as_json, text=_adoption_text)


def _adoption_text(adoption: "Adoption") -> RenderableType:
    text = Text("\n").join(Text(line) for line in adoption.consequences)
    if adoption.done:
        return Text.assemble(text, "\n", (f"Adopted: the pipeline goes on with batch {adoption.next_batch_id}.", "green"))
    if adoption.needed:
        return Text.assemble(text, "\n", ("Nothing was changed. Do it with --yes --reason TEXT.", "yellow"))
    return text


def _take_over(found: "TakeOver") -> dict[str, object]:
    sinks = [
        {
            "sink": each.sink,
            "known": each.known,
            "trusted": each.trusted,
            "refused": each.refused,
            "remedy": each.remedy,
            "files": {
                name: {"files": len(files.adopted.sizes), "size_bytes": files.size_bytes, "left_out": files.others}
                for name, files in each.files.items()
            },
        }
        for each in found.sinks
    ]
    return {
        "origin": found.origin,
        "checkpoint": found.checkpoint,
        "query_id": found.query_id,
        "next_batch_id": found.next_batch_id,
        "replayed": found.replayed,
        "needed": found.needed,
        "done": found.done,
        "sinks": sinks,
    }


def _take_over_text(found: "TakeOver") -> RenderableType:
    upcoming = found.next_batch_id
    lines = [Text(f"Query {found.query_id} goes on with batch {upcoming}: batches before it are not read again.")]
    if found.replayed is not None:
        lines.append(Text(f"It planned batch {upcoming} and did not commit it: all of that batch is delivered here."))
    for each in found.sinks:
        lines.append(Text.assemble((f"\n{each.sink}", "bold"), f"\n  known: {each.known}"))
        if each.trusted:
            lines.append(Text(f"  to be trusted: {each.trusted}"))
        if each.refused:
            lines += [Text(f"  refused: {each.refused}", "bold red"), Text(f"  {each.remedy}")]
    place = f"Its checkpoint {found.origin} is only read; the copy is {found.checkpoint}."
    lines.append(Text(f"\n{place if found.origin != found.checkpoint else f'Its checkpoint {found.origin} is gone on with.'}"))
    if found.done:
        lines.append(Text(f"Taken over: the pipeline goes on with batch {upcoming}. Never start the old query again.", "green"))
    elif not found.refused:
        lines.append(Text("Nothing was changed. Stop the query for good, then do it with --yes --reason TEXT.", "yellow"))
    return Group(*lines)


def rewind(
    *,
    file: File,
    to_batch: Annotated[
        int, typer.Option("--to-batch", min=0, metavar="N", help="The batch that stays the last one.", show_default=False)
    ],
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", metavar="SINK", help="A sink that keeps the later batches; may be repeated.", show_default=False),
    ] = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; kept in the ledger.")] = "",
    yes: Yes = False,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Take every batch after N back, from sinks, ledger and checkpoint together, so that Spark does them again.

    Nothing is done without --yes. Killed at any moment, the same command finishes it.
    """
    show_rewind(pipeline(file, overrides).rewind(to_batch, keep=keep or (), reason=reason, yes=yes), as_json=as_json)


def show_rewind(done: "Rewind", *, as_json: bool) -> None:
    """Print what a rewind means, or did; exit with code 3 if it cannot be done."""
    show(done, as_json=as_json, text=_rewind_text)
    if done.refused and not done.done:
        raise typer.Exit(Refused.exit_code)


def _rewind_text(found: "Rewind") -> RenderableType:
    if not found.needed:
        return f"Batch {found.to_batch} is the last one already: there is nothing to take back."
    rows = [(each.sink, _what(each), *map(formatting.count, (each.totals.rows, each.totals.files))) for each in found.sinks]
    reasons = [Text(f"{each.sink}: {each.refused}", "bold red") for each in found.sinks if each.refused is not None]
    lost = [Text(f"Gone: {each}.", "bold red") for each in found.lost]
    unknown = [Text(each, "yellow") for each in found.unknown]
    listed = table(("sink", "", "rows", "files"), rows)
    return Group(Text(_rewound_batches(found)), listed, *reasons, Text(found.checkpoint), *lost, *unknown, _rewind_end(found))


def _rewound_batches(found: "Rewind") -> str:
    first, last = found.to_batch + 1, found.newest
    if last < first:
        return f"Only the checkpoint {'was' if found.done else 'would be'} set back."
    batches = f"Batch {last}" if first == last else f"Batches {first} to {last}"
    verb = ("was" if first == last else "were") if found.done else "would be"
    return f"{batches} {verb} taken back."


def _rewind_end(found: "Rewind") -> Text:
    if found.done:
        return Text(f"Rewound: the pipeline goes on with batch {found.to_batch + 1}.", "green")
    if found.refused:
        return Text("Nothing was changed. With --yes it would be refused, for the reasons above.", "yellow")
    return Text(f"{'It was begun, and is not finished' if found.resumed else 'Nothing was changed'}. Do it with --yes.", "yellow")


def _what(each: "SinkRewind") -> Text:
    if each.kept:
        return Text("keeps")
    return Text("loses") if each.refused is None else Text("cannot", "bold red")


def sweep(*, file: File, yes: Yes = False, overrides: Overrides = None, as_json: Json = False) -> None:
    """Collect what attempts left that can never become part of a batch. Harmless beside a running pipeline."""
    collected = pipeline(file, overrides).sweep(yes=yes)
    show({"done": yes, "collected": collected}, as_json=as_json, text=lambda _: _swept_text(collected, done=yes))


def _swept_text(collected: Sequence[str], *, done: bool) -> str:
    if not collected:
        return "There is nothing to sweep."
    listed = "\n".join(f"  {name}" for name in collected)
    if done:
        return f"Collected:\n{listed}"
    return f"Would collect:\n{listed}\nNothing was changed. Do it with --yes."
