"""Savepoints of a pipeline: its checkpoint at a committed batch with the place of that batch in the ledger, and what can be done
with one.
"""

import getpass
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.blob.url import is_blob
from penstock.checkpoint import savepoint as saved
from penstock.checkpoint.copying import UNFINISHED, copy_checkpoint, is_empty
from penstock.checkpoint.entries import parse_offsets
from penstock.checkpoint.files import Files, open_files, places_below
from penstock.checkpoint.savepoint import LedgerPoint, Savepoint
from penstock.commit.publication import decided_entry
from penstock.commit.rewind import rewound_since
from penstock.core.faults import FaultPoint
from penstock.core.model import Adopted, BatchId, Entry, QueryId, SinkName
from penstock.errors import (
    BatchForgotten,
    CheckpointMissing,
    CheckpointReplaced,
    Failed,
    InputLost,
    LedgerMismatch,
    Refused,
    SourcesChanged,
    Usage,
)
from penstock.protocols import Ledger
from penstock.run.assembly import DeliveryPlan, assemble, checkpoint_of, ledger_of
from penstock.run.operations import coordinating, require_own_places
from penstock.run.rewind import CheckpointWay, Rewind, rewind
from penstock.run.runtime import opened_by_this_process, prepare
from penstock.source.journal.journals import Needed, journals_of
from penstock.support.filesystem_errors import translate_os_errors
from penstock.support.private_files import create_durably, make_private_directory

if TYPE_CHECKING:
    from penstock.run.pipeline_acts import PipelineActs
    from penstock.spec.pipeline import PipelineSettings

_ADOPT = FaultPoint("savepoint.adopt", "The ledger of a fork records from where it goes on.")
_HOLD = FaultPoint("savepoint.hold", "A fork is registered as a reader of its journals.")
_FORK = FaultPoint("savepoint.fork", "A savepoint's checkpoint is copied for a fork.")
_FORK_METADATA = FaultPoint("savepoint.fork_metadata", "The checkpoint of a fork gets a query id of its own.")


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedSavepoint:
    """A savepoint that was made. `new_files` and `new_bytes` are what no earlier savepoint had."""

    savepoint: Savepoint
    location: str
    new_files: int
    new_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SavepointCheck:
    """Whether a savepoint can be gone on from. `problems` is empty if it can."""

    savepoint: Savepoint
    problems: tuple[str, ...]
    is_whole: bool
    """Whether its files are what was copied; then the only problem is that it does not belong to the ledger."""

    @property
    def ok(self) -> bool:
        return not self.problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """A second pipeline that goes on from a savepoint: it delivers batches from `next_batch_id` on into its own sinks."""

    pipeline: str
    checkpoint: str
    query_id: QueryId
    next_batch_id: BatchId
    done: bool


def place_of(plan: DeliveryPlan, *, to: str | None, options: Mapping[str, str] | None) -> Files:
    """Return where the pipeline's savepoints are: `<home>/savepoints`, or `to`, a directory or the URL of a store."""
    if to is not None:
        return open_files(to, options=options)
    directory = Path(plan.settings.home, "savepoints")
    return open_files(directory)


def create(plan: DeliveryPlan, name: str, place: Files) -> CreatedSavepoint:
    """Copy the checkpoint as of its newest committed batch into savepoint `name`. The pipeline may run meanwhile.

    What was interrupted is begun again. Raises Refused, CheckpointMissing, CheckpointReplaced, CheckpointDamaged, Retryable.
    """
    saved.require_name(name)
    checkpoint = checkpoint_of(plan)
    if not checkpoint.exists():
        raise CheckpointMissing(
            f"There is no checkpoint {checkpoint.location} to make a savepoint of.",
            remedy="Start the pipeline first: the start makes a checkpoint, or says what to do where one was lost.",
        )
    if not is_blob(place.location):
        with translate_os_errors(Failed, f"The directory {place.location} could not be created", then=", then try again."):
            create_durably(Path(place.location), make_private_directory)
    with closing(ledger_of(plan)) as ledger:
        copied = saved.copy_into(place, name, checkpoint.files)
        savepoint = Savepoint(
            name=name,
            point=_point(ledger, copied.batch_id, copied.query_id),
            checkpoint=checkpoint.location,
            created_at_ms=time.time_ns() // 1_000_000,
            files=copied.files,
        )
    saved.seal(place, savepoint)
    location = f"{place.location}/{name}"
    return CreatedSavepoint(savepoint=savepoint, location=location, new_files=copied.new_files, new_bytes=copied.new_bytes)


