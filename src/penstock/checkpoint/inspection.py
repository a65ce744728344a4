"""Reads a checkpoint into one value, which `penstock checkpoint inspect` shows, with what Spark does at its next start."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from penstock.checkpoint.entries import RESTORE, Anomaly, OffsetsEntry, Severity, Unreadable
from penstock.checkpoint.files import Files, open_files
from penstock.checkpoint.log_reading import Logs, read_logs
from penstock.checkpoint.source_log import SourceLog, kind_of, log_folders, torn_sources
from penstock.checkpoint.state import StateOperator, missing_state_versions, state_operators
from penstock.core.kafka_offset import without_notes
from penstock.core.model import BatchId
from penstock.core.topics import InputFile
from penstock.errors import CheckpointDamaged, PenstockError


class Next(str, Enum):
    """What the next start does."""

    FRESH = "fresh"
    """Nothing is planned yet: batch 0 runs, with whatever input is there."""
    NEW = "new"
    """The newest planned batch is committed: a new batch follows it."""
    REPLAY = "replay"
    """The newest planned batch is not committed: it runs again, with the same number and the same input."""
    SKIP = "skip"
    """Like REPLAY, but earlier batches were not committed either, and Spark silently skips them."""
    REPEAT = "repeat"
    """The commit log is ahead of the offset log: Spark delivers a delivered batch once more, then fails."""
    FAIL = "fail"
    """Spark does not start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStart:
    """What the next start runs first: `batch_id`, None if Spark does not start. The batches in `skipped` never run again."""

    next: Next
    batch_id: BatchId | None
    skipped: tuple[BatchId, ...] = ()

    @property
    def is_replay(self) -> bool:
        """Whether the sink can have received the first batch before, wholly or in part."""
        return self.next in {Next.REPLAY, Next.SKIP, Next.REPEAT}


