"""Makes a lost checkpoint again from the ledger: what the newest decision says of each source, and what files it must know."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.checkpoint.rebuilding import FilesByEnd, Rebuilt, rebuilt
from penstock.checkpoint.source_log import fingerprint, log_offset
from penstock.commit.publication import continued_decision, decision_in
from penstock.core.model import Adopted, Decided, Decision, Entry, SourceName
from penstock.core.topics import InputFile
from penstock.errors import Refused, SourcesChanged
from penstock.protocols import Ledger
from penstock.run.assembly import ledger_of
from penstock.run.operations import newest_decision
from penstock.spec.pipeline import PipelineSettings
from penstock.spec.source import FILE_FORMATS

if TYPE_CHECKING:
    from penstock.run.pipeline import Pipeline

_FILES = frozenset(name.lower() for name in FILE_FORMATS)
_KEPT_IN_OFFSETS = frozenset({"kafka", "journal", "rate", "rate-micro-batch"})
"""Formats of which a checkpoint holds nothing that a start needs beside the offsets; of `rate` the ledger has a fingerprint."""

_INTERVAL = "spark.sql.streaming.fileSource.log.compactInterval"
_ELSE = (
    "Put the checkpoint back from a copy (`penstock checkpoint copy`), or read what `penstock adopt` says about starting with a "
    "new one."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LostCheckpoint:
    """A checkpoint as the ledger makes it again, behind the decision `newest`. `files` counts input files by source."""

    made: Rebuilt
    newest: Decision
    files: Mapping[SourceName, int]


def lost_checkpoint(pipeline: "Pipeline") -> LostCheckpoint:
    """Return the pipeline's checkpoint, from the ledger alone. Starts Spark only to read the plan of a transform.

    Raises Refused, with what the ledger lacks, and SourcesChanged.
    """
    settings, plan = pipeline.settings, pipeline.plan
    with closing(ledger_of(plan)) as ledger:
        entry = _newest(ledger)
        decision = decision_in(entry)
        order = _order(pipeline, decision)
        files = {
            name: _files_of(ledger, name, place=place)
            for place, name in enumerate(dict.fromkeys(order))
            if _require_known(settings, name) in _FILES
        }
    made = rebuilt(
        decision.batch,
        order=order,
        decided_at_ms=entry.written_at_ms,
        files=files,
        compact_interval=int(settings.spark.conf.get(_INTERVAL, "10")),
    )
    counts = {name: sum(map(len, by_end.values())) for name, by_end in files.items()}
    return LostCheckpoint(made=made, newest=decision, files=counts)


def _newest(ledger: Ledger) -> Entry:
    """Return the newest decision. Raises Refused if none says where the query goes on."""
    tail = ledger.tail()
    entry = None if tail is None else newest_decision(ledger, tail)
    if tail is None or entry is None or tail.summary.query_id is None:
        raise Refused(
            f"The ledger at {ledger.location} expects a new checkpoint, so there is none to make again.",
            remedy="Start the pipeline: Spark makes one.",
        )
    found = continued_decision(ledger, tail.summary)
    if found is None:
        raise Refused(
            f"Another checkpoint was adopted behind batch {decision_in(entry).batch.batch_id}, and no batch of it is decided "
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


def _order(pipeline: "Pipeline", decision: Decision) -> Sequence[SourceName]:
    """Return the sources in the order of the plan, one name for each place. Raises Refused for a query that keeps state."""
    decided = [each.source for each in decision.batch.offsets]
    settings = pipeline.settings
    order = _sources_of_plan(pipeline) if settings.transform is not None else [SourceName(name) for name in settings.sources]
    if list(dict.fromkeys(order)) != decided:
        raise SourcesChanged(
            f"The query reads {', '.join(dict.fromkeys(order))}, but batch {decision.batch.batch_id} was decided with "
            f"{', '.join(decided)}.",
            remedy="Put the sources back as they were, in number, names and order, and run the command again.",
        )
    return order


def _sources_of_plan(pipeline: "Pipeline") -> Sequence[SourceName]:
    from penstock.transform.guarantee import stateful_operators
    from penstock.transform.plan import plan_of, source_order

    frame, sources = pipeline.frame(pipeline.session())
    plan = plan_of(frame)
    stateful = [operator.name for operator in stateful_operators(plan)]
    if stateful:
        raise Refused(
            f"The query keeps state ({', '.join(stateful)}), which the ledger does not hold.",
            remedy=_ELSE,
        )
    return source_order(plan, tuple(sources))


def _require_known(settings: PipelineSettings, name: SourceName) -> str:
    """Return the source's format in lower case. Raises Refused if its offsets are not all that a checkpoint holds of it."""
    kind = (settings.sources[name.partition("#")[0]].format or "").lower()
    if kind not in _FILES | _KEPT_IN_OFFSETS:
        raise Refused(
            f"Source {name} has format {kind or 'none'}: what it keeps in a checkpoint beside its offsets is not known.",
            remedy=_ELSE,
        )
    return kind


def _files_of(ledger: Ledger, name: SourceName, *, place: int) -> FilesByEnd:
    """Return what every batch read of a file source, the `place`-th of the query. Raises Refused if the ledger lacks a list."""
    found = dict[int, tuple[InputFile, ...]]()
    begins: str | None = None
    for decision in _decisions(ledger):
        each = decision.batch.offsets[place]  # by its place: earlier runs may have had another name for it
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
        found[end] = listed
    if begins is not None:
        raise Refused(
            f"The ledger has forgotten which files the first batches read of source {name}: it keeps 10,000 entries.",
            remedy=_ELSE,
        )
    return found


def _decisions(ledger: Ledger) -> Iterator[Decision]:
    """Yield the decisions of the query that goes on, newest first."""
    for entry in ledger.newest_first():
        if isinstance(entry.body, Adopted) and not entry.body.gaps:
            return
        if isinstance(entry.body, Decided):
            yield entry.body.decision
