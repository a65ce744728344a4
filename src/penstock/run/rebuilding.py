"""Makes a lost checkpoint again from the ledger: what the newest decision says of each source, and what files it must know."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from penstock.checkpoint.act import Act, newest_entries
from penstock.checkpoint.acting import Performed
from penstock.checkpoint.rebuilding import FilesByEnd, plan_rebuild, rebuilt
from penstock.checkpoint.source_log import fingerprint, log_offset
from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.checkpoint.verification import verify_files
from penstock.commit.publication import continued_decision, decision_in, standing
from penstock.core.model import Adopted, Batch, BatchId, Decided, Decision, Entry, SourceName
from penstock.core.topics import InputFile
from penstock.errors import CheckpointDamaged, Refused, SourcesChanged
from penstock.protocols import Ledger
from penstock.run.checkpoint_acts import perform_act
from penstock.run.operations import newest_decision
from penstock.run.runtime import Runtime
from penstock.spec.pipeline import PipelineSettings
from penstock.spec.source import FILE_FORMATS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.run.pipeline import Pipeline

_FILES = frozenset(name.lower() for name in FILE_FORMATS)
_KEPT_IN_OFFSETS = frozenset({"kafka", "journal", "penstock", "kinesis", "rate", "rate-micro-batch"})
"""Formats of which a checkpoint holds nothing that a start needs beside the offsets; of `rate` the ledger has a fingerprint."""

_INTERVAL = "spark.sql.streaming.fileSource.log.compactInterval"
_ELSE = "Put the checkpoint back from a copy, or read what `penstock adopt` says about starting with a new one."


def rebuild_checkpoint(
    pipeline: "Pipeline",
    *,
    session: "Callable[[], SparkSession] | None" = None,
    to: str | None = None,
    options: Mapping[str, str] | None = None,
    yes: bool,
) -> Performed:
    """Make the lost checkpoint again from the ledger. With `yes` a driver of another machine is fenced first.

    Of sources of which the ledger knows all that a checkpoint holds. A query that keeps state needs a savepoint beside it (`to`
    and `options`: see `create_savepoint`), and Spark computes the batches behind it once more, without delivering them. `session`
    starts Spark, and is called only for a transform, whose plan has to be read. Raises Refused, with what is missing,
    SourcesChanged, InputChanged, CheckpointDamaged.
    """
    settings = pipeline.settings
    order: Sequence[SourceName] = [SourceName(name) for name in settings.sources]
    if settings.transform is not None:
        perform_act(pipeline.plan, "rebuild", {}, _only_if_lost, yes=False)  # before Java is looked for
        spark = (session or pipeline.session)()
        from penstock.run.state_rebuilding import StateRebuilding

        order, with_state = StateRebuilding.of(pipeline, spark, to=to, options=options)
        if with_state is not None:
            return perform_act(pipeline.plan, "rebuild", {}, with_state.shown, doing=with_state.done, yes=yes)
    return perform_act(pipeline.plan, "rebuild", {}, partial(_rebuild, settings=settings, order=order), yes=yes)


def _rebuild(runtime: Runtime, *, settings: PipelineSettings, order: Sequence[SourceName]) -> Act:
    entry = lost_at(runtime)
    batch, named = decision_in(entry).batch, settings.named_sources
    order = order_then(order, batch, named=named)
    files = lists_of(runtime.ledger, settings, order)
    made = rebuilt(
        batch,
        order=order,
        decided_at_ms=entry.written_at_ms,
        files=files,
        compact_interval=compact_interval(settings),
        named=named,
    )
    return replace(plan_rebuild(runtime.checkpoint.files, made), notes=tuple(_notes(batch, files)))


def _only_if_lost(runtime: Runtime) -> Act:
    """Return an act that does nothing. Raises as `lost_at`; not called where an interrupted rebuilding is to be finished."""
    lost_at(runtime)
    newest = newest_entries(runtime.checkpoint.files)
    place = runtime.checkpoint.location
    return Act(verb="rebuild", request={}, location=place, sentence="", steps=(), newest=newest, newest_after=newest)


def lost_at(runtime: Runtime) -> Entry:
    """Return the decision behind which a lost checkpoint went on. Raises Refused if it is not lost, or nothing tells."""
    entry = _newest(runtime.ledger)
    _require_lost(runtime.checkpoint, decision_in(entry).batch)
    return entry


def order_then(order: Sequence[SourceName], batch: Batch, *, named: bool) -> Sequence[SourceName]:
    """Return the sources in the order of the plan, one name for each place, as Spark had them. Raises SourcesChanged."""
    decided = [each.source for each in batch.offsets]
    if named:
        order = [name for name in order if name in decided]  # of others Spark knows nothing yet
    if sorted(order) != sorted(decided) if named else list(dict.fromkeys(order)) != decided:
        raise SourcesChanged(
            f"The query reads {', '.join(dict.fromkeys(order))}, but batch {batch.batch_id} was decided with "
            f"{', '.join(each.source for each in batch.offsets)}.",
            remedy="Put the sources back as they were, in number, names and order, and run the command again.",
        )
    return order


def lists_of(
    ledger: Ledger, settings: PipelineSettings, order: Sequence[SourceName], *, after: BatchId | None = None
) -> Mapping[SourceName, FilesByEnd]:
    """Return what the decided batches read of each file source; with `after`, only those behind that batch.

    Raises Refused for a source of another format of which the ledger does not know all, and for a list that it lacks.
    """
    named = settings.named_sources
    return {
        name: _files_of(ledger, name, place=None if named else place, after=after)
        for place, name in enumerate(dict.fromkeys(order))
        if _require_known(settings, name) in _FILES
    }


def compact_interval(settings: PipelineSettings) -> int:
    """Return how many entries Spark's log of files has between two compacted ones."""
    return int(settings.spark.conf.get(_INTERVAL, "10"))


