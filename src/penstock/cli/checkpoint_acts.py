"""`penstock checkpoint rewind`, `gc` and `repair`: change a Spark checkpoint, without Java. All can be undone."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from penstock.cli.check import working
from penstock.cli.checkpoint import CheckpointPath, Options, is_pipeline_file, place_of
from penstock.cli.opening import File, Json, Overrides, Yes, pipeline, quiet_session
from penstock.cli.output import show
from penstock.cli.savepoint import Options as PlaceOptions
from penstock.cli.savepoint import To, options_of_place
from penstock.cli.table import table
from penstock.core.model import BatchId
from penstock.errors import Usage
from penstock.support import formatting

if TYPE_CHECKING:
    from penstock.checkpoint.act import Act, Step
    from penstock.checkpoint.acting import Performed, Undone
    from penstock.checkpoint.files import Files
    from penstock.core import model

Undo = Annotated[bool, typer.Option("--undo", help="Undo the newest act: every file is again what it was.")]
_UNSEEN = (
    "No pipeline file was named, so nothing tells whether a query runs on this checkpoint, or what its sinks have. "
    "Make sure that none runs."
)


def rewind(
    *,
    path: CheckpointPath,
    to_batch: Annotated[
        int | None, typer.Option("--to-batch", metavar="N", min=0, help="The newest batch that stays.", show_default=False)
    ] = None,
    yes: Yes = False,
    undo: Undo = False,
    option: Options = None,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Take both logs, the logs of sources and the state back to the end of batch N. Spark then plans batch N + 1 anew.

    With a pipeline file, refused where the ledger has decided later batches, except the newest: that one runs again as decided.
    """
    if (to_batch is None) is not undo:
        raise Usage("`checkpoint rewind` takes one of --to-batch N and --undo.", remedy="Name the newest batch that is to stay.")
    if to_batch is None:
        _undo(path, option, overrides, verb="rewind", yes=yes, as_json=as_json)
        return
    number = BatchId(to_batch)
    if is_pipeline_file(path, overrides):
        from penstock.run.checkpoint_acts import rewind_checkpoint

        _show(rewind_checkpoint(pipeline(path, overrides).plan, to_batch=number, yes=yes), as_json=as_json)
    else:
        from penstock.checkpoint.rewind_plan import plan_rewind

        plan = partial(plan_rewind, to_batch=number)
        _show(_perform(path, option, verb="rewind", request={"to_batch": number}, plan=plan, yes=yes), as_json=as_json)


