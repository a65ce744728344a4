"""`penstock status`: where a pipeline stands by ledger, checkpoint, Kafka and the markers of its places, without Spark."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from threading import Thread

from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.commit.publication import continued_decision, decision_in
from penstock.core.bad_record import NAME as QUARANTINE
from penstock.core.high_water_mark import HighWaterMark
from penstock.core.model import Entry, Finding, PipelineName, Position, SinkName, SourceName, Summary
from penstock.errors import CheckpointDamaged, PenstockError, Refused
from penstock.observe.last_error import last_error, last_fence
from penstock.observe.state_size import newest_in, state_size
from penstock.observe.status import CheckpointPosition, PlaceState, Status, status
from penstock.observe.supervision import standby, supervision
from penstock.protocols import HasMarker, Ledger, Sink
from penstock.run.assembly import DeliveryPlan, checkpoint_of, ledger_of, quarantine_of, sink_of
from penstock.run.continuation import position_of
from penstock.run.kafka_input import known_topics
from penstock.run.kinesis_input import stream_findings, stream_lags
from penstock.run.ledger_match import Place, ledger_mismatch, published_rows, require_marker_not_older
from penstock.run.removed_directories import missing_directory, rows_gone
from penstock.run.runtime import now_ms
from penstock.run.state import limits_of
from penstock.run.waiting_files import waiting_files
from penstock.source.chain.lag import TableLag
from penstock.source.chain.lag import describe_lag as describe_table_lag
from penstock.source.chain.settings import chained_sources
from penstock.source.journal.journals import JournalLag, journals_of
from penstock.source.journal.journals import describe_lag as describe_journal_lag
from penstock.source.kafka.lag import TopicLag, describe_lag, lag_of
from penstock.source.kafka.reachable import require_brokers
from penstock.source.kafka.reader.settings import names_in
from penstock.source.kafka.watch import brokers_of, kafka_sources
from penstock.source.kinesis.lag import StreamLag
from penstock.spec.pipeline import DeliverySettings, without_ledger
from penstock.spec.sink import Console, Memory
from penstock.spec.source import Source
from penstock.support.secret import scrub

DELIVERED = "delivered offsets"
"""Subject of the finding that Kafka does not continue what was delivered, so that a start would be refused."""


def status_of(plan: DeliveryPlan, *, known: Status | None = None) -> Status:
    """Return where the pipeline stands: by its ledger, its checkpoint, its input, and a look at each place.

    The cost does not depend on how many batches there were, but on the files of file sources: see `waiting_files`. `known`: an
    earlier status, whose places and waiting files are used instead of another look at them.
    """
    with closing(ledger_of(plan)) as ledger:
        before = ledger.tail()
        checkpoint = checkpoint_of(plan)
        home = plan.settings.home
        position, damage = _position_or_damage(checkpoint)
        found = status(
            pipeline=plan.pipeline,
            ledger=ledger,
            checkpoint=position,
            before=before,
            known=known,
            error=last_error(home),
        )
        found = _with_torn_logs(_with_backfill(found, plan, before), checkpoint)
        found = found if damage is None else _damaged(found, damage)
        found = replace(found, last_fence=last_fence(home), supervision=supervision(home), standby=standby(home))
        found = replace(found, state=state_size(home, limits_of(plan), newest=newest_in(ledger.tail())))
        if (text := without_ledger(plan.settings)) is not None:
            return replace(found, health="ok", text=text)
        lag = input_lag(plan.settings, ledger, now_ms=now_ms)
        found = replace(
            found, lag=lag.topics, journals=lag.journals, tables=lag.tables, streams=lag.streams, lag_unknown=lag.unknown
        )
        if known is not None:
            is_same = known.unsettled == found.unsettled and (known.published is True or not found.is_running)
            found = replace(found, waiting=known.waiting, waiting_unknown=known.waiting_unknown)
            return replace(found, lacking=known.lacking if is_same else None).with_places(known.places)
        files = waiting_files(getattr(plan.settings, "sources", {}), checkpoint)
        places = places_of(plan, ledger)
        lacking = None if found.unsettled is None else _lacking(ledger, places)
        return replace(found, waiting=files.waiting, waiting_unknown=files.unknown, lacking=lacking).with_places(places)


def _with_backfill(found: Status, plan: DeliveryPlan, tail: Entry | None) -> Status:
    """Return `found`, as a conflict if a start is refused with a backfill of one of the sinks that has not ended."""
    if tail is None or found.health == "conflict":
        return found
    backfills = tail.summary.backfills
    apart = (name for name in plan.settings.sinks if name in backfills and backfills[SinkName(name)].apart)
    left_out = next((name for name in apart if not backfills[SinkName(name)].is_level), None)
    if left_out is not None:
        text = (
            f"It runs without sink {left_out!r} until `penstock backfill FILE --sink {left_out}` has given it the batches before."
        )
        found = replace(found, text=f"{found.text} {text}")
    begun = (name for name, progress in backfills.items() if not progress.ended and not progress.apart)
    name = next((name for name in begun if name in plan.settings.sinks), None)
    if name is None:
        return found
    text = (
        f"A backfill of sink {name!r} has begun and not ended. A start would be refused: `penstock backfill FILE --sink {name}`"
    )
    return replace(found, health="conflict", text=f"{text} goes on where it stopped.")


def _position_or_damage(checkpoint: SparkCheckpoint) -> tuple[CheckpointPosition | None, CheckpointDamaged | None]:
    try:
        return position_of(checkpoint), None
    except CheckpointDamaged as damaged:
        return None, damaged


def _damaged(found: Status, damage: CheckpointDamaged) -> Status:
    text = f"{damage.message} A start would be refused: `penstock doctor FILE` says what to do."
    return replace(found, health="conflict", text=text)


def _with_torn_logs(found: Status, checkpoint: SparkCheckpoint) -> Status:
    """Return `found`, as a conflict if what Spark reads of the checkpoint when it starts is damaged: the start ends with that."""
    planned = None if found.checkpoint is None else found.checkpoint.planned
    if planned is None or found.health == "conflict":
        return found
    try:
        checkpoint.require_readable(planned)
    except CheckpointDamaged as damaged:
        has_moved = checkpoint.latest_offsets_id() != planned  # a driver that runs removes older entries meanwhile
        return found if has_moved else _damaged(found, damaged)
    return found


def _lacking(ledger: Ledger, places: Sequence[PlaceState]) -> tuple[str, ...] | None:
    """Return the places that do not show what the newest decision has for them; None if one of them does not tell."""
    tail = ledger.tail()
    newest = None if tail is None or tail.summary.decided_at is None else ledger.read(tail.summary.decided_at)
    if newest is None:
        return None
    marks = {(place.sink, place.account): place for place in places if place.state != "unreachable"}
    wanted = dict.fromkeys((piece.sink, piece.account) for piece in decision_in(newest).staged)
    if not wanted.keys() <= marks.keys():
        return None
    lacking = (place for place in wanted if (marks[place].mark or 0) < newest.position)
    return tuple(f"{sink} {account}".rstrip() for sink, account in lacking)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputLag:
    """The lag of every topic, journal, table and stream that was read.

    `troubles`, `journals_unknown`, `tables_unknown`, `streams_unknown`: why Kafka, journals, tables of other pipelines or Kinesis
    do not tell.
    """

    topics: tuple[TopicLag, ...] = ()
    journals: tuple[JournalLag, ...] = ()
    troubles: tuple[str, ...] = ()
    journals_unknown: str | None = None
    tables: tuple[TableLag, ...] = ()
    tables_unknown: tuple[str, ...] = ()
    streams: tuple[StreamLag, ...] = ()
    streams_unknown: tuple[str, ...] = ()

    @property
    def unknown(self) -> tuple[str, ...]:
        """Return every reason for which the lag of a source is not known."""
        return (*self.troubles, *filter(None, (self.journals_unknown,)), *self.tables_unknown, *self.streams_unknown)


def input_lag(
    settings: DeliverySettings, ledger: Ledger, *, now_ms: Callable[[], int], summary: Summary | None = None
) -> InputLag:
    """Return the lag behind what the newest decision read. Costs some requests to the brokers for each topic.

    With `summary` the newest decision is the one that it names, not the ledger's.
    """
    tail = ledger.tail()
    summary = summary or (Summary() if tail is None else tail.summary)
    reads = known_topics(ledger, summary)
    topics, troubles = list[TopicLag](), list[str]()
    for name, source in kafka_sources(settings):
        try:
            require_brokers(name, source)
            brokers = brokers_of(name, source)
            topics.extend(lag_of(read, brokers=brokers, now_ms=now_ms()) for read in reads if read.source == name)
        except PenstockError as error:
            troubles.append(scrub(str(error)))
    try:
        journals, unknown = tuple(_journal_lag(settings, ledger, summary, now_ms=now_ms())), None
    except (PenstockError, OSError) as error:
        journals, unknown = (), scrub(str(error))
    tables, untold = _table_lags(settings, ledger, summary, now_ms=now_ms())
    streams, unread = stream_lags(settings, _ends(ledger, summary))
    return InputLag(
        topics=tuple(topics),
        journals=journals,
        troubles=tuple(troubles),
        journals_unknown=unknown,
        tables=tables,
        tables_unknown=untold,
        streams=streams,
        streams_unknown=unread,
    )


def _table_lags(
    settings: DeliverySettings, ledger: Ledger, summary: Summary, *, now_ms: int
) -> tuple[tuple[TableLag, ...], tuple[str, ...]]:
    """Return the lag of each table of another pipeline behind the newest decision, and why some do not tell theirs."""
    chained, found, untold = chained_sources(settings), list[TableLag](), list[str]()
    if not chained:
        return (), ()
    from penstock.run.chain.lag import lag_of_table

    offsets = _ends(ledger, summary)
    for name, source in chained.items():
        try:
            found.append(lag_of_table(name, source, offsets.get(name), now_ms=now_ms))
        except (PenstockError, OSError) as error:
            untold.append(scrub(f"{name}: {error}"))
    return tuple(found), tuple(untold)


def _ends(ledger: Ledger, summary: Summary) -> Mapping[SourceName, str | None]:
    """Return up to where the newest decision read each source, empty if there is none."""
    decided = continued_decision(ledger, summary)
    return {} if decided is None else {each.source: each.end for each in decided[0].batch.offsets}


def _journal_lag(settings: DeliverySettings, ledger: Ledger, summary: Summary, *, now_ms: int) -> Iterator[JournalLag]:
    """Yield the lag of the journals behind the newest decision. Raises PenstockError, OSError."""
    journals = journals_of(settings)
    if journals is not None:
        yield from journals.lag(_ends(ledger, summary), now_ms=now_ms)


def input_findings(settings: DeliverySettings, ledger: Ledger, *, now_ms: Callable[[], int]) -> Iterator[Finding]:
    """Yield for `penstock check` whether Kafka answers, still has what is to be read next, and for how long."""
    found = input_lag(settings, ledger, now_ms=now_ms)
    for message in found.troubles:
        yield Finding(subject="kafka", ok=False, message=message)
    if found.journals_unknown is not None:
        yield Finding(subject="journal", ok=False, message=found.journals_unknown)
    for message in found.tables_unknown:
        yield Finding(subject="table of another pipeline", ok=False, message=message)
    accepting = {name for name, source in kafka_sources(settings) if source.on_gap == "accept"}
    for lag in found.topics:
        subject = DELIVERED if lag.gaps else f"records of {lag.source}"
        fine = lag.source in accepting if lag.gaps else not lag.is_near_loss
        yield Finding(subject=subject, ok=fine, message=describe_lag(lag), warns=lag.gaps > 0)
    for journal in found.journals:
        yield Finding(subject=f"events of {journal.source}", ok=journal.lost == 0, message=describe_journal_lag(journal))
    for table in found.tables:
        fine = table.forgotten == 0 and not table.is_near_loss
        yield Finding(subject=f"rows for {table.source}", ok=fine, message=describe_table_lag(table))
    yield from stream_findings(found.streams, found.streams_unknown, delivered=DELIVERED)
    if not found.troubles and not found.topics:
        yield from _unread(settings)


def _unread(settings: DeliverySettings) -> Iterator[Finding]:
    """Yield, for a pipeline that has read nothing yet, whether the topics exist that its sources name."""
    for name, source in kafka_sources(settings):
        wanted = topics_named(source)
        try:
            missing = sorted(set(wanted) - brokers_of(name, source).topics(wanted).keys())
        except PenstockError as error:
            yield Finding(subject="kafka", ok=False, message=str(error))
            continue
        message = (
            f"has no topic {', '.join(missing)}: create it, or correct the source {name}"
            if missing
            else "answers; nothing was read yet"
        )
        yield Finding(subject="kafka", ok=not missing, message=message)


def topics_named(source: Source) -> list[str]:
    """Return the topics that a source's settings name; none where they give a pattern or partitions."""
    given = {option.lower(): value for option, value in source.options.items()}
    return [*(names_in(given.get("subscribe")) or ())]


