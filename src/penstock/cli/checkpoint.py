"""`penstock checkpoint`: shows, verifies, compares and copies a Spark checkpoint, without Java. Acts are in `checkpoint_acts`."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from penstock.cli.opening import Json, OtherOverrides, Overrides, naming_other_set, pipeline
from penstock.cli.output import name_file, show, with_file
from penstock.cli.table import facts, table
from penstock.cli.verify import DIFFERENCE
from penstock.errors import CheckpointDamaged, CheckpointMissing, PenstockError, Usage
from penstock.support import formatting

if TYPE_CHECKING:
    from penstock.checkpoint.copying import Copy
    from penstock.checkpoint.difference import Difference
    from penstock.checkpoint.explanation import Explanation
    from penstock.checkpoint.inspection import Inspection
    from penstock.checkpoint.verification import Verification

CheckpointPath = Annotated[
    str,
    typer.Argument(
        metavar="PATH", help="A checkpoint's directory or URL, or the pipeline file that names it.", show_default=False
    ),
]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="KEY=VALUE", help="An option of the store that the URL is in; may be repeated."),
]
PIPELINE_FILES = (".yaml", ".yml")
_OF_CHECKPOINTS = frozenset({"metadata", "offsets", "commits", "sources"})
_NAME_ONE = "Name a checkpoint directory or a pipeline file."
_STYLES = {"stops": "bold red", "loses": "bold yellow", "harmless": "dim"}


def inspect(*, path: CheckpointPath, option: Options = None, overrides: Overrides = None, as_json: Json = False) -> None:
    """What the checkpoint holds: query, batches, sources with offsets, state, and everything that is odd about it.

    Exit code 5 if the query cannot run on it: Spark does not start, or fails in its first batch.
    """
    found = _inspected(path, option, overrides)
    show(found, as_json=as_json, text=_inspection)
    _exit_if_unusable(found)


def explain(*, path: CheckpointPath, option: Options = None, overrides: Overrides = None, as_json: Json = False) -> None:
    """What the next start of the query does with this checkpoint, and why, in sentences.

    Exit code 5 if the query cannot run on it, as `inspect` has it.
    """
    from penstock.checkpoint.explanation import explain as explain_inspection

    found = _inspected(path, option, overrides)
    show(explain_inspection(found), as_json=as_json, text=_explanation)
    _exit_if_unusable(found)


def _exit_if_unusable(found: "Inspection") -> None:
    from penstock.checkpoint.inspection import Next

    if found.outlook.next in {Next.FAIL, Next.REPEAT}:
        raise typer.Exit(DIFFERENCE)


def _inspected(path: str, given: Sequence[str] | None, overrides: Sequence[str] | None) -> "Inspection":
    from penstock.checkpoint.inspection import inspect_checkpoint, with_loss

    place, options = place_of(path, given, overrides)
    found = inspect_checkpoint(place, options=options)
    lost = _loss(path, overrides) if found.ok and not found.operators else None
    return found if lost is None else with_loss(found, lost, place=_LOST_PLACE[type(lost)])


def _loss(path: str, overrides: Sequence[str] | None) -> PenstockError | None:
    """Return what is lost without a trace, the whole checkpoint or its state, if the ledger of a pipeline file tells so."""
    if not is_pipeline_file(path, overrides):
        return None
    from penstock.run.checkpoint_acts import require_whole

    try:
        require_whole(pipeline(path, overrides).plan)
    except (CheckpointMissing, CheckpointDamaged) as lost:
        return lost
    except PenstockError:  # the ledger cannot be read: what the files themselves say stands
        return None
    return None


_LOST_PLACE: Mapping[type[PenstockError], str] = {CheckpointMissing: "metadata", CheckpointDamaged: "state"}


def place_of(
    path: str, given: Sequence[str] | None, overrides: Sequence[str] | None = None, *, is_new: bool = False
) -> tuple[str, Mapping[str, str] | None]:
    """Return where the checkpoint is that a person named, with the options of its store. Raises Usage."""
    from penstock.spec.load import load
    from penstock.spec.location import Checkpoint

    pairs = [text.partition("=") for text in given or ()]
    if not all(key and equals for key, equals, _ in pairs):
        raise Usage("`--option` should be KEY=VALUE, found a text without KEY or =.", remedy="Write --option region=eu-west-1.")
    options = {key: value for key, _, value in pairs}
    if is_pipeline_file(path, overrides):
        name_file(None if overrides else path)
        place = load(path, overrides or ()).checkpoint
        return place.url, {**place.options, **options}
    if "://" in path:
        try:
            place = Checkpoint(url=path, options=options)
        except Usage as mistake:
            found = mistake.message.removeprefix("Checkpoint: ")
            raise Usage(re.sub("^url ", "PATH ", found), remedy=mistake.remedy) from None
        return place.url, place.options
    if not is_new:
        _require_checkpoint(Path(path))
    return path, None


def is_pipeline_file(path: str, overrides: Sequence[str] | None) -> bool:
    """Return whether a pipeline file was named, and not its checkpoint. Raises Usage for a checkpoint with `--set`."""
    if overrides and not path.endswith(PIPELINE_FILES):
        raise Usage(
            f"`--set` replaces values of a pipeline file, found the checkpoint {path}.",
            remedy="Name the pipeline file in its place (.yaml), or leave --set out.",
        )
    return path.endswith(PIPELINE_FILES)


def _require_checkpoint(directory: Path) -> None:
    if not directory.is_dir():
        raise Usage(f"There is no directory {directory}.", remedy=_NAME_ONE)
    names = {entry.name for entry in directory.iterdir() if not entry.name.startswith(".")}
    if names and not names & _OF_CHECKPOINTS:
        raise Usage(f"{directory} is no checkpoint: it has none of {', '.join(sorted(_OF_CHECKPOINTS))}.", remedy=_NAME_ONE)


OtherPath = Annotated[
    str, typer.Argument(metavar="OTHER", help="The second checkpoint: a directory, a URL or a pipeline file.", show_default=False)
]
OtherOptions = Annotated[
    list[str] | None,
    typer.Option("--other-option", metavar="KEY=VALUE", help="An option of the store of OTHER; may be repeated."),
]


def diff(
    *,
    path: CheckpointPath,
    other: OtherPath,
    option: Options = None,
    other_option: OtherOptions = None,
    overrides: Overrides = None,
    other_overrides: OtherOverrides = None,
    as_json: Json = False,
) -> None:
    """What one checkpoint knows that the other does not, batch by batch: offsets, commits, input files, versions of state.

    Exit code 5 if they differ.
    """
    from penstock.checkpoint.difference import compare
    from penstock.checkpoint.files import open_files

    first, options = place_of(path, option, overrides)
    with naming_other_set():
        second, other_options = place_of(other, other_option, other_overrides)
    found = compare(open_files(first, options=options), open_files(second, options=other_options))
    show(found, as_json=as_json, text=_difference)
    if not found.same:
        raise typer.Exit(DIFFERENCE)


def _difference(found: "Difference") -> RenderableType:
    if found.same:
        return Text(f"{found.first} and {found.second} know the same.", "bold")
    rows = [(one.place, one.first or "nothing", one.second or "nothing") for one in found.entries]
    return table(("place", found.first, found.second), rows)


def copy(
    *,
    path: CheckpointPath,
    other: OtherPath,
    option: Options = None,
    other_option: OtherOptions = None,
    overrides: Overrides = None,
    other_overrides: OtherOverrides = None,
    as_json: Json = False,
) -> None:
    """Copy a checkpoint to OTHER, an empty place in any store, also while its query runs; verified before it can be started.

    What was interrupted does not start as a query, and the same command finishes it.
    """
    from penstock.checkpoint.copying import copy_checkpoint
    from penstock.checkpoint.files import open_files

    first, options = place_of(path, option, overrides)
    with naming_other_set():
        second, other_options = place_of(other, other_option, other_overrides, is_new=True)
    copied = copy_checkpoint(open_files(first, options=options), open_files(second, options=other_options))
    show(copied, as_json=as_json, text=_copy)


def _copy(copied: "Copy") -> RenderableType:
    what = f"Copied {copied.source} to {copied.target}: {copied.files} files, {formatting.size(copied.size_bytes)}."
    return Text(f"{what}\nA query that starts there goes on with batch {copied.batch_id + 1}.")


def verify(*, path: CheckpointPath, option: Options = None, overrides: Overrides = None, as_json: Json = False) -> None:
    """Whether Spark can go on from the checkpoint exactly: both logs, and every file that the next start reads.

    Exit code 5 if it cannot; every finding is printed with its consequence and remedy.
    """
    from penstock.checkpoint.verification import verify_checkpoint, with_loss

    place, options = place_of(path, option, overrides)
    found = verify_checkpoint(place, options=options)
    named = "FILE" if overrides else shlex.quote(path)
    lost = _loss(path, overrides) if found.ok and found.state_version is None else None
    if lost is not None:
        found = with_loss(found, lost, place=_LOST_PLACE[type(lost)])
    show(found, as_json=as_json, text=partial(_verification, path=named if lost is None else None))
    if not found.ok:
        raise typer.Exit(DIFFERENCE)


def _verification(found: "Verification", *, path: str | None) -> RenderableType:
    from penstock.checkpoint.explanation import headline

    state = "" if found.state_version is None else f", and version {found.state_version} of the state"
    parts: list[RenderableType] = [
        Text(found.location, "bold"),
        Text(headline(found.outlook)),
        Text(f"Read {found.batches} batches{state}."),
    ]
    for one in found.findings:
        parts.append(Text.assemble("\n", (f"{one.severity.value}  ", _STYLES[one.severity.value]), (one.file, "bold")))
        parts += [Text(f"  {with_file(text)}") for text in (one.meaning, one.consequence, one.remedy)]
    if found.ok:
        parts.append(Text("\nNothing stands in the way of the next start.", "bold"))
    else:
        mended = f" `penstock checkpoint repair {path}` shows what it can mend without losing or repeating rows."
        parts.append(Text.assemble(("\nNot as Spark wrote it.", "bold"), "" if path is None else mended))
    return Group(*parts)


def _inspection(found: "Inspection") -> RenderableType:
    from penstock.checkpoint.explanation import explain as explain_inspection

    parts: list[RenderableType] = [
        Text(found.location, "bold"),
        Text(explain_inspection(found).headline),
        Text(),
        facts(_facts(found)),
    ]
    if found.sources:
        rows = [
            (source.key, source.kind, source.start, source.end, None if source.files is None else len(source.files))
            for source in found.sources
        ]
        parts += [Text(), table(("source", "kind", "after", "up to and including", "files"), rows)]
    if found.operators:
        columns = ("state operator", "store", "provider", "partitions", "complete version", "newest version", "size")
        parts += [Text(), table(columns, _stores(found))]
    parts.append(Text() if found.anomalies else Text("\nNo anomalies.", "green"))
    for odd in found.anomalies:
        head = (f"{odd.severity.value}  ", _STYLES[odd.severity.value])
        parts.append(Text.assemble(head, (odd.place, "bold"), f"  {odd.message} {with_file(odd.remedy)}"))
    return Group(*parts)


def _facts(found: "Inspection") -> list[tuple[str, object]]:
    def extent(ids: tuple[int, int] | None, version: int | None) -> str | None:
        return None if ids is None else f"{ids[0]} to {ids[1]} (format {'unknown' if version is None else f'v{version}'})"

    return [
        ("query id", found.query_id or "missing"),
        ("planned batches", extent(found.offsets, found.offsets_version) or "none"),
        ("committed batches", extent(found.commits, found.commits_version) or "none"),
        ("planned last", None if found.planned_at_ms is None else formatting.moment(found.planned_at_ms)),
        ("watermark", formatting.moment(found.watermark_ms) if found.watermark_ms else None),
    ]


def _stores(found: "Inspection") -> Iterator[tuple[object, ...]]:
    for operator in found.operators:
        name = f"{operator.operator_id} {operator.name or '(unknown)'}"
        for store in operator.stores:
            versions = (store.complete_version, store.newest_version)
            yield (name, store.name, operator.provider, store.partitions, *versions, formatting.size(store.size_bytes))


def _explanation(found: "Explanation") -> RenderableType:
    sections = (("Why", found.why), ("Input", found.input), ("Notes", found.notes), ("Problems", found.problems))
    parts = [Text(found.headline, "bold")]
    for title, lines in sections:
        if lines:
            parts.append(Text(f"\n{title}", "bold red" if title == "Problems" else "dim"))
            parts.extend(Text(f"- {with_file(line)}") for line in lines)
    return Group(*parts)
