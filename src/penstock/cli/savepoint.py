"""`penstock savepoint`: copies of a pipeline's checkpoint with its place in the ledger, and second pipelines that begin there."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from penstock.cli.opening import File, Json, OtherOverrides, Overrides, Yes, naming_other_set, pipeline
from penstock.cli.operate import show_rewind
from penstock.cli.output import show
from penstock.cli.table import table
from penstock.cli.verify import DIFFERENCE
from penstock.errors import Usage
from penstock.support import formatting

if TYPE_CHECKING:
    from penstock.checkpoint.savepoint import Savepoint
    from penstock.run.savepoints import CreatedSavepoint, Fork, SavepointCheck

Name = Annotated[str, typer.Argument(metavar="NAME", help="The savepoint's name.", show_default=False)]
To = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="PLACE",
        help="Where savepoints are: a directory or URL. By default `savepoints` in the pipeline's home.",
        show_default=False,
    ),
]
Options = Annotated[
    list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="An option of the store of --to; may be repeated.")
]


def create(
    *, file: File, name: Name, to: To = None, option: Options = None, overrides: Overrides = None, as_json: Json = False
) -> None:
    """Copy the checkpoint as of its newest committed batch, with a checksum of each file; the pipeline may run meanwhile.

    In a directory, files that the newest savepoint has are linked, not copied. What was interrupted, the same command finishes.
    """
    made = pipeline(file, overrides).create_savepoint(name, to=to, options=options_of_place(option))
    show(made, as_json=as_json, text=_created, fields=_created_fields)


def options_of_place(given: Sequence[str] | None) -> Mapping[str, str] | None:
    """Return the options of the store in which savepoints are. Raises Usage."""
    pairs = [text.partition("=") for text in given or ()]
    if not all(key and equals for key, equals, _ in pairs):
        raise Usage("`--option` should be KEY=VALUE, found a text without KEY or =.", remedy="Write --option region=eu-west-1.")
    return {key: value for key, _, value in pairs} or None


def _created(made: "CreatedSavepoint") -> RenderableType:
    one, new = made.savepoint, formatting.counted(made.new_files, "new file")
    what = f"{formatting.counted(len(one.files), 'file')}, {formatting.size(one.size_bytes)}"
    return Text(
        f"Savepoint {one.name} is made, as of batch {one.point.batch_id}: {what}, of which {new}, "
        f"{formatting.size(made.new_bytes)}.\nIt is in {made.location}."
    )


def _created_fields(made: "CreatedSavepoint") -> dict[str, object]:
    return {**_fields(made.savepoint), "location": made.location, "new_files": made.new_files, "new_bytes": made.new_bytes}


def _fields(one: "Savepoint") -> dict[str, object]:
    point = one.point
    return {
        "name": one.name,
        "pipeline": point.pipeline,
        "batch_id": point.batch_id,
        "query_id": point.query_id,
        "position": point.position,
        "created_at_ms": one.created_at_ms,
        "files": len(one.files),
        "size_bytes": one.size_bytes,
        "sinks": point.totals,
    }


def list_(*, file: File, to: To = None, option: Options = None, overrides: Overrides = None, as_json: Json = False) -> None:
    """Every savepoint, oldest first: the batch that it ends with, and its size."""
    found = pipeline(file, overrides).savepoints(to=to, options=options_of_place(option))
    show(found, as_json=as_json, text=lambda all_: _listed(all_, to), fields=lambda all_: [_fields(one) for one in all_])


def _listed(found: "Sequence[Savepoint]", to: str | None) -> RenderableType:
    if not found:
        return "There is no savepoint." if to is None else f"There is no savepoint in {to}."
    rows = [_row(one) for one in found]
    return table(("name", "made", "batch", "position", "files", "size"), rows)


def _row(one: "Savepoint") -> Sequence[object]:
    size = formatting.size(one.size_bytes)
    return (one.name, formatting.moment(one.created_at_ms), one.point.batch_id, one.point.position, len(one.files), size)


def verify(
    *, file: File, name: Name, to: To = None, option: Options = None, overrides: Overrides = None, as_json: Json = False
) -> None:
    """Read every file of a savepoint: whether it is what was copied, whether Spark could go on, and whether the ledger fits.

    Exit code 5 if not.
    """
    found = pipeline(file, overrides).verify_savepoint(name, to=to, options=options_of_place(option))
    show(
        found,
        as_json=as_json,
        text=_verified,
        fields=lambda one: {**_fields(one.savepoint), "problems": one.problems, "ok": one.ok},
    )
    if not found.ok:
        raise typer.Exit(DIFFERENCE)


def _verified_fields(found: "SavepointCheck") -> dict[str, object]:
    return {**_fields(found.savepoint), "ok": found.ok, "problems": found.problems}


def _verified(found: "SavepointCheck") -> RenderableType:
    one = found.savepoint
    if found.ok:
        return Text(f"Savepoint {one.name} is whole: a query that starts there goes on with batch {one.point.batch_id + 1}.")
    what = "is whole, but the ledger does not go on from it" if found.is_whole else "is damaged"
    return Group(Text(f"Savepoint {one.name} {what}.", "bold red"), *(Text(f"- {problem}") for problem in found.problems))


def delete(
    *,
    file: File,
    name: Name,
    yes: Yes = False,
    to: To = None,
    option: Options = None,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Delete a savepoint, or what an interrupted one left. Other savepoints keep all of their files."""
    files = pipeline(file, overrides).delete_savepoint(name, to=to, options=options_of_place(option), yes=yes)
    show({"name": name, "files": files, "done": yes}, as_json=as_json, text=lambda _: _deleted(name, files, done=yes))