LOOK_S = 10.0
"""Seconds to wait for all places together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What a place shows: its marker, or why there is none to read, and its directory if that is gone."""

    mark: HighWaterMark | PenstockError | None
    missing: str | None = None


_Answers = dict[Place, _Answer]


def places_of(plan: DeliveryPlan, ledger: Ledger, *, within_s: float = LOOK_S) -> tuple[PlaceState, ...]:
    """Return every account of every sink that has a marker. A place that fails or does not answer in time is `unreachable`.

    Loads the sinks, and Arrow with them, unless none has a place. Raises what the ledger raises.
    """
    if all(isinstance(sink, Memory | Console) for sink in plan.settings.sinks.values()):
        return ()
    sinks, not_made = _with_markers(plan)
    if not sinks:
        return tuple(not_made)
    rows = published_rows(ledger, sinks)
    found = _marks(sinks, plan.pipeline, within_s=within_s)
    places = [(sink.name, account) for sink in sinks for account in sink.accounts]
    states = (
        _state_by(place, found[place], ledger, rows.get(place, 0)) if place in found else _silent(place, within_s)
        for place in places
    )
    return (*states, *not_made)


def _with_markers(plan: DeliveryPlan) -> tuple[Sequence[Sink], Sequence[PlaceState]]:
    """Return the sinks that have markers, and the states of those whose package is not installed on this machine."""
    makers: dict[SinkName, Callable[[], Sink | None]] = {
        name: partial(sink_of, name, plan) for name in map(SinkName, plan.settings.sinks)
    }
    makers[QUARANTINE] = partial(quarantine_of, plan)
    sinks, not_made = list[Sink](), list[PlaceState]()
    for name, make in makers.items():
        try:
            sink = make()
        except PenstockError as error:
            not_made.append(PlaceState(sink=name, account=None, state="unreachable", trouble=scrub(str(error))))
        else:
            sinks += [] if sink is None else [sink]
    return [sink for sink in sinks if isinstance(sink, HasMarker)], not_made