def rebuild(
    *,
    context: typer.Context,
    file: File,
    to: To = None,
    option: PlaceOptions = None,
    yes: Yes = False,
    undo: Undo = False,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Make a lost checkpoint again from the ledger. The query goes on at the next batch, nothing lost and nothing twice.

    That of a query with state begins with its newest savepoint; Spark computes the batches behind it once more. Of a source of
    files, the ledger must list every file that was read. Without state, Spark is started only to read the plan of a transform.
    """
    if undo:
        _undo(file, None, overrides, verb="rebuild", yes=yes, as_json=as_json)
        return
    from penstock.run.rebuilding import rebuild_checkpoint

    chosen, options = pipeline(file, overrides), options_of_place(option)
    with working(chosen, context) if chosen.settings.transform is not None else nullcontext():
        performed = rebuild_checkpoint(chosen, session=lambda: quiet_session(chosen.session), to=to, options=options, yes=yes)
    _show(performed, as_json=as_json)


def migrate(*, file: File, yes: Yes = False, undo: Undo = False, overrides: Overrides = None, as_json: Json = False) -> None:
    """Have Spark know the sources by their names, where the checkpoint has them by their place; for `named_sources: true`.

    Afterwards sources can be reordered, added and taken out. Needs Spark 4.3, which does not change a checkpoint by itself.
    """
    if undo:
        _undo(file, None, overrides, verb="migrate", yes=yes, as_json=as_json)
        return
    from penstock.run.migrating import migrate_checkpoint

    chosen = pipeline(file, overrides)
    _show(migrate_checkpoint(chosen.settings, chosen.plan, yes=yes), as_json=as_json)


def gc(
    *,
    path: CheckpointPath,
    keep_batches: Annotated[
        int | None,
        typer.Option("--keep-batches", metavar="N", min=2, help="Newest batches that can be gone back to.", show_default="100"),
    ] = None,
    yes: Yes = False,
    undo: Undo = False,
    option: Options = None,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Remove what no restart needs, nor a rewind to one of the newest N batches: old entries and state, temporary files, backups.

    Without --keep-batches, N is the pipeline's spark.sql.streaming.minBatchesToRetain, or else 100, as Spark has it.
    """
    if undo:
        _undo(path, option, overrides, verb="gc", yes=yes, as_json=as_json)
    elif is_pipeline_file(path, overrides):
        from penstock.run.checkpoint_acts import collect_checkpoint

        _show(collect_checkpoint(pipeline(path, overrides).plan, keep_batches=keep_batches, yes=yes), as_json=as_json)
    else:
        from penstock.checkpoint.gc_plan import SPARK_RETAINS, plan_gc

        number = keep_batches or SPARK_RETAINS
        plan = partial(plan_gc, keep_batches=number)
        _show(_perform(path, option, verb="gc", request={"keep_batches": number}, plan=plan, yes=yes), as_json=as_json)


def repair(
    *,
    path: CheckpointPath,
    query_id: Annotated[
        str | None,
        typer.Option("--query-id", metavar="UUID", help="The query's id, for a metadata file that is lost.", show_default=False),
    ] = None,
    yes: Yes = False,
    undo: Undo = False,
    option: Options = None,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Repair what is torn, missing or left behind, if that can neither lose nor repeat rows. Everything else is refused.

    A pipeline file helps: its ledger knows the query's id, and which batches were decided with which offsets.
    """
    if undo:
        _undo(path, option, overrides, verb="repair", yes=yes, as_json=as_json)
    elif is_pipeline_file(path, overrides):
        from penstock.run.checkpoint_acts import repair_checkpoint

        _show(repair_checkpoint(pipeline(path, overrides).plan, query_id=query_id, yes=yes), as_json=as_json)
    else:
        from penstock.checkpoint.repair_plan import plan_repair

        plan = partial(plan_repair, query_id=query_id)
        _show(_perform(path, option, verb="repair", request={"query_id": query_id}, plan=plan, yes=yes), as_json=as_json)


def _perform(
    path: str,
    option: Sequence[str] | None,
    *,
    verb: str,
    request: "Mapping[str, model.Json]",
    plan: Callable[["Files"], "Act"],
    yes: bool,
) -> "Performed":
    """Plan or carry out an act on a checkpoint whose pipeline is not named, and note what cannot be known of it."""
    from penstock.checkpoint.acting import perform

    files = _files(path, option)

    def noted() -> "Act":
        act = plan(files)
        return replace(act, notes=(*act.notes, _UNSEEN)) if act.steps else act

    return perform(files, verb=verb, request=request, plan=noted, yes=yes)


def _files(path: str, option: Sequence[str] | None) -> "Files":
    from penstock.checkpoint.files import open_files

    place, options = place_of(path, option)
    return open_files(place, options=options)


def _undo(
    path: str, option: Sequence[str] | None, overrides: Sequence[str] | None, *, verb: str, yes: bool, as_json: bool
) -> None:
    if is_pipeline_file(path, overrides):
        from penstock.run.checkpoint_acts import undo_act

        found = undo_act(pipeline(path, overrides).plan, verb=verb, yes=yes)
    else:
        from penstock.checkpoint.acting import undo

        found = undo(_files(path, option), verb=verb, yes=yes)
    show(found, as_json=as_json, text=_undone)


def _undone(found: "Undone") -> RenderableType:
    files = formatting.counted(found.files, "file")
    if found.done:
        return Text(f"Undone: {found.sentence}\n{files} as before, from {found.backup}.")
    return Text.assemble(f"Would be undone: {found.sentence}\n{files} from {found.backup}.", _NOTHING_CHANGED)


_NOTHING_CHANGED = ("\nNothing was changed. Do it with --yes.", "yellow")


def _show(performed: "Performed", *, as_json: bool) -> None:
    show(performed, as_json=as_json, text=_performed, fields=_fields)


def _fields(performed: "Performed") -> dict[str, object]:
    act = performed.act
    steps = [
        {"change": step.change, "place": step.place, "size_bytes": step.size_bytes, "reason": step.reason} for step in act.steps
    ]
    return {
        "verb": act.verb,
        "location": act.location,
        "sentence": act.sentence,
        "next_batch_id": act.next_batch_id,
        "notes": act.notes,
        "steps": steps,
        "done": performed.done,
        "finished": performed.finished,
        "backup": performed.backup,
    }


def _performed(performed: "Performed") -> RenderableType:
    act = performed.act
    if not act.steps:
        return Text(f"{act.sentence}\nThe checkpoint is like that already: there is nothing to change.")
    parts: list[RenderableType] = [Text(act.sentence, "bold"), *(Text(note) for note in act.notes), Text()]
    parts.append(table(("", "files", "place", "size", "why"), _rows(act.steps)))
    if performed.done:
        how = "Finished what was interrupted" if performed.finished else "Done"
        parts.append(Text(f"\n{how}. The files as they were are in {performed.backup} of the checkpoint; --undo puts them back."))
    else:
        parts.append(Text.assemble(_NOTHING_CHANGED))
    return Group(*parts)


def _rows(steps: Sequence["Step"]) -> Iterator[tuple[object, ...]]:
    """Yield one row for the files of one log, or of one operator, that are changed for one reason."""
    alike = defaultdict[tuple[str, str, str], list["Step"]](list)
    for step in steps:
        first, *rest = step.place.split("/")
        folder = f"{first}/{rest[0]}" if first in {"state", "sources", "penstock-acts"} else first
        alike[step.change.value, folder, step.reason].append(step)
    for (change, folder, reason), found in alike.items():
        place = found[0].place if len(found) == 1 else folder
        yield change, len(found), place, formatting.size(sum(step.size_bytes for step in found)), reason