def _point(ledger: Ledger, batch_id: BatchId, query_id: QueryId) -> LedgerPoint:
    entry = decided_entry(ledger, batch_id)
    if entry is None:
        raise BatchForgotten(
            f"The ledger at {ledger.location} holds no decision of batch {batch_id}, with which the checkpoint ends.",
            remedy="`penstock status` says whether the checkpoint continues the ledger.",
        )
    if entry.summary.query_id != query_id:
        raise CheckpointReplaced(
            f"The checkpoint is of query {query_id}, but the ledger decided batch {batch_id} for query {entry.summary.query_id}.",
            remedy="Put the right checkpoint back.",
        )
    return LedgerPoint(
        pipeline=entry.pipeline,
        ledger_id=entry.summary.ledger_id,
        position=entry.position,
        nonce=entry.nonce,
        query_id=query_id,
        batch_id=batch_id,
        totals=entry.summary.totals,
    )


def check(plan: DeliveryPlan, name: str, place: Files) -> SavepointCheck:
    """Read every file of a savepoint and compare it with its checksum, and its place with the ledger."""
    savepoint = saved.the(place, name)
    problems = list(saved.problems(place, savepoint))
    with closing(ledger_of(plan)) as ledger:
        wrong = foreign(savepoint, ledger)
    return SavepointCheck(savepoint=savepoint, problems=tuple([*problems, wrong] if wrong else problems), is_whole=not problems)


def foreign(savepoint: Savepoint, ledger: Ledger) -> str | None:
    """Return why the savepoint does not belong to the ledger, None if nothing says so."""
    tail, point = ledger.tail(), savepoint.point
    if tail is None or (tail.summary.ledger_id, tail.pipeline) != (point.ledger_id, point.pipeline):
        return f"it was made of pipeline {point.pipeline!r} with another ledger than the one at {ledger.location}"
    entry = ledger.read(point.position)
    if (entry is None and tail.position < point.position) or (entry is not None and entry.nonce != point.nonce):
        return f"the ledger at {ledger.location} has another entry, or none, at position {point.position}"
    if entry is not None and rewound_since(ledger, point.position, tail=tail) is not None:
        return f"batch {point.batch_id} was taken back since"
    return None


def restore(plan: DeliveryPlan, name: str, place: Files, *, reason: str, yes: bool, keep: Sequence[SinkName] = ()) -> Rewind:
    """Take back every batch after savepoint `name` from sinks and ledger, and put its checkpoint in place; without `yes` say so.

    `keep`: sinks that are gone since an earlier call was interrupted. The checkpoint may be lost. Killed at any moment, the same
    call finishes it. Raises what `rewind` raises, LedgerMismatch for a savepoint that does not belong to the ledger,
    CheckpointDamaged.
    """
    savepoint = saved.the(place, name)
    saved.require_whole(place, savepoint)
    with closing(ledger_of(plan)) as ledger:
        wrong = foreign(savepoint, ledger)
    if wrong is not None:
        raise LedgerMismatch(
            f"Savepoint {name!r} cannot be restored: {wrong}.",
            remedy="If another ledger is in the place of the right one, put that back. Else take another savepoint: "
            "`penstock savepoint list` names them.",
        )
    way = CheckpointWay(
        verb="restore",
        request={"savepoint": name},
        plan=lambda files, _: saved.plan_restore(files, place, savepoint),
        replaces=True,
    )
    return rewind(plan, to_batch=savepoint.point.batch_id, keep=keep, reason=reason or f"savepoint {name}", yes=yes, way=way)


def remove(name: str, place: Files, *, yes: bool) -> int:
    """Delete a savepoint or the remains of one, and return how many files; without `yes` only count them. Raises Failed."""
    saved.require_name(name)
    places = list(places_below(place, name))
    if not places:
        saved.remove_directories(place, name)
        saved.the(place, name)
    return saved.delete(place, name) if yes else len(places)


def fork(pipeline: "PipelineActs", name: str, other: "PipelineActs", place: Files, *, yes: bool) -> Fork:
    """Let `other` go on from the savepoint, with a ledger, a checkpoint and sinks of its own. Without `yes` only check.

    Its ledger records the savepoint first; then the checkpoint is copied. Killed at any point, the same command goes on. Raises
    Refused, SourcesChanged, CheckpointDamaged, Usage.
    """
    savepoint = saved.the(place, name)
    _require_second(pipeline.settings, other.settings)
    saved.require_whole(place, savepoint)
    plan, target = other.plan, checkpoint_of(other.plan)
    query_id = _forked_id(savepoint, other.settings)
    next_batch_id = BatchId(savepoint.point.batch_id + 1)
    forked = Fork(pipeline=plan.pipeline, checkpoint=target.location, query_id=query_id, next_batch_id=next_batch_id, done=yes)
    with closing(ledger_of(plan)) as ledger:
        tail = ledger.tail()
    is_adopted = _require_new(tail, query_id, ledger_location=ledger.location)
    _require_free(target.files, (query_id, savepoint.point.query_id) if is_adopted else ())
    needed = _events_needed(plan, saved.Below(place, f"{name}/checkpoint"), savepoint.point.batch_id)
    if not yes:
        with closing(assemble(plan)) as runtime:
            require_own_places(runtime)  # else the act would be announced that `yes` refuses
        return forked
    with _HOLD.around():
        _hold_events(plan, needed)
    if not is_adopted:
        with _ADOPT.around():
            _adopt(plan, forked, reason=f"forked from savepoint {name} of pipeline {savepoint.point.pipeline}")
    if target.files.read("metadata") in {None, UNFINISHED}:
        with _FORK.around():
            copy_checkpoint(saved.Below(place, f"{name}/checkpoint"), target.files)
    with _FORK_METADATA.around():
        target.files.write("metadata", f'{{"id":"{query_id}"}}'.encode())
    return forked