def _deleted(name: str, files: int, *, done: bool) -> str:
    what = formatting.counted(files, "file")
    if done:
        return f"Deleted savepoint {name}: {what}."
    return f"Would delete savepoint {name}: {what}.\nNothing was changed. Do it with --yes."


def restore(
    *,
    file: File,
    name: Name,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            "--keep", metavar="SINK", help="A sink that is gone, to finish what was interrupted without it.", show_default=False
        ),
    ] = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; kept in the ledger.")] = "",
    yes: Yes = False,
    to: To = None,
    option: Options = None,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Take every batch after a savepoint back from sinks and ledger, and put its checkpoint in place, even if none is left.

    Nothing is done without --yes. Killed at any moment, the same command finishes it.
    """
    chosen = pipeline(file, overrides)
    done = chosen.restore_savepoint(name, to=to, options=options_of_place(option), keep=keep or (), reason=reason, yes=yes)
    show_rewind(done, as_json=as_json)


def fork(
    *,
    file: File,
    name: Name,
    new: Annotated[str, typer.Argument(metavar="NEW", help="The file of the second pipeline.", show_default=False)],
    yes: Yes = False,
    to: To = None,
    option: Options = None,
    overrides: Overrides = None,
    other_overrides: OtherOverrides = None,
    as_json: Json = False,
) -> None:
    """Let a second pipeline go on from a savepoint, with a ledger, a checkpoint and sinks of its own.

    Its sinks get what comes after the savepoint, and the first pipeline stays as it is. What was interrupted, the same command
    finishes.
    """
    first = pipeline(file, overrides)
    with naming_other_set():
        second = pipeline(new, other_overrides)
    forked = first.fork(name, second, to=to, options=options_of_place(option), yes=yes)
    show(forked, as_json=as_json, text=lambda one: _forked(one, new))


def _forked(forked: "Fork", file: str) -> RenderableType:
    text = Text(
        f"Pipeline {forked.pipeline} goes on with batch {forked.next_batch_id}, as query {forked.query_id}, in the checkpoint "
        f"{forked.checkpoint}."
    )
    if forked.done:
        return Group(text, Text(f"Start it: penstock run {file}"))
    return Group(text, Text("Nothing was changed. Do it with --yes.", "yellow"))
