"""What the templates show of a pipeline: values, no markup."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

from penstock.core.model import AccountName, Position, SinkName, Totals
from penstock.errors import PenstockError
from penstock.observe.batch_life import BatchLife
from penstock.observe.condition import Condition, State, condition_of
from penstock.observe.guarantee_note import guarantee_note
from penstock.observe.look import Look, look_at
from penstock.observe.page.charts import Chart, rate_chart, sparkline, step_chart
from penstock.observe.page.watched import Watched
from penstock.observe.status import Status
from penstock.source.chain.lag import time_left as left_of_table
from penstock.source.kafka.lag import span, time_left
from penstock.source.kinesis.lag import time_left as left_of_stream
from penstock.support.formatting import counted
from penstock.support.secret import scrub

_ORDER = list(State)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRow:
    """One account of a sink: what was decided for it, and how far its own marker shows that."""

    sink: SinkName
    account: AccountName
    totals: Totals | None
    mark: Position | None
    state: str | None
    problem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRow:
    """One input of a source: what waits there, since when, what is lost, and when the next loss is near."""

    source: str
    input: str
    waits: str
    oldest: str
    lost: int
    loss: str


class PipelineView:
    """One pipeline as the page shows it at one moment."""

    def __init__(self, watched: Watched, *, look: Look, lives: Sequence[BatchLife], unread: str | None, now_ms: int) -> None:
        self.name, self.file, self.look, self.now_ms = watched.name, watched.file, look, now_ms
        self.lives, self.unread = tuple(lives), unread
        self.guarantee = guarantee_note(watched.home)
        self.condition: Condition = condition_of(look, now_ms=now_ms)

    @property
    def status(self) -> Status | None:
        """The status, None if it could not be read."""
        return self.look.status

    @cached_property
    def rates(self) -> Chart:
        """Rows per second, batch by batch."""
        return rate_chart(self.lives)

    @cached_property
    def steps(self) -> Chart:
        """The steps of the newest batches."""
        return step_chart(self.lives)

    @property
    def sparkline(self) -> str:
        """Rows per second, as the points of a line."""
        return sparkline(self.lives)

    @property
    def batches(self) -> Sequence[BatchLife]:
        """The newest batches, without other entries of the ledger."""
        return [life for life in self.lives if life.entry.kind == "decided"]

    @property
    def places(self) -> Sequence[PlaceRow]:
        """Every account of every sink."""
        return [] if self.status is None else list(_places(self.status))

    @property
    def inputs(self) -> Sequence[InputRow]:
        """Every input of every source that tells what waits."""
        return [] if self.status is None else list(_inputs(self.status, now_ms=self.now_ms))

    @property
    def rows_out(self) -> int:
        """Rows that every sink together got, ever; a row that went to two sinks counts twice."""
        return sum(row.totals.rows for row in self.places if row.totals is not None)


def view_of(watched: Watched, *, now_ms: int) -> PipelineView:
    """Look at one pipeline. What cannot be read is said in the view."""
    look = look_at(watched.reader)
    try:
        lives, unread = watched.newest_lives(), None
    except PenstockError as error:
        lives, unread = [], scrub(str(error))
    return PipelineView(watched, look=look, lives=lives, unread=unread, now_ms=now_ms)


def views_of(pipelines: Sequence[Watched], *, now_ms: int) -> Sequence[PipelineView]:
    """Look at all pipelines side by side. The worst stands first."""
    with ThreadPoolExecutor(len(pipelines)) as threads:
        found = list(threads.map(lambda watched: view_of(watched, now_ms=now_ms), pipelines))
    return sorted(found, key=lambda view: (_ORDER.index(view.condition.state), view.name))


def _places(status: Status) -> Iterator[PlaceRow]:
    found = {(place.sink, place.account or AccountName("")): place for place in status.places}
    decided = {(sink, account): totals for sink, accounts in status.totals.items() for account, totals in accounts.items()}
    for sink, account in {**decided, **found}:
        place, totals = found.get((sink, account)), decided.get((sink, account))
        yield PlaceRow(
            sink=sink,
            account=account,
            totals=totals,
            mark=None if place is None else place.mark,
            state=None if place is None else place.state,
            problem=None if place is None else place.trouble,
        )


def _inputs(status: Status, *, now_ms: int) -> Iterator[InputRow]:
    for lag in status.lag:
        waits, oldest = counted(lag.records, "record"), _ago(lag.behind_ms)
        yield InputRow(source=lag.source, input=lag.topic, waits=waits, oldest=oldest, lost=lag.lost, loss=time_left(lag))
    for journal in status.journals:
        waits, oldest = counted(journal.records, "event"), _ago(journal.behind_ms)
        yield InputRow(source=journal.source, input=journal.journal, waits=waits, oldest=oldest, lost=journal.lost, loss="")
    for table in status.tables:
        waits, oldest, loss = counted(table.records, "row"), _ago(table.behind_ms), left_of_table(table)
        yield InputRow(source=table.source, input=table.table, waits=waits, oldest=oldest, lost=table.lost, loss=loss)
    for stream in status.streams:
        waits, oldest, lost = counted(stream.waiting, "shard"), _ago(stream.behind_ms), int(stream.gap is not None)
        loss = left_of_stream(stream)
        yield InputRow(source=stream.source, input=stream.stream, waits=waits, oldest=oldest, lost=lost, loss=loss)
    for files in status.waiting:
        oldest = _ago(None if files.oldest_ms is None else max(0, now_ms - files.oldest_ms))
        waits = counted(files.files, "file")
        yield InputRow(source=files.source, input="files", waits=waits, oldest=oldest, lost=0, loss="")


def _ago(behind_ms: int | None) -> str:
    return "" if behind_ms is None else f"{span(behind_ms)} ago"
