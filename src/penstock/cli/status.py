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

from penstock.cli.newest_batches import NewestBatches, text_of_batches
from penstock.cli.opening import File, Json, Overrides, pipeline
from penstock.cli.output import console, json_line, show, with_file
from penstock.cli.table import Fitting, facts
from penstock.commit.summary import FOR_EVER
from penstock.support import formatting

if TYPE_CHECKING:
    from penstock.observe.status import PlaceState, Status, WaitingFiles
    from penstock.observe.status_reader import StatusReader
    from penstock.observe.supervision import Supervision
    from penstock.source.chain.lag import TableLag
    from penstock.source.journal.journals import JournalLag
    from penstock.source.kafka.lag import TopicLag
    from penstock.source.kinesis.lag import StreamLag

AGES_EVERY_S = 10.0
"""How often `watch` draws though nothing has changed but how long ago things were: drawing costs more than looking."""
CHANGES_EVERY_S = 1.5
"""How often it draws at most: a batch changes something several times in a second or two."""

_STYLES = {"ok": "green", "new": "cyan", "replay": "yellow", "conflict": "bold red"}
_PLACE_STYLES = {"foreign": "bold red", "ahead": "bold red", "lost": "bold red", "unreachable": "yellow"}


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
    watched = pipeline(file, overrides).watched()
    looks = _looks(watched.reader, interval_s=interval)
    with suppress(KeyboardInterrupt):
        if as_json or not sys.stdout.isatty():
            _print_changes(looks)
            return
        with Live(console=console(), auto_refresh=False) as live:
            newest = NewestBatches(watched)
            drawn_s, shown = 0.0, None
            for look in looks:
                batches = newest.lives(look)
                every_s = AGES_EVERY_S if (look, batches) == shown else CHANGES_EVERY_S
                if time.monotonic() - drawn_s > every_s:
                    live.update(Group(text_of(look), text_of_batches(batches)), refresh=True)
                    drawn_s, shown = time.monotonic(), (look, batches)


def _looks(reader: "StatusReader", *, interval_s: float) -> "Iterator[Status]":
    """Yield a status per interval."""
    while True:
        yield reader.status()
        time.sleep(interval_s)


def _print_changes(looks: "Iterator[Status]") -> None:
    last = ""
    for look in looks:
        line = json_line(look)
        if line != last:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
        last = line


def text_of(found: "Status", *, now_ms: int | None = None) -> RenderableType:
    """Render a status for people: first the answers to what one asks first, then places and lag, then where that is noted."""
    now_ms = int(time.time() * 1000) if now_ms is None else now_ms
    health = (found.health, _STYLES.get(found.health, ""))
    parts: list[RenderableType] = [
        Text.assemble((found.pipeline, "bold"), "  ", health, "\n", with_file(found.text), "\n"),
        facts(_answers(found, now_ms=now_ms)),
    ]
    rows = list(_accounts(found))
    if rows:
        parts += [Text(), Fitting(("sink", "account", "decided", "files", "size", "position", ""), rows, ("size", "files"))]
    for place in found.places:
        if place.trouble is not None and not found.text.startswith(place.trouble):
            name = " ".join(filter(None, (place.sink, place.account)))
            parts.append(Text(f"{name}: {place.trouble}", _PLACE_STYLES.get(place.state, "")))
    if found.lag:
        columns = ("source", "topic", "records behind", "oldest", "lost", "time to loss")
        parts += [Text(), Fitting(columns, [_lag(lag) for lag in found.lag], ("topic",))]
    if found.journals:
        of_journals = ("source", "journal", "events behind", "oldest", "lost")
        parts += [Text(), Fitting(of_journals, [_journal_lag(lag) for lag in found.journals], ())]
    if found.tables:
        of_tables = ("source", "table", "rows behind", "oldest", "lost", "time to loss")
        parts += [Text(), Fitting(of_tables, [_table_lag(lag) for lag in found.tables], ("table",))]
    if found.streams:
        of_streams = ("source", "stream", "shards that wait", "oldest", "time to loss")
        parts += [Text(), Fitting(of_streams, [_stream_lag(lag) for lag in found.streams], ("stream",))]
    return Group(*parts, Text(), facts(_notes(found, now_ms=now_ms)))