def _notes(batch: Batch, files: Mapping[SourceName, FilesByEnd]) -> Iterator[str]:
    for each in batch.offsets:
        read = sum(map(len, files.get(each.source, {}).values()))
        yield f"{each.source}: {f'{read} files are read' if each.source in files else f'read up to {each.end}'}."


def _require_lost(checkpoint: SparkCheckpoint, batch: Batch) -> None:
    """Raise Refused for a checkpoint that goes on where the ledger expects it, or behind that."""
    with suppress(CheckpointDamaged):
        if checkpoint.query_id() != batch.query_id:
            return
        committed = checkpoint.latest_commit_id()
        if verify_files(checkpoint.files).ok and committed is not None and committed >= batch.batch_id - 1:
            raise Refused(
                f"The checkpoint {checkpoint.location} is not lost: it is whole, of the query that the ledger continues, "
                f"and ends with batch {committed}, where the newest decided one is {batch.batch_id}.",
                remedy="Nothing is to be made again: start the pipeline; `penstock status` says whether it can.",
            )


def _newest(ledger: Ledger) -> Entry:
    """Return the newest decision. Raises Refused if none says where the query goes on."""
    tail = ledger.tail()
    entry = None if tail is None else newest_decision(ledger, tail)
    if tail is None:
        raise Refused(
            f"The ledger at {ledger.location} is empty, so it cannot tell what the checkpoint held.",
            remedy="Put the ledger back if it is lost, moved or not mounted. If nothing was delivered yet, start the pipeline: "
            "Spark makes a new checkpoint where there is none.",
        )
    if entry is None or tail.summary.query_id is None:
        raise Refused(
            f"The ledger at {ledger.location} expects a new checkpoint, so there is none to make again.",
            remedy="Start the pipeline: Spark makes one.",
        )
    found = continued_decision(ledger, tail.summary)
    if found is None:
        raise Refused(
            f"Another checkpoint was adopted after batch {decision_in(entry).batch.batch_id}, and no batch of it is decided "
            "yet: the ledger does not know what it had read.",
            remedy=_ELSE,
        )
    if found[1]:
        topics = ", ".join(sorted(topic for _, topic in found[1]))
        raise Refused(
            f"Topic {topics} was moved behind a gap since batch {found[0].batch.batch_id}, and no batch is decided behind it "
            "yet: the ledger does not know where Spark would go on.",
            remedy=_ELSE,
        )
    return entry


def _require_known(settings: PipelineSettings, name: SourceName) -> str:
    """Return the source's format in lower case. Raises Refused if its offsets are not all that a checkpoint holds of it."""
    kind = (settings.sources[name.partition("#")[0]].format or "").lower()
    if kind not in _FILES | _KEPT_IN_OFFSETS:
        raise Refused(
            f"Source {name} has format {kind or 'none'}: what it keeps in a checkpoint beside its offsets is not known.",
            remedy=_ELSE,
        )
    return kind


def _files_of(ledger: Ledger, name: SourceName, *, place: int | None, after: BatchId | None) -> FilesByEnd:
    """Return what every batch behind `after` read of a file source, the `place`-th of the query; None if its name tells it.

    Raises Refused if the ledger lacks a list.
    """
    found = dict[int, tuple[InputFile, ...]]()
    begins: str | None = None
    for decision in decisions_of(ledger):
        if after is not None and decision.batch.batch_id <= after:
            return found
        ranges = decision.batch.offsets  # by its place: earlier runs may have had another name for it
        each = next((one for one in ranges if one.source == name), None) if place is None else ranges[place]
        if each is None:  # it was added later
            continue
        begins, end = each.start, log_offset(each.end)
        if each.end == each.start or end is None:
            continue
        listed = next((read.files for read in decision.evidence.files if read.source == each.source), ())
        if fingerprint(listed) != each.content:
            raise Refused(
                f"The ledger does not list the files that batch {decision.batch.batch_id} read of source {name}: it was decided "
                "by an older Penstock, or read more than 1,000 files.",
                remedy=_ELSE,
            )
        found |= _by_entry(listed, after=log_offset(each.start), end=end)
    if begins is not None:
        raise Refused(
            f"The ledger has forgotten which files the first batches read of source {name}, or another program delivered these "
            "batches before an adoption. It keeps 10,000 entries.",
            remedy=_ELSE,
        )
    return found


def _by_entry(files: tuple[InputFile, ...], *, after: int | None, end: int) -> dict[int, tuple[InputFile, ...]]:
    """Return the files of a batch by the entries that it read. Each has one at least, and which has more makes no difference.

    More than one is read by the batch of a start behind a stop that came between an entry of Spark's log of files and the plan.
    """
    first = 0 if after is None else after + 1
    alone = {log_id: files[place : place + 1] for place, log_id in enumerate(range(first, end))}
    return {**alone, end: files[len(alone) :]}


def decisions_of(ledger: Ledger) -> Iterator[Decision]:
    """Yield the decisions of the query that goes on, newest first, without those that were taken back."""
    yield from (decision_in(entry) for entry in decided_entries(ledger))


def decided_entries(ledger: Ledger) -> Iterator[Entry]:
    """Yield the entries of these decisions."""
    for entry in standing(ledger.newest_first()):
        if isinstance(entry.body, Adopted) and not entry.body.gaps:
            return
        if isinstance(entry.body, Decided):
            yield entry
