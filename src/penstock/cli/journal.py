"""`penstock journal inspect`, `verify`, `readers` and `trim`: look after the write-ahead log of a receiver, without Spark."""

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from penstock.cli.opening import Json, Yes
from penstock.cli.output import show
from penstock.cli.table import facts, table
from penstock.errors import Usage
from penstock.support import formatting

if TYPE_CHECKING:
    from penstock.journal.inspection import JournalFacts, ReaderFacts, SegmentFacts, Verified

Directory = Annotated[str, typer.Argument(metavar="DIR", help="The directory of the journal.", show_default=False)]
Forgotten = Annotated[
    str | None,
    typer.Option("--forget", metavar="NAME", help="Take a reader out, so that nothing waits for it any more. With --yes."),
]
_US_PER_MS = 1_000
_DIFFERENT = 5


def inspect(*, directory: Directory, as_json: Json = False) -> None:
    """What the journal holds: its events, segments and readers. Reads headers only, and may be run beside a receiver."""
    from penstock.journal.inspection import inspect_journal
    from penstock.journal.storage import LocalStorage

    show(inspect_journal(LocalStorage(), Path(directory)), as_json=as_json, text=_inspection)


def verify(*, directory: Directory, as_json: Json = False) -> None:
    """Read every event and check its checksum and number. Exit code 5 if anything that was acknowledged is not whole."""
    from penstock.journal.inspection import verify_journal
    from penstock.journal.storage import LocalStorage

    found = verify_journal(LocalStorage(), Path(directory))
    show(found, as_json=as_json, text=_verification)
    if not found.ok:
        raise typer.Exit(_DIFFERENT)


def readers(*, directory: Directory, forget: Forgotten = None, yes: Yes = False, as_json: Json = False) -> None:
    """Who reads the journal, and how far each is behind. Segments wait for the slowest reader."""
    from penstock.journal import readers as registry
    from penstock.journal.inspection import readers_of
    from penstock.journal.storage import LocalStorage

    storage, home = LocalStorage(), Path(directory)
    found = readers_of(storage, home)
    if forget is not None:
        if forget not in {each.reader for each in found}:
            names = ", ".join(each.reader for each in found)
            raise Usage(
                f"The journal has no reader {forget!r}.",
                remedy=f"It has {names}: name one of these." if names else "No reader is registered, so there is none to forget.",
            )
        if not yes:
            show(found, as_json=as_json, text=lambda _: f"Would forget {forget}. Nothing was changed. Do it with --yes.")
            return
        registry.forget(storage, home, forget)
        found = readers_of(storage, home)
    show(found, as_json=as_json, text=_readers)


def trim(*, directory: Directory, yes: Yes = False, as_json: Json = False) -> None:
    """Remove segments that every reader has released, also those that the receiver's `keep` would spare for a while.

    A receiver that runs does so by itself. Its second copy follows when it starts.
    """
    from penstock.journal.inspection import releasable
    from penstock.journal.journal import Journal
    from penstock.journal.storage import LocalStorage

    home = Path(directory)
    found = releasable(LocalStorage(), home)
    if yes and found:
        with closing(Journal(home, now_us=lambda: time.time_ns() // 1_000)) as journal:
            journal.remove_released()
    show({"done": yes, "segments": found}, as_json=as_json, text=lambda _: _trimmed(found, done=yes))


def _inspection(found: "JournalFacts") -> RenderableType:
    events = "none" if found.next is None or found.first is None else f"{found.first} to {found.next - 1}"
    pairs = [
        ("journal id", found.journal_id or "none yet"),
        ("durable events", events if found.next else "none"),
        ("size", formatting.size(found.size_bytes)),
    ]
    rows = [
        (each.first, _moment(each.created_at_us), formatting.size(each.size_bytes), "sealed" if each.is_sealed else "open")
        for each in found.segments
    ]
    return Group(
        Text(found.journal, "bold"),
        facts(pairs),
        Text(),
        table(("first event", "begun", "size", ""), rows),
        Text(),
        _readers(found.readers),
    )


def _verification(found: "Verified") -> RenderableType:
    head = f"{formatting.counted(found.events, 'event')} in {formatting.counted(found.segments, 'segment')}"
    if found.ok:
        torn = f"; {found.unacknowledged} bytes behind them were never acknowledged" if found.unacknowledged else ""
        return Text(f"{head}: every one is whole{torn}.", "green")
    return Group(Text(f"{head}, but:", "bold red"), *(Text(f"- {problem}") for problem in found.problems))


def _readers(found: "Sequence[ReaderFacts]") -> RenderableType:
    if not found:
        return Text("No reader is registered, so nothing is removed.")
    rows = [(each.reader, each.next, formatting.count(each.waiting), _moment(each.released_at_us)) for each in found]
    return table(("reader", "needs from", "waiting", "since"), rows)


def _trimmed(found: "Sequence[SegmentFacts]", *, done: bool) -> str:
    if not found:
        return "There is no segment that every reader has released."
    size = formatting.size(sum(each.size_bytes for each in found))
    what = f"{formatting.counted(len(found), 'segment')} ({size})"
    return f"Removed {what}." if done else f"Would remove {what}. Nothing was changed. Do it with --yes."


def _moment(time_us: int) -> str:
    return formatting.moment(time_us // _US_PER_MS)