def _answers(found: "Status", *, now_ms: int) -> "list[tuple[str, object]]":
    return [
        ("driver", _driver(found, now_ms=now_ms)),
        ("supervisor", _supervisor(found.supervision, now_ms=now_ms)),
        ("standby", _supervisor(found.standby, now_ms=now_ms)),
        ("delivered", _delivered(found)),
        ("removed", _removed(found)),
        ("dropped", formatting.dropped(found.dropped)),
        ("published", _published(found)),
        ("ahead", _ahead(found)),
        ("waiting", _waiting(found, now_ms=now_ms)),
        ("state", _state_size(found)),
        ("last error", _last_error(found, now_ms=now_ms)),
    ]


def _ahead(found: "Status") -> Text | None:
    """Return which sinks kept batches that a rewind took back from the others, None if none did."""
    last = -1 if found.last_batch_id is None else found.last_batch_id
    names = [
        f"{sink} has batches up to {newest}" if newest != FOR_EVER else f"which batches {sink} has is not told any more"
        for sink, newest in found.ahead.items()
        if newest > last
    ]
    return Text("; ".join(names), "yellow") if names else None


def _driver(found: "Status", *, now_ms: int) -> Text:
    """Return whether a driver runs, and since when, or when the newest generation was opened."""
    if found.driver is None:
        return Text("none has run yet" if found.tail is None else "not known from here")
    text = found.driver.text
    if found.driver.pid is not None and found.opened_at_ms is not None:
        text += f"; it opened the pipeline {formatting.ago(found.opened_at_ms, now_ms=now_ms)}"
    return Text(text, "green" if found.is_running else "")


def _supervisor(noted: "Supervision | None", *, now_ms: int) -> Text | None:
    """Return how the driver is looked after, None if no supervisor noted anything."""
    if noted is None:
        return None
    text = f"{noted.state}, {formatting.counted(noted.restarts, 'restart')}"
    if noted.ended is not None:
        text += f"; the last driver {noted.ended} {formatting.ago(noted.at_ms, now_ms=now_ms)}"
    if noted.next_start_ms is not None and noted.state == "waiting":
        text += f", the next one starts in {max(0, noted.next_start_ms - now_ms) / 1000:.0f} s"
    return Text(f"{text}; see {noted.log}", "red" if noted.state in {"given up", "gone"} else "")


def _delivered(found: "Status") -> str:
    if found.last_batch_id is None:
        return "nothing yet"
    if found.batches is None and not found.totals:
        return f"nothing yet: batches up to {found.last_batch_id} were taken over with the checkpoint"
    number = "" if found.batches is None else f"{formatting.counted(found.batches, 'batch', 'batches')}, "
    rows = {sink: sum(totals.rows for totals in accounts.values()) for sink, accounts in found.totals.items()}
    shares = ", ".join(f"{formatting.counted(count, 'row')} in {sink}" for sink, count in rows.items())
    return f"{number}the last one is batch {found.last_batch_id}{f'; {shares}' if shares else ''}"


def _removed(found: "Status") -> str | None:
    """Return what was removed on purpose of the rows that were delivered, None if nothing was."""
    rows = {sink: sum(totals.rows for totals in accounts.values()) for sink, accounts in found.removed.items()}
    shares = ", ".join(f"{formatting.counted(count, 'row')} in {sink}" for sink, count in rows.items())
    return f"on purpose: {shares}" if shares else None


def _published(found: "Status") -> Text | None:
    """Return whether every place shows the newest batch. The ledger records it with the next one: else the places are asked."""
    if found.last_batch_id is None:
        return None
    if found.published:
        return Text("everything", "green")
    if found.lacking is None and found.replaying is None:
        tells = "the driver publishes it" if found.is_running else "`penstock doctor` shows the state of that one"
        return Text(with_file(f"everything before batch {found.unsettled}; {tells}"))
    missing = (
        f"batch {found.unsettled} is not in {', '.join(found.lacking or ())} yet"
        if found.replaying is None
        else f"what was replayed at position {found.replaying} is not in every sink yet"
    )
    if found.is_running:
        return Text(f"{missing}; the driver publishes it", "yellow")
    if any(place.state in {"foreign", "ahead", "lost"} and not place.lets_start for place in found.places):
        return Text(with_file(f"NO: {missing}; a start would be refused, and so would `penstock recover`"), "bold red")
    return Text(with_file(f"NO: {missing}; `penstock recover` publishes it, or the next start"), "bold red")


