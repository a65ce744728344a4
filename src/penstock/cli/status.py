"""`penstock status` and `penstock watch`: show where a pipeline stands, from outside its driver."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from penstock.cli import formatting
from penstock.cli.opening import File, Json, Overrides, pipeline
from penstock.cli.output import console, json_line, show
from penstock.cli.table import facts, table

if TYPE_CHECKING:
    from penstock.observe.status import PlaceState, Status
    from penstock.run.pipeline import Pipeline
    from penstock.source.journal.journals import JournalLag
    from penstock.source.kafka.lag import TopicLag

_STYLES = {"ok": "green", "new": "cyan", "replay": "yellow", "conflict": "bold red"}
_PLACE_STYLES = {"foreign": "bold red", "behind": "bold red", "lost": "bold red", "unreachable": "yellow"}
_PLACES_S = 30.0


def status(*, file: File, overrides: Overrides = None, as_json: Json = False) -> None:
    """Where the pipeline stands: last batch, health, rows and position of every sink, whether it is this ledger's.

    Works beside a running driver, without Java.
    """
    show(pipeline(file, overrides).status(), as_json=as_json, text=text_of)


def watch(
    *,
    file: File,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """The same as status, kept up to date until Ctrl-C. With --json a line whenever something changed."""
    looks = _looks(pipeline(file, overrides), interval_s=interval)
    with suppress(KeyboardInterrupt):
        if as_json or not sys.stdout.isatty():
            _print_changes(looks)
            return
        with Live(console=console(), auto_refresh=False) as live:
            for look in looks:
                live.update(text_of(look), refresh=True)


def _looks(watched: "Pipeline", *, interval_s: float) -> "Iterator[Status]":
    """Yield a status per interval. Sinks are looked at less often than the ledger: a look sends requests to all of them."""
    places: tuple[PlaceState, ...] | None = None
    looked_s = time.monotonic()
    while True:
        if time.monotonic() - looked_s > _PLACES_S:
            places, looked_s = None, time.monotonic()
        look = watched.status(known=places)
        places = look.places
        yield look
        time.sleep(interval_s)


def _print_changes(looks: "Iterator[Status]") -> None:
    last = ""
    for look in looks:
        line = json_line(look)
        if line != last:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
        last = line


def text_of(found: "Status") -> RenderableType:
    """Render a status for people."""
    head = Text.assemble((found.pipeline, "bold"), "  ", (found.health, _STYLES.get(found.health, "")), "\n", found.text, "\n")
    parts: list[RenderableType] = [head, facts(_facts(found))]
    rows = list(_accounts(found))
    if rows:
        parts += [Text(), table(("sink", "account", "decided", "files", "size", "position", ""), rows)]
    for place in found.places:
        if place.trouble is not None:
            name = " ".join(filter(None, (place.sink, place.account)))
            parts.append(Text(f"{name}: {place.trouble}", _PLACE_STYLES.get(place.state, "")))
    if found.lag:
        parts += [Text(), table(("source", "topic", "records behind", "oldest", "lost", "time to loss"), map(_lag, found.lag))]
    if found.journals:
        parts += [Text(), table(("source", "journal", "events behind", "oldest", "lost"), map(_journal_lag, found.journals))]
    parts += [Text(f"not known how far behind: {why}", "yellow") for why in found.lag_unknown]
    return Group(*parts)


def _accounts(found: "Status") -> "Iterator[tuple[object, ...]]":
    """Yield for each account what is decided, and the position up to which its own marker shows it."""
    marks = {(place.sink, place.account): place for place in found.places}
    for sink, accounts in found.totals.items():
        for account, totals in accounts.items():
            sizes = (formatting.count(totals.rows), formatting.count(totals.files), formatting.size(totals.size_bytes))
            place = marks.pop((sink, account), None)
            yield sink, account, *sizes, None if place is None else place.mark, _state(place)
    for place in marks.values():
        if place.state != "empty":
            yield place.sink, place.account, None, None, None, place.mark, _state(place)


def _state(place: "PlaceState | None") -> Text | None:
    return None if place is None or place.state == "own" else Text(place.state, _PLACE_STYLES.get(place.state, ""))


def _lag(lag: "TopicLag") -> Sequence[object]:
    from penstock.source.kafka.lag import span, time_left

    behind = None if lag.behind_ms is None else f"{span(lag.behind_ms)} ago"
    return (
        lag.source,
        lag.topic,
        formatting.count(lag.records),
        behind,
        formatting.count(lag.lost) if lag.gaps else None,
        time_left(lag),
    )


def _journal_lag(lag: "JournalLag") -> Sequence[object]:
    from penstock.source.kafka.lag import span

    behind = None if lag.behind_ms is None else f"{span(lag.behind_ms)} ago"
    return (lag.source, lag.journal, formatting.count(lag.records), behind, formatting.count(lag.lost) if lag.lost else None)


def _facts(found: "Status") -> list[tuple[str, object]]:
    written = found.last_written_at_ms
    when = (
        None if written is None else f"{formatting.moment(written)} ({formatting.ago(written, now_ms=int(time.time() * 1000))})"
    )
    checkpoint = found.checkpoint
    return [
        ("last batch", "none yet" if found.last_batch_id is None else found.last_batch_id),
        ("published", _published(found)),
        ("last entry", when),
        ("generation", None if found.generation is None else f"{found.generation}, opened by {found.owner or 'an older run'}"),
        ("ledger", found.ledger if found.tail is None else f"{found.ledger}, position {found.tail}"),
        ("query id", None if checkpoint is None else checkpoint.query_id),
        ("Spark planned", None if checkpoint is None or checkpoint.planned is None else f"batch {checkpoint.planned}"),
        ("Spark committed", None if checkpoint is None or checkpoint.committed is None else f"batch {checkpoint.committed}"),
    ]


def _published(found: "Status") -> str | None:
    """Return what is published everywhere. The ledger records it with the next batch, so for the last one it is unknown."""
    if found.last_batch_id is None:
        return None
    if found.unsettled is None:
        return "everything"
    return f"everything before batch {found.unsettled}; `penstock doctor` shows the state of that one"