def _marks(sinks: Sequence[Sink], pipeline: PipelineName, *, within_s: float) -> _Answers:
    """Return the markers that arrive in time. A sink that hangs keeps a thread, which ends with the process."""
    found = _Answers()
    threads = [Thread(target=_look, args=(sink, pipeline, found), daemon=True) for sink in sinks]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + within_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return found.copy()


def _look(sink: Sink, pipeline: PipelineName, found: _Answers) -> None:
    assert isinstance(sink, HasMarker)
    try:
        for account in sink.accounts:
            try:
                mark = sink.high_water_mark(account, pipeline=pipeline)
                missing = None if mark is None else missing_directory(sink, account)
                found[sink.name, account] = _Answer(mark=mark, missing=missing)
            except PenstockError as error:
                found[sink.name, account] = _Answer(mark=error)
    finally:
        sink.close()


def _silent(place: Place, within_s: float) -> PlaceState:
    sink, account = place
    return PlaceState(sink=sink, account=account, state="unreachable", trouble=f"No answer within {within_s:g} seconds.")


def _state_by(place: Place, answer: _Answer, ledger: Ledger, rows: int) -> PlaceState:
    """Return the state of a place in which `rows` rows were published; `lost` with a mark if only its directory is gone."""
    state = _state(place, answer.mark, ledger, rows)
    if answer.missing is None or state.state != "own" or not isinstance(answer.mark, HighWaterMark):
        return state
    gone = rows_gone(ledger, place, directory=answer.missing, mark=answer.mark, certain=rows)
    return state if gone is None else replace(state, state="lost", trouble=gone.message)


def _state(place: Place, mark: HighWaterMark | PenstockError | None, ledger: Ledger, rows: int) -> PlaceState:
    """Return the state of a place in which `rows` rows were published."""
    sink, account = place
    if isinstance(mark, Refused):  # its rows are gone, and the marker is there
        return PlaceState(sink=sink, account=account, state="lost", trouble=scrub(mark.message))
    if isinstance(mark, PenstockError):
        return PlaceState(sink=sink, account=account, state="unreachable", trouble=scrub(str(mark)), lacks=mark.lacks)
    if mark is None:
        try:
            require_marker_not_older(None if rows else Position(0), rows, None, sink=sink, account=account)
        except Refused as lost:
            return PlaceState(sink=sink, account=account, state="lost", trouble=lost.message)
        return PlaceState(sink=sink, account=account, state="empty")
    mismatch = ledger_mismatch(mark, ledger, sink=sink, account=account)
    if mismatch is None:
        return PlaceState(sink=sink, account=account, state="own", mark=mark.position)
    return PlaceState(sink=sink, account=account, state=mismatch.state, mark=mark.position, trouble=mismatch.error.message)