def _waiting(found: "Status", *, now_ms: int) -> str | None:
    """Return what waits in each source, None if no source tells."""
    records = dict[str, int]()
    for lag in found.lag:
        records[lag.source] = records.get(lag.source, 0) + lag.records
    parts = [f"{source}: {formatting.counted(number, 'record')}" for source, number in records.items()]
    parts += [f"{lag.source}: {formatting.counted(lag.records, 'event')} of {lag.journal}" for lag in found.journals]
    parts += [f"{lag.source}: {formatting.counted(lag.records, 'row')} of {lag.table}" for lag in found.tables]
    parts += [f"{lag.source}: records in {formatting.counted(lag.waiting, 'shard')} of {lag.stream}" for lag in found.streams]
    parts += [_waiting_files(each, now_ms=now_ms) for each in found.waiting]
    return "; ".join([*parts, *found.waiting_unknown, *(f"not known: {why}" for why in found.lag_unknown)]) or None


def _state_size(found: "Status") -> Text | None:
    """Return what the query keeps from batch to batch, and when it reaches a limit that is near; None if it keeps nothing."""
    from penstock.observe.state_size import describe_forecast

    if found.state is None:
        return None
    operators = ", ".join(f"{formatting.counted(each.rows, 'row')} of {each.name}" for each in found.state.operators)
    text = f"{operators}; {formatting.size(found.state.memory_bytes)} in memory"
    near = found.state.near
    return Text(text) if near is None else Text(f"{text}. {describe_forecast(near)}", "yellow")


def _waiting_files(each: "WaitingFiles", *, now_ms: int) -> str:
    if each.oldest_ms is None:
        return f"{each.source}: no file"
    number, size = formatting.counted(each.files, "file"), formatting.size(each.size_bytes)
    return f"{each.source}: {number} ({size}), the oldest from {formatting.ago(each.oldest_ms, now_ms=now_ms)}"


def _last_error(found: "Status", *, now_ms: int) -> Text:
    """Return what ended the newest run that failed; dim once the ledger has a newer entry."""
    error = found.last_error
    if error is None:
        return Text("none noted")
    is_over = found.last_written_at_ms is not None and found.last_written_at_ms > error.at_ms
    when = f"{formatting.ago(error.at_ms, now_ms=now_ms)}{', before the newest entry of the ledger' if is_over else ''}"
    return Text(with_file(f"{when}: {error.message} {error.remedy}"), "dim" if is_over else "red")


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


def _table_lag(lag: "TableLag") -> Sequence[object]:
    from penstock.source.chain.lag import time_left
    from penstock.source.kafka.lag import span

    behind = None if lag.behind_ms is None else f"{span(lag.behind_ms)} ago"
    lost = formatting.count(lag.lost) if lag.forgotten else None
    return (lag.source, lag.table, formatting.count(lag.records), behind, lost, time_left(lag))


def _stream_lag(lag: "StreamLag") -> Sequence[object]:
    from penstock.source.kafka.lag import span
    from penstock.source.kinesis.lag import time_left

    behind = None if lag.behind_ms is None else f"{span(lag.behind_ms)} ago"
    loss = Text("records are gone", "red") if lag.gap is not None else time_left(lag)
    return (lag.source, lag.stream, formatting.count(lag.waiting), behind, loss)


def _notes(found: "Status", *, now_ms: int) -> "list[tuple[str, object]]":
    written, checkpoint = found.last_written_at_ms, found.checkpoint
    when = None if written is None else f"{formatting.moment(written)} ({formatting.ago(written, now_ms=now_ms)})"
    return [
        ("last entry", when),
        ("generation", None if found.generation is None else f"{found.generation}, opened by {found.owner or 'an older run'}"),
        ("ledger", found.ledger if found.tail is None else f"{found.ledger}, position {found.tail}"),
        ("query id", None if checkpoint is None else checkpoint.query_id),
        ("Spark planned", None if checkpoint is None or checkpoint.planned is None else f"batch {checkpoint.planned}"),
        ("Spark committed", None if checkpoint is None or checkpoint.committed is None else f"batch {checkpoint.committed}"),
    ]