def next_start(*, planned: frozenset[BatchId], committed: frozenset[BatchId], starts: bool = True) -> NextStart:
    """Predict the next start from the ids in the two logs; `starts` is False if something else keeps Spark from starting."""
    newest = max(planned, default=None)
    newest_commit = max(committed, default=BatchId(-1))
    if not starts or (newest is not None and newest > 0 and newest - 1 not in planned):
        return NextStart(next=Next.FAIL, batch_id=None)
    if newest is None:
        return NextStart(next=Next.FRESH if not committed else Next.REPEAT, batch_id=BatchId(0))
    if newest_commit == newest:
        return NextStart(next=Next.NEW, batch_id=BatchId(newest + 1))
    if newest_commit > newest:
        return NextStart(next=Next.REPEAT, batch_id=newest)
    skipped = tuple(BatchId(batch_id) for batch_id in range(newest_commit + 1, newest))
    return NextStart(next=Next.SKIP if skipped else Next.REPLAY, batch_id=newest, skipped=skipped)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePosition:
    """One source in the newest planned batch; `key` is the name given in the query, or else its position.

    `kind` classifies its offsets: `files`, `kafka`, `kinesis`, `rate-micro-batch`, `count`, `other`, `none`. `files` are the
    input files of that batch, None for other kinds.
    """

    key: str
    kind: str
    start: str | None
    end: str | None
    files: tuple[InputFile, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """Everything a checkpoint contains, without decoding state.

    `offsets` and `commits` are the retained batch ids as (oldest, newest). `commits_version` is of the newest commit; the other
    version, watermark, time and confs are of the newest planned batch. Times are Unix time.
    """

    location: str
    query_id: str | None
    offsets: tuple[BatchId, BatchId] | None
    commits: tuple[BatchId, BatchId] | None
    outlook: NextStart
    sources: tuple[SourcePosition, ...]
    offsets_version: int | None
    commits_version: int | None
    watermark_ms: int | None
    planned_at_ms: int | None
    confs: Mapping[str, str]
    operators: tuple[StateOperator, ...]
    anomalies: tuple[Anomaly, ...]

    @property
    def ok(self) -> bool:
        """Whether every anomaly is harmless."""
        return all(anomaly.severity is Severity.HARMLESS for anomaly in self.anomalies)


def inspect_checkpoint(path: str, *, options: Mapping[str, str] | None = None) -> Inspection:
    """Read all of a checkpoint except the content of its state files; `options` are those of the store.

    Raises Usage (a store that cannot be read), Retryable, Failed.
    """
    return inspect_files(open_files(path, options=options))


def with_loss(found: Inspection, loss: PenstockError, *, place: str) -> Inspection:
    """Return `found` with a `loss` at `place` that leaves no trace in the files, and that somebody else knew of."""
    lost = Anomaly(place=place, severity=Severity.STOPS, message=loss.message, remedy=loss.remedy)
    stopped = next_start(planned=frozenset(), committed=frozenset(), starts=False)
    return replace(found, outlook=stopped, anomalies=(lost, *found.anomalies))


def inspect_files(files: Files) -> Inspection:
    """Inspect a checkpoint whose files are already open. Otherwise like `inspect_checkpoint`."""
    return inspect_logs(files, read_logs(files))


def inspect_logs(files: Files, logs: Logs) -> Inspection:
    """Inspect a checkpoint whose logs are already read. Otherwise like `inspect_checkpoint`."""
    newest = max(logs.planned, default=None)
    sources, source_anomalies = _sources(files, logs, newest)
    operators: tuple[StateOperator, ...] = ()
    state_anomalies = []
    try:
        operators = state_operators(files)
    except Unreadable as error:
        state_anomalies = [Anomaly(place="state", severity=Severity.STOPS, message=f"The state's {error}.", remedy=RESTORE)]
    ahead = next_start(planned=logs.planned, committed=logs.committed)
    entry = logs.offsets.get(newest) if newest is not None else None
    behind = missing_state_versions(  # batch N reads version N, after batch N - 1
        operators, needed_version=ahead.batch_id or 0, shuffle_partitions=None if entry is None else entry.shuffle_partitions
    )
    torn = torn_sources(files, {} if entry is None else entry.offsets)
    anomalies = [*logs.anomalies, *source_anomalies, *torn, *state_anomalies, *behind]
    starts = all(anomaly.severity is not Severity.STOPS for anomaly in anomalies)
    return Inspection(
        location=files.location,
        query_id=logs.query_id,
        offsets=_extent(logs.planned),
        commits=_extent(logs.committed),
        outlook=next_start(planned=logs.planned, committed=logs.committed, starts=starts),
        sources=sources,
        offsets_version=None if entry is None else entry.version,
        commits_version=logs.commits[max(logs.commits)].version if logs.commits else None,
        watermark_ms=None if entry is None else entry.watermark_ms,
        planned_at_ms=None if entry is None else entry.batch_at_ms,
        confs={} if entry is None else entry.confs,
        operators=operators,
        anomalies=tuple(anomalies),
    )


def _extent(ids: frozenset[BatchId]) -> tuple[BatchId, BatchId] | None:
    return (min(ids), max(ids)) if ids else None


def _sources(files: Files, logs: Logs, newest: BatchId | None) -> tuple[tuple[SourcePosition, ...], list[Anomaly]]:
    if newest is None or newest not in logs.offsets:
        return (), []
    before = logs.offsets.get(BatchId(newest - 1))
    anomalies: list[Anomaly] = []
    found = [_source(files, key, before, logs.offsets[newest], anomalies) for key in logs.offsets[newest].by_key()]
    of_files = [position for position in found if position.kind == "files"]
    if of_files and not any(files.names(f"sources/{folder}") for position in of_files for folder in log_folders(position.key)):
        message = "The directory `sources` is empty, expected lists of the input files of every batch."
        anomalies.append(Anomaly(place="sources", severity=Severity.STOPS, message=message, remedy=RESTORE))
    return tuple(found), anomalies


def _source(files: Files, key: str, before: OffsetsEntry | None, entry: OffsetsEntry, anomalies: list[Anomaly]) -> SourcePosition:
    start = before.offsets.get(key) if before is not None else None
    end = entry.offsets[key]
    kind, listed = kind_of(end), None
    if kind == "files" and files.names(f"sources/{key}"):  # a relation used twice has a log under the number of its first use
        try:
            listed = SourceLog(files, f"sources/{key}").between(start, end)
        except CheckpointDamaged as error:
            anomalies.append(Anomaly(place=f"sources/{key}", severity=Severity.STOPS, message=error.message, remedy=RESTORE))
    return SourcePosition(key=key, kind=kind, start=without_notes(start), end=without_notes(end), files=listed)