def _events_needed(plan: DeliveryPlan, checkpoint: Files, batch_id: BatchId) -> Needed:
    """Return the events that the fork reads first, by journal. Raises InputLost if some are gone."""
    journals = journals_of(plan.settings)
    if journals is None:
        return {}
    entry = parse_offsets(checkpoint.read(f"offsets/{batch_id}") or b"")
    needed = journals.behind(entry.offsets.values())
    gone = list(journals.gone(needed))
    if gone:
        raise InputLost(
            f"Pipeline {plan.pipeline!r} cannot go on behind batch {batch_id}: gone are {'; '.join(gone)}.",
            remedy="Fork a newer savepoint.",
        )
    return needed


def _hold_events(plan: DeliveryPlan, needed: Needed) -> None:
    """Register the fork as a reader of its journals, and look once more: what it needs stays from here on."""
    journals = journals_of(plan.settings)
    if journals is not None:
        journals.register(needed)
        gone = list(journals.gone(needed))
        if gone:
            raise InputLost(
                f"Events that pipeline {plan.pipeline!r} needs were removed in this moment: {'; '.join(gone)}.",
                remedy="Fork a newer savepoint.",
            )


def _require_second(settings: "PipelineSettings", other: "PipelineSettings") -> None:
    if settings.pipeline == other.pipeline:
        raise Usage(
            f"Both files are of pipeline {other.pipeline!r}: a fork is a second pipeline.",
            remedy="Give it a name, a home and sinks of its own.",
        )
    before, after = (
        {name: (one.format, one.path, one.table) for name, one in each.sources.items()} for each in (settings, other)
    )
    if before != after:
        raise SourcesChanged(
            f"Pipeline {other.pipeline!r} has other sources than {settings.pipeline!r}, whose savepoint it would go on from.",
            remedy="Give it the same sources: name, format, path and table. Transform, options and sinks may differ.",
        )


def _forked_id(savepoint: Savepoint, other: "PipelineSettings") -> QueryId:
    """Return the query id of the fork: the same at every try, so that an interrupted one is recognised."""
    origin = f"penstock:{savepoint.point.ledger_id}:{savepoint.point.position}:{other.pipeline}"
    return QueryId(str(uuid.uuid5(uuid.NAMESPACE_URL, origin)))


def _require_new(tail: Entry | None, query_id: QueryId, *, ledger_location: str) -> bool:
    """Return whether this fork was recorded before. Raises LedgerMismatch if the ledger holds anything else."""
    if tail is None:
        return False
    if tail.summary.decided_at is None and tail.summary.query_id in {None, query_id}:
        return tail.summary.query_id == query_id
    raise LedgerMismatch(
        f"The ledger at {ledger_location} holds batches already, but a fork begins with an empty one.",
        remedy="Give the second pipeline a home of its own.",
    )


def _require_free(files: Files, own: tuple[str, ...]) -> None:
    from penstock.checkpoint.entries import Unreadable, parse_query_id

    metadata = files.read("metadata")
    if metadata == UNFINISHED or (metadata is None and is_empty(files)):
        return
    try:
        if metadata is not None and parse_query_id(metadata) in own:
            return
    except Unreadable:
        pass
    raise Refused(
        f"The checkpoint {files.location} is not empty, and a fork begins with an empty one.",
        remedy="Give the second pipeline a home of its own.",
    )


def _adopt(plan: DeliveryPlan, forked: Fork, *, reason: str) -> None:
    with closing(assemble(plan)) as runtime, coordinating(runtime) as coordinator:
        prepare(runtime, schema=None)
        coordinator.open(opened_by_this_process(runtime))
        coordinator.adopt(
            Adopted(query_id=forked.query_id, next_batch_id=forked.next_batch_id, reason=reason, operator=getpass.getuser())
        )
